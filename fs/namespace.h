/* Names and entries, as look-ups and listings share them. */
#ifndef NRD_FS_NAMESPACE_H
#define NRD_FS_NAMESPACE_H

#include "fs/fs_private.h"

/* "p00000" to "p99999", five digits; NULL when the topic has no such partition. */
NrdPartition *nrd_partition_by_name(NrdTopic *topic, const char *name);

/* What the kernel gets to know about a node with its name. */
void nrd_entry_fill(NrdNode *node, struct fuse_entry_param *ret_entry);

/* Answers with the node, one look-up of which is the kernel's. */
void nrd_reply_entry(fuse_req_t req, NrdNode *node);

/* Whether the topic has this child, and not just one of its name. */
bool nrd_is_child(NrdTopic *parent, NrdTopic *child);

/* children.c: MKDIR and RMDIR in children/. */
void nrd_children_mkdir(NrdNode *dir, fuse_req_t req, const char *name);
void nrd_children_rmdir(NrdNode *dir, fuse_req_t req, const char *name);

#endif
