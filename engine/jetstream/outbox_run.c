/* Producing: how what an open handle holds is sent until the servers have acknowledged it.
 *
 * A record is published with an id of its own, which the servers know for two minutes: a publish that is repeated, because its
 * answer was lost or a leader was being elected, is stored once. Records go out in order, a window of them at a time, each with
 * its own answer. When one fails the others that are out are waited for, and all that have no answer go out again, in order;
 * but what the servers had taken behind one that they had not stays where it is, so a change of leaders can reorder records of
 * one window, and a batch may be stored in part. An fsync is answered when every record before it has its acknowledgement, or,
 * when 25 seconds have brought none, with an error: then the records stay, with their ids, and the next one tries again. One
 * whose id may be forgotten by then is looked for first (outbox_look.c).
 *
 * To a topic as a whole a record of a partition that takes nothing goes to another one, unless it was sent and may be stored.
 * Such a one is passed over: the records behind it go on, and the run ends with an error.
 *
 * A run (`running`) begins with an fsync, a full buffer or the linger timer, and ends when everything that was there is
 * acknowledged, or with a failure. Locks: the outbox's; see js_private.h. */
#include "engine/jetstream/outbox_private.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/streams.h"
#include "engine/jetstream/topic.h"

#include "engine/base/clock.h"
#include "engine/base/ranges.h"

#define WINDOW 512                     /* records that are out at once */
#define WINDOW_BYTES (8 * 1024 * 1024) /* ... and their bytes */
#define ANSWER_MS 5000                 /* then the same record goes out again */
#define RETRY_MS 250

static void send_locked(NrdJsOutbox *outbox);

/* ---- what is told of it ---- */

static void note_stored(NrdJsOutbox *outbox, const NrdJsOut *record)
{
    guint n = outbox->runs->len;
    for (guint i = n; i > 0 && n - i < 64; i--) { /* the newest run of that partition, if it is near */
        NrdJsRun *run = &g_array_index(outbox->runs, NrdJsRun, i - 1);
        if (run->partition != record->partition->number)
            continue;
        if (run->last + 1 != record->sequence - 1)
            break;
        run->last++;
        return;
    }
    NrdJsRun run = { record->partition->number, record->sequence - 1, record->sequence - 1 };
    g_array_append_val(outbox->runs, run);
}

static void tell_runs_locked(NrdJsOutbox *outbox)
{
    for (guint i = 0; i < outbox->runs->len && outbox->want_ranges; i++) {
        const NrdJsRun *run = &g_array_index(outbox->runs, NrdJsRun, i);
        nrd_ranges_add(outbox->ranges, run->partition, run->first, run->last);
    }
    g_array_set_size(outbox->runs, 0);
}

/* ---- a run ---- */

static void note_commit_locked(NrdJsOutbox *outbox, int error)
{
    NrdPartition *partition = outbox->partition;
    const NrdJsOut *first = outbox->records.head ? outbox->records.head->data : NULL;
    bool news = error < 0 && error != -EIDRM;
    outbox->failing_errno = -error;
    if (error == -EIO && first)
        nrd_js_stream_look_later(first->partition);
    if (partition)
        news = nrd_js_partition_committed(partition, error);
    if (news)
        nrd_js_outbox_say_locked(
            outbox, NRD_LEVEL_ERROR, partition,
            "records could not be stored: %s; they stay with their writer, and another fsync tries again",
            g_strerror(-error));
}

/* Nothing is out. A failure that nobody waits for is kept for the next call of the writer. */
static void end_run_locked(NrdJsOutbox *outbox, int error)
{
    outbox->running = false;
    tell_runs_locked(outbox);
    note_commit_locked(outbox, error);
    if (error == 0) {
        nrd_counter_add(NRD_COUNTER_COMMITS, 1);
    } else if (outbox->waiters->len == 0) {
        outbox->untold_errno = -error;
    }
    nrd_js_outbox_answer_locked(outbox, outbox->n_stored, error);
}

/* From the first record on. */
static void begin_pass_locked(NrdJsOutbox *outbox, bool repeats)
{
    outbox->next = outbox->records.head;
    outbox->failed = false;
    outbox->repeats = repeats;
    outbox->n_passed = 0;
}

