/* See acked.h. A sequence has one place, by its last bits, which the newest of those that share it has. There are as many places
 * as the sequences that are known lie apart, up to the limit. What is held is kept a second time, in order. */
#include "engine/jetstream/acked.h"

#include <glib.h>
#include <string.h>

#define FIRST_PLACES 256

typedef struct Place {
    uint32_t lap;  /* sequence / places */
    uint32_t hash; /* 0: it is empty */
} Place;

typedef struct Held {
    uint64_t sequence;
    uint32_t hash;
} Held;

struct NrdJsAcked {
    Held *held; /* NRD_JS_ACKED_HELD, or NULL */
    guint n_held;
    Place *places;
    uint32_t n;           /* a power of two */
    uint64_t first, last; /* what is known lies between; 0: nothing is */
};

NrdJsAcked *nrd_js_acked_new(void)
{
    NrdJsAcked *acked = g_new0(NrdJsAcked, 1);
    acked->n = FIRST_PLACES;
    acked->places = g_new0(Place, acked->n);
    return acked;
}

void nrd_js_acked_free(NrdJsAcked *acked)
{
    if (!acked)
        return;
    g_free(acked->held);
    g_free(acked->places);
    g_free(acked);
}

/* FNV-1a, folded. */
uint32_t nrd_js_acked_hash(const char *id)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *c = id ? id : ""; *c; c++)
        hash = (hash ^ (uint8_t)*c) * UINT64_C(1099511628211);
    uint32_t folded = (uint32_t)(hash >> 32) ^ (uint32_t)hash;
    return folded != 0 ? folded : 1;
}

static Place *place_of(const NrdJsAcked *acked, uint64_t sequence)
{
    return &acked->places[sequence % acked->n];
}

/* Twice as many places: each sequence has another one, or keeps its own. */
static void grow(NrdJsAcked *acked)
{
    NrdJsAcked larger = *acked;
    larger.n *= 2;
    larger.places = g_new0(Place, larger.n);
    for (uint64_t i = 0; i < acked->n; i++)
        if (acked->places[i].hash != 0) {
            uint64_t sequence = (uint64_t)acked->places[i].lap * acked->n + i;
            *place_of(&larger, sequence) = (Place){ (uint32_t)(sequence / larger.n), acked->places[i].hash };
        }
    g_free(acked->places);
    *acked = larger;
}

bool nrd_js_acked_note(NrdJsAcked *acked, uint64_t sequence, uint32_t hash)
{
    uint64_t first = acked->first > 0 ? MIN(acked->first, sequence) : sequence;
    uint64_t last = MAX(acked->last, sequence);
    uint32_t known = nrd_js_acked_get(acked, sequence);
    if (known != 0)
        return known == hash;
    while (last - first >= acked->n && acked->n < NRD_JS_ACKED_MAX)
        grow(acked);
    if (last - first >= acked->n)
        first = last - acked->n + 1;
    acked->first = first;
    acked->last = last;
    if (sequence >= first)
        *place_of(acked, sequence) = (Place){ (uint32_t)(sequence / acked->n), hash };
    return true;
}

static uint32_t get_late(const NrdJsAcked *acked, uint64_t sequence)
{
    const Place *place = place_of(acked, sequence);
    bool inside = acked->first > 0 && sequence >= acked->first && sequence <= acked->last;
    return inside && place->lap == (uint32_t)(sequence / acked->n) ? place->hash : 0;
}

/* The first that is held from that sequence on, by its index; n_held: there is none. */
static guint find_held(const NrdJsAcked *acked, uint64_t sequence)
{
    guint i = 0;
    while (i < acked->n_held && acked->held[i].sequence < sequence)
        i++;
    return i;
}

uint32_t nrd_js_acked_get(const NrdJsAcked *acked, uint64_t sequence)
{
    uint32_t known = get_late(acked, sequence);
    guint i = known == 0 ? find_held(acked, sequence) : acked->n_held;
    return i < acked->n_held && acked->held[i].sequence == sequence ? acked->held[i].hash : known;
}

uint64_t nrd_js_acked_next(const NrdJsAcked *acked, uint64_t sequence)
{
    guint i = find_held(acked, sequence);
    uint64_t held = i < acked->n_held ? acked->held[i].sequence : 0;
    uint64_t last = held > 0 ? MIN(acked->last, held - 1) : acked->last;
    for (uint64_t at = MAX(sequence, MAX(acked->first, 1)); at <= last; at++)
        if (get_late(acked, at) != 0)
            return at;
    return held;
}

uint64_t nrd_js_acked_last(const NrdJsAcked *acked)
{
    return acked->last;
}

/* ---- what stays known ---- */

void nrd_js_acked_hold(NrdJsAcked *acked, uint64_t sequence)
{
    uint32_t known = nrd_js_acked_get(acked, sequence);
    guint i = find_held(acked, sequence);
    if (known == 0 || acked->n_held == NRD_JS_ACKED_HELD || nrd_js_acked_holds(acked, sequence))
        return;
    if (!acked->held)
        acked->held = g_new(Held, NRD_JS_ACKED_HELD);
    memmove(&acked->held[i + 1], &acked->held[i], (acked->n_held - i) * sizeof acked->held[0]);
    acked->held[i] = (Held){ sequence, known };
    acked->n_held++;
}

bool nrd_js_acked_holds(const NrdJsAcked *acked, uint64_t sequence)
{
    guint i = find_held(acked, sequence);
    return i < acked->n_held && acked->held[i].sequence == sequence;
}

bool nrd_js_acked_is_old(const NrdJsAcked *acked, uint64_t sequence)
{
    return nrd_js_acked_holds(acked, sequence) && get_late(acked, sequence) == 0;
}

void nrd_js_acked_let_go(NrdJsAcked *acked, uint64_t first, uint64_t end)
{
    guint from = find_held(acked, first), to = find_held(acked, end);
    if (from >= to)
        return;
    memmove(&acked->held[from], &acked->held[to], (acked->n_held - to) * sizeof acked->held[0]);
    acked->n_held -= to - from;
}
