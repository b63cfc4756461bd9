/* Random numbers that cannot be guessed (getrandom(2)): lease nonces and incarnation ids. Any thread. A process that forks
 * does so before its first one: numbers in store would be the child's, too. */
#ifndef NRD_BASE_RANDOM_H
#define NRD_BASE_RANDOM_H

#include <stdint.h>

uint64_t nrd_random_u64(void);

#endif
