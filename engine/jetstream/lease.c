/* Leases: what this daemon was given by a partition's consumer and has handed to somebody, until it is settled.
 *
 * The servers name a delivery by the subject that settles it, which is long, and take an acknowledgement at any time, also
 * when the record is somebody else's by then. So a receipt stays what it is elsewhere: the nonce is a random number under
 * which the subject is kept here, with a deadline of our own that ends a little before the servers'. Past it, and after a
 * restart, a receipt is nobody's (-ESTALE) and nothing is sent. A receipt is of the mount that gave it out.
 *
 * An ack is memory only for who makes it; it is sent with a request for an answer, repeated until the answer comes or the
 * lease is over, and waited for by who syncs. Locks: one for each partition; see js_private.h. */
#include "engine/jetstream/js_private.h"

#include "engine/base/clock.h"
#include "engine/base/random.h"

#define ANSWER_MS 2000
#define RETRY_MS 250
#define MARGIN_MAX_MS 500
#define LOOK_AT_LEASES 4096 /* so many before it is looked which have lapsed */

typedef struct Lease {
    uint64_t nonce;
    uint64_t offset;
    int64_t deadline_ms; /* monotonic */
    char *reply;
} Lease;

/* An ack on its way. */
typedef struct Ack {
    GList link;
    NrdPartition *partition; /* a reference to its topic */
    uint64_t number;
    int64_t deadline_ms; /* not sent again after it */
    bool due;            /* to be sent again */
    char *reply;
} Ack;

typedef struct SyncWaiter {
    uint64_t number; /* waits for the acks below */
    int error;
    NrdDoneFn done;
    void *user_data;
} SyncWaiter;

struct NrdJsLeases {
    NrdPartition *partition;
    GMutex lock;
    /* guarded by lock */
    GHashTable *leases; /* of Lease, by its nonce */
    guint look_at;
    GQueue acks; /* of Ack, in order of number, by their link */
    uint64_t n_acks;
    GArray *waiters; /* of SyncWaiter */
    NrdTimer retry;
};

static void on_retry(void *user_data);

static void free_lease(gpointer data)
{
    Lease *lease = data;
    g_free(lease->reply);
    g_free(lease);
}

NrdJsLeases *nrd_js_leases_new(NrdPartition *partition)
{
    NrdJsLeases *leases = g_new0(NrdJsLeases, 1);
    leases->partition = partition;
    g_mutex_init(&leases->lock);
    leases->leases = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_lease);
    leases->look_at = LOOK_AT_LEASES;
    leases->waiters = g_array_new(FALSE, FALSE, sizeof(SyncWaiter));
    g_queue_init(&leases->acks);
    nrd_timer_init(&leases->retry, on_retry, leases, true);
    return leases;
}

void nrd_js_leases_free(NrdJsLeases *leases)
{
    nrd_timer_drain(leases->partition->topic->engine->timers, &leases->retry);
    g_assert(g_queue_is_empty(&leases->acks));
    g_hash_table_unref(leases->leases);
    g_array_unref(leases->waiters);
    g_mutex_clear(&leases->lock);
    g_free(leases);
}

/* ---- making ---- */

/* The servers' time began earlier than ours, by as long as the delivery took. */
static int64_t deadline_from_now(NrdPartition *partition)
{
    int64_t timeout_ms = nrd_js_topic_config(partition->topic).visibility_timeout_ms;
    return nrd_clock_mono_ms() + timeout_ms - CLAMP(timeout_ms / 10, 1, MARGIN_MAX_MS);
}

static gboolean has_lapsed(gpointer nonce, gpointer data, gpointer now_ms)
{
    return ((Lease *)data)->deadline_ms <= *(int64_t *)now_ms;
}

static void forget_lapsed_locked(NrdJsLeases *leases)
{
    int64_t now_ms = nrd_clock_mono_ms();
    if (g_hash_table_size(leases->leases) < leases->look_at)
        return;
    guint n = g_hash_table_foreach_remove(leases->leases, has_lapsed, &now_ms);
    nrd_counter_add(NRD_COUNTER_LEASES_EXPIRED, n);
    leases->look_at = MAX(LOOK_AT_LEASES, 2 * g_hash_table_size(leases->leases));
}

