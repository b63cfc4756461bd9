/* An array of leases. As long as they come in order and go from its ends it is kept sorted, and searched by halves: that
 * is how files that settle all they hold use it. The first one that comes or goes in between makes an open-addressing
 * index over it; from then on the last one fills the place of one that goes. An emptied set begins anew.
 *
 * The index is at most half full, probes linearly, and removes by shifting back: no tombstones. */
#include "fs/held.h"

#include "fs/hash.h"

#define EMPTY UINT32_MAX
#define KEEP_ELEMENTS 64 /* an emptied array larger than that is given back */

struct NrdHeld {
    GArray *holds;     /* of NrdHold; [head, len) is the set */
    guint head;        /* 0 with an index */
    guint peak;        /* largest length since the set was empty */
    uint32_t *buckets; /* positions in holds, or EMPTY; NULL: the set is sorted */
    guint n_buckets;   /* a power of two */
};

NrdHeld *nrd_held_new(void)
{
    NrdHeld *held = g_new0(NrdHeld, 1);
    held->holds = g_array_new(FALSE, FALSE, sizeof(NrdHold));
    return held;
}

void nrd_held_free(NrdHeld *held)
{
    if (!held)
        return;
    g_array_unref(held->holds);
    g_free(held->buckets);
    g_free(held);
}

guint nrd_held_count(const NrdHeld *held)
{
    return held->holds->len - held->head;
}

static NrdHold *at(const NrdHeld *held, guint i)
{
    return &g_array_index(held->holds, NrdHold, i);
}

static int compare(const NrdHold *hold, uint32_t partition, uint64_t offset)
{
    if (hold->partition != partition)
        return hold->partition < partition ? -1 : 1;
    return hold->offset < offset ? -1 : hold->offset > offset;
}

static gint by_record(gconstpointer a, gconstpointer b)
{
    const NrdHold *other = b;
    return compare(a, other->partition, other->offset);
}

/* ---- the index ---- */

static guint home_of(const NrdHeld *held, uint32_t partition, uint64_t offset)
{
    return (guint)nrd_hash_mix(offset ^ (uint64_t)partition << 48) & (held->n_buckets - 1);
}

/* The bucket of a record, or the empty one at which the search for it ends. */
static guint bucket_of(const NrdHeld *held, uint32_t partition, uint64_t offset)
{
    guint b = home_of(held, partition, offset);
    while (held->buckets[b] != EMPTY && compare(at(held, held->buckets[b]), partition, offset) != 0)
        b = (b + 1) & (held->n_buckets - 1);
    return b;
}

static void make_index(NrdHeld *held)
{
    g_array_remove_range(held->holds, 0, held->head);
    held->head = 0;
    g_free(held->buckets);
    held->n_buckets = held->n_buckets ? held->n_buckets : 32;
    while (held->n_buckets < 2 * (held->holds->len + 1))
        held->n_buckets *= 2;
    held->buckets = g_new(uint32_t, held->n_buckets);
    memset(held->buckets, 0xff, held->n_buckets * sizeof *held->buckets);
    for (guint i = 0; i < held->holds->len; i++)
        held->buckets[bucket_of(held, at(held, i)->partition, at(held, i)->offset)] = i;
}

static void put_indexed(NrdHeld *held, NrdHold hold)
{
    guint b = bucket_of(held, hold.partition, hold.offset);
    if (held->buckets[b] != EMPTY) {
        *at(held, held->buckets[b]) = hold;
        return;
    }
    held->buckets[b] = held->holds->len;
    g_array_append_val(held->holds, hold);
    if (2 * held->holds->len >= held->n_buckets)
        make_index(held);
}

static void empty_bucket(NrdHeld *held, guint hole)
{
    guint mask = held->n_buckets - 1;
    for (guint b = (hole + 1) & mask; held->buckets[b] != EMPTY; b = (b + 1) & mask) {
        const NrdHold *hold = at(held, held->buckets[b]);
        guint home = home_of(held, hold->partition, hold->offset);
        /* It may move into the hole unless its home lies between the two (cyclically, the hole excluded). */
        if (((b - home) & mask) >= ((b - hole) & mask)) {
            held->buckets[hole] = held->buckets[b];
            hole = b;
        }
    }
    held->buckets[hole] = EMPTY;
}

static void remove_indexed(NrdHeld *held, uint32_t partition, uint64_t offset)
{
    guint b = bucket_of(held, partition, offset);
    uint32_t i = held->buckets[b];
    if (i == EMPTY)
        return;
    guint last = held->holds->len - 1;
    held->buckets[bucket_of(held, at(held, last)->partition, at(held, last)->offset)] = i;
    *at(held, i) = *at(held, last);
    empty_bucket(held, b);
    g_array_set_size(held->holds, last);
}

