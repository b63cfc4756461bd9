/* See alloc.h. */
#include "tests/sim/alloc.h"

#include <glib.h>
#include <stdatomic.h>

static atomic_uint_fast64_t n_calls, n_failed, fail_nth;
static atomic_bool fail_stays;

void sim_alloc_fail(uint64_t nth, bool stays)
{
    atomic_store(&fail_nth, 0);
    atomic_store(&n_calls, 0);
    atomic_store(&n_failed, 0);
    atomic_store(&fail_stays, stays);
    atomic_store(&fail_nth, nth);
}

uint64_t sim_alloc_n_calls(void)
{
    return atomic_load(&n_calls);
}

uint64_t sim_alloc_n_failed(void)
{
    return atomic_load(&n_failed);
}

static bool fails(void)
{
    uint64_t n = atomic_fetch_add(&n_calls, 1) + 1, nth = atomic_load(&fail_nth);
    bool fail = nth != 0 && (n == nth || (n > nth && atomic_load(&fail_stays)));
    if (fail)
        atomic_fetch_add(&n_failed, 1);
    return fail;
}

/* The linker turns calls of X into calls of __wrap_X, and calls of __real_X into those of X. */
gpointer __real_g_try_malloc(gsize size);
gpointer __real_g_try_malloc0(gsize size);
gpointer __real_g_try_malloc_n(gsize n, gsize size);
gpointer __real_g_try_malloc0_n(gsize n, gsize size);
gpointer __real_g_try_realloc(gpointer memory, gsize size);
gpointer __wrap_g_try_malloc(gsize size);
gpointer __wrap_g_try_malloc0(gsize size);
gpointer __wrap_g_try_malloc_n(gsize n, gsize size);
gpointer __wrap_g_try_malloc0_n(gsize n, gsize size);
gpointer __wrap_g_try_realloc(gpointer memory, gsize size);

gpointer __wrap_g_try_malloc(gsize size)
{
    return fails() ? NULL : __real_g_try_malloc(size);
}

gpointer __wrap_g_try_malloc0(gsize size)
{
    return fails() ? NULL : __real_g_try_malloc0(size);
}

gpointer __wrap_g_try_malloc_n(gsize n, gsize size)
{
    return fails() ? NULL : __real_g_try_malloc_n(n, size);
}

gpointer __wrap_g_try_malloc0_n(gsize n, gsize size)
{
    return fails() ? NULL : __real_g_try_malloc0_n(n, size);
}

gpointer __wrap_g_try_realloc(gpointer memory, gsize size)
{
    return fails() ? NULL : __real_g_try_realloc(memory, size);
}
