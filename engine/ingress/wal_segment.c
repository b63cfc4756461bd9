#include "engine/ingress/wal_segment.h"

#include "engine/ingress/wal_entry.h"

#include <stdlib.h>
#include <string.h>

#define NAME_FORMAT "%020" G_GUINT64_FORMAT ".%08x.%016" G_GINT64_MODIFIER "x.wal"

static char *name_of(uint64_t first, uint32_t number, uint64_t salt)
{
    return g_strdup_printf(NAME_FORMAT, first, number, salt);
}

NrdWalSegment *nrd_wal_segment_new(uint64_t first, uint32_t number, uint64_t salt)
{
    NrdWalSegment *segment = g_new0(NrdWalSegment, 1);
    g_autofree char *name = name_of(first, number, salt);
    segment->refs = 1;
    segment->first = segment->end_sequence = first;
    segment->number = number;
    segment->salt = salt;
    segment->done = g_array_new(FALSE, FALSE, sizeof(NrdWalRange));
    segment->path = g_strconcat(NRD_WAL_DIR "/", name, NULL);
    return segment;
}

NrdWalSegment *nrd_wal_segment_ref(NrdWalSegment *segment)
{
    g_atomic_int_inc(&segment->refs);
    return segment;
}

void nrd_wal_segment_unref(NrdWalSegment *segment)
{
    if (!segment || !g_atomic_int_dec_and_test(&segment->refs))
        return;
    g_array_unref(segment->done);
    g_free(segment->path);
    g_free(segment);
}

/* Reads it, writes it again, and compares: there is one way to write a name. */
bool nrd_wal_segment_parse_name(const char *name, uint64_t *ret_first, uint32_t *ret_number, uint64_t *ret_salt)
{
    char *end = NULL;
    uint64_t first = g_ascii_strtoull(name, &end, 10);
    if (*end != '.')
        return false;
    uint64_t number = g_ascii_strtoull(end + 1, &end, 16);
    if (*end != '.' || number > UINT32_MAX)
        return false;
    uint64_t salt = g_ascii_strtoull(end + 1, &end, 16);
    g_autofree char *again = name_of(first, (uint32_t)number, salt);
    if (strcmp(again, name) != 0 || first == 0 || first > NRD_ENTRY_SEQUENCE_MAX)
        return false;
    *ret_first = first;
    *ret_number = (uint32_t)number;
    *ret_salt = salt;
    return true;
}

gint nrd_wal_segment_compare(gconstpointer a, gconstpointer b)
{
    const NrdWalSegment *left = *(NrdWalSegment *const *)a, *right = *(NrdWalSegment *const *)b;
    if (left->first != right->first)
        return left->first < right->first ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* Entries are mostly done with in their order: the search from the end is short. */
void nrd_wal_segment_note_done(NrdWalSegment *segment, uint64_t pos, uint64_t size_bytes)
{
    GArray *done = segment->done;
    NrdWalRange range = { pos, pos + size_bytes };
    guint i = done->len;
    while (i > 0 && g_array_index(done, NrdWalRange, i - 1).pos > pos)
        i--;
    segment->done_bytes += size_bytes;
    if (i < done->len && g_array_index(done, NrdWalRange, i).pos == range.end) {
        range.end = g_array_index(done, NrdWalRange, i).end;
        g_array_remove_index(done, i);
    }
    if (i > 0 && g_array_index(done, NrdWalRange, i - 1).end == pos)
        g_array_index(done, NrdWalRange, i - 1).end = range.end;
    else
        g_array_insert_val(done, i, range);
}
