/* Appending: rounds, and who writes them. The promise is in wal.h. */
#include "engine/base/diag.h"
#include "engine/base/errors.h"
#include "engine/ingress/wal_private.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define IOV_BATCH 256
#define ROUND_BYTES (64 * NRD_MIB)
#define ROUNDS_OF_A_WRITER 16

static void unref_segment(gpointer segment)
{
    nrd_wal_segment_unref(segment);
}

static void wal_free(NrdWal *wal)
{
    nrd_io_close(&wal->active_fd);
    nrd_wal_segment_unref(wal->active);
    g_free(wal->proof);
    g_ptr_array_unref(wal->segments);
    pthread_cond_destroy(&wal->idle);
    pthread_mutex_destroy(&wal->lock);
    g_free(wal);
}

int nrd_wal_open(const NrdWalOptions *options, NrdWalFoundFn found, void *found_data, NrdWal **ret_wal)
{
    NrdWal *wal = g_new0(NrdWal, 1);
    wal->options = *options;
    wal->tail = &wal->head;
    wal->active_fd = -1;
    wal->proof = g_malloc(NRD_WAL_PROOF_BYTES);
    wal->next_sequence = MAX(options->min_sequence, 1);
    wal->next_number = 1;
    wal->segments = g_ptr_array_new_with_free_func(unref_segment);
    pthread_mutex_init(&wal->lock, NULL);
    pthread_cond_init(&wal->idle, NULL);
    int rc = nrd_wal_recover(wal, found, found_data);
    if (rc < 0) {
        wal_free(wal);
        return rc;
    }
    *ret_wal = wal;
    return 0;
}

/* ---- a round ---- */

typedef struct Round {
    NrdWalAppend *head, **tail;
    uint32_t n;
    uint64_t n_bytes;
} Round;

/* Takes what waits, up to a bound. Lock held. */
static void take_round_locked(NrdWal *wal, Round *round)
{
    *round = (Round){ .head = wal->head };
    round->tail = &round->head;
    while (*round->tail && (round->n == 0 || round->n_bytes + (*round->tail)->size <= ROUND_BYTES)) {
        round->n++;
        round->n_bytes += (*round->tail)->size;
        round->tail = &(*round->tail)->next;
    }
    wal->head = *round->tail;
    *round->tail = NULL;
    if (!wal->head)
        wal->tail = &wal->head;
}

/* On a second attempt the sequence is another one, which nobody who took names back has heard of: it names nothing. */
static void stamp(NrdWal *wal, NrdWalAppend *append)
{
    for (uint32_t i = 0; append->stamped && i < append->n_parts; i++)
        nrd_entry_set_expected(append->bytes, i, NRD_ENTRY_OFFSET_UNKNOWN);
    if (!append->stamped && wal->options.stamp)
        wal->options.stamp(wal->options.user_data, append);
    append->stamped = true;
}

static void seal_entries(NrdWal *wal, Round *round)
{
    uint64_t pos = wal->active_size;
    for (NrdWalAppend *a = round->head; a; a = a->next) {
        a->pos = pos;
        pthread_mutex_lock(&wal->lock);
        a->sequence = wal->next_sequence++;
        pthread_mutex_unlock(&wal->lock);
        stamp(wal, a);
        nrd_entry_seal(a->bytes, a->size, wal->active->salt + pos, a->sequence);
        pos += a->size;
    }
}

static int write_entries(NrdWal *wal, const Round *round)
{
    struct iovec iov[IOV_BATCH];
    int64_t pos = (int64_t)wal->active_size;
    const NrdWalAppend *a = round->head;
    int rc = 0;
    while (rc == 0 && a) {
        int n = 0;
        int64_t n_bytes = 0;
        for (; a && n < IOV_BATCH; a = a->next) {
            iov[n++] = (struct iovec){ a->bytes, a->size };
            n_bytes += (int64_t)a->size;
        }
        rc = nrd_io_pwritev_full(wal->active_fd, iov, n, pos);
        pos += n_bytes;
    }
    return rc;
}

/* The sync, and the proof that it was one. A file system that is shut down in this very moment (a power cut of the disk
 * beneath it, an administrator, an error of its own) may let a sync return success for what it threw away; it fails every
 * read that begins afterwards. So a read that fails is as final as a failed sync. */
