/* Whether the servers still have what they have acknowledged to this daemon. Copies of a stream may come to differ (nats-server
 * 2.9), and which of them counts changes with the leader: so when there is another leader than the one whose copy was compared,
 * or something else gives reason for doubt, what was acknowledged lately is read from the leader and compared by its ids
 * (acked.h). What is not there, or is another record, for longer than a suspicion has to hold, poisons the partition for good.
 *
 * Nobody has to look for that: a stream that this daemon has produced to is looked at now and then, and after each failure.
 *
 * Then the other copies are compared as well, in several rounds (copies.c): one that differs would be the leader's some day.
 *
 * A reader compares each record that it is given, too, and gives none that is another: see fetch.c. */
#include "engine/jetstream/kept.h"
#include "engine/jetstream/copies.h"
#include "engine/jetstream/fetch.h"

#include "engine/base/clock.h"

#define AT_ONCE 128    /* records */
#define HOLDS_MS 5000  /* a suspicion, before it is believed: a leader may be behind, or believe that it still is one */
#define WATCH_MS 10000 /* between looks that nobody asks for */
#define MAX_COMPARING 4 /* partitions: others wait for the same threads */
#define ROUNDS 6        /* of comparing all copies, from one WATCH_MS to the next, after the last reason for doubt */

/* What a comparison has found. */
typedef struct Finding {
    uint32_t n_reopened; /* what is known is of since then */
    uint64_t end;        /* what was acknowledged behind it came later, and is for the next comparison */
    NrdJsStreamInfo info;
    uint64_t n;
    uint64_t n_wrong;
    uint64_t first_wrong; /* a sequence; with n_wrong above 0 */
} Finding;

/* ---- what is known ---- */

bool nrd_js_kept_note_locked(NrdPartition *partition, uint64_t sequence, uint32_t hash)
{
    if (!partition->acked)
        partition->acked = nrd_js_acked_new();
    return nrd_js_acked_note(partition->acked, sequence, hash);
}

bool nrd_js_kept_agrees(NrdPartition *partition, uint64_t sequence, const char *id)
{
    g_mutex_lock(&partition->lock);
    uint32_t known = partition->acked ? nrd_js_acked_get(partition->acked, sequence) : 0;
    g_mutex_unlock(&partition->lock);
    return known == 0 || (id && known == nrd_js_acked_hash(id));
}

static bool is_old(NrdPartition *partition, uint64_t sequence)
{
    g_mutex_lock(&partition->lock);
    bool old = partition->acked && nrd_js_acked_is_old(partition->acked, sequence);
    g_mutex_unlock(&partition->lock);
    return old;
}

void nrd_js_kept_gone(NrdPartition *partition, uint64_t sequence)
{
    g_mutex_lock(&partition->lock);
    if (partition->acked && nrd_js_acked_is_old(partition->acked, sequence))
        nrd_js_acked_let_go(partition->acked, sequence, sequence + 1);
    g_mutex_unlock(&partition->lock);
}

void nrd_js_kept_forget_locked(NrdPartition *partition)
{
    g_clear_pointer(&partition->acked, nrd_js_acked_free);
    g_clear_pointer(&partition->apart, g_free);
    partition->compared[0] = '\0';
    partition->rounds_left = 0;
    partition->doubted = false;
}

/* ---- comparing ---- */

/* Those that follow each other, from *sequence on; 0: there are none. */
static guint next_run(NrdPartition *partition, Finding *finding, uint64_t *sequence)
{
    guint n = 0;
    g_mutex_lock(&partition->lock);
    bool current = partition->acked && partition->n_reopened == finding->n_reopened;
    uint64_t first = current ? nrd_js_acked_next(partition->acked, MAX(*sequence, finding->info.first_seq)) : 0;
    while (first > 0 && n < AT_ONCE && first + n <= finding->end && nrd_js_acked_get(partition->acked, first + n) != 0)
        n++;
    g_mutex_unlock(&partition->lock);
    *sequence = first;
    return n;
}

/* What there is to be compared. -EAGAIN: it is another stream than the one that is known. That, and an end that has gone back, is
 * told by who looks (partition_look.c). */