uint64_t nrd_js_lease_add(NrdPartition *partition, uint64_t offset, const char *reply)
{
    NrdJsLeases *leases = partition->leases;
    Lease *lease = g_new(Lease, 1);
    uint64_t nonce = nrd_random_u64() & INT64_MAX;
    *lease = (Lease){ nonce, offset, deadline_from_now(partition), g_strdup(reply) };
    g_mutex_lock(&leases->lock);
    forget_lapsed_locked(leases);
    g_hash_table_replace(leases->leases, &lease->nonce, lease);
    g_mutex_unlock(&leases->lock);
    nrd_js_partition_changed(partition);
    return nonce;
}

void nrd_js_leases_clear(NrdPartition *partition)
{
    g_mutex_lock(&partition->leases->lock);
    g_hash_table_remove_all(partition->leases->leases);
    g_mutex_unlock(&partition->leases->lock);
}

void nrd_js_lease_drop(NrdPartition *partition, uint64_t nonce)
{
    g_mutex_lock(&partition->leases->lock);
    g_hash_table_remove(partition->leases->leases, &nonce);
    g_mutex_unlock(&partition->leases->lock);
}

void nrd_js_give_back(NrdEngine *engine, const char *reply)
{
    nrd_js_tell(engine->conn, reply, NULL, "-NAK");
}

/* ---- acks ---- */

static void answer_waiters_locked(NrdJsLeases *leases)
{
    const Ack *first = leases->acks.head ? leases->acks.head->data : NULL;
    for (guint i = 0; i < leases->waiters->len;) {
        SyncWaiter waiter = g_array_index(leases->waiters, SyncWaiter, i);
        if (first && first->number < waiter.number) {
            i++;
            continue;
        }
        nrd_js_done_later(leases->partition->topic->engine->conn, waiter.done, waiter.user_data, waiter.error);
        g_array_remove_index(leases->waiters, i);
    }
}

static void unref_topic(void *user_data)
{
    nrd_js_topic_unref(user_data);
}

/* Who waits for it is told; the record comes again if the servers have not got the ack. */
static void finish_ack_locked(NrdJsLeases *leases, Ack *ack, int error)
{
    for (guint i = 0; error < 0 && i < leases->waiters->len; i++) {
        SyncWaiter *waiter = &g_array_index(leases->waiters, SyncWaiter, i);
        if (ack->number < waiter->number && waiter->error == 0)
            waiter->error = error;
    }
    g_queue_unlink(&leases->acks, &ack->link);
    answer_waiters_locked(leases);
    g_free(ack->reply);
    g_free(ack);
}

static void on_ack_answer(void *user_data, int error, natsMsg *msg)
{
    Ack *ack = user_data;
    NrdPartition *partition = ack->partition;
    NrdJsLeases *leases = partition->leases;
    natsMsg_Destroy(msg);
    g_mutex_lock(&leases->lock);
    bool again = error < 0 && error != -ENODEV && nrd_clock_mono_ms() + RETRY_MS < ack->deadline_ms;
    if (again) {
        ack->due = true;
        nrd_timer_set_earlier(partition->topic->engine->timers, &leases->retry, nrd_clock_mono_ms() + RETRY_MS);
    } else {
        finish_ack_locked(leases, ack, error < 0 ? -EIO : 0);
    }
    g_mutex_unlock(&leases->lock);
    nrd_js_partition_changed(partition);
    if (error < 0 && !again)
        nrd_diag(NRD_LEVEL_WARNING, nrd_js_partition_place(partition),
                 "an ack was not confirmed before its lease ended: the record may come again");
    if (!again)
        nrd_js_later(partition->topic->engine->conn, unref_topic, partition->topic); /* not here: it waits for timers */
}

static void send_ack(Ack *ack)
{
    nrd_js_request(ack->partition->topic->engine->conn, ack->reply, NULL, "+ACK", 4, ANSWER_MS, on_ack_answer, ack);
}

