/* What was acknowledged to this daemon, compared with what the servers have: the leader's copy, and then all of them. See
 * kept.h. */
#include "engine/jetstream/kept.h"

#include "engine/jetstream/copies.h"
#include "engine/jetstream/fetch.h"
#include "engine/jetstream/partition.h"

#define AT_ONCE 128   /* records */
#define HOLDS_MS 5000 /* a suspicion, before it is believed: a leader may be behind, or believe that it still is one */

/* What a comparison has found. */
typedef struct Finding {
    uint32_t n_reopened; /* what is known is of since then */
    uint64_t end;        /* what was acknowledged behind it came later, and is for the next comparison */
    NrdJsStreamInfo info;
    uint64_t n;
    uint64_t n_wrong;
    uint64_t first_wrong; /* a sequence; with n_wrong above 0 */
} Finding;

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
        if (missing && nrd_js_kept_gone(partition, slots[i].sequence))
            continue;
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
        partition->rounds_left = NRD_JS_KEPT_ROUNDS;
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

void nrd_js_kept_compare(void *user_data)
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
