/* Leases: what this daemon was given by a partition's consumer and has handed to somebody, until it is settled.
 *
 * The servers name a delivery by the subject that settles it, which is long, and take an acknowledgement at any time, also
 * when the record is somebody else's by then. So a receipt stays what it is elsewhere: the nonce is a random number under
 * which the subject is kept here, with a deadline of our own that ends a little before the servers'. Past it, and after a
 * restart, a receipt is nobody's (-ESTALE) and nothing is sent. A receipt is of the mount that gave it out.
 *
 * A lease is of one consumer, which its generation names (consumer.c). Another one in its place, by whoever's `seek`, and a
 * stream that is not what it was, make all leases void. Locks: one for each partition; see js_private.h. */
#include "engine/jetstream/lease.h"
#include "engine/jetstream/lease_private.h"
#include "engine/jetstream/partition.h"

#include "engine/base/clock.h"
#include "engine/base/random.h"

#define MARGIN_MAX_MS 500
#define LOOK_AT_LEASES 4096 /* so many before it is looked which have lapsed */

static void free_lease(gpointer data)
{
    NrdJsLease *lease = data;
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
    nrd_js_returned_init(leases);
    nrd_js_give_back_init(leases);
    nrd_js_acks_init(leases);
    return leases;
}

void nrd_js_leases_free(NrdJsLeases *leases)
{
    nrd_js_acks_clear(leases);
    nrd_js_returned_clear(leases);
    nrd_js_give_back_clear(leases);
    g_hash_table_unref(leases->leases);
    g_mutex_clear(&leases->lock);
    g_free(leases);
}

/* ---- time ---- */

NrdJsLeaseEnd nrd_js_lease_end_locked(const NrdJsLeases *leases, int64_t start_ms)
{
    int64_t there_ms = start_ms + leases->wait_ms;
    return (NrdJsLeaseEnd){ .stream = leases->partition->stream,
                            .here_ms = there_ms - CLAMP(leases->wait_ms / 10, 1, MARGIN_MAX_MS),
                            .there_ms = there_ms };
}

NrdJsLeaseEnd nrd_js_delivery_end(NrdPartition *partition, int64_t came_ms)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    NrdJsLeaseEnd end = nrd_js_lease_end_locked(leases, came_ms);
    g_mutex_unlock(&leases->lock);
    return end;
}

bool nrd_js_delivery_lives(NrdPartition *partition, int64_t came_ms)
{
    return nrd_clock_mono_ms() < nrd_js_delivery_end(partition, came_ms).here_ms;
}

int64_t nrd_js_leases_wait_ms(NrdPartition *partition)
{
    g_mutex_lock(&partition->leases->lock);
    int64_t wait_ms = partition->leases->wait_ms;
    g_mutex_unlock(&partition->leases->lock);
    return wait_ms;
}

/* Leases are counted by it from now on: they end earlier, or, but for those that have ended, later. */
static void set_wait_locked(NrdJsLeases *leases, int64_t wait_ms)
{
    if (wait_ms > leases->wait_ms && leases->wait_ms > 0)
        nrd_counter_add(NRD_COUNTER_LEASES_EXPIRED, nrd_js_returned_end_locked(leases));
    if (wait_ms < leases->wait_ms)
        leases->lapse_ms = 0;
    leases->wait_ms = wait_ms;
}

void nrd_js_leases_know_wait(NrdPartition *partition, int64_t wait_ms)
{
    g_mutex_lock(&partition->leases->lock);
    set_wait_locked(partition->leases, wait_ms);
    g_mutex_unlock(&partition->leases->lock);
}

void nrd_js_leases_limit_wait(NrdPartition *partition, int64_t wait_ms)
{
    g_mutex_lock(&partition->leases->lock);
    set_wait_locked(partition->leases, MIN(partition->leases->wait_ms, wait_ms));
    g_mutex_unlock(&partition->leases->lock);
}

/* ---- counting ---- */

guint nrd_js_leases_n_live(NrdPartition *partition)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    nrd_counter_add(NRD_COUNTER_LEASES_EXPIRED, nrd_js_returned_lapse_locked(leases));
    guint n = g_hash_table_size(leases->leases);
    g_mutex_unlock(&leases->lock);
    return n;
}

/* ---- making ---- */

