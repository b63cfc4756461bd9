/* The joint of WAL, checkpoint and dispatcher. See ingress.h for what it promises. */
#include "engine/ingress/ingress.h"

#include "engine/base/diag.h"
#include "engine/base/errors.h"
#include "engine/ingress/admission.h"
#include "engine/ingress/checkpoint.h"
#include "engine/ingress/dispatcher.h"
#include "engine/ingress/wal.h"
#include "engine/io/io.h"

#include <errno.h>
#include <string.h>

#define DEFAULT_WORKERS 8
#define DEFAULT_SEGMENT_BYTES (16 * NRD_MIB)
#define DEFAULT_MEMORY_BYTES (64 * NRD_MIB)
#define DEFAULT_CHECKPOINT_MS 250
#define DEFAULT_MAX_PARTS (NRD_CHECKPOINT_MAX_PARTS / 2)
#define DEFAULT_MAX_BYTES (8 * NRD_GIB)
#define LITTER_BYTES (64 * NRD_MIB) /* as much of what is done with may stay in the WAL for want of an occasion */

struct NrdIngress {
    int root_fd;
    NrdWal *wal;
    NrdDispatcher *dispatcher;
    NrdAdmission *admission;
    NrdCheckpoint found;             /* at the open; empty afterwards */
    bool damaged;                    /* so was the file then: a close writes it anew, whatever there was to do */
    pthread_mutex_t checkpoint_lock; /* held across a checkpoint's I/O; before the dispatcher's */
    int checkpoint_error;            /* of the last; guarded by checkpoint_lock */
};

/* ---- the checkpoint ---- */

static void report(NrdIngress *ingress, int error)
{
    if (error < 0)
        nrd_counter_add(NRD_COUNTER_INGRESS_CHECKPOINT, 1);
    if (error < 0 && error != ingress->checkpoint_error)
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "the ingress checkpoint could not be written: %s; tried again",
                 g_strerror(-error));
    if (error == 0 && ingress->checkpoint_error < 0)
        nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE, "the ingress checkpoint can be written again");
    ingress->checkpoint_error = error;
}

/* A little that is stuck would keep whole segments. */
static void clear_litter(NrdIngress *ingress)
{
    if (nrd_wal_litter_bytes(ingress->wal) > LITTER_BYTES)
        (void)nrd_wal_make_room(ingress->wal);
}

/* A crash before it is over leaves the old one: what was committed since is looked up, or committed twice, as ingress.h
 * says. A crash after it, before segments are removed, leaves them to the next sweep. */
static int checkpoint_locked(NrdIngress *ingress)
{
    NrdCheckpoint now;
    uint64_t moved = 0;
    nrd_checkpoint_init(&now);
    nrd_dispatcher_snapshot(ingress->dispatcher, &now, &moved);
    int rc = nrd_checkpoint_store(ingress->root_fd, &now);
    if (nrd_error_is_full(rc)) {
        nrd_wal_sweep(ingress->wal, 0);
        (void)nrd_wal_make_room(ingress->wal);
        rc = nrd_checkpoint_store(ingress->root_fd, &now);
    }
    report(ingress, rc);
    if (rc == 0)
        nrd_dispatcher_noted(ingress->dispatcher, moved);
    nrd_wal_sweep(ingress->wal, rc == 0 ? now.top : 0);
    clear_litter(ingress);
    nrd_checkpoint_clear(&now);
    return rc;
}

static int write_checkpoint(void *user_data, uint64_t note)
{
    NrdIngress *ingress = user_data;
    int rc = 0;
    pthread_mutex_lock(&ingress->checkpoint_lock);
    if (note == 0 || !nrd_dispatcher_is_noted(ingress->dispatcher, note))
        rc = checkpoint_locked(ingress);
    pthread_mutex_unlock(&ingress->checkpoint_lock);
    return rc;
}

/* With a checkpoint, segments that nobody needs can go too. */
static void make_room(void *user_data)
{
    NrdIngress *ingress = user_data;
    (void)nrd_wal_make_room(ingress->wal);
    (void)!write_checkpoint(ingress, 0);
}

