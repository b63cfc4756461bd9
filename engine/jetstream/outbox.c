/* What an open file holds until the servers have acknowledged it: its life, and what the file asks for. How it is sent is in
 * outbox_run.c.
 *
 * The bytes that bound it are those of memory: an empty record costs as much as its head, or, until it is to be sent, as its
 * sizes do. */
#include "engine/jetstream/outbox_private.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"
#include "engine/base/random.h"
#include "engine/base/ranges.h"

#define FLUSH_BYTES (1024 * 1024)
#define FLUSH_RECORDS 1000
#define FULL_BYTES (16 * 1024 * 1024)
#define FULL_RECORDS (128 * 1024)
#define HEAD_BYTES (2 * sizeof(uint32_t)) /* of one that is pending */

/* ---- life ---- */

NrdJsOutbox *nrd_js_outbox_ref(NrdJsOutbox *outbox)
{
    g_atomic_int_inc(&outbox->n_refs);
    return outbox;
}

void nrd_js_out_free(NrdJsOut *record)
{
    atomic_fetch_sub(&record->outbox->topic->engine->outbox_bytes, record->cost);
    g_free(record->key);
    g_free(record);
}

static void count_bytes(NrdJsOutbox *outbox, size_t n)
{
    outbox->bytes += n;
    atomic_fetch_add(&outbox->topic->engine->outbox_bytes, n);
}

/* The first. */
static void free_pending_locked(NrdJsOutbox *outbox)
{
    NrdJsPending *pending = g_queue_pop_head_link(&outbox->pending)->data;
    outbox->bytes -= pending->cost;
    atomic_fetch_sub(&outbox->topic->engine->outbox_bytes, pending->cost);
    g_free(pending);
}

void nrd_js_outbox_free(void *user_data)
{
    NrdJsOutbox *outbox = user_data;
    nrd_timer_drain(outbox->topic->engine->timers, &outbox->timer);
    for (GList *link; (link = g_queue_pop_head_link(&outbox->records));)
        nrd_js_out_free(link->data);
    while (!g_queue_is_empty(&outbox->pending))
        free_pending_locked(outbox);
    g_array_unref(outbox->waiters);
    g_array_unref(outbox->runs);
    g_string_free(outbox->ranges, TRUE);
    g_assert(!outbox->sayings);
    g_mutex_clear(&outbox->lock);
    nrd_js_topic_unref(outbox->topic);
    g_free(outbox);
}

/* Not on the thread that comes: it may be the timer's. */
void nrd_js_outbox_unref(NrdJsOutbox *outbox)
{
    if (g_atomic_int_dec_and_test(&outbox->n_refs))
        nrd_js_later(outbox->topic->engine->conn, nrd_js_outbox_free, outbox);
}

GPtrArray *nrd_js_outbox_list(NrdJsOutbox *outbox, GMutex **ret_lock)
{
    *ret_lock = outbox->partition ? &outbox->partition->lock : &outbox->topic->lock;
    return outbox->partition ? outbox->partition->outboxes : outbox->topic->outboxes;
}

static bool is_known(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    bool known = partition->known;
    g_mutex_unlock(&partition->lock);
    return known;
}

/* The next partition of its that nothing is known of; NULL: there is none. */
static NrdPartition *next_unknown(NrdJsOutbox *outbox, uint32_t *at)
{
    uint32_t n = outbox->partition ? 1 : nrd_js_topic_n_partitions(outbox->topic);
    while (*at < n) {
        NrdPartition *partition = outbox->partition ? outbox->partition : nrd_js_topic_partition(outbox->topic, *at);
        (*at)++;
        if (!is_known(partition))
            return partition;
    }
    return NULL;
}

static void run_know(void *user_data)
{
    NrdJsOutbox *outbox = user_data;
    NrdPartition *partition;
    uint32_t at = 0;
    int rc = 0;
    while (rc == 0 && (partition = next_unknown(outbox, &at)))
        rc = nrd_js_partition_look(partition, NRD_JS_GLANCE_MS);
    nrd_js_outbox_unref(outbox);
}

/* So that it is known behind what a record is to be looked for, if it comes to that (outbox_look.c). */
static void know_ends_later(NrdJsOutbox *outbox)
{
    uint32_t at = 0;
    if (next_unknown(outbox, &at))
        nrd_js_later(outbox->topic->engine->conn, run_know, nrd_js_outbox_ref(outbox));
}

