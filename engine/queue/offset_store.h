/* consumer.offset and consumer.ahead: a partition's frontier on disk.
 *
 * Three cadences, driven by the owner (the seed: "The consumer frontier stored next to the segments"):
 *   tick       at most every 100 ms after an ack: the window slot of consumer.ahead, into the page cache
 *   write out  every second after a tick, and on demand (fsync): fdatasync, then the slots change roles
 *   level      every 30 s and at close: consumer.offset is brought to the same frontier and synced
 * consumer.ahead has two slots: the anchor, the newest state known durable, is never written while it is the anchor;
 * the window takes the ticks. Recovery takes the valid slot with the higher sequence, then the larger frontier of it
 * and consumer.offset.
 * Threads: one caller at a time (the owner's offset lock, which is held across these calls and so covers their
 * fdatasync). Blocks. */
#ifndef NRD_QUEUE_OFFSET_STORE_H
#define NRD_QUEUE_OFFSET_STORE_H

#include "engine/base/macros.h"
#include "engine/queue/queue.h"

typedef struct NrdOffsetStore NrdOffsetStore;

/* Reads both files of folder dir beneath root_fd (borrowed; dir is copied) into *ret_state. Missing, empty, odd-sized
 * or damaged files are no error (a line in the log, the other file counts); -EIO and the like are. A consumer.offset
 * above the high watermark hwm is damage too: it has no checksum, and taking it would skip what nobody settled. topic
 * (copied) and partition are for messages. */
int nrd_offset_store_open(int root_fd, const char *dir, const char *topic, uint32_t partition, uint64_t hwm,
                          NrdFrontier *ret_state, NrdOffsetStore **ret_store) NRD_MUST_CHECK;

/* Whether in folder dir something stands in the place of one of the two files that is no regular file: its path and, as
 * nrd_io_foreign_kind says it, what it is (g_free both). Blocks. */
bool nrd_offset_store_foreign(int root_fd, const char *dir, char **ret_path, char **ret_kind);

/* Closes without writing; takes NULL. */
void nrd_offset_store_free(NrdOffsetStore *store);

/* Writes state into the window slot, without a sync, but for the first tick after an open, which proves the anchor (see
 * offset_store.c). Creates consumer.ahead when it is missing or has no valid slot (a durable create, which makes state
 * durable at once). -EINVAL when state does not fit (nrd_ahead_fits). */
int nrd_offset_store_tick(NrdOffsetStore *store, const NrdFrontier *state) NRD_MUST_CHECK;

/* What the last tick said is not so: it will not be made durable from here any more. What the disk has of it has the highest
 * sequence and counts after a crash, until the next tick is durable, which goes into the same slot with a higher one. */
void nrd_offset_store_take_back(NrdOffsetStore *store);

/* Makes the last tick durable and flips the slots. The first one after an open, when there was no tick, makes what was
 * recovered durable; no-op when nothing was written since the last. After a failed sync the window is of unknown content
 * and the anchor stands: the next tick or write-out rewrites the window. */
int nrd_offset_store_write_out(NrdOffsetStore *store) NRD_MUST_CHECK;

/* Writes consumer.offset = frontier - 1 (an empty file for 0) and syncs it; no-op when it already holds that or the
 * frontier is 0 and there is no file. Recovery takes the larger frontier of the two files: a move backwards (seek) is
 * durable only after both a level and a write-out of the new state. */
int nrd_offset_store_level(NrdOffsetStore *store, uint64_t frontier) NRD_MUST_CHECK;

/* Whether an open has found a file that must not stay as it is: one that is damaged, or that says something of offsets at or
 * above end_offset, the one that the next record gets. That does not count now; once records have those offsets it would,
 * and nobody would ever be given them. */
bool nrd_offset_store_is_stale(const NrdOffsetStore *store, uint64_t end_offset);
/* The second of the two: then no record may get an offset before the files are mended. */
bool nrd_offset_store_claims_beyond(const NrdOffsetStore *store, uint64_t end_offset);

/* Writes both files with state, durably, whatever they hold. After a failure either may be as it was: the next tick and
 * level write them. */
int nrd_offset_store_mend(NrdOffsetStore *store, const NrdFrontier *state) NRD_MUST_CHECK;

/* Whether an acked-ahead set of this shape fits into a slot (ascending offsets above frontier). Pure; in ahead.c. */
bool nrd_ahead_fits(uint64_t frontier, const uint64_t *ahead, uint32_t n_ahead);

#endif
