/* See admission.h. */
#include "engine/ingress/admission.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define RESERVE_BYTES (1 * NRD_MIB)      /* for checkpoints, metadata, and what a commit takes besides its records */
#define WORTHWHILE_BYTES (256 * NRD_KIB) /* a producer waits for holes to be made and synced */
#define TOPIC_SHARE 4                    /* one topic that gets stuck has at most a quarter: the others go on */

struct NrdAdmission {
    int root_fd;
    NrdWal *wal;
    NrdDispatcher *dispatcher;
    NrdDispatcherLoad max;
    atomic_uint_fast64_t n_flying; /* bytes of drafts that are on their way to the WAL */
    atomic_uint n_refused;         /* entries of `refusals`: nobody takes the lock while all is well */
    pthread_mutex_t lock;          /* a leaf */
    GHashTable *refusals;          /* incarnation id -> negative errno; guarded by lock */
};

NrdAdmission *nrd_admission_new(const NrdAdmissionOptions *options)
{
    NrdAdmission *admission = g_new0(NrdAdmission, 1);
    admission->root_fd = options->root_fd;
    admission->dispatcher = options->dispatcher;
    admission->max = options->max;
    admission->refusals = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    pthread_mutex_init(&admission->lock, NULL);
    return admission;
}

void nrd_admission_free(NrdAdmission *admission)
{
    if (!admission)
        return;
    g_hash_table_unref(admission->refusals);
    pthread_mutex_destroy(&admission->lock);
    g_free(admission);
}

void nrd_admission_set_wal(NrdAdmission *admission, NrdWal *wal)
{
    admission->wal = wal;
}

/* ---- room ---- */

static bool over(const NrdDispatcherLoad *load, const NrdDispatcherLoad *max, uint64_t share)
{
    return load->n_parts > max->n_parts / share || load->n_bytes > max->n_bytes / share;
}

/* Whether the disk has room for `need` more. Who cannot tell lets the write find out. */
static bool has_room(NrdAdmission *admission, uint64_t need)
{
    struct statvfs st;
    return nrd_io->fstatvfs(admission->root_fd, &st) < 0 || st.f_bavail * (uint64_t)st.f_frsize >= need;
}

/* What is undispatched is written once more, and what is on its way, the caller's draft too, twice. */
static uint64_t need_bytes(NrdAdmission *admission, const NrdDispatcherLoad *all)
{
    return all->n_bytes + 2 * atomic_load(&admission->n_flying) + RESERVE_BYTES;
}

static int check_disk(NrdAdmission *admission, const NrdDispatcherLoad *all)
{
    uint64_t need = need_bytes(admission, all);
    if (has_room(admission, need))
        return 0;
    if (nrd_wal_litter_bytes(admission->wal) < WORTHWHILE_BYTES || !nrd_wal_make_room(admission->wal))
        return -ENOSPC;
    return has_room(admission, need) ? 0 : -ENOSPC;
}

static int check_load(NrdAdmission *admission, const NrdDispatcherLoad *all, const char *id)
{
    NrdDispatcherLoad own;
    if (over(all, &admission->max, 1))
        return -EAGAIN;
    if (!over(all, &admission->max, TOPIC_SHARE))
        return 0;
    nrd_dispatcher_load_of(admission->dispatcher, id, &own);
    return over(&own, &admission->max, TOPIC_SHARE) ? -EAGAIN : 0;
}

static int check_room(NrdAdmission *admission, const char *id)
{
    NrdDispatcherLoad all;
    nrd_dispatcher_load(admission->dispatcher, &all);
    int rc = check_load(admission, &all, id);
    return rc < 0 ? rc : check_disk(admission, &all);
}

/* ---- what is told ---- */

/* Keeps what became of the topic's append; returns what became of the one before it. */
static int exchange(NrdAdmission *admission, const char *id, int result)
{
    pthread_mutex_lock(&admission->lock);
    int before = GPOINTER_TO_INT(g_hash_table_lookup(admission->refusals, id));
    if (result < 0)
        g_hash_table_insert(admission->refusals, g_strdup(id), GINT_TO_POINTER(result));
    else
        g_hash_table_remove(admission->refusals, id);
    atomic_store(&admission->n_refused, g_hash_table_size(admission->refusals));
    pthread_mutex_unlock(&admission->lock);
    return before;
}

void nrd_admission_forget(NrdAdmission *admission, const char *id)
{
    if (atomic_load(&admission->n_refused) > 0)
        (void)exchange(admission, id, 0);
}

static const char *reason(int error)
{
    return error == -ENOSPC
               ? "the disk has no room for them and for what waits in the ingress WAL; make room, then they can be "
                 "synced"
               : "too much waits in the ingress WAL; they can be synced when partitions have taken some of it";
}

static void tell(NrdAdmission *admission, const char *topic, const char *id, int result)
{
    NrdPlace place = { topic, NRD_NO_PARTITION, NRD_NO_OFFSET };
    if (result == 0 && atomic_load(&admission->n_refused) == 0)
        return;
    int before = exchange(admission, id, result);
    if (result < 0 && result != before)
        nrd_diag(NRD_LEVEL_ERROR, place, "records for the topic are refused: %s: %s", g_strerror(-result),
                 reason(result));
    if (result == 0 && before < 0)
        nrd_diag(NRD_LEVEL_NOTICE, place, "records for the topic are taken again");
}

int nrd_admission_enter(NrdAdmission *admission, const char *topic, const char *id, uint64_t n_bytes)
{
    atomic_fetch_add(&admission->n_flying, n_bytes);
    int rc = check_room(admission, id);
    if (rc < 0)
        nrd_admission_leave(admission, n_bytes);
    tell(admission, topic, id, rc);
    return rc;
}

void nrd_admission_leave(NrdAdmission *admission, uint64_t n_bytes)
{
    atomic_fetch_sub(&admission->n_flying, n_bytes);
}

static int last_refusal(NrdAdmission *admission, const char *id)
{
    if (atomic_load(&admission->n_refused) == 0)
        return 0;
    pthread_mutex_lock(&admission->lock);
    int error = GPOINTER_TO_INT(g_hash_table_lookup(admission->refusals, id));
    pthread_mutex_unlock(&admission->lock);
    return error;
}

/* Whoever was refused may be gone and never try again. */
int nrd_admission_refusal(NrdAdmission *admission, const char *id)
{
    NrdDispatcherLoad all;
    int error = last_refusal(admission, id);
    if (error == 0)
        return 0;
    nrd_dispatcher_load(admission->dispatcher, &all);
    int rc = check_load(admission, &all, id);
    if (rc < 0)
        return rc;
    return has_room(admission, need_bytes(admission, &all)) ? 0 : -ENOSPC;
}
