/* How a person names a partition: p00007, p7 or 7, the same to every verb. Pure. */
#ifndef NRD_CTL_PARTITION_NAME_H
#define NRD_CTL_PARTITION_NAME_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

/* False when it is no such name; NULL is none. */
bool nrd_partition_name_parse(const char *name, uint32_t *ret_number) NRD_MUST_CHECK;

#endif