int nrd_js_outbox_open(NrdTopic *topic, NrdPartition *partition, bool want_ranges, NrdJsOutbox **ret_outbox)
{
    int rc = partition ? nrd_js_partition_usable(partition) : nrd_js_topic_usable(topic);
    if (rc == 0 && topic->engine->read_only)
        rc = -EROFS;
    if (rc < 0)
        return rc;
    NrdJsOutbox *outbox = g_new0(NrdJsOutbox, 1);
    outbox->table = &nrd_js_table;
    outbox->n_refs = 1;
    outbox->topic = nrd_js_topic_ref(topic);
    outbox->partition = partition;
    outbox->want_ranges = want_ranges;
    outbox->turn = (uint32_t)nrd_random_u64();
    g_snprintf(outbox->id, sizeof outbox->id, "%016" G_GINT64_MODIFIER "x", nrd_random_u64());
    g_mutex_init(&outbox->lock);
    g_queue_init(&outbox->records);
    g_queue_init(&outbox->pending);
    outbox->waiters = g_array_new(FALSE, FALSE, sizeof(NrdJsSyncWaiter));
    outbox->runs = g_array_new(FALSE, FALSE, sizeof(NrdJsRun));
    outbox->ranges = g_string_new(NULL);
    nrd_timer_init(&outbox->timer, nrd_js_outbox_on_timer, outbox, true);
    GMutex *lock;
    GPtrArray *list = nrd_js_outbox_list(outbox, &lock);
    g_mutex_lock(lock);
    g_ptr_array_add(list, outbox);
    g_mutex_unlock(lock);
    know_ends_later(outbox);
    *ret_outbox = outbox;
    return 0;
}

static void leave_list(NrdJsOutbox *outbox)
{
    GMutex *lock;
    GPtrArray *list = nrd_js_outbox_list(outbox, &lock);
    g_mutex_lock(lock);
    g_ptr_array_remove(list, outbox);
    g_mutex_unlock(lock);
}

/* ---- adding ---- */

static NrdPartition *route_locked(NrdJsOutbox *outbox, const NrdNewRecord *record)
{
    if (outbox->partition)
        return outbox->partition;
    uint32_t n = MAX(nrd_js_topic_n_partitions(outbox->topic), 1);
    uint32_t number = record->key_size > 0 ? nrd_key_partition(record->key, record->key_size, n) : outbox->turn++ % n;
    return nrd_js_topic_partition(outbox->topic, number);
}

static NrdJsOut *out_new_locked(NrdJsOutbox *outbox, const NrdNewRecord *new)
{
    NrdJsOut *record = g_malloc(sizeof *record + new->payload_size);
    *record = (NrdJsOut){
        .outbox = outbox,
        .partition = route_locked(outbox, new),
        .number = outbox->n_taken++,
        .key = new->key_size > 0 ? g_base64_encode(new->key, new->key_size) : NULL,
        .size = new->payload_size,
    };
    record->cost = sizeof *record + new->payload_size + (record->key ? strlen(record->key) + 1 : 0);
    record->link.data = record;
    if (new->payload_size > 0)
        memcpy(record->payload, new->payload, new->payload_size);
    count_bytes(outbox, record->cost);
    return record;
}

static NrdNewRecord unpack(NrdJsPending *pending)
{
    uint32_t sizes[2];
    const uint8_t *key = pending->bytes + pending->pos + HEAD_BYTES;
    memcpy(sizes, pending->bytes + pending->pos, HEAD_BYTES);
    pending->pos += HEAD_BYTES + sizes[0] + sizes[1];
    return (NrdNewRecord){ key, sizes[0], key + sizes[0], sizes[1] };
}

NrdJsOut *nrd_js_outbox_take_up_locked(NrdJsOutbox *outbox)
{
    NrdJsPending *pending = outbox->pending.head->data;
    NrdNewRecord new = unpack(pending);
    NrdJsOut *record = out_new_locked(outbox, &new);
    g_queue_push_tail_link(&outbox->records, &record->link);
    if (pending->pos == pending->size)
        free_pending_locked(outbox);
    return record;
}

static size_t pack(uint8_t *to, const NrdNewRecord *record)
{
    const uint32_t sizes[2] = { (uint32_t)record->key_size, (uint32_t)record->payload_size };
    memcpy(to, sizes, HEAD_BYTES);
    if (record->key_size > 0)
        memcpy(to + HEAD_BYTES, record->key, record->key_size);
    if (record->payload_size > 0)
        memcpy(to + HEAD_BYTES + record->key_size, record->payload, record->payload_size);
    return HEAD_BYTES + record->key_size + record->payload_size;
}

void nrd_js_outbox_add(NrdJsOutbox *outbox, const NrdNewRecord *records, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += HEAD_BYTES + records[i].key_size + records[i].payload_size;
    if (n == 0)
        return;
    NrdJsPending *pending = g_malloc(sizeof *pending + size);
    *pending = (NrdJsPending){ .cost = sizeof *pending + size, .size = size };
    pending->link.data = pending;
    for (size_t i = 0, pos = 0; i < n; i++)
        pos += pack(pending->bytes + pos, &records[i]);
    g_mutex_lock(&outbox->lock);
    g_queue_push_tail_link(&outbox->pending, &pending->link);
    outbox->n_added += n;
    count_bytes(outbox, pending->cost);
    g_mutex_unlock(&outbox->lock);
}

