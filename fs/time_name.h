/* Names of by-time/: Unix milliseconds in decimal, or a time as RFC 3339 writes it. Pure. */
#ifndef NRD_FS_TIME_NAME_H
#define NRD_FS_TIME_NAME_H

#include "engine/base/macros.h"

#include <stdint.h>

/* Unix milliseconds; negative before 1970. What is finer than a millisecond rounds up: the name asks for what was
 * committed at or after it. -EINVAL. */
int nrd_time_name_parse(const char *name, int64_t *ret_ms) NRD_MUST_CHECK;

#endif
