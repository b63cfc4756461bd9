/* Whether the copies of a stream are the same. The leader's counts; but consumers are served from the copy of the server that
 * leads them, and any server may lead next. So, while something gives reason for doubt, what was acknowledged to this daemon
 * lately is compared with the other copies, too: any server answers a direct get from its own, so that each record is asked for
 * more than once, and all of it several times, some seconds apart (kept_compare.c).
 *
 * A copy that has another record is told of for as long as it is seen. Where that was is held (acked.h), and compared however
 * much has been acknowledged since; more often than others, so that it is no chance when nobody has the other one any more.
 * Nothing is read from such a copy here, and what a consumer is delivered from it is held back. One that has no such record may
 * only be behind; where another one was seen it is asked for until it has. */
#include "engine/jetstream/copies.h"

#include "engine/jetstream/fetch.h"
#include "engine/jetstream/gather.h"
#include "engine/jetstream/kept.h"
#include "engine/jetstream/partition.h"

#define TIMES 2      /* that each record is asked for */
#define HELD_TIMES 8 /* ... where another one was seen: one copy of three is passed over once in 25 times */

typedef struct Asked {
    NrdJsCountdown *countdown;
    uint64_t sequence;
    bool held;
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

static bool is_there(uint64_t sequence, natsMsg *msg)
{
    guint64 said;
    const char *number = header(msg, "Nats-Sequence");
    return number && g_ascii_string_to_unsigned(number, 10, 0, G_MAXUINT64, &said, NULL) && said == sequence;
}

static bool is_another(NrdPartition *partition, const Asked *asked)
{
    return is_there(asked->sequence, asked->answer) &&
           !nrd_js_kept_agrees(partition, asked->sequence, header(asked->answer, NRD_JS_ID_HEADER));
}

/* Each as often as it is to be asked for. */
static GArray *questions(NrdPartition *partition, uint64_t first, guint n)
{
    GArray *all = g_array_new(FALSE, FALSE, sizeof(Asked));
    g_mutex_lock(&partition->lock);
    for (uint64_t sequence = first; sequence < first + n; sequence++) {
        bool held = partition->acked && nrd_js_acked_holds(partition->acked, sequence);
        Asked asked = { .sequence = sequence, .held = held };
        for (guint i = 0; i < (held ? HELD_TIMES : TIMES); i++)
            g_array_append_val(all, asked);
    }
    g_mutex_unlock(&partition->lock);
    return all;
}

static void ask_all(NrdPartition *partition, Asked *asked, guint n)
{
    NrdJsCountdown countdown;
    nrd_js_countdown_init(&countdown, n);
    for (guint i = 0; i < n; i++) {
        asked[i].countdown = &countdown;
        nrd_js_ask_for_record(partition, "DIRECT.GET", asked[i].sequence, on_answer, &asked[i]);
    }
    nrd_js_countdown_wait(&countdown);
}

/* A copy has no record where another one was seen. It is made anew, or lacks it; or the record was deleted on the servers. */
static int find_absent(NrdPartition *partition, uint64_t sequence)
{
    NrdJsSlot slot;
    int rc = nrd_js_fetch_as_it_is(partition, sequence, 1, &slot);
    bool gone = rc == 0 && slot.error == -ENOENT;
    nrd_js_slots_clear(&slot, 1);
    if (gone)
        nrd_js_kept_gone(partition, sequence);
    return gone || rc < 0 ? rc : -EAGAIN;
}

static void hold(NrdPartition *partition, uint64_t sequence)
{
    g_mutex_lock(&partition->lock);
    if (partition->acked)
        nrd_js_acked_hold(partition->acked, sequence);
    g_mutex_unlock(&partition->lock);
}

int nrd_js_copies_compare(NrdPartition *partition, uint64_t first, guint n, uint64_t *ret_another)
{
    g_autoptr(GArray) questions_asked = questions(partition, first, n);
    Asked *asked = (Asked *)(void *)questions_asked->data;
    uint64_t another = 0, absent = 0;
    int rc = 0;
    ask_all(partition, asked, questions_asked->len);
    for (guint i = 0; i < questions_asked->len; i++) {
        if (asked[i].error < 0) {
            rc = asked[i].error;
        } else if (is_another(partition, &asked[i])) {
            hold(partition, asked[i].sequence);
            another = another > 0 ? another : asked[i].sequence;
        } else if (asked[i].held && !is_there(asked[i].sequence, asked[i].answer)) {
            absent = asked[i].sequence; /* any of them: the others are found in the next round */
        }
        natsMsg_Destroy(asked[i].answer);
    }
    if (another == 0 && rc == 0 && absent > 0)
        rc = find_absent(partition, absent);
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
    if (counts)
        nrd_js_acked_hold(partition->acked, sequence);
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
    if (partition->acked)
        nrd_js_acked_let_go(partition->acked, 0, UINT64_MAX);
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