static int sync_and_prove(NrdWal *wal, const Round *round, const char **ret_what)
{
    *ret_what = "fdatasync";
    int rc = nrd_io->fdatasync(wal->active_fd);
    nrd_counter_add(NRD_COUNTER_INGRESS_SYNCS, 1);
    if (rc < 0)
        return rc;
    *ret_what = "reading back";
    rc = nrd_wal_prove(wal, round->head, round->n_bytes);
    if (rc < 0)
        return rc;
    *ret_what = "a look at the name";
    return nrd_wal_check_place(wal);
}

/* *ret_sync_failed: the segment was abandoned, and another attempt goes to a new one. */
static int try_round(NrdWal *wal, Round *round, bool *ret_sync_failed)
{
    const char *what = NULL;
    int rc = nrd_wal_ensure_active(wal);
    if (rc < 0)
        return rc;
    uint64_t first = nrd_wal_next_sequence(wal);
    seal_entries(wal, round);
    rc = write_entries(wal, round);
    if (rc < 0) {
        nrd_wal_cut_back(wal, first);
        return rc;
    }
    nrd_wal_write_zeros_ahead(wal, round->n_bytes);
    /* A crash before this leaves a part of the round, or none: not acknowledged, replayed if whole. A crash after it
     * leaves all of it, acknowledged or not: replayed. */
    rc = sync_and_prove(wal, round, &what);
    if (rc < 0) {
        nrd_counter_add(NRD_COUNTER_INGRESS_SYNC_FAILED, 1);
        nrd_wal_abandon_active(wal, first, rc, what);
        *ret_sync_failed = true;
    }
    return rc;
}

/* What is durable now counts. */
static void adopt_round(NrdWal *wal, Round *round)
{
    pthread_mutex_lock(&wal->lock);
    wal->active_size += round->n_bytes;
    wal->active->size_bytes = wal->active_size;
    for (NrdWalAppend *a = round->head; a; a = a->next) {
        a->segment = nrd_wal_segment_ref(wal->active);
        wal->active->end_sequence = a->sequence + 1;
        wal->active->n_live += a->n_parts;
    }
    pthread_mutex_unlock(&wal->lock);
    nrd_counter_add(NRD_COUNTER_INGRESS_ENTRIES, round->n);
}

static void report(NrdWal *wal, int error)
{
    if (error < 0)
        nrd_counter_add(NRD_COUNTER_INGRESS_FAILED, 1);
    int before = atomic_exchange(&wal->last_error, error);
    if (error < 0 && error != before)
        nrd_diag(
            NRD_LEVEL_ERROR, NRD_NOWHERE,
            "the ingress WAL could not be written, %s: %s; nothing was acknowledged; %s, then the next sync goes on",
            wal->active ? wal->active->path : NRD_WAL_DIR "/", g_strerror(-error),
            nrd_error_is_full(error) ? "make room"
                                     : "see that " NRD_WAL_DIR "/ in the data directory is a folder that the "
                                       "daemon may write to, and that the disk is well");
    if (error == 0 && before < 0)
        nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE, "the ingress WAL can be written again");
}

static int write_round(NrdWal *wal, Round *round)
{
    bool sync_failed = false;
    int rc = try_round(wal, round, &sync_failed);
    if (rc < 0 && sync_failed) /* once more, where nothing has failed yet */
        rc = try_round(wal, round, &sync_failed);
    if (rc == 0)
        adopt_round(wal, round);
    report(wal, rc);
    return nrd_error_of_disk(rc);
}

static void answer(Round *round, int error)
{
    NrdWalAppend *told = NULL, **tail = &told;
    for (NrdWalAppend *a = round->head, *next; a; a = next) {
        next = a->next;
        if (a->answered) {
            *tail = a;
            tail = &a->next;
        }
        a->done(a, error); /* may free one that is not told more */
    }
    *tail = NULL;
    for (NrdWalAppend *a = told, *next; a; a = next) {
        next = a->next;
        a->answered(a);
    }
}

/* What waits is for somebody else; false: for the caller, who has the role again. Lock held, given up meanwhile. */
static bool hand_over_locked(NrdWal *wal)
{
    wal->writing = false;
    wal->n_handing++;
    pthread_mutex_unlock(&wal->lock);
    bool taken = wal->options.hand_over(wal->options.user_data);
    pthread_mutex_lock(&wal->lock);
    wal->n_handing--;
    pthread_cond_broadcast(&wal->idle);
    if (taken || wal->writing || !wal->head)
        return true;
    wal->writing = true;
    return false;
}

