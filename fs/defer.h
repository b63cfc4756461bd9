/* Requests that would wait for the disk in an operation that must not: while a LOOKUP runs the kernel holds the lock of
 * its folder, and the workers of the FUSE loop are few. Such a request goes on a thread of a small pool; one of its
 * threads is there from the start, others end when they have nothing to do.
 *
 * What waits: the first look at a partition that is closed (see nrd_node_unknown), opening one, and what is looked up in
 * the log itself (records/, from/, segments/, by-time/), what changes a topic (config, ctl, chmod and chown, mkdir and rmdir in
 * children/): its guard may be held by who opens a partition of it. Whatever is known and open is answered at once. */
#ifndef NRD_FS_DEFER_H
#define NRD_FS_DEFER_H

#include "fs/node.h"

/* Goes on with a request; has to reply. error: -ENODEV when the file system is ending, and then the reply is that. The
 * node stays for as long as the function runs. */
typedef void (*NrdDeferFn)(NrdNode *node, fuse_req_t req, void *data, int error);

NrdDefer *nrd_defer_new(void);        /* NULL: the system gave no thread */
void nrd_defer_free(NrdDefer *defer); /* nothing is pending; takes NULL */

/* Calls fn on a thread of the pool, soon. data is passed on. Never blocks. */
void nrd_defer(NrdNode *node, fuse_req_t req, NrdDeferFn fn, void *data);

/* Returns when every request has been answered; those that have not begun are refused. Blocks on the disk. */
void nrd_defer_finish(NrdDefer *defer);

/* Whether what a stat of the node tells is not known yet: of a partition that nobody has looked at since the start. */
bool nrd_key_unknown(const NrdNodeKey *key);
bool nrd_node_unknown(const NrdNode *node);

/* Whether a stat of the node waits for the disk: it is unknown, or has to be visited. */
bool nrd_node_waits(NrdNode *node);

/* Makes it known; nothing to do when it is. The page of a topic shows what is not known as that instead of failing.
 * Errors as nrd_partition_learn. Blocks. */
int nrd_node_learn(NrdNode *node) NRD_MUST_CHECK;

/* Makes it known and visits it, as a stat needs it. Blocks; for long where a file is measured. */
int nrd_node_visit(NrdNode *node) NRD_MUST_CHECK;

#endif
