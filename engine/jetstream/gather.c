/* See gather.h. */
#include "engine/jetstream/gather.h"

void nrd_js_countdown_init(NrdJsCountdown *countdown, size_t n)
{
    g_mutex_init(&countdown->lock);
    g_cond_init(&countdown->zero);
    countdown->n = n;
}

void nrd_js_countdown_one(NrdJsCountdown *countdown)
{
    g_mutex_lock(&countdown->lock);
    if (--countdown->n == 0)
        g_cond_signal(&countdown->zero);
    g_mutex_unlock(&countdown->lock);
}

void nrd_js_countdown_wait(NrdJsCountdown *countdown)
{
    g_mutex_lock(&countdown->lock);
    while (countdown->n > 0)
        g_cond_wait(&countdown->zero, &countdown->lock);
    g_mutex_unlock(&countdown->lock);
    g_mutex_clear(&countdown->lock);
    g_cond_clear(&countdown->zero);
}

struct NrdJsGather {
    gint n;     /* atomic */
    gint error; /* atomic: the first one */
    NrdDoneFn done;
    void *user_data;
};

NrdJsGather *nrd_js_gather_new(size_t n, NrdDoneFn done, void *user_data)
{
    NrdJsGather *gather = g_new(NrdJsGather, 1);
    *gather = (NrdJsGather){ .n = (gint)n, .error = 0, .done = done, .user_data = user_data };
    return gather;
}

void nrd_js_gather_one(void *data, int error)
{
    NrdJsGather *gather = data;
    if (error < 0)
        g_atomic_int_compare_and_exchange(&gather->error, 0, error);
    if (!g_atomic_int_dec_and_test(&gather->n))
        return;
    gather->done(gather->user_data, g_atomic_int_get(&gather->error));
    g_free(gather);
}
