/* The table of nodes: what the kernel knows by number. Ids rise and are never used again. A node lives while the kernel
 * counts look-ups of it or handles refer to it. Threads: any. */
#ifndef NRD_FS_NODE_H
#define NRD_FS_NODE_H

#include "fs/fs_private.h"

NrdNodes *nrd_nodes_new(NrdFs *fs);

/* Frees the table and every node, whatever the kernel counts; no handle is left. Takes NULL. */
void nrd_nodes_free(NrdNodes *nodes);

/* Gives every topic back: the kernel asks nothing any more. */
void nrd_nodes_clear(NrdNodes *nodes);

/* The node of an id in a request. The kernel counts a look-up of it as long as the request runs, so it stays. NULL: an
 * id never given out. */
NrdNode *nrd_nodes_get(NrdNodes *nodes, uint64_t id);

/* What a name stands for. */
typedef struct NrdNodeKey {
    const NrdKindInfo *info;
    NrdTopic *topic; /* NULL above the topics */
    NrdPartition *partition;
    NrdTopic *child;
    uint64_t arg; /* see NrdNode */
} NrdNodeKey;

/* One more look-up: the shared node, or a new one. The node references topic and child for itself. */
NrdNode *nrd_nodes_lookup(NrdNodes *nodes, const NrdNodeKey *key);

/* Makes the kernel drop what it keeps of the content of a topic's files: its handles are to fail now. */
void nrd_nodes_drop_cached(NrdFs *fs, NrdTopic *topic);

void nrd_nodes_forget(NrdNodes *nodes, uint64_t id, uint64_t n_lookups);

uint64_t nrd_nodes_count(NrdNodes *nodes);

/* Looks at the n nodes whose last look-up is longest ago, and appends the ids (uint64_t) of those that nothing here
 * refers to. All that it looks at count as looked up now. */
void nrd_nodes_list_oldest(NrdNodes *nodes, uint64_t n, GArray *ids);

void nrd_node_ref(NrdNode *node);
void nrd_node_unref(NrdNode *node);

/* st_ino: the same for every node of one file, different for another incarnation of its topic. */
uint64_t nrd_node_ino(const NrdNodeKey *key);

#endif