static void on_retry(void *user_data)
{
    NrdJsLeases *leases = user_data;
    g_autoptr(GPtrArray) due = g_ptr_array_new();
    g_mutex_lock(&leases->lock);
    for (GList *l = leases->acks.head; l; l = l->next) {
        Ack *ack = l->data;
        if (ack->due)
            g_ptr_array_add(due, ack);
        ack->due = false;
    }
    g_mutex_unlock(&leases->lock);
    for (guint i = 0; i < due->len; i++)
        send_ack(due->pdata[i]);
}

/* Takes the lease's subject over. */
static Ack *new_ack_locked(NrdJsLeases *leases, Lease *lease)
{
    Ack *ack = g_new0(Ack, 1);
    ack->partition = leases->partition;
    ack->number = leases->n_acks++;
    ack->deadline_ms = lease->deadline_ms;
    ack->reply = g_steal_pointer(&lease->reply);
    ack->link.data = ack;
    nrd_js_topic_ref(leases->partition->topic);
    g_queue_push_tail_link(&leases->acks, &ack->link);
    return ack;
}

/* ---- settling ---- */

/* The live lease of that receipt, or NULL. */
static Lease *find_locked(NrdJsLeases *leases, uint64_t offset, uint64_t nonce)
{
    Lease *lease = g_hash_table_lookup(leases->leases, &nonce);
    return lease && lease->offset == offset && nrd_clock_mono_ms() < lease->deadline_ms ? lease : NULL;
}

int nrd_js_partition_settle(NrdPartition *partition, NrdVerb verb, uint64_t offset, uint64_t nonce)
{
    NrdEngine *engine = partition->topic->engine;
    NrdJsLeases *leases = partition->leases;
    Ack *ack = NULL;
    g_autofree char *told = NULL;
    int64_t deadline_ms = deadline_from_now(partition);
    if (atomic_load(&partition->topic->deleted))
        return -EIDRM;
    g_mutex_lock(&leases->lock);
    Lease *lease = find_locked(leases, offset, nonce);
    bool live = lease != NULL;
    if (live && verb == NRD_VERB_EXTEND)
        lease->deadline_ms = deadline_ms;
    if (live && (verb == NRD_VERB_EXTEND || verb == NRD_VERB_NACK))
        told = g_strdup(lease->reply);
    if (live && verb == NRD_VERB_ACK)
        ack = new_ack_locked(leases, lease);
    if (live && (verb == NRD_VERB_ACK || verb == NRD_VERB_NACK))
        g_hash_table_remove(leases->leases, &nonce);
    g_mutex_unlock(&leases->lock);
    if (told)
        nrd_js_tell(engine->conn, told, NULL, verb == NRD_VERB_EXTEND ? "+WPI" : "-NAK");
    if (ack) {
        nrd_counter_add(NRD_COUNTER_SETTLED, 1);
        send_ack(ack);
    }
    if (live && verb != NRD_VERB_LOOK)
        nrd_js_partition_changed(partition);
    return live ? 0 : -ESTALE;
}

size_t nrd_js_partition_settle_many(NrdPartition *partition, NrdVerb verb, const NrdHold *holds, size_t n,
                                    int *ret_error)
{
    size_t done = 0;
    int rc = 0;
    while (done < n && rc == 0) {
        rc = holds[done].partition == partition->number
                 ? nrd_js_partition_settle(partition, verb, holds[done].offset, holds[done].nonce)
                 : -EINVAL;
        done += rc == 0;
    }
    *ret_error = rc;
    return done;
}

void nrd_js_partition_sync_frontier(NrdPartition *partition, NrdDoneFn done, void *user_data)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    SyncWaiter waiter = { .number = leases->n_acks, .done = done, .user_data = user_data };
    g_array_append_val(leases->waiters, waiter);
    answer_waiters_locked(leases);
    g_mutex_unlock(&leases->lock);
}

char *nrd_js_lease_subject(NrdPartition *partition, uint64_t offset, uint64_t nonce)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    const Lease *lease = find_locked(leases, offset, nonce);
    char *reply = lease ? g_strdup(lease->reply) : NULL;
    g_mutex_unlock(&leases->lock);
    return reply;
}
