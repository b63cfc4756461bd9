/* How old a segment is, for retention and for the roll by age. Memory only; any thread but where noted. */
#ifndef NRD_LOG_SEGMENT_AGE_H
#define NRD_LOG_SEGMENT_AGE_H

#include "engine/log/segments/segment.h"

#include <stdint.h>

/* A commit time this far in the future of now is not believed: a clock was wrong when it was stamped. */
#define NRD_FUTURE_TOLERANCE_MS ((int64_t)24 * 3600 * 1000)

/* Notes when the file was written last by the machine's clock: its mtime at open, the time of each commit later. */
void nrd_segment_set_file_ms(NrdSegment *segment, int64_t file_ms);

int64_t nrd_segment_file_ms(NrdSegment *segment);

/* Time of the last write: the greatest commit time of its records. When it has no record that can be read (0), or when
 * that time lies more than a day after now, the file's. 0: not known. */
int64_t nrd_last_write_ms(int64_t commit_ms, int64_t file_ms, int64_t now_ms);
int64_t nrd_segment_last_write_ms(NrdSegment *segment, int64_t now_ms);

/* Commit time of the first record that can be read; 0 when there is none or the index is not in memory. */
int64_t nrd_segment_first_ms(NrdSegment *segment);

/* Whether something of time_ms is older than max_age_ms; never for an unknown time (0) or one in the future. */
bool nrd_is_older(int64_t time_ms, int64_t now_ms, int64_t max_age_ms);

#endif
