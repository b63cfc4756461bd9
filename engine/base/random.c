/* See random.h. A call of the kernel costs more than all else that a lease does, so each thread asks for many numbers at
 * a time. */
#include "engine/base/random.h"

#include <glib.h>
#include <sys/random.h>

#define N_AT_A_TIME 32 /* 256 bytes */

uint64_t nrd_random_u64(void)
{
    static _Thread_local uint64_t numbers[N_AT_A_TIME];
    static _Thread_local size_t n_left;
    if (n_left == 0) {
        /* getrandom(2): requests of up to 256 bytes are never cut short and fail only before the pool is initialised
         * when asked not to wait, which is not asked here. */
        ssize_t n = getrandom(numbers, sizeof numbers, 0);
        g_assert(n == sizeof numbers);
        n_left = N_AT_A_TIME;
    }
    return numbers[--n_left];
}
