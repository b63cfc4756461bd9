/* The kernel remembers a name that was looked up until it needs the memory, which may be never, and for each the daemon
 * keeps a node: a listing of records/ a thousand, again and again. So when there are many nodes the kernel is asked to
 * forget those whose names were looked up longest ago and that nobody uses. Linux can be asked since 6.18; one that is
 * older remembers what it likes (a remount makes it forget). Threads: any. */
#ifndef NRD_FS_PRUNE_H
#define NRD_FS_PRUNE_H

#include "fs/fs_private.h"

/* So many nodes are left alone. */
#define NRD_PRUNE_ABOVE 10000

/* One that does nothing yet. */
NrdPrune *nrd_prune_new(NrdFs *fs);
void nrd_prune_free(NrdPrune *prune); /* finished, or never started; takes NULL */

/* The kernel understands: from now on there is a thread for it. Once; the session is set. */
void nrd_prune_start(NrdPrune *prune);

/* Ends the thread; none of the node's table is asked for any more. */
void nrd_prune_finish(NrdPrune *prune);

/* So many nodes are there: the thread looks at it, when that is more than when it looked last. Never blocks for long. */
void nrd_prune_note(NrdPrune *prune, uint64_t n_nodes);

#endif
