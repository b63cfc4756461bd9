/* What offsets.c (the cadences) and offsets_settle.c (settling durably) share. */
#ifndef NRD_ENGINE_OFFSETS_PRIVATE_H
#define NRD_ENGINE_OFFSETS_PRIVATE_H

#include "engine/engine_private.h"

#define NRD_OFFSETS_KEPT "progress of consumers is kept in memory and written again later"
#define NRD_OFFSETS_AHEAD "consumer.ahead"
#define NRD_OFFSETS_LEVEL "consumer.offset"

/* What came of writing one of the two files (level: consumer.offset). A failure is told once, until the file can be written
 * again. Returns what a program is told. Offset lock held. */
int nrd_offsets_note_locked(NrdPartition *partition, bool level, int rc, const char *what,
                            const char *outcome) NRD_MUST_CHECK;

/* Writes the present state into the window, unless the last tick has it. Offset lock held. */
int nrd_offsets_tick_locked(NrdPartition *partition) NRD_MUST_CHECK;

/* After a sync on demand. Of a failure the caller was told; the cadence tries again all the same. */
void nrd_offsets_arm_after(NrdPartition *partition, bool open, int rc, bool level_owed);

#endif