/* ---- the set ---- */

static void begin_anew(NrdHeld *held)
{
    if (held->peak > KEEP_ELEMENTS) {
        g_array_unref(held->holds);
        held->holds = g_array_new(FALSE, FALSE, sizeof(NrdHold));
    } else {
        g_array_set_size(held->holds, 0);
    }
    g_clear_pointer(&held->buckets, g_free);
    held->n_buckets = 0;
    held->head = 0;
    held->peak = 0;
}

/* Position of the first lease of a sorted set that is not below the record. */
static guint lower_bound(const NrdHeld *held, uint32_t partition, uint64_t offset)
{
    guint low = held->head, high = held->holds->len;
    while (low < high) {
        guint middle = low + (high - low) / 2;
        if (compare(at(held, middle), partition, offset) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

NrdHold *nrd_held_find(const NrdHeld *held, uint32_t partition, uint64_t offset)
{
    if (held->buckets) {
        uint32_t i = held->buckets[bucket_of(held, partition, offset)];
        return i == EMPTY ? NULL : at(held, i);
    }
    guint i = lower_bound(held, partition, offset);
    return i < held->holds->len && compare(at(held, i), partition, offset) == 0 ? at(held, i) : NULL;
}

guint nrd_held_find_offset(const NrdHeld *held, uint64_t offset, NrdHold *ret_hold)
{
    guint n = 0;
    for (guint i = held->head; i < held->holds->len; i++) {
        if (at(held, i)->offset != offset)
            continue;
        *ret_hold = *at(held, i);
        n++;
    }
    return n;
}

void nrd_held_put(NrdHeld *held, NrdHold hold)
{
    bool is_last =
        nrd_held_count(held) == 0 || compare(at(held, held->holds->len - 1), hold.partition, hold.offset) < 0;
    if (!held->buckets && !is_last)
        make_index(held);
    if (held->buckets)
        put_indexed(held, hold);
    else
        g_array_append_val(held->holds, hold);
    held->peak = MAX(held->peak, held->holds->len);
}

/* Whether holds can be added at the end of a sorted set. */
static bool are_behind(const NrdHeld *held, const NrdHold *holds, guint n)
{
    const NrdHold *last = nrd_held_count(held) > 0 ? at(held, held->holds->len - 1) : NULL;
    for (guint i = 0; i < n; last = &holds[i++]) {
        if (last && compare(last, holds[i].partition, holds[i].offset) >= 0)
            return false;
    }
    return !held->buckets;
}

void nrd_held_put_all(NrdHeld *held, const NrdHold *holds, guint n)
{
    if (n > 0 && are_behind(held, holds, n)) {
        g_array_append_vals(held->holds, holds, n);
        held->peak = MAX(held->peak, held->holds->len);
        return;
    }
    for (guint i = 0; i < n; i++)
        nrd_held_put(held, holds[i]);
}

/* false: it stands in between. */
static bool remove_from_ends(NrdHeld *held, const NrdHold *hold)
{
    if (hold == at(held, held->holds->len - 1)) {
        g_array_set_size(held->holds, held->holds->len - 1);
        return true;
    }
    if (hold != at(held, held->head))
        return false;
    held->head++;
    if (held->head >= nrd_held_count(held)) { /* each lease moves once on average */
        g_array_remove_range(held->holds, 0, held->head);
        held->head = 0;
    }
    return true;
}

void nrd_held_remove(NrdHeld *held, uint32_t partition, uint64_t offset)
{
    if (!held->buckets) {
        const NrdHold *hold = nrd_held_find(held, partition, offset);
        if (hold && !remove_from_ends(held, hold))
            make_index(held);
    }
    if (held->buckets)
        remove_indexed(held, partition, offset);
    if (nrd_held_count(held) == 0)
        begin_anew(held);
}

GArray *nrd_held_list(const NrdHeld *held)
{
    guint n = nrd_held_count(held);
    GArray *holds = g_array_sized_new(FALSE, FALSE, sizeof(NrdHold), n);
    if (n > 0)
        g_array_append_vals(holds, at(held, held->head), n);
    if (held->buckets)
        g_array_sort(holds, by_record);
    return holds;
}

GArray *nrd_held_take(NrdHeld *held)
{
    GArray *holds = held->holds;
    if (held->buckets || held->head > 0) {
        holds = nrd_held_list(held);
        g_array_unref(held->holds);
    }
    held->holds = g_array_new(FALSE, FALSE, sizeof(NrdHold));
    held->peak = 0;
    begin_anew(held);
    return holds;
}
