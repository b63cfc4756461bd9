/* Producing: what an open handle holds until the servers have acknowledged it, for one partition or for a topic.
 *
 * A record is published with an id of its own, which the servers know for two minutes: a publish that is repeated, because its
 * answer was lost or a leader was being elected, is stored once. Records go out in order, a window of them at a time, each with
 * its own answer. When one fails the others that are out are waited for, and all that have no answer go out again, in order;
 * but what the servers had taken behind one that they had not stays where it is, so a change of leaders can reorder records of
 * one window, and a batch may be stored in part. An fsync is answered when every record before it has its acknowledgement, or,
 * when 25 seconds have brought none, with an error: then the records stay, with their ids, and the next one tries again.
 *
 * A run (`running`) begins with an fsync, a full buffer or the linger timer, and ends when everything that was there is
 * acknowledged, or with a failure. Locks: the outbox's; see js_private.h. */
#include "engine/jetstream/outbox.h"

#include "engine/base/clock.h"
#include "engine/base/random.h"

#define WINDOW 512                     /* records that are out at once */
#define WINDOW_BYTES (8 * 1024 * 1024) /* ... and their bytes */
#define ANSWER_MS 5000                 /* then the same record goes out again */
#define RETRY_MS 250
#define FLUSH_BYTES (1024 * 1024)
#define FLUSH_RECORDS 1000
#define FULL_BYTES (16 * 1024 * 1024)
#define RANGES_MAX (1024 * 1024)
#define ID_DIGITS 16

/* REFUSED: the servers will never take it, since it is too long with its key; its writer is told. */
typedef enum RecordState { RECORD_HELD, RECORD_OUT, RECORD_STORED, RECORD_REFUSED } RecordState;

/* A record until it is acknowledged and those before it are. */
typedef struct Record {
    GList link;
    NrdJsOutbox *outbox;
    NrdPartition *partition;
    uint64_t number; /* of the outbox's; its id is made of it */
    uint64_t sequence;
    RecordState state;
    char *key; /* in base64, or NULL */
    size_t size;
    uint8_t payload[];
} Record;

/* Somebody who waits for all records below `number`. */
typedef struct SyncWaiter {
    uint64_t number;
    NrdDoneFn done;
    void *user_data;
} SyncWaiter;

/* A run of offsets of one partition, for the lines that a writer reads back. */
typedef struct Run {
    uint32_t partition;
    uint64_t first, last;
} Run;

/* NrdProducer and NrdTopicProducer are both this. */
struct NrdJsOutbox {
    const NrdEngineTable *table; /* first: see table.h */
    gint n_refs;                 /* atomic */
    NrdTopic *topic;             /* referenced */
    NrdPartition *partition;     /* NULL: of the topic as a whole */
    bool want_ranges;
    char id[ID_DIGITS + 1];
    GMutex lock;
    /* guarded by lock */
    GQueue records; /* by their link, in order */
    GList *next;    /* the first that is not out, of a run */
    uint64_t n_added;
    uint64_t n_stored; /* all below are stored */
    size_t bytes;
    uint32_t n_out;
    size_t bytes_out;
    bool running;
    bool failed;         /* of this run: something has to go out again */
    int run_error;       /* ... or will not succeed */
    uint64_t run_end;    /* the run is about the records below */
    int64_t progress_ms; /* monotonic: the last acknowledgement of the run, or its beginning */
    GArray *waiters;     /* of SyncWaiter */
    int untold_errno;
    int failing_errno;
    uint32_t turn;
    GArray *runs; /* of Run, of this run */
    GString *ranges;
    NrdTimer timer; /* linger, or the next try */
};

static void on_timer(void *user_data);
static void send_and_unlock(NrdJsOutbox *outbox);

/* ---- life ---- */

NrdJsOutbox *nrd_js_outbox_ref(NrdJsOutbox *outbox)
{
    g_atomic_int_inc(&outbox->n_refs);
    return outbox;
}

static void free_record(Record *record)
{
    g_free(record->key);
    g_free(record);
}

static void free_outbox(void *user_data)
{
    NrdJsOutbox *outbox = user_data;
    nrd_timer_drain(outbox->topic->engine->timers, &outbox->timer);
    for (GList *link; (link = g_queue_pop_head_link(&outbox->records));)
        free_record(link->data);
    g_array_unref(outbox->waiters);
    g_array_unref(outbox->runs);
    g_string_free(outbox->ranges, TRUE);
    g_mutex_clear(&outbox->lock);
    nrd_js_topic_unref(outbox->topic);
    g_free(outbox);
}

/* Not on the thread that comes: it may be the timer's. */
void nrd_js_outbox_unref(NrdJsOutbox *outbox)
{
    if (g_atomic_int_dec_and_test(&outbox->n_refs))
        nrd_js_later(outbox->topic->engine->conn, free_outbox, outbox);
}