static int look(NrdPartition *partition, Finding *finding)
{
    NrdJsStreamInfo info;
    int rc = nrd_js_stream_info(partition->topic->engine->conn, partition->stream, NRD_JS_PATIENCE_MS, &info, NULL);
    if (rc < 0)
        return rc;
    finding->info = info;
    g_mutex_lock(&partition->lock);
    bool same = !partition->known || strcmp(partition->info.created, info.created) == 0;
    finding->end = partition->acked ? MIN(nrd_js_acked_last(partition->acked), info.last_seq) : 0;
    if (partition->acked && same)
        nrd_js_acked_let_go(partition->acked, 0, info.first_seq); /* too old for the servers, too */
    g_mutex_unlock(&partition->lock);
    return same ? 0 : -EAGAIN;
}

/* Records that are too old are deleted while others are compared. */
static int count_run(NrdPartition *partition, Finding *finding, const NrdJsSlot *slots, guint n)
{
    NrdJsStreamInfo now = finding->info;
    bool asked = false;
    for (guint i = 0; i < n; i++) {
        bool missing = slots[i].error == -ENOENT;
        int rc = missing && !asked ? nrd_js_stream_info(partition->topic->engine->conn, partition->stream,
                                                        NRD_JS_PATIENCE_MS, &now, NULL)
                                   : 0;
        asked |= missing;
        if (rc < 0)
            return rc;
        if (missing && slots[i].sequence < now.first_seq)
            continue;
        if (missing && is_old(partition, slots[i].sequence)) {
            nrd_js_kept_gone(partition, slots[i].sequence);
            continue;
        }
        finding->n++;
        if (!missing && slots[i].agrees)
            continue;
        if (finding->n_wrong++ == 0)
            finding->first_wrong = slots[i].sequence;
    }
    return 0;
}

static int compare_run(NrdPartition *partition, Finding *finding, uint64_t first, guint n)
{
    g_autofree NrdJsSlot *slots = g_new(NrdJsSlot, n);
    int rc = nrd_js_fetch_as_it_is(partition, first, n, slots);
    if (rc == 0)
        rc = count_run(partition, finding, slots, n);
    nrd_js_slots_clear(slots, n);
    return rc;
}

/* From the leader. */
static int compare(NrdPartition *partition, Finding *finding)
{
    uint64_t sequence = 1;
    guint n;
    int rc = look(partition, finding);
    finding->n = finding->n_wrong = 0;
    while (rc == 0 && (n = next_run(partition, finding, &sequence)) > 0) {
        rc = compare_run(partition, finding, sequence, n);
        sequence += n;
    }
    return rc;
}

/* What is wrong is looked for once more: a leader may be behind. */
static int compare_twice(NrdPartition *partition, Finding *finding)
{
    int rc = compare(partition, finding);
    if (rc < 0 || finding->n_wrong == 0)
        return rc;
    if (!nrd_js_pause(partition->topic->engine->conn, HOLDS_MS))
        return -ENODEV;
    return compare(partition, finding);
}

static char *why_of(const NrdPartition *partition, const Finding *finding)
{
    return g_strdup_printf(
        "the stream %s has other records than its servers have acknowledged, or none, at %" G_GUINT64_FORMAT
        " of %" G_GUINT64_FORMAT " offset%s, the first of them %" G_GUINT64_FORMAT
        ": its copies have come to differ, and %s leads with this one; look which server's copy is whole before you "
        "accept it (\"What the servers lose\" in docs/scale-out.md)",
        partition->stream, finding->n_wrong, finding->n, nrd_plural(finding->n), finding->first_wrong - 1,
        finding->info.leader[0] ? finding->info.leader : "a server");
}

/* A reopening since makes it no news. */
static void take(NrdPartition *partition, const Finding *finding)
{
    g_autofree char *why = finding->n_wrong > 0 ? why_of(partition, finding) : NULL;
    g_mutex_lock(&partition->lock);
    bool current = partition->n_reopened == finding->n_reopened;
    bool told = current && why && !partition->poison;
    if (told)
        partition->poison = g_strdup(why);
    if (current && !why)
        g_strlcpy(partition->compared, finding->info.leader, sizeof partition->compared);
    g_mutex_unlock(&partition->lock);
    if (!told)
        return;
    nrd_counter_add(NRD_COUNTER_ACKED_MISSING, finding->n_wrong);
    nrd_js_partition_end_service(partition, why);
}