/* ---- appending ---- */

typedef struct Append {
    NrdWalAppend wal;
    NrdIngress *ingress;
    char *topic;
    char id[NRD_ENTRY_ID_DIGITS + 1];
    NrdIngressSink sink;
    NrdIngressDoneFn done;
    void *user_data;
    uint64_t n_flying;
    int error;
} Append;

/* Just before it is written: each part learns what offset it will get. */
static void stamp(void *user_data, NrdWalAppend *wal_append)
{
    NrdIngress *ingress = user_data;
    Append *append = (Append *)wal_append;
    NrdEntryView view;
    nrd_entry_view_own(append->wal.bytes, &view);
    for (uint32_t i = 0; i < view.head.n_parts; i++) {
        NrdEntryPart part;
        nrd_entry_part(&view, i, &part);
        NrdIngressTarget target = { append->topic, append->id, part.partition };
        nrd_entry_set_expected(append->wal.bytes, i,
                               nrd_dispatcher_stamp(ingress->dispatcher, &target, part.n_records));
    }
}

static void unstamp(Append *append)
{
    NrdEntryView view;
    nrd_entry_view_own(append->wal.bytes, &view);
    for (uint32_t i = 0; append->wal.stamped && i < view.head.n_parts; i++) {
        NrdEntryPart part;
        nrd_entry_part(&view, i, &part);
        nrd_dispatcher_unstamp(append->ingress->dispatcher, append->id, part.partition, part.n_records);
    }
}

static void to_dispatcher(Append *append)
{
    NrdPending *entry = g_new0(NrdPending, 1);
    entry->sequence = append->wal.sequence;
    entry->segment = append->wal.segment;
    entry->pos = append->wal.pos;
    entry->size = append->wal.size;
    entry->topic = g_steal_pointer(&append->topic);
    entry->sink = append->sink;
    entry->bytes = g_steal_pointer(&append->wal.bytes);
    memcpy(entry->id, append->id, sizeof entry->id);
    nrd_dispatcher_add(append->ingress->dispatcher, entry);
}

static void release(const NrdIngressSink *sink)
{
    if (sink->release)
        sink->release(sink->user_data);
}

static void on_written(NrdWalAppend *wal_append, int error)
{
    Append *append = (Append *)wal_append;
    append->error = error;
    append->done(append->user_data, error);
}

/* After the answers: the workers that this wakes would compete with them for the processors. Until then the parts count
 * as being written. */
static void on_answered(NrdWalAppend *wal_append)
{
    Append *append = (Append *)wal_append;
    if (append->error == 0) {
        to_dispatcher(append);
    } else {
        unstamp(append);
        release(&append->sink);
    }
    nrd_admission_leave(append->ingress->admission, append->n_flying); /* the dispatcher counts it by now */
    g_free(append->wal.bytes);
    g_free(append->topic);
    g_free(append);
}

static bool hand_over(void *user_data)
{
    NrdIngress *ingress = user_data;
    return nrd_dispatcher_write_wal(ingress->dispatcher);
}

void nrd_ingress_append(NrdIngress *ingress, const NrdEntryDraft *draft, const char *topic, const char *id,
                        const NrdIngressSink *sink, NrdIngressDoneFn done, void *user_data)
{
    Append *append = g_new0(Append, 1);
    append->n_flying = draft->n_bytes;
    int rc = nrd_admission_enter(ingress->admission, topic, id, append->n_flying);
    if (rc == 0) {
        rc = nrd_entry_encode(draft, topic, id, &append->wal.bytes, &append->wal.size);
        if (rc < 0)
            nrd_admission_leave(ingress->admission, append->n_flying);
    }
    if (rc < 0) {
        g_free(append);
        release(sink);
        done(user_data, rc);
        return;
    }
    append->wal.n_parts = g_hash_table_size(draft->parts);
    append->wal.done = on_written;
    append->wal.answered = on_answered;
    append->ingress = ingress;
    append->topic = g_strdup(topic);
    append->sink = *sink;
    append->done = done;
    append->user_data = user_data;
    g_strlcpy(append->id, id, sizeof append->id);
    nrd_wal_append(ingress->wal, &append->wal);
}

