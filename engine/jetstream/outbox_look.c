/* Records that were sent, and have no answer, for so long that the servers may have forgotten their ids. To send one of them
 * again could store it twice. So it is looked for first, behind the end that the stream was known to have when it was first
 * sent: what is there is stored; what is not goes out again, under the same id, so that a copy that is still under way is
 * known by it. What cannot be found out is not sent: each fsync fails, and says so.
 *
 * Looking waits for the servers, on a thread of its own, and counts as one that is out: nothing else is, meanwhile. */
#include "engine/jetstream/outbox_private.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"

#define MARGIN_MAX_MS 30000 /* from sending again to being stored */
#define CHUNK 512           /* messages that are asked for, several at once, before it is looked at the time */

/* What of a partition is looked for. */
typedef struct Search {
    const NrdJsOutbox *outbox;
    NrdPartition *partition;
    uint64_t from;      /* a sequence */
    uint64_t looked_to; /* what there was up to here is in found */
    char *why;
    GMutex lock;
    GHashTable *found; /* guarded by lock: the record's number -> its sequence */
} Search;

/* ---- what is late ---- */

static int64_t window_ms_of(NrdPartition *partition)
{
    int64_t retention_ms = nrd_js_topic_config(partition->topic).retention_ms;
    g_mutex_lock(&partition->lock);
    int64_t window_ms = partition->known ? partition->info.duplicates_ms : 0;
    g_mutex_unlock(&partition->lock);
    if (window_ms <= 0) /* a stream that was not looked at yet */
        window_ms = NRD_JS_DUPLICATES_MS;
    return retention_ms > 0 ? MIN(retention_ms, window_ms) : window_ms; /* it may be shorter since that look */
}

bool nrd_js_out_is_late(const NrdJsOut *record)
{
    if (!record->doubtful || record->state != NRD_JS_OUT_HELD)
        return false;
    int64_t window_ms = window_ms_of(record->partition);
    return nrd_clock_mono_ms() - record->first_sent_ms >= window_ms - MIN(window_ms / 2, MARGIN_MAX_MS);
}

/* ---- looking ---- */

static void take_id(Search *search, const NrdJsMessage *message)
{
    const char *id = message->headers ? g_hash_table_lookup(message->headers, NRD_JS_ID_HEADER) : NULL;
    guint64 number;
    if (!id || !g_str_has_prefix(id, search->outbox->id) || id[NRD_JS_OUTBOX_ID_DIGITS] != '-' ||
        !g_ascii_string_to_unsigned(id + NRD_JS_OUTBOX_ID_DIGITS + 1, 10, 0, G_MAXUINT64, &number, NULL))
        return;
    guint64 *key = g_memdup2(&number, sizeof number);
    guint64 *sequence = g_memdup2(&message->sequence, sizeof message->sequence);
    g_mutex_lock(&search->lock);
    g_hash_table_replace(search->found, key, sequence);
    g_mutex_unlock(&search->lock);
}

static int look_at(void *user_data, uint32_t n)
{
    Search *search = user_data;
    NrdJsMessage message;
    g_autofree char *why = NULL;
    int rc = nrd_js_message_get(search->outbox->topic->engine->conn, search->partition->stream,
                                search->looked_to + 1 + n, NULL, &message, &why);
    if (rc < 0) {
        g_mutex_lock(&search->lock);
        if (!search->why)
            search->why = g_steal_pointer(&why);
        g_mutex_unlock(&search->lock);
        return rc;
    }
    take_id(search, &message);
    nrd_js_message_clear(&message);
    return 0;
}

static int give_up(Search *search, const char *why)
{
    g_free(search->why);
    search->why = g_strdup(why);
    return -EIO;
}

/* Each message from `from` to the end that there is now. */
static int look_through(Search *search)
{
    NrdJsConn *conn = search->outbox->topic->engine->conn;
    int64_t until_ms = nrd_clock_mono_ms() + NRD_JS_PATIENCE_MS;
    NrdJsStreamInfo info;
    int rc = nrd_js_stream_info(conn, search->partition->stream, NRD_JS_PATIENCE_MS, &info, &search->why);
    if (rc < 0)
        return rc;
    if (search->from <= info.last_seq && search->from < info.first_seq)
        rc = -ENOENT;
    while (rc == 0 && search->looked_to < info.last_seq) {
        uint32_t n = (uint32_t)MIN(info.last_seq - search->looked_to, CHUNK);
        if (nrd_clock_mono_ms() >= until_ms)
            return give_up(search, "there is much to look through, and another fsync goes on with that");
        rc = nrd_js_each(conn, 0, n, look_at, search);
        if (rc == 0)
            search->looked_to += n;
    }
    return rc == -ENOENT ? give_up(search, "some of what has come since is not there any more") : rc;
}