GPtrArray *nrd_js_outbox_list(NrdJsOutbox *outbox, GMutex **ret_lock)
{
    *ret_lock = outbox->partition ? &outbox->partition->lock : &outbox->topic->lock;
    return outbox->partition ? outbox->partition->outboxes : outbox->topic->outboxes;
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
    outbox->waiters = g_array_new(FALSE, FALSE, sizeof(SyncWaiter));
    outbox->runs = g_array_new(FALSE, FALSE, sizeof(Run));
    outbox->ranges = g_string_new(NULL);
    nrd_timer_init(&outbox->timer, on_timer, outbox, true);
    GMutex *lock;
    GPtrArray *list = nrd_js_outbox_list(outbox, &lock);
    g_mutex_lock(lock);
    g_ptr_array_add(list, outbox);
    g_mutex_unlock(lock);
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

static void add_locked(NrdJsOutbox *outbox, const NrdNewRecord *new)
{
    Record *record = g_malloc(sizeof *record + new->payload_size);
    *record = (Record){
        .outbox = outbox,
        .partition = route_locked(outbox, new),
        .number = outbox->n_added++,
        .key = new->key_size > 0 ? g_base64_encode(new->key, new->key_size) : NULL,
        .size = new->payload_size,
    };
    record->link.data = record;
    if (new->payload_size > 0)
        memcpy(record->payload, new->payload, new->payload_size);
    g_queue_push_tail_link(&outbox->records, &record->link);
    outbox->bytes += new->payload_size;
}

void nrd_js_outbox_add(NrdJsOutbox *outbox, const NrdNewRecord *records, size_t n)
{
    g_mutex_lock(&outbox->lock);
    for (size_t i = 0; i < n; i++)
        add_locked(outbox, &records[i]);
    g_mutex_unlock(&outbox->lock);
}

/* ---- answering those who wait ---- */

/* Those about records below `number`; with an error all of them. */
static void answer_locked(NrdJsOutbox *outbox, uint64_t number, int error)
{
    for (guint i = 0; i < outbox->waiters->len;) {
        SyncWaiter waiter = g_array_index(outbox->waiters, SyncWaiter, i);
        if (error == 0 && waiter.number > number) {
            i++;
            continue;
        }
        nrd_js_done_later(outbox->topic->engine->conn, waiter.done, waiter.user_data, error);
        g_array_remove_index(outbox->waiters, i);
    }
}

static void note_stored(NrdJsOutbox *outbox, const Record *record)
{
    guint n = outbox->runs->len;
    for (guint i = n; i > 0 && n - i < 64; i--) { /* the newest run of that partition, if it is near */
        Run *run = &g_array_index(outbox->runs, Run, i - 1);
        if (run->partition != record->partition->number)
            continue;
        if (run->last + 1 != record->sequence - 1)
            break;
        run->last++;
        return;
    }
    Run run = { record->partition->number, record->sequence - 1, record->sequence - 1 };
    g_array_append_val(outbox->runs, run);
}

static void tell_runs_locked(NrdJsOutbox *outbox)
{
    for (guint i = 0; i < outbox->runs->len && outbox->want_ranges; i++) {
        const Run *run = &g_array_index(outbox->runs, Run, i);
        g_string_append_printf(outbox->ranges, "p%05u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT "\n", run->partition,
                               run->first, run->last);
    }
    g_array_set_size(outbox->runs, 0);
    while (outbox->ranges->len > RANGES_MAX) {
        const char *newline = memchr(outbox->ranges->str, '\n', outbox->ranges->len);
        g_string_erase(outbox->ranges, 0, newline - outbox->ranges->str + 1);
    }
}

/* ---- a run ---- */

static void note_commit(NrdJsOutbox *outbox, int error)
{
    NrdPartition *partition = outbox->partition;
    outbox->failing_errno = -error;
    if (partition)
        nrd_js_partition_committed(partition, error);
    else if (error < 0 && error != -EIDRM)
        nrd_diag(NRD_LEVEL_ERROR, nrd_js_topic_place(outbox->topic),
                 "records could not be stored: %s; they stay with their writer, and another fsync tries again",
                 g_strerror(-error));
}

/* Nothing is out. A failure that nobody waits for is kept for the next call of the writer. */
static void end_run_locked(NrdJsOutbox *outbox, int error)
{
    outbox->running = false;
    tell_runs_locked(outbox);
    note_commit(outbox, error);
    if (error == 0) {
        nrd_counter_add(NRD_COUNTER_COMMITS, 1);
    } else if (outbox->waiters->len == 0) {
        outbox->untold_errno = -error;
    }
    answer_locked(outbox, outbox->n_stored, error);
}

static void begin_run_locked(NrdJsOutbox *outbox)
{
    outbox->run_end = outbox->n_added;
    outbox->next = outbox->records.head;
    outbox->failed = false;
    outbox->run_error = 0;
    outbox->progress_ms = nrd_clock_mono_ms();
    outbox->running = true;
}

static void note_popped(NrdJsOutbox *outbox, const Record *record)
{
    outbox->bytes -= record->size;
    outbox->n_stored = record->number + 1;
    if (record->state == RECORD_REFUSED)
        return;
    nrd_counter_add(NRD_COUNTER_PRODUCED, 1);
    note_stored(outbox, record);
}

/* What is stored at the front leaves, or refused. */
static void pop_stored_locked(NrdJsOutbox *outbox)
{
    Record *record;
    while ((record = outbox->records.head ? outbox->records.head->data : NULL) && record->state >= RECORD_STORED) {
        if (outbox->next == &record->link)
            outbox->next = record->link.next;
        g_queue_unlink(&outbox->records, &record->link);
        note_popped(outbox, record);
        free_record(record);
    }
    if (outbox->run_error == 0)
        answer_locked(outbox, outbox->n_stored, 0);
}

/* After each answer: goes on, tries again, or ends. The lock is released. */
static void go_on_and_unlock(NrdJsOutbox *outbox)
{
    bool over = nrd_clock_mono_ms() - outbox->progress_ms >= NRD_JS_PATIENCE_MS;
    bool wait_for_others = outbox->n_out > 0;
    if (atomic_load(&outbox->topic->deleted))
        outbox->run_error = -EIDRM;
    if (outbox->n_stored >= outbox->run_end && outbox->waiters->len > 0 && !outbox->failed)
        outbox->run_end = outbox->n_added; /* who came meanwhile goes with this run */
    if (outbox->run_error < 0 || outbox->failed) {
        if (!wait_for_others && (outbox->run_error < 0 || over))
            end_run_locked(outbox, outbox->run_error < 0 ? outbox->run_error : -EIO);
        else if (!wait_for_others)
            nrd_timer_set(outbox->topic->engine->timers, &outbox->timer, nrd_clock_mono_ms() + RETRY_MS);
        g_mutex_unlock(&outbox->lock);
    } else if (outbox->n_stored >= outbox->run_end) {
        end_run_locked(outbox, 0);
        g_mutex_unlock(&outbox->lock);
    } else {
        send_and_unlock(outbox);
    }
}

static void take_failure_locked(NrdJsOutbox *outbox, Record *record, int error, const char *why)
{
    if (error == -EAGAIN || error == -ETIMEDOUT) {
        outbox->failed = true;
        return;
    }
    if (outbox->run_error == 0) {
        outbox->run_error = error == -ENOSPC || error == -ENODEV || error == -EMSGSIZE ? error : -EIO;
        nrd_diag(NRD_LEVEL_WARNING, nrd_js_partition_place(record->partition), "a record was not taken: %s",
                 why ? why : g_strerror(-error));
    }
    if (error == -EMSGSIZE) {
        record->state = RECORD_REFUSED;
        pop_stored_locked(outbox);
    }
}

static void take_answer_locked(NrdJsOutbox *outbox, Record *record, int error, natsMsg *msg)
{
    g_autofree char *why = NULL;
    if (error == 0)
        error =
            nrd_js_parse_ack_reply(natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg), &record->sequence, &why);
    outbox->n_out--;
    outbox->bytes_out -= record->size;
    record->state = error == 0 ? RECORD_STORED : RECORD_HELD;
    if (error < 0) {
        take_failure_locked(outbox, record, error, why);
        return;
    }
    outbox->progress_ms = nrd_clock_mono_ms();
    nrd_js_partition_grew(record->partition, record->sequence, true);
    pop_stored_locked(outbox);
}

