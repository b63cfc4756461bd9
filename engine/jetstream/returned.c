/* Records that this daemon was given and nobody holds any more: they were given back, or their lease has lapsed. The servers go on
 * counting them as pending until somebody is given them again, so `in_flight` is told from here. And records that come again:
 * whoever held them before is too late. */
#include "engine/jetstream/lease.h"
#include "engine/jetstream/lease_private.h"
#include "engine/jetstream/partition.h"

#include "engine/base/clock.h"

#define SERVERS_LATE_MS 20 /* after its time they give a record to the next one */

static gpointer key_of(uint64_t number)
{
    return GSIZE_TO_POINTER((gsize)number);
}

void nrd_js_returned_init(NrdJsLeases *leases)
{
    leases->holders = g_hash_table_new(g_direct_hash, g_direct_equal);
    leases->returned = g_hash_table_new(g_direct_hash, g_direct_equal);
    leases->lapse_ms = INT64_MAX;
}

void nrd_js_returned_clear(NrdJsLeases *leases)
{
    g_hash_table_unref(leases->holders);
    g_hash_table_unref(leases->returned);
}

void nrd_js_returned_forget_locked(NrdJsLeases *leases)
{
    g_hash_table_remove_all(leases->holders);
    g_hash_table_remove_all(leases->returned);
}

/* ---- leases that lapse ---- */

static int64_t end_of(const NrdJsLeases *leases, const NrdJsLease *lease)
{
    return lease->start_ms + leases->wait_ms + SERVERS_LATE_MS;
}

guint nrd_js_returned_lapse_locked(NrdJsLeases *leases)
{
    guint n = 0;
    int64_t now_ms = nrd_clock_mono_ms();
    GHashTableIter iter;
    gpointer data;
    if (now_ms < leases->lapse_ms)
        return 0;
    leases->lapse_ms = INT64_MAX;
    g_hash_table_iter_init(&iter, leases->leases);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        const NrdJsLease *lease = data;
        if (now_ms < end_of(leases, lease)) {
            leases->lapse_ms = MIN(leases->lapse_ms, end_of(leases, lease));
            continue;
        }
        g_hash_table_add(leases->returned, key_of(lease->offset));
        g_hash_table_iter_remove(&iter);
        n++;
    }
    return n;
}

guint nrd_js_returned_end_locked(NrdJsLeases *leases)
{
    guint n = 0;
    int64_t now_ms = nrd_clock_mono_ms();
    GHashTableIter iter;
    gpointer data;
    g_hash_table_iter_init(&iter, leases->leases);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        const NrdJsLease *lease = data;
        if (now_ms < nrd_js_lease_end_locked(leases, lease->start_ms).here_ms)
            continue;
        g_hash_table_add(leases->returned, key_of(lease->offset));
        g_hash_table_iter_remove(&iter);
        n++;
    }
    return n;
}

/* ---- records that come ---- */

static gboolean has_no_lease(gpointer key, gpointer nonce, gpointer leases)
{
    uint64_t number = GPOINTER_TO_SIZE(nonce);
    return !g_hash_table_contains(leases, &number);
}

void nrd_js_returned_come_locked(NrdJsLeases *leases, const NrdJsLease *lease)
{
    gpointer nonce;
    if (g_hash_table_lookup_extended(leases->holders, key_of(lease->offset), NULL, &nonce)) {
        uint64_t number = GPOINTER_TO_SIZE(nonce);
        g_hash_table_remove(leases->leases, &number);
    }
    if (g_hash_table_size(leases->holders) > 2 * leases->look_at)
        g_hash_table_foreach_remove(leases->holders, has_no_lease, leases->leases);
    g_hash_table_replace(leases->holders, key_of(lease->offset), key_of(lease->nonce));
    g_hash_table_remove(leases->returned, key_of(lease->offset));
    leases->lapse_ms = MIN(leases->lapse_ms, end_of(leases, lease));
}

/* ---- what others are told ---- */

static gboolean is_below(gpointer key, gpointer value, gpointer floor)
{
    return GPOINTER_TO_SIZE(key) < *(uint64_t *)floor;
}

uint64_t nrd_js_leases_n_returned(NrdPartition *partition, uint64_t frontier)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    nrd_counter_add(NRD_COUNTER_LEASES_EXPIRED, nrd_js_returned_lapse_locked(leases));
    g_hash_table_foreach_remove(leases->returned, is_below, &frontier);
    uint64_t n = g_hash_table_size(leases->returned);
    g_mutex_unlock(&leases->lock);
    return n;
}

void nrd_js_leases_note_returned(NrdPartition *partition, uint64_t offset)
{
    g_mutex_lock(&partition->leases->lock);
    g_hash_table_add(partition->leases->returned, key_of(offset));
    g_mutex_unlock(&partition->leases->lock);
    nrd_js_partition_has_more(partition);
}

/* Without this their records would come again only when their time is over. */
void nrd_js_leases_give_back(NrdPartition *partition)
{
    NrdJsLeases *leases = partition->leases;
    g_autoptr(GPtrArray) replies = g_ptr_array_new_with_free_func(g_free);
    g_autoptr(GArray) ends = g_array_new(FALSE, FALSE, sizeof(NrdJsLeaseEnd));
    GHashTableIter iter;
    gpointer data;
    g_mutex_lock(&leases->lock);
    int64_t now_ms = nrd_clock_mono_ms();
    g_hash_table_iter_init(&iter, leases->leases);
    while (g_hash_table_iter_next(&iter, NULL, &data)) {
        NrdJsLease *lease = data;
        NrdJsLeaseEnd end = nrd_js_lease_end_locked(leases, lease->start_ms);
        if (now_ms < end.here_ms) {
            g_ptr_array_add(replies, g_steal_pointer(&lease->reply));
            g_array_append_val(ends, end);
        }
        g_hash_table_iter_remove(&iter);
    }
    g_mutex_unlock(&leases->lock);
    for (guint i = 0; i < replies->len; i++)
        nrd_js_give_back(partition, replies->pdata[i], &g_array_index(ends, NrdJsLeaseEnd, i));
}
