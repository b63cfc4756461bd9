/* Whether the copies of a stream are the same. The leader's counts; but consumers are served from the copy of the server that
 * leads them, and any server may lead next. So, while something gives reason for doubt, what was acknowledged to this daemon
 * lately is compared with the other copies, too: any server answers a direct get from its own, so that each record is asked for
 * more than once, and all of it several times, some seconds apart (kept.c).
 *
 * A copy that has another record is told of for as long as it is seen. Nothing is read from it here, and what a consumer is
 * delivered from it is held back. One that has no such record may only be behind. */
#include "engine/jetstream/copies.h"

#include "engine/jetstream/gather.h"
#include "engine/jetstream/kept.h"

#define GET_MS 2500
#define TIMES 2 /* that each record is asked for */

typedef struct Asked {
    NrdJsCountdown *countdown;
    int error;
    natsMsg *answer;
} Asked;

static void on_answer(void *user_data, int error, natsMsg *msg)
{
    Asked *asked = user_data;
    asked->error = error;
    asked->answer = msg;
    nrd_js_countdown_one(asked->countdown);
}

static const char *header(natsMsg *msg, const char *name)
{
    const char *value = NULL;
    return natsMsgHeader_Get(msg, name, &value) == NATS_OK ? value : NULL;
}

static bool is_another(NrdPartition *partition, uint64_t sequence, natsMsg *msg)
{
    guint64 said;
    const char *number = header(msg, "Nats-Sequence");
    return number && g_ascii_string_to_unsigned(number, 10, 0, G_MAXUINT64, &said, NULL) && said == sequence &&
           !nrd_js_kept_agrees(partition, sequence, header(msg, NRD_JS_ID_HEADER));
}

int nrd_js_copies_compare(NrdPartition *partition, uint64_t first, guint n, uint64_t *ret_another)
{
    NrdJsCountdown countdown;
    uint64_t another = 0;
    int rc = 0;
    g_autofree Asked *asked = g_new0(Asked, (gsize)n * TIMES);
    g_autofree char *subject = g_strdup_printf("$JS.API.DIRECT.GET.%s", partition->stream);
    nrd_js_countdown_init(&countdown, (gsize)n * TIMES);
    for (guint i = 0; i < n * TIMES; i++) {
        char json[48];
        g_snprintf(json, sizeof json, "{\"seq\":%" G_GUINT64_FORMAT "}", first + i / TIMES);
        asked[i].countdown = &countdown;
        nrd_js_request(partition->topic->engine->conn, subject, NULL, json, strlen(json), GET_MS, on_answer, &asked[i]);
    }
    nrd_js_countdown_wait(&countdown);
    for (guint i = 0; i < n * TIMES; i++) {
        if (asked[i].error < 0)
            rc = asked[i].error;
        else if (another == 0 && is_another(partition, first + i / TIMES, asked[i].answer))
            another = first + i / TIMES;
        natsMsg_Destroy(asked[i].answer);
    }
    *ret_another = another;
    return another > 0 ? 0 : rc;
}

/* ---- what is told ---- */

/* Whether it is news. After a reopening it is none: what was acknowledged before counts no more, and is compared no more. */
static bool set_apart(NrdPartition *partition, uint64_t sequence)
{
    g_mutex_lock(&partition->lock);
    bool counts = partition->acked && nrd_js_acked_get(partition->acked, sequence) != 0;
    bool news = counts && !partition->apart && !partition->poison;
    if (news)
        partition->apart =
            g_strdup_printf("copies of the stream %s differ: one has another record at offset %" G_GUINT64_FORMAT
                            " than was acknowledged",
                            partition->stream, sequence - 1);
    g_mutex_unlock(&partition->lock);
    return news;
}

void nrd_js_copies_apart(NrdPartition *partition, uint64_t sequence)
{
    if (set_apart(partition, sequence))
        nrd_diag(
            NRD_LEVEL_ERROR, nrd_js_partition_place(partition),
            "copies of the stream %s differ: one has another record at offset %" G_GUINT64_FORMAT
            " than was acknowledged. The leader's is served. Let the servers make the other one anew before another "
            "server leads (\"What the servers lose\" in docs/scale-out.md)",
            partition->stream, sequence - 1);
}

void nrd_js_copies_same(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    g_autofree char *apart = g_steal_pointer(&partition->apart);
    g_mutex_unlock(&partition->lock);
    if (apart)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_js_partition_place(partition),
                 "no copy of the stream %s that differs was seen any more", partition->stream);
}

bool nrd_js_copies_may_deliver(NrdPartition *partition, uint64_t sequence, natsMsg *msg)
{
    if (nrd_js_kept_agrees(partition, sequence, header(msg, NRD_JS_ID_HEADER)))
        return true;
    nrd_js_copies_apart(partition, sequence);
    nrd_js_kept_doubt(partition);
    return false;
}
