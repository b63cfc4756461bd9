/* A system that gives few threads: for one test executable, which is linked with -Wl,--wrap=pthread_create. */
#ifndef NRD_TESTS_UNIT_FEW_THREADS_H
#define NRD_TESTS_UNIT_FEW_THREADS_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_int n_threads_left = -1; /* that the system gives; negative: as many as are wanted */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *data);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *data)
{
    int left = atomic_load(&n_threads_left);
    if (left == 0)
        return EAGAIN;
    if (left > 0)
        atomic_store(&n_threads_left, left - 1);
    return __real_pthread_create(thread, attr, run, data);
}

#endif