/* ---- life ---- */

/* An entry that an earlier run left. */
static uint32_t replay(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view)
{
    NrdIngress *ingress = user_data;
    NrdPending *entry = g_new0(NrdPending, 1);
    entry->sequence = view->head.sequence;
    entry->segment = nrd_wal_segment_ref(segment);
    entry->pos = pos;
    entry->size = view->head.size;
    entry->topic = g_strndup((const char *)view->topic, view->head.topic_size);
    memcpy(entry->id, view->head.id, sizeof entry->id);
    uint32_t n = nrd_dispatcher_replay(ingress->dispatcher, entry, view, &ingress->found);
    if (n == 0)
        nrd_pending_free(entry);
    return n;
}

static void ingress_free(NrdIngress *ingress)
{
    nrd_dispatcher_free(ingress->dispatcher);
    nrd_admission_free(ingress->admission);
    nrd_checkpoint_clear(&ingress->found);
    pthread_mutex_destroy(&ingress->checkpoint_lock);
    g_free(ingress);
}

/* Above every sequence that the checkpoint has ever spoken of. */
static uint64_t min_sequence(const NrdCheckpoint *found)
{
    uint64_t min = MAX(MAX(found->top, found->trust), 1);
    if (found->parts->len > 0)
        min = MAX(min, g_array_index(found->parts, NrdCheckpointPart, found->parts->len - 1).sequence + 1);
    return min;
}

static int open_wal(NrdIngress *ingress, const NrdIngressOptions *options)
{
    NrdWalOptions wal_options = {
        .root_fd = options->root_fd,
        .segment_bytes = options->segment_bytes ? options->segment_bytes : DEFAULT_SEGMENT_BYTES,
        .min_sequence = min_sequence(&ingress->found),
        .stamp = stamp,
        .hand_over = hand_over,
        .user_data = ingress,
    };
    int rc = nrd_wal_open(&wal_options, replay, ingress, &ingress->wal);
    if (rc < 0)
        return rc;
    nrd_dispatcher_set_wal(ingress->dispatcher, ingress->wal);
    nrd_admission_set_wal(ingress->admission, ingress->wal);
    nrd_dispatcher_set_top(ingress->dispatcher, nrd_wal_next_sequence(ingress->wal), ingress->found.trust);
    return 0;
}

/* What entries name may be somebody else's records by now: neither this run nor the next one is to believe it. */
static int forget_names(NrdIngress *ingress)
{
    uint64_t next = nrd_wal_next_sequence(ingress->wal);
    nrd_dispatcher_set_top(ingress->dispatcher, next, next);
    return nrd_dispatcher_n_parts(ingress->dispatcher) > 0 ? write_checkpoint(ingress, 0) : 0;
}

int nrd_ingress_open(const NrdIngressOptions *options, NrdIngress **ret_ingress)
{
    NrdIngress *ingress = g_new0(NrdIngress, 1);
    NrdDispatcherOptions dispatcher_options = {
        .ops = options->ops,
        .n_workers = options->n_workers ? options->n_workers : DEFAULT_WORKERS,
        .memory_bytes = options->memory_bytes ? options->memory_bytes : DEFAULT_MEMORY_BYTES,
        .checkpoint = write_checkpoint,
        .nameless = options->nameless,
        .make_room = make_room,
        .checkpoint_ms = options->checkpoint_ms ? options->checkpoint_ms : DEFAULT_CHECKPOINT_MS,
        .user_data = ingress,
    };
    ingress->root_fd = options->root_fd;
    pthread_mutex_init(&ingress->checkpoint_lock, NULL);
    nrd_checkpoint_init(&ingress->found);
    ingress->dispatcher = nrd_dispatcher_new(&dispatcher_options);
    if (!ingress->dispatcher) {
        ingress_free(ingress);
        return -EAGAIN;
    }
    NrdAdmissionOptions admission_options = {
        .root_fd = options->root_fd,
        .dispatcher = ingress->dispatcher,
        .max = { .n_parts = options->max_parts ? options->max_parts : DEFAULT_MAX_PARTS,
                 .n_bytes = options->max_bytes ? options->max_bytes : DEFAULT_MAX_BYTES },
    };
    ingress->admission = nrd_admission_new(&admission_options);
    int rc = nrd_checkpoint_load(options->root_fd, &ingress->found, &ingress->damaged);
    if (rc == 0)
        rc = open_wal(ingress, options);
    if (rc == 0 && options->nameless)
        rc = forget_names(ingress);
    if (rc < 0) {
        nrd_dispatcher_stop(ingress->dispatcher);
        nrd_wal_close(ingress->wal, 0);
        ingress_free(ingress);
        return rc;
    }
    *ret_ingress = ingress;
    return 0;
}

