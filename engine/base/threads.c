/* See threads.h. */
#include "engine/base/threads.h"

#include <stdatomic.h>

static atomic_bool refused;
static atomic_uint n_holds;

void nrd_threads_note_refused(void)
{
    atomic_store(&refused, true);
}

void nrd_threads_hold(void)
{
    atomic_fetch_add(&n_holds, 1);
}

void nrd_threads_release(void)
{
    atomic_fetch_sub(&n_holds, 1);
}

bool nrd_threads_may_begin(void)
{
    return !atomic_load(&refused) || atomic_load(&n_holds) == 0;
}
