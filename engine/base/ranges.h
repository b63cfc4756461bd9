/* Lines that tell a writer where its records went: "p<partition> <first> <last>\n", a run of offsets each. Pure; one user at a
 * time. */
#ifndef NRD_ENGINE_BASE_RANGES_H
#define NRD_ENGINE_BASE_RANGES_H

#include <glib.h>
#include <stddef.h>
#include <stdint.h>

#define NRD_RANGES_BYTES ((size_t)1024 * 1024)

/* Adds a line; keeps about NRD_RANGES_BYTES at most. Who opened for reading too and never reads loses the oldest lines, but for
 * the one that a read may be in. */
void nrd_ranges_add(GString *ranges, uint32_t partition, uint64_t first, uint64_t last);

/* Moves the first bytes to buf, `size` at most; how many. */
size_t nrd_ranges_take(GString *ranges, char *buf, size_t size);

#endif