static void begin_run_locked(NrdJsOutbox *outbox)
{
    outbox->run_end = outbox->n_added;
    begin_pass_locked(outbox, false);
    outbox->run_error = 0;
    outbox->progress_ms = nrd_clock_mono_ms();
    outbox->running = true;
}

static void note_popped(NrdJsOutbox *outbox, const NrdJsOut *record)
{
    outbox->bytes -= record->cost;
    bool at_the_front = record->number == outbox->n_stored;
    if (record->state == NRD_JS_OUT_REFUSED && at_the_front && outbox->run_error == 0)
        nrd_js_outbox_answer_locked(outbox, record->number, 0); /* who waits for those before it alone */
    const NrdJsOut *first = outbox->records.head ? outbox->records.head->data : NULL;
    outbox->n_stored = first ? first->number : outbox->n_taken;
    if (record->state == NRD_JS_OUT_REFUSED) {
        outbox->lost_errno = EMSGSIZE;
        return;
    }
    nrd_counter_add(NRD_COUNTER_PRODUCED, 1);
    note_stored(outbox, record);
}

static void pop_locked(NrdJsOutbox *outbox, NrdJsOut *record)
{
    if (outbox->next == &record->link)
        outbox->next = record->link.next;
    g_queue_unlink(&outbox->records, &record->link);
    note_popped(outbox, record);
    nrd_js_out_free(record);
}

/* What is stored at the front leaves, or was refused. */
static void pop_stored_locked(NrdJsOutbox *outbox)
{
    NrdJsOut *record;
    while ((record = outbox->records.head ? outbox->records.head->data : NULL) && record->state >= NRD_JS_OUT_STORED)
        pop_locked(outbox, record);
    if (outbox->run_error == 0)
        nrd_js_outbox_answer_locked(outbox, outbox->n_stored, 0);
}

/* After each answer: goes on, tries again, or ends. */
static void go_on_locked(NrdJsOutbox *outbox)
{
    bool over = nrd_clock_mono_ms() - outbox->progress_ms >= NRD_JS_PATIENCE_MS;
    bool wait_for_others = outbox->n_out > 0;
    if (atomic_load(&outbox->topic->deleted))
        outbox->run_error = -EIDRM;
    else if (outbox->failed && outbox->run_error == 0 && nrd_js_outbox_is_gone_locked(outbox))
        outbox->run_error = -EIO;
    if (outbox->n_stored >= outbox->run_end && outbox->waiters->len > 0 && !outbox->failed)
        outbox->run_end = outbox->n_added; /* who came meanwhile goes with this run */
    if (outbox->run_error < 0 || outbox->failed) {
        if (!wait_for_others && (outbox->run_error < 0 || over))
            end_run_locked(outbox, outbox->run_error < 0 ? outbox->run_error : -EIO);
        else if (!wait_for_others && outbox->closed)
            end_run_locked(outbox, -EIO);
        else if (!wait_for_others)
            nrd_timer_set(outbox->topic->engine->timers, &outbox->timer, nrd_clock_mono_ms() + RETRY_MS);
    } else if (outbox->n_stored >= outbox->run_end) {
        end_run_locked(outbox, 0);
    } else {
        send_locked(outbox);
    }
}

static void take_failure_locked(NrdJsOutbox *outbox, NrdJsOut *record, int error, const char *why)
{
    if (error == -ETIMEDOUT)
        nrd_js_partition_nudge(record->partition);
    if (error == -EAGAIN || error == -ETIMEDOUT) {
        outbox->failed = true;
        return;
    }
    if (error == -EMSGSIZE) {
        nrd_js_outbox_say_locked(
            outbox, NRD_LEVEL_ERROR, record->partition,
            "a record of %" G_GSIZE_FORMAT
            " bytes is dropped, as its writer's next fsync or close is told: it is longer than what "
            "the servers take by now (max_payload)",
            record->size);
        record->state = NRD_JS_OUT_REFUSED;
        pop_stored_locked(outbox);
    } else if (outbox->run_error == 0) {
        outbox->run_error = error == -ENOSPC || error == -ENODEV ? error : -EIO;
        nrd_js_outbox_say_locked(outbox, NRD_LEVEL_WARNING, record->partition, "a record was not taken: %s",
                                 why ? why : g_strerror(-error));
    }
}

