/* When what was acknowledged is compared with what the servers have: see kept.h. */
#include "engine/jetstream/kept.h"
#include "engine/jetstream/streams.h"

#include "engine/base/clock.h"

#define WATCH_MS 10000  /* between looks that nobody asks for, and between rounds */
#define MAX_COMPARING 4 /* partitions: others wait for the same threads */

/* Or, when there are enough, when it is watched. */
static void compare_later(NrdPartition *partition)
{
    if (atomic_load(&partition->topic->engine->n_comparing) >= MAX_COMPARING ||
        atomic_exchange(&partition->compares, true))
        return;
    atomic_fetch_add(&partition->topic->engine->n_comparing, 1);
    nrd_js_topic_ref(partition->topic);
    nrd_js_later(partition->topic->engine->conn, nrd_js_kept_compare, partition);
}

void nrd_js_kept_doubt(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    partition->doubted = true;
    partition->rounds_left = NRD_JS_KEPT_ROUNDS;
    g_mutex_unlock(&partition->lock);
    compare_later(partition);
}

void nrd_js_kept_seen(NrdPartition *partition, const NrdJsStreamInfo *info)
{
    g_mutex_lock(&partition->lock);
    partition->watched_ms = nrd_clock_mono_ms();
    bool has = partition->acked && !partition->poison;
    if (!has || !partition->compared[0]) /* nothing was acknowledged under another one, as far as is known */
        g_strlcpy(partition->compared, info->leader, sizeof partition->compared);
    bool news = has && info->leader[0] && strcmp(partition->compared, info->leader) != 0;
    if (has && info->lags)
        partition->rounds_left = NRD_JS_KEPT_ROUNDS;
    g_mutex_unlock(&partition->lock);
    if (news)
        nrd_js_kept_doubt(partition);
}

static void doubt_if_known(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    partition->doubted = partition->acked != NULL;
    partition->rounds_left = partition->acked ? NRD_JS_KEPT_ROUNDS : 0;
    g_mutex_unlock(&partition->lock);
}

void nrd_js_kept_reconnected(NrdEngine *engine)
{
    nrd_js_each_partition(engine, doubt_if_known);
}

/* A look also finds out whether there is another leader. */
static void watch_one(NrdPartition *partition)
{
    int64_t now_ms = nrd_clock_mono_ms();
    g_mutex_lock(&partition->lock);
    bool has = partition->acked && !partition->poison;
    bool look = has && now_ms - partition->watched_ms >= WATCH_MS;
    bool round =
        has && (partition->doubted || (partition->rounds_left > 0 && now_ms - partition->round_ms >= WATCH_MS));
    if (round)
        partition->round_ms = now_ms;
    g_mutex_unlock(&partition->lock);
    if (look)
        nrd_js_stream_suspect(partition);
    if (round)
        compare_later(partition);
}

void nrd_js_kept_watch(NrdEngine *engine)
{
    nrd_js_each_partition(engine, watch_one);
}
