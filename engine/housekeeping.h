/* The loops of the process, and what they do with a partition. */
#ifndef NRD_ENGINE_HOUSEKEEPING_H
#define NRD_ENGINE_HOUSEKEEPING_H

#include "engine/engine_private.h"

/* ---- retention.c ---- */

/* One sweep of an open partition; closed ones are left to the walk. Blocks. */
void nrd_retention_sweep(NrdPartition *partition, int64_t now_ms);

/* What the cold walk does with one partition: if it is closed and holds something that has expired, opens it, sweeps, and
 * closes it again. Blocks. */
void nrd_retention_walk(NrdPartition *partition, int64_t now_ms);

/* Whether the partition, which the caller has pinned, holds what retention would delete. Memory only. */
bool nrd_retention_due(NrdPartition *partition, int64_t now_ms);

/* ---- housekeeping.c ---- */

/* The data directory is open. Nothing runs yet. */
NrdHousekeeping *nrd_housekeeping_new(NrdEngine *engine);
/* The loops' threads, whose passes do nothing before the engine has started. -EAGAIN: the system did not give one for each;
 * nrd_housekeeping_stop is still to be called. */
int nrd_housekeeping_open(NrdHousekeeping *housekeeping) NRD_MUST_CHECK;

/* The engine has started: the first pass, at once, is the survey of what nobody has used yet. */
void nrd_housekeeping_start(NrdHousekeeping *housekeeping);

/* Waits for the loops. Commits may still be under way: kicks and notes are taken, and do nothing. */
void nrd_housekeeping_stop(NrdHousekeeping *housekeeping);
void nrd_housekeeping_free(NrdHousekeeping *housekeeping); /* nobody uses a topic any more; takes NULL */

/* Sweep now: a bound has changed, or a log has passed it. Never blocks. */
void nrd_housekeeping_kick_retention(NrdHousekeeping *housekeeping);

/* Something was quarantined, or could not be purged: sweep what deleted topics left at the next walk. */
void nrd_housekeeping_note_leftovers(NrdHousekeeping *housekeeping);

#endif