void nrd_js_out_id(const NrdJsOut *record, char id[NRD_JS_OUTBOX_ID_BYTES])
{
    g_snprintf(id, NRD_JS_OUTBOX_ID_BYTES, "%s-%" G_GUINT64_FORMAT, record->outbox->id, record->number);
}

static void take_answer_locked(NrdJsOutbox *outbox, NrdJsOut *record, int error, natsMsg *msg)
{
    g_autofree char *why = NULL;
    bool duplicate = false;
    if (error == 0)
        error = nrd_js_parse_ack_reply(natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg), &record->sequence,
                                       &duplicate, &why);
    outbox->n_out--;
    outbox->bytes_out -= record->size;
    record->state = error == 0 ? NRD_JS_OUT_STORED : NRD_JS_OUT_HELD;
    bool was_there = msg || error != -EAGAIN; /* else it was not sent, or nobody was there to take it */
    record->doubtful |= error < 0 && was_there;
    record->told &= !was_there; /* else there is nothing new to tell of it */
    if (error == -EAGAIN && !msg)
        nrd_js_stream_suspect(record->partition);
    if (error < 0) {
        take_failure_locked(outbox, record, error, why);
        return;
    }
    outbox->progress_ms = nrd_clock_mono_ms();
    atomic_store(&outbox->topic->engine->progress_ms, outbox->progress_ms);
    char id[NRD_JS_OUTBOX_ID_BYTES];
    nrd_js_out_id(record, id);
    nrd_js_partition_published(record->partition, record->sequence, nrd_js_acked_hash(id), duplicate,
                               record->sent_after);
    pop_stored_locked(outbox);
}

static void on_answer(void *user_data, int error, natsMsg *msg)
{
    NrdJsOut *record = user_data;
    NrdJsOutbox *outbox = record->outbox;
    g_mutex_lock(&outbox->lock);
    take_answer_locked(outbox, record, error, msg);
    go_on_locked(outbox);
    nrd_js_outbox_unlock(outbox);
    natsMsg_Destroy(msg);
    nrd_js_outbox_unref(outbox);
}

static void send_one(NrdJsOutbox *outbox, NrdJsOut *record)
{
    NrdPartition *partition = record->partition;
    if (record->again)
        nrd_counter_add(NRD_COUNTER_PUBLISH_RETRIES, 1);
    if (!record->doubtful) {
        record->sent_after = nrd_js_partition_end(partition);
        record->first_sent_ms = nrd_clock_mono_ms();
    }
    record->again = true;
    record->passed = false;
    char id[NRD_JS_OUTBOX_ID_BYTES];
    nrd_js_out_id(record, id);
    const char *headers[] = {
        NRD_JS_ID_HEADER, id,  "Nats-Expected-Stream", partition->stream, record->key ? NRD_JS_KEY_HEADER : NULL,
        record->key,      NULL
    };
    nrd_js_request(outbox->topic->engine->conn, partition->subject, headers, record->payload, record->size, ANSWER_MS,
                   on_answer, record);
}

/* What is stored behind a record that was passed over leaves all the same. */
static void pop_behind_locked(NrdJsOutbox *outbox)
{
    for (GList *link = outbox->records.head, *next; link; link = next) {
        NrdJsOut *record = link->data;
        next = link->next;
        if (record->state >= NRD_JS_OUT_STORED)
            pop_locked(outbox, record);
    }
}

/* Nothing is out, and all but what was passed over is stored. Its writer is told by each fsync, as one that succeeds says that
 * all is stored; by a write, and the fsyncs of other open files, once. */
static void end_passed_locked(NrdJsOutbox *outbox)
{
    const NrdJsOut *first = outbox->records.head->data;
    int error = nrd_js_partition_why(first->partition, -EIO);
    outbox->running = false;
    pop_behind_locked(outbox);
    tell_runs_locked(outbox);
    outbox->failing_errno = -error;
    nrd_js_stream_look_later(first->partition);
    bool news = nrd_js_outbox_tell_passed_locked(outbox);
    if (news && outbox->waiters->len == 0)
        outbox->untold_errno = -error;
    if (!news)
        nrd_js_outbox_answer_others_locked(outbox);
    nrd_js_outbox_answer_locked(outbox, outbox->n_stored, error);
}

