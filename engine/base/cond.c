/* See cond.h. */
#include "engine/base/cond.h"

#define NS_PER_S 1000000000

void nrd_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

struct timespec nrd_cond_end(int64_t after_ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (after_ms <= 0)
        return end;
    int64_t ns = end.tv_nsec + after_ms % 1000 * 1000000;
    end.tv_sec += after_ms / 1000 + ns / NS_PER_S;
    end.tv_nsec = ns % NS_PER_S;
    return end;
}