static void forget_lapsed_locked(NrdJsLeases *leases)
{
    if (g_hash_table_size(leases->leases) < leases->look_at)
        return;
    nrd_counter_add(NRD_COUNTER_LEASES_EXPIRED, nrd_js_returned_lapse_locked(leases));
    leases->look_at = MAX(LOOK_AT_LEASES, 2 * g_hash_table_size(leases->leases));
}

/* One of another generation is void from the beginning: its nonce is nobody's. */
uint64_t nrd_js_lease_add(NrdPartition *partition, const NrdJsAckSubject *delivered, const char *reply, int64_t came_ms)
{
    NrdJsLeases *leases = partition->leases;
    NrdJsLease *lease = g_new(NrdJsLease, 1);
    uint64_t nonce = nrd_random_u64() & INT64_MAX;
    *lease = (NrdJsLease){ nonce, delivered->sequence - 1, came_ms, g_strdup(reply) };
    g_mutex_lock(&leases->lock);
    forget_lapsed_locked(leases);
    bool valid = delivered->generation == leases->generation;
    if (valid)
        nrd_js_returned_come_locked(leases, lease);
    if (valid)
        g_hash_table_replace(leases->leases, &lease->nonce, lease);
    else
        free_lease(lease);
    g_mutex_unlock(&leases->lock);
    nrd_js_partition_changed(partition);
    return nonce;
}

/* ---- what ends them ---- */

void nrd_js_lease_drop(NrdPartition *partition, uint64_t nonce)
{
    g_mutex_lock(&partition->leases->lock);
    g_hash_table_remove(partition->leases->leases, &nonce);
    g_mutex_unlock(&partition->leases->lock);
}

void nrd_js_leases_void(NrdPartition *partition)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    g_hash_table_remove_all(leases->leases);
    nrd_js_returned_forget_locked(leases);
    nrd_js_acks_void_locked(leases, -ESTALE);
    g_mutex_unlock(&leases->lock);
    nrd_js_acks_tell(leases);
}

bool nrd_js_leases_adopt(NrdPartition *partition, uint64_t generation)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    bool another = leases->generation != generation;
    if (another) {
        g_hash_table_remove_all(leases->leases);
        nrd_js_returned_forget_locked(leases);
        nrd_js_acks_void_locked(leases, -ESTALE);
    }
    leases->generation = generation;
    g_mutex_unlock(&leases->lock);
    nrd_js_acks_tell(leases);
    return another;
}

uint64_t nrd_js_leases_generation(NrdPartition *partition)
{
    g_mutex_lock(&partition->leases->lock);
    uint64_t generation = partition->leases->generation;
    g_mutex_unlock(&partition->leases->lock);
    return generation;
}

/* ---- finding ---- */

NrdJsLease *nrd_js_lease_find_locked(NrdJsLeases *leases, uint64_t offset, uint64_t nonce)
{
    NrdJsLease *lease = g_hash_table_lookup(leases->leases, &nonce);
    bool live = lease && lease->offset == offset &&
                nrd_clock_mono_ms() < nrd_js_lease_end_locked(leases, lease->start_ms).here_ms;
    return live ? lease : NULL;
}

char *nrd_js_lease_subject(NrdPartition *partition, uint64_t offset, uint64_t nonce, NrdJsLeaseEnd *ret_end)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    const NrdJsLease *lease = nrd_js_lease_find_locked(leases, offset, nonce);
    char *reply = lease ? g_strdup(lease->reply) : NULL;
    if (lease)
        *ret_end = nrd_js_lease_end_locked(leases, lease->start_ms);
    g_mutex_unlock(&leases->lock);
    return reply;
}

/* The servers confirm also when the record is not leased to us any more. So their word counts when it has come before that can
 * have been. */
bool nrd_js_lease_restarted(NrdJsLeases *leases, uint64_t nonce, int64_t sent_ms)
{
    g_mutex_lock(&leases->lock);
    NrdJsLease *lease = g_hash_table_lookup(leases->leases, &nonce);
    bool in_time = lease && nrd_clock_mono_ms() < nrd_js_lease_end_locked(leases, lease->start_ms).there_ms;
    if (in_time)
        lease->start_ms = MAX(lease->start_ms, sent_ms);
    g_mutex_unlock(&leases->lock);
    return in_time;
}
