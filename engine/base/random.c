#include "engine/base/random.h"

#include <glib.h>
#include <sys/random.h>

uint64_t nrd_random_u64(void)
{
    /* getrandom(2): requests of up to 256 bytes are never cut short and fail only before the pool is initialised when
     * asked not to wait, which is not asked here. */
    uint64_t value = 0;
    ssize_t n = getrandom(&value, sizeof value, 0);
    g_assert(n == sizeof value);
    return value;
}
