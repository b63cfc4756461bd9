/* Threads that do nothing but be there. A connection takes threads of the library's, and one that waits for the call that makes or
 * ends it (connect.c); when it is lost they end, and others of this daemon may have taken their place before it is made again,
 * where the system gives few. So as many as that takes are kept, and ended just before. */
#include "engine/jetstream/conn_private.h"

struct NrdJsReserve {
    GMutex lock;
    bool ends; /* guarded by lock */
    GCond ended;
    GThread *threads[2]; /* who calls, and the library's that reads; of those who take and give, one at a time */
};

NrdJsReserve *nrd_js_reserve_new(void)
{
    NrdJsReserve *reserve = g_new0(NrdJsReserve, 1);
    g_mutex_init(&reserve->lock);
    g_cond_init(&reserve->ended);
    return reserve;
}

static gpointer wait_for_end(gpointer data)
{
    NrdJsReserve *reserve = data;
    g_mutex_lock(&reserve->lock);
    while (!reserve->ends)
        g_cond_wait(&reserve->ended, &reserve->lock);
    g_mutex_unlock(&reserve->lock);
    return NULL;
}

bool nrd_js_reserve_take(NrdJsReserve *reserve)
{
    bool all = true;
    for (guint i = 0; i < G_N_ELEMENTS(reserve->threads) && all; i++) {
        if (!reserve->threads[i])
            reserve->threads[i] = g_thread_try_new("naradfs-spare", wait_for_end, reserve, NULL);
        all = reserve->threads[i] != NULL;
    }
    return all;
}

static void set_ends(NrdJsReserve *reserve, bool ends)
{
    g_mutex_lock(&reserve->lock);
    reserve->ends = ends;
    g_cond_broadcast(&reserve->ended);
    g_mutex_unlock(&reserve->lock);
}

void nrd_js_reserve_give(NrdJsReserve *reserve)
{
    set_ends(reserve, true);
    for (guint i = 0; i < G_N_ELEMENTS(reserve->threads); i++)
        if (reserve->threads[i])
            g_thread_join(g_steal_pointer(&reserve->threads[i]));
    set_ends(reserve, false);
}

void nrd_js_reserve_free(NrdJsReserve *reserve)
{
    if (!reserve)
        return;
    nrd_js_reserve_give(reserve);
    g_mutex_clear(&reserve->lock);
    g_cond_clear(&reserve->ended);
    g_free(reserve);
}