void nrd_ingress_start(NrdIngress *ingress)
{
    uint64_t n_parts = nrd_dispatcher_n_parts(ingress->dispatcher);
    if (n_parts > 0)
        nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE,
                 "%" G_GUINT64_FORMAT " batches in the ingress WAL are from an earlier run: they are committed now",
                 n_parts);
    nrd_dispatcher_start(ingress->dispatcher);
}

int nrd_ingress_close(NrdIngress *ingress, int64_t drain_ms)
{
    if (!ingress)
        return 0;
    uint64_t durable = 0;
    int rc = 0;
    nrd_wal_settle(ingress->wal); /* the last checkpoint says that all sequences below the next one are known */
    if (!nrd_dispatcher_drain(ingress->dispatcher, drain_ms))
        nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE,
                 "%" G_GUINT64_FORMAT " batches in the ingress WAL are not committed yet: the next start goes on",
                 nrd_dispatcher_n_parts(ingress->dispatcher));
    nrd_dispatcher_stop(ingress->dispatcher);
    /* A WAL that was never written needs no checkpoint. */
    uint64_t next = nrd_wal_next_sequence(ingress->wal);
    nrd_dispatcher_set_top(ingress->dispatcher, next, 0);
    if (next > 1 || ingress->damaged)
        rc = write_checkpoint(ingress, 0);
    if (rc < 0) /* nobody comes later to try again, and what it does not say may come twice */
        rc = write_checkpoint(ingress, 0);
    if (next > 1 && rc == 0)
        durable = next;
    nrd_wal_close(ingress->wal, durable);
    ingress_free(ingress);
    return rc;
}

/* ---- the rest ---- */

bool nrd_ingress_holds(NrdIngress *ingress, const char *id)
{
    return nrd_dispatcher_holds(ingress->dispatcher, id);
}

int nrd_ingress_claim(NrdIngress *ingress, const char *id, uint32_t partition)
{
    return nrd_dispatcher_claim(ingress->dispatcher, id, partition);
}

void nrd_ingress_unclaim(NrdIngress *ingress, const char *id, uint32_t partition)
{
    nrd_dispatcher_unclaim(ingress->dispatcher, id, partition);
}

void nrd_ingress_forget(NrdIngress *ingress, const char *id)
{
    nrd_admission_forget(ingress->admission, id);
}

int nrd_ingress_refusal(NrdIngress *ingress, const char *id)
{
    return nrd_admission_refusal(ingress->admission, id);
}

void nrd_ingress_kick(NrdIngress *ingress)
{
    nrd_dispatcher_kick(ingress->dispatcher);
}

void nrd_ingress_stats(NrdIngress *ingress, NrdIngressStats *ret_stats)
{
    ret_stats->n_parts = nrd_dispatcher_n_parts(ingress->dispatcher);
    ret_stats->n_waiting = nrd_dispatcher_n_waiting(ingress->dispatcher);
    ret_stats->wal_bytes = nrd_wal_size_bytes(ingress->wal);
    ret_stats->error = nrd_wal_error(ingress->wal);
}
