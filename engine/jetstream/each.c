/* See each.h. */
#include "engine/jetstream/each.h"

#define AT_ONCE 16

/* Who is called about what; there until the last helper has looked at it, which may be after it is over. */
typedef struct Round {
    gint n_refs; /* atomic */
    NrdJsEachFn fn;
    void *user_data;
    GMutex lock;
    /* guarded by lock */
    uint32_t next, end;
    uint32_t n_running;
    int error;
    GCond over; /* none runs */
} Round;

static void unref_round(Round *round)
{
    if (!g_atomic_int_dec_and_test(&round->n_refs))
        return;
    g_mutex_clear(&round->lock);
    g_cond_clear(&round->over);
    g_free(round);
}

static void work(Round *round)
{
    g_mutex_lock(&round->lock);
    while (round->error == 0 && round->next < round->end) {
        uint32_t number = round->next++;
        round->n_running++;
        g_mutex_unlock(&round->lock);
        int rc = round->fn(round->user_data, number);
        g_mutex_lock(&round->lock);
        round->n_running--;
        if (rc < 0 && round->error == 0)
            round->error = rc;
        g_cond_broadcast(&round->over);
    }
    g_mutex_unlock(&round->lock);
}

static void help(void *user_data)
{
    Round *round = user_data;
    work(round);
    unref_round(round);
}

int nrd_js_each(NrdJsConn *conn, uint32_t from, uint32_t end, NrdJsEachFn fn, void *user_data)
{
    Round *round = g_new0(Round, 1);
    uint32_t n_helpers = from < end ? MIN(end - from, AT_ONCE) - 1 : 0;
    round->n_refs = (gint)n_helpers + 1;
    round->fn = fn;
    round->user_data = user_data;
    round->next = from;
    round->end = end;
    g_mutex_init(&round->lock);
    g_cond_init(&round->over);
    for (uint32_t i = 0; i < n_helpers; i++)
        nrd_js_later(conn, help, round);
    work(round);
    g_mutex_lock(&round->lock);
    while (round->n_running > 0)
        g_cond_wait(&round->over, &round->lock);
    int rc = round->error;
    g_mutex_unlock(&round->lock);
    unref_round(round);
    return rc;
}