static void on_answer(void *user_data, int error, natsMsg *msg)
{
    Record *record = user_data;
    NrdJsOutbox *outbox = record->outbox;
    g_mutex_lock(&outbox->lock);
    take_answer_locked(outbox, record, error, msg);
    go_on_and_unlock(outbox);
    natsMsg_Destroy(msg);
    nrd_js_outbox_unref(outbox);
}

static void send_one(NrdJsOutbox *outbox, Record *record)
{
    NrdPartition *partition = record->partition;
    char id[ID_DIGITS + 24];
    g_snprintf(id, sizeof id, "%s-%" G_GUINT64_FORMAT, outbox->id, record->number);
    const char *headers[] = {
        "Nats-Msg-Id", id,  "Nats-Expected-Stream", partition->stream, record->key ? NRD_JS_KEY_HEADER : NULL,
        record->key,   NULL
    };
    nrd_js_request(outbox->topic->engine->conn, partition->subject, headers, record->payload, record->size, ANSWER_MS,
                   on_answer, record);
}

/* Marks what fits the window; sends it without the lock, in order: one thread at a time is here, since `next` moves only
 * here and the marks are set before. */
static void send_and_unlock(NrdJsOutbox *outbox)
{
    g_autoptr(GPtrArray) out = g_ptr_array_new();
    while (outbox->next && outbox->n_out < WINDOW && outbox->bytes_out < WINDOW_BYTES) {
        Record *record = outbox->next->data;
        if (record->number >= outbox->run_end)
            break;
        outbox->next = outbox->next->next;
        if (record->state != RECORD_HELD)
            continue;
        record->state = RECORD_OUT;
        outbox->n_out++;
        outbox->bytes_out += record->size;
        nrd_js_outbox_ref(outbox);
        g_ptr_array_add(out, record);
    }
    for (guint i = 0; i < out->len; i++)
        send_one(outbox, out->pdata[i]);
    g_mutex_unlock(&outbox->lock);
}