/* The caller has the role. Lock held, and released. */
static void write_and_unlock(NrdWal *wal)
{
    for (unsigned n = 0; wal->head; n++) {
        Round round;
        if (n > 0 && n % ROUNDS_OF_A_WRITER == 0 && wal->options.hand_over && hand_over_locked(wal)) {
            pthread_mutex_unlock(&wal->lock);
            return;
        }
        take_round_locked(wal, &round);
        pthread_mutex_unlock(&wal->lock);
        answer(&round, write_round(wal, &round));
        pthread_mutex_lock(&wal->lock);
    }
    wal->writing = false;
    pthread_cond_broadcast(&wal->idle);
    pthread_mutex_unlock(&wal->lock);
}

void nrd_wal_append(NrdWal *wal, NrdWalAppend *append)
{
    append->next = NULL;
    append->segment = NULL;
    append->stamped = false;
    pthread_mutex_lock(&wal->lock);
    *wal->tail = append;
    wal->tail = &append->next;
    if (wal->writing) {
        pthread_mutex_unlock(&wal->lock);
        return;
    }
    wal->writing = true;
    write_and_unlock(wal);
}

void nrd_wal_write_on(NrdWal *wal)
{
    pthread_mutex_lock(&wal->lock);
    if (wal->writing || !wal->head) {
        pthread_mutex_unlock(&wal->lock);
        return;
    }
    wal->writing = true;
    write_and_unlock(wal);
}

/* ---- reading back ---- */

int nrd_wal_read(NrdWal *wal, NrdWalSegment *segment, uint64_t pos, size_t size, uint8_t **ret_bytes)
{
    NrdEntryView view;
    size_t n = 0;
    g_assert(size <= NRD_ENTRY_MAX_BYTES);
    uint8_t *bytes = g_try_malloc(size);
    if (!bytes)
        return -ENOMEM;
    int fd = nrd_io->open(wal->options.root_fd, segment->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    int rc = fd < 0 ? fd : nrd_io_pread_full(fd, bytes, size, (int64_t)pos, &n);
    nrd_io_close(&fd);
    if (rc == 0)
        rc = nrd_entry_decode(bytes, n, segment->salt + pos, &view);
    if (rc < 0) {
        g_free(bytes);
        return rc;
    }
    *ret_bytes = bytes;
    return 0;
}

/* Who wrote last may still be on the way out; who was to go on may never come, when no thread could be made. */
void nrd_wal_settle(NrdWal *wal)
{
    pthread_mutex_lock(&wal->lock);
    while (wal->writing || wal->head || wal->n_handing > 0) {
        if (wal->writing || !wal->head) {
            pthread_cond_wait(&wal->idle, &wal->lock);
            continue;
        }
        wal->writing = true;
        write_and_unlock(wal);
        pthread_mutex_lock(&wal->lock);
    }
    pthread_mutex_unlock(&wal->lock);
}

void nrd_wal_close(NrdWal *wal, uint64_t min_durable)
{
    if (!wal)
        return;
    nrd_wal_settle(wal);
    nrd_wal_leave_active(wal);
    nrd_wal_sweep(wal, min_durable);
    wal_free(wal);
}

int nrd_wal_error(NrdWal *wal)
{
    return nrd_error_of_disk(atomic_load(&wal->last_error));
}

uint64_t nrd_wal_next_sequence(NrdWal *wal)
{
    pthread_mutex_lock(&wal->lock);
    uint64_t next = wal->next_sequence;
    pthread_mutex_unlock(&wal->lock);
    return next;
}

uint64_t nrd_wal_size_bytes(NrdWal *wal)
{
    uint64_t size_bytes = 0;
    pthread_mutex_lock(&wal->lock);
    for (guint i = 0; i < wal->segments->len; i++)
        size_bytes += ((NrdWalSegment *)wal->segments->pdata[i])->size_bytes -
                      ((NrdWalSegment *)wal->segments->pdata[i])->freed_bytes;
    pthread_mutex_unlock(&wal->lock);
    return size_bytes;
}