/* ---- what to look for ---- */

/* Where a copy of it can be. What was known of a stream before somebody accepted another one says nothing of that. */
static uint64_t look_from(const NrdJsOut *record)
{
    bool current = nrd_js_partition_end(record->partition).n_reopened == record->sent_after.n_reopened;
    return current ? record->sent_after.sequence + 1 : 1;
}

/* Those of one partition; false: there are none. */
static bool next_search_locked(NrdJsOutbox *outbox, Search *search)
{
    *search = (Search){ .outbox = outbox };
    for (GList *link = outbox->records.head; link; link = link->next) {
        const NrdJsOut *record = link->data;
        if ((search->partition && record->partition != search->partition) || !nrd_js_out_is_late(record) ||
            nrd_js_partition_usable(record->partition) < 0)
            continue;
        uint64_t from = look_from(record);
        search->from = search->partition ? MIN(search->from, from) : from;
        search->partition = record->partition;
    }
    if (!search->partition)
        return false;
    search->looked_to = search->from - 1;
    search->found = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, g_free);
    g_mutex_init(&search->lock);
    return true;
}

static void clear_search(Search *search)
{
    g_hash_table_unref(search->found);
    g_mutex_clear(&search->lock);
    g_free(search->why);
}

/* rc < 0: those that were not found stay as they are, but for what need not be looked through again. */
static void take_search_locked(NrdJsOutbox *outbox, const Search *search, int rc)
{
    NrdJsEnd end = nrd_js_partition_end(search->partition);
    for (GList *link = outbox->records.head; link; link = link->next) {
        NrdJsOut *record = link->data;
        const guint64 *sequence = g_hash_table_lookup(search->found, &record->number);
        if (record->partition != search->partition || !record->doubtful || record->state != NRD_JS_OUT_HELD)
            continue;
        if (sequence) {
            char id[NRD_JS_OUTBOX_ID_BYTES];
            nrd_js_out_id(record, id);
            record->state = NRD_JS_OUT_STORED;
            record->sequence = *sequence;
            nrd_js_partition_published(record->partition, *sequence, nrd_js_acked_hash(id), true, record->sent_after);
            outbox->progress_ms = nrd_clock_mono_ms();
            continue;
        }
        if (look_from(record) < search->from) /* late only since */
            continue;
        record->sent_after = (NrdJsEnd){ MAX(look_from(record) - 1, search->looked_to), end.n_reopened };
        if (rc == 0)
            record->first_sent_ms = nrd_clock_mono_ms(); /* it was not there by now */
    }
}

static void say_locked(NrdJsOutbox *outbox, const Search *search, int error)
{
    nrd_js_outbox_say_locked(outbox, NRD_LEVEL_ERROR, search->partition,
                             "whether records that were sent a while ago, and not acknowledged, are stored cannot be "
                             "found out: %s. They stay with their writer, and are not sent again, since that could "
                             "store them twice: look for them in the log",
                             search->why ? search->why : g_strerror(-error));
}

static int search_all(NrdJsOutbox *outbox)
{
    Search search;
    int rc = 0;
    g_mutex_lock(&outbox->lock);
    while (rc == 0 && next_search_locked(outbox, &search)) {
        nrd_js_outbox_unlock(outbox);
        rc = look_through(&search);
        g_mutex_lock(&outbox->lock);
        take_search_locked(outbox, &search, rc);
        if (rc < 0 && rc != -ENODEV)
            say_locked(outbox, &search, rc);
        if (rc == 0 && nrd_clock_mono_ms() - outbox->progress_ms >= NRD_JS_PATIENCE_MS)
            rc = -EIO;
        clear_search(&search);
    }
    nrd_js_outbox_unlock(outbox);
    return rc;
}

static void run_look(void *user_data)
{
    NrdJsOutbox *outbox = user_data;
    int rc = search_all(outbox);
    nrd_js_outbox_looked(outbox, rc == 0 || rc == -ENODEV ? rc : -EIO);
}

void nrd_js_outbox_look_locked(NrdJsOutbox *outbox)
{
    outbox->n_out++;
    nrd_js_later(outbox->topic->engine->conn, run_look, nrd_js_outbox_ref(outbox));
}