/* Hands what fits the window to the thread that sends, which keeps the order: with the lock held, so that nobody comes
 * between. */
static void hand_window_locked(NrdJsOutbox *outbox)
{
    while (outbox->n_out < WINDOW && outbox->bytes_out < WINDOW_BYTES) {
        if (!outbox->next && outbox->n_taken < outbox->run_end)
            outbox->next = &nrd_js_outbox_take_up_locked(outbox)->link;
        if (!outbox->next)
            break;
        NrdJsOut *record = outbox->next->data;
        if (record->number >= outbox->run_end)
            break;
        if (record->state == NRD_JS_OUT_HELD && !nrd_js_outbox_find_place_locked(outbox, record)) {
            if (nrd_js_outbox_pass_locked(outbox, record))
                continue;
            outbox->run_error = nrd_js_partition_why(record->partition, -EIO);
            break;
        }
        if (nrd_js_out_is_late(record)) {
            outbox->failed = outbox->n_out > 0; /* then after those */
            if (outbox->n_out == 0)
                nrd_js_outbox_look_locked(outbox);
            break;
        }
        outbox->next = outbox->next->next;
        if (record->state != NRD_JS_OUT_HELD)
            continue;
        record->state = NRD_JS_OUT_OUT;
        outbox->n_out++;
        outbox->bytes_out += record->size;
        nrd_js_outbox_ref(outbox);
        send_one(outbox, record);
    }
}

/* When nothing can be sent, and nothing is out, the run is over; who came meanwhile goes with it first. */
static void send_locked(NrdJsOutbox *outbox)
{
    hand_window_locked(outbox);
    if (outbox->n_out == 0 && outbox->n_passed > 0 && outbox->waiters->len > 0 && outbox->run_error == 0) {
        outbox->run_end = outbox->n_added;
        hand_window_locked(outbox);
    }
    if (outbox->n_out > 0)
        return;
    if (outbox->run_error < 0)
        end_run_locked(outbox, outbox->run_error);
    else if (outbox->n_passed > 0)
        end_passed_locked(outbox);
}

void nrd_js_outbox_looked(NrdJsOutbox *outbox, int error)
{
    g_mutex_lock(&outbox->lock);
    outbox->n_out--;
    outbox->run_error = error;
    begin_pass_locked(outbox, outbox->repeats);
    pop_stored_locked(outbox);
    go_on_locked(outbox);
    nrd_js_outbox_unlock(outbox);
    nrd_js_outbox_unref(outbox);
}

void nrd_js_outbox_run_and_unlock(NrdJsOutbox *outbox)
{
    if (outbox->running) {
        nrd_js_outbox_unlock(outbox);
        return;
    }
    int rc = outbox->closed      ? -EIO
             : outbox->partition ? nrd_js_partition_usable(outbox->partition)
                                 : nrd_js_topic_usable(outbox->topic);
    bool empty = nrd_js_outbox_n_locked(outbox) == 0;
    if (empty && rc != -EIDRM)
        rc = 0; /* what is not there fails of nothing but the end of its topic */
    if (empty || rc < 0) {
        nrd_js_outbox_answer_locked(outbox, outbox->n_stored, rc);
        nrd_js_outbox_unlock(outbox);
        return;
    }
    begin_run_locked(outbox);
    send_locked(outbox);
    nrd_js_outbox_unlock(outbox);
}

void nrd_js_outbox_stop_locked(NrdJsOutbox *outbox)
{
    outbox->closed = true;
    nrd_timer_clear(outbox->topic->engine->timers, &outbox->timer);
    if (outbox->running && outbox->n_out == 0) /* until its next try, which does not come */
        end_run_locked(outbox, -EIO);
}

void nrd_js_outbox_on_timer(void *user_data)
{
    NrdJsOutbox *outbox = user_data;
    g_mutex_lock(&outbox->lock);
    if (!outbox->running && !outbox->closed) {
        nrd_js_outbox_run_and_unlock(outbox);
    } else if (outbox->failed && outbox->n_out == 0 && !outbox->closed) {
        begin_pass_locked(outbox, true);
        send_locked(outbox);
        nrd_js_outbox_unlock(outbox);
    } else {
        nrd_js_outbox_unlock(outbox);
    }
}
