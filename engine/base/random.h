/* Random numbers that cannot be guessed (keyed by getrandom(2)): lease nonces and incarnation ids. Any thread. A process that
 * forks does so before its first one: numbers in store would be the child's, too. */
#ifndef NRD_BASE_RANDOM_H
#define NRD_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

uint64_t nrd_random_u64(void);

/* Fills numbers[0..n): many at a time cost a tenth of what the kernel takes for them. */
void nrd_random_fill(uint64_t *numbers, size_t n);

#endif
