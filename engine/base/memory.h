/* The memory of the process, as glibc's allocator sees it. Any thread. */
#ifndef NRD_BASE_MEMORY_H
#define NRD_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* To be called before there is a second thread: all of them share a few arenas from then on. glibc otherwise makes up to
 * eight for each processor, and each of them keeps what its busiest moment took: three times what is in use. Who
 * says otherwise in the environment (MALLOC_ARENA_MAX, GLIBC_TUNABLES) is not overruled. */
void nrd_memory_limit_arenas(void);

/* Bytes that are allocated and not freed, small and large, with the allocator's own margins. Takes each arena's lock for
 * a moment: not for what is called often. */
uint64_t nrd_memory_used_bytes(void);

/* Gives what is free back to the system, when it is worth it and something has changed since the last time. What uses
 * memory meanwhile waits (20 to 90 ms were seen), so of a process that is not idle more has to be free than is in use.
 * True: it was given back. */
bool nrd_memory_trim(bool idle);

#endif