guint nrd_js_outbox_n_locked(const NrdJsOutbox *outbox)
{
    return g_queue_get_length((GQueue *)&outbox->records) + (guint)(outbox->n_added - outbox->n_taken);
}

void nrd_js_outboxes_fail(GPtrArray *outboxes, int error)
{
    for (guint i = 0; i < outboxes->len; i++) {
        NrdJsOutbox *outbox = outboxes->pdata[i];
        g_mutex_lock(&outbox->lock);
        outbox->untold_errno = -error;
        nrd_js_outbox_answer_locked(outbox, outbox->n_stored, error);
        g_mutex_unlock(&outbox->lock);
        nrd_js_outbox_unref(outbox);
    }
    g_ptr_array_unref(outboxes);
}

/* ---- what a handle asks for ---- */

int nrd_js_outbox_check(NrdJsOutbox *outbox)
{
    int rc = outbox->partition ? nrd_js_partition_usable(outbox->partition) : nrd_js_topic_usable(outbox->topic);
    g_mutex_lock(&outbox->lock);
    if (rc == 0 && outbox->failing_errno > 0 &&
        (outbox->bytes >= FULL_BYTES || nrd_js_outbox_n_locked(outbox) >= FULL_RECORDS))
        rc = -outbox->failing_errno;
    if (rc == 0 && outbox->untold_errno > 0)
        rc = -outbox->untold_errno;
    outbox->untold_errno = 0;
    g_mutex_unlock(&outbox->lock);
    return rc;
}

NrdUrgency nrd_js_outbox_wrote(NrdJsOutbox *outbox)
{
    int64_t linger_ms = nrd_js_topic_config(outbox->topic).linger_ms;
    g_mutex_lock(&outbox->lock);
    guint n = nrd_js_outbox_n_locked(outbox);
    NrdUrgency urgency = outbox->bytes >= FULL_BYTES || n >= FULL_RECORDS     ? NRD_URGENCY_FULL
                         : outbox->bytes >= FLUSH_BYTES || n >= FLUSH_RECORDS ? NRD_URGENCY_NOW
                                                                              : NRD_URGENCY_LATER;
    if (n > 0 && urgency == NRD_URGENCY_LATER && !outbox->running)
        nrd_timer_set_earlier(outbox->topic->engine->timers, &outbox->timer, nrd_clock_mono_ms() + linger_ms);
    g_mutex_unlock(&outbox->lock);
    return urgency;
}

void nrd_js_outbox_sync(NrdJsOutbox *outbox, bool own, NrdDoneFn done, void *user_data)
{
    g_mutex_lock(&outbox->lock);
    NrdJsSyncWaiter waiter = { .number = outbox->n_added, .own = own, .done = done, .user_data = user_data };
    g_array_append_val(outbox->waiters, waiter);
    if (own)
        outbox->untold_errno = 0; /* this one tells */
    nrd_js_outbox_run_and_unlock(outbox);
}

size_t nrd_js_outbox_read_ranges(NrdJsOutbox *outbox, char *buf, size_t size)
{
    g_mutex_lock(&outbox->lock);
    size_t n = nrd_ranges_take(outbox->ranges, buf, size);
    g_mutex_unlock(&outbox->lock);
    return n;
}

/* Somebody who closes. */
typedef struct Closing {
    NrdJsOutbox *outbox;
    NrdDoneFn done;
    void *user_data;
} Closing;

static void on_closed(void *user_data, int error)
{
    Closing *closing = user_data;
    NrdJsOutbox *outbox = closing->outbox;
    g_mutex_lock(&outbox->lock);
    guint n = nrd_js_outbox_n_locked(outbox);
    nrd_js_outbox_stop_locked(outbox);
    if (error < 0 && n > 0 && error != -EIDRM)
        nrd_js_outbox_say_locked(outbox, NRD_LEVEL_ERROR, NULL,
                                 "%u record%s of a writer that has closed could not be stored, and are dropped: %s", n,
                                 nrd_plural(n), g_strerror(-error));
    nrd_js_outbox_unlock(outbox);
    leave_list(outbox);
    if (closing->done)
        closing->done(closing->user_data, error);
    g_free(closing);
    nrd_js_outbox_unref(outbox);
}

void nrd_js_outbox_close(NrdJsOutbox *outbox, NrdDoneFn done, void *user_data)
{
    Closing *closing = g_new(Closing, 1);
    *closing = (Closing){ outbox, done, user_data };
    nrd_js_outbox_sync(outbox, true, on_closed, closing);
}

void nrd_js_outbox_flush(NrdJsOutbox *outbox)
{
    g_mutex_lock(&outbox->lock);
    nrd_js_outbox_run_and_unlock(outbox);
}
