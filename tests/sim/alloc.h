/* Makes g_try_malloc and its like fail: sizes that come from outside are asked for with them.
 *
 * A program that is linked with the dependency sim_dep has its calls of g_try_malloc, g_try_malloc0, g_try_malloc_n,
 * g_try_malloc0_n and g_try_realloc pass through here (the linker's --wrap; the product has no hook for it, and glib's own
 * calls are not seen). Any thread; the count is the process's. */
#ifndef NRD_TEST_SIM_ALLOC_H
#define NRD_TEST_SIM_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* From now on the nth call (from 1) returns NULL, or that and every later one (stays); 0: none. Counts from 0 again. */
void sim_alloc_fail(uint64_t nth, bool stays);

uint64_t sim_alloc_n_calls(void); /* since the last sim_alloc_fail */
uint64_t sim_alloc_n_failed(void);

#endif
