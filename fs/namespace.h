/* Names and entries, as look-ups and listings share them. */
#ifndef NRD_FS_NAMESPACE_H
#define NRD_FS_NAMESPACE_H

#include "fs/fs_private.h"

/* "p00000" to "p99999", five digits; NULL when the topic has no such partition. */
NrdPartition *nrd_partition_by_name(NrdTopic *topic, const char *name);

/* What the kernel gets to know about a node with its name. */
void nrd_entry_fill(NrdNode *node, struct fuse_entry_param *ret_entry);

#endif
