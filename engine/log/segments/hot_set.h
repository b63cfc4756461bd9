/* Which segments keep their descriptors: bookkeeping of segment.c. See segment.h for the rule and the lock order. */
#ifndef NRD_LOG_HOT_SET_H
#define NRD_LOG_HOT_SET_H

#include "engine/log/segments/segment_private.h"

/* The descriptor, or -1; counts a pin either way. */
int nrd_hot_pin(NrdSegment *segment);

/* Installs a descriptor that was opened for a pinned segment; returns the one to use (another thread may have been
 * faster: then fd is closed). */
int nrd_hot_install(NrdSegment *segment, int fd);

/* Ends a pin; closes what has gone cold. */
void nrd_hot_unpin(NrdSegment *segment);

/* Closes the descriptor, at the last unpin when there are pins. */
void nrd_hot_drop_fd(NrdSegment *segment);

/* The segment is going: forgets it and its cached frames, and closes its descriptor. */
void nrd_hot_forget(NrdSegment *segment);

#endif