/* With all servers. *ret_another: a sequence at which one differs, or 0. */
static int compare_copies(NrdPartition *partition, Finding *finding, uint64_t *ret_another)
{
    uint64_t sequence = 1;
    guint n;
    int rc = 0;
    *ret_another = 0;
    while (rc == 0 && *ret_another == 0 && (n = next_run(partition, finding, &sequence)) > 0) {
        rc = nrd_js_copies_compare(partition, sequence, n, ret_another);
        sequence += n;
    }
    return rc;
}

/* A round in which somebody did not answer is none. What it finds may be the leader's: that is compared before it is told, unless
 * it was just now. */
static void take_round(NrdPartition *partition, Finding *finding, bool compared)
{
    uint64_t another;
    int rc = compare_copies(partition, finding, &another);
    g_mutex_lock(&partition->lock);
    bool current = partition->n_reopened == finding->n_reopened && partition->acked;
    bool sure = compared || partition->apart;
    if (another > 0)
        partition->rounds_left = ROUNDS;
    else if (rc == 0 && partition->rounds_left > 0)
        partition->rounds_left--;
    partition->doubted |= another > 0 && !sure;
    bool same = partition->rounds_left == 0;
    g_mutex_unlock(&partition->lock);
    if (current && another > 0 && sure)
        nrd_js_copies_apart(partition, another);
    else if (current && same)
        nrd_js_copies_same(partition);
}

static void run_compare(void *user_data)
{
    NrdPartition *partition = user_data;
    g_mutex_lock(&partition->lock);
    Finding finding = { .n_reopened = partition->n_reopened };
    bool doubted = partition->doubted;
    partition->doubted = false;
    g_mutex_unlock(&partition->lock);
    int rc = doubted ? compare_twice(partition, &finding) : look(partition, &finding);
    if (rc == 0 && doubted)
        take(partition, &finding);
    if (rc == 0 && finding.n_wrong == 0)
        take_round(partition, &finding, doubted);
    g_mutex_lock(&partition->lock);
    partition->doubted |= doubted && rc < 0;
    g_mutex_unlock(&partition->lock);
    atomic_store(&partition->compares, false);
    atomic_fetch_sub(&partition->topic->engine->n_comparing, 1);
    nrd_js_topic_unref(partition->topic);
}

/* ---- when ---- */

/* Or, when there are enough, when it is watched. */
static void compare_later(NrdPartition *partition)
{
    if (atomic_load(&partition->topic->engine->n_comparing) >= MAX_COMPARING ||
        atomic_exchange(&partition->compares, true))
        return;
    atomic_fetch_add(&partition->topic->engine->n_comparing, 1);
    nrd_js_topic_ref(partition->topic);
    nrd_js_later(partition->topic->engine->conn, run_compare, partition);
}

void nrd_js_kept_doubt(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    partition->doubted = true;
    partition->rounds_left = ROUNDS;
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
        partition->rounds_left = ROUNDS;
    g_mutex_unlock(&partition->lock);
    if (news)
        nrd_js_kept_doubt(partition);
}

void nrd_js_kept_reconnected(NrdEngine *engine)
{
    g_autoptr(GPtrArray) topics = nrd_js_topics(engine);
    for (guint i = 0; i < topics->len; i++)
        for (uint32_t p = 0; p < nrd_js_topic_n_partitions(topics->pdata[i]); p++) {
            NrdPartition *partition = nrd_js_topic_partition(topics->pdata[i], p);
            g_mutex_lock(&partition->lock);
            partition->doubted = partition->acked != NULL;
            partition->rounds_left = partition->acked ? ROUNDS : 0;
            g_mutex_unlock(&partition->lock);
        }
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
    g_autoptr(GPtrArray) topics = nrd_js_topics(engine);
    for (guint i = 0; i < topics->len; i++)
        for (uint32_t p = 0; p < nrd_js_topic_n_partitions(topics->pdata[i]); p++)
            watch_one(nrd_js_topic_partition(topics->pdata[i], p));
}