/* A run that has records, or an answer at once. The lock is released. */
static void run_and_unlock(NrdJsOutbox *outbox)
{
    if (outbox->running) {
        g_mutex_unlock(&outbox->lock);
        return;
    }
    int rc = outbox->partition ? nrd_js_partition_usable(outbox->partition) : nrd_js_topic_usable(outbox->topic);
    if (outbox->records.length == 0 || rc < 0) {
        answer_locked(outbox, outbox->n_stored, outbox->records.length == 0 ? 0 : rc);
        g_mutex_unlock(&outbox->lock);
        return;
    }
    begin_run_locked(outbox);
    send_and_unlock(outbox);
}

/* Linger is over, or a pause before the next try. */
static void on_timer(void *user_data)
{
    NrdJsOutbox *outbox = user_data;
    g_mutex_lock(&outbox->lock);
    if (!outbox->running) {
        run_and_unlock(outbox);
    } else if (outbox->failed && outbox->n_out == 0) {
        outbox->failed = false;
        outbox->next = outbox->records.head;
        send_and_unlock(outbox);
    } else {
        g_mutex_unlock(&outbox->lock);
    }
}

void nrd_js_outboxes_fail(GPtrArray *outboxes, int error)
{
    for (guint i = 0; i < outboxes->len; i++) {
        NrdJsOutbox *outbox = outboxes->pdata[i];
        g_mutex_lock(&outbox->lock);
        outbox->untold_errno = -error;
        answer_locked(outbox, outbox->n_stored, error);
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
    if (rc == 0 && outbox->failing_errno > 0 && outbox->bytes >= FULL_BYTES)
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
    guint n = outbox->records.length;
    NrdUrgency urgency = outbox->bytes >= FULL_BYTES                          ? NRD_URGENCY_FULL
                         : outbox->bytes >= FLUSH_BYTES || n >= FLUSH_RECORDS ? NRD_URGENCY_NOW
                                                                              : NRD_URGENCY_LATER;
    if (n > 0 && urgency == NRD_URGENCY_LATER && !outbox->running)
        nrd_timer_set_earlier(outbox->topic->engine->timers, &outbox->timer, nrd_clock_mono_ms() + linger_ms);
    g_mutex_unlock(&outbox->lock);
    return urgency;
}

void nrd_js_outbox_sync(NrdJsOutbox *outbox, NrdDoneFn done, void *user_data)
{
    g_mutex_lock(&outbox->lock);
    SyncWaiter waiter = { .number = outbox->n_added, .done = done, .user_data = user_data };
    g_array_append_val(outbox->waiters, waiter);
    outbox->untold_errno = 0; /* this one tells */
    run_and_unlock(outbox);
}

size_t nrd_js_outbox_read_ranges(NrdJsOutbox *outbox, char *buf, size_t size)
{
    g_mutex_lock(&outbox->lock);
    size_t n = MIN(size, outbox->ranges->len);
    if (n > 0) {
        memcpy(buf, outbox->ranges->str, n);
        g_string_erase(outbox->ranges, 0, (gssize)n);
    }
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
    guint n = outbox->records.length;
    g_mutex_unlock(&outbox->lock);
    if (error < 0 && n > 0 && error != -EIDRM)
        nrd_diag(NRD_LEVEL_ERROR, nrd_js_topic_place(outbox->topic),
                 "%u record%s of a writer that has closed could not be stored, and are dropped: %s", n, nrd_plural(n),
                 g_strerror(-error));
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
    nrd_js_outbox_sync(outbox, on_closed, closing);
}

void nrd_js_outbox_flush(NrdJsOutbox *outbox)
{
    g_mutex_lock(&outbox->lock);
    run_and_unlock(outbox);
}
