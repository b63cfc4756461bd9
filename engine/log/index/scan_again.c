/* See scan.h: scans whose findings last.
 *
 * What a scan takes for damage is cut, or becomes a gap that goes into a side file, and then nobody looks there again. A
 * read may be wrong while the disk is well: a bit turned on its way, a page that was spoilt in memory. So damage counts when
 * two walks in a row, the page cache dropped between them, have found exactly the same; and a walk that finds none is right,
 * since checksums vouch for all it has seen. What was good before the first damage is not read again. */
#include "engine/log/index/scan_private.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_WALKS 5

static const NrdScanWatch nobody;

static bool same_array(const GArray *a, const GArray *b)
{
    size_t size = (size_t)a->len * g_array_get_element_size((GArray *)a);
    return a->len == b->len && (size == 0 || memcmp(a->data, b->data, size) == 0);
}

static bool same(const NrdScanResult *a, const NrdScanResult *b)
{
    return a->tail.torn == b->tail.torn && a->tail.only_zeros == b->tail.only_zeros &&
           a->tail.misnamed == b->tail.misnamed && a->tail.max_n_lost == b->tail.max_n_lost &&
           a->index->end.pos == b->index->end.pos && a->index->end.offset == b->index->end.offset &&
           a->index->end.text_bytes == b->index->end.text_bytes && same_array(a->index->gaps, b->index->gaps) &&
           same_array(a->index->entries, b->index->entries);
}

static void tell(const NrdScanWant *want, NrdPlace place, const NrdScanResult *first)
{
    nrd_diag(NRD_LEVEL_WARNING, place,
             "segment %020" PRIu64 " was read twice, and not alike at byte %" PRIu64
             ": the disk, or what is between, gives wrong bytes now and then",
             want->base, first->damage.end.pos);
}

/* Walks on until two agree. *result is replaced. */
static int confirm(const NrdScanWant *want, NrdPlace place, NrdScanResult *result)
{
    bool agreed = false;

    for (int i = 1; !agreed && result->damaged; i++) {
        NrdScanResult next;
        int r = i < MAX_WALKS ? nrd_io->drop_cache(want->fd) : -EIO;
        if (r == 0)
            r = nrd_scan_walk(want, &nobody, result, &next);
        if (r < 0)
            return r;
        agreed = same(result, &next);
        if (!agreed)
            tell(want, place, result);
        nrd_index_free(result->index);
        *result = next;
    }
    return 0;
}

int nrd_scan_segment(const NrdScanWant *want, NrdPlace place, NrdIndex **ret_index, NrdScanTail *ret_tail)
{
    NrdScanResult result;

    int r = nrd_scan_walk(want, &nobody, NULL, &result);
    if (r < 0)
        return r;
    r = confirm(want, place, &result);
    if (r < 0) {
        nrd_index_free(result.index);
        return r;
    }
    *ret_index = result.index;
    if (ret_tail != NULL)
        *ret_tail = result.tail;
    return 0;
}

int nrd_scan_segment_watched(const NrdScanWant *want, const NrdScanWatch *watch, NrdIndex **ret_index,
                             NrdScanTail *ret_tail)
{
    NrdScanResult result;

    int r = nrd_scan_walk(want, watch, NULL, &result);
    if (r < 0)
        return r;
    *ret_index = result.index;
    if (ret_tail != NULL)
        *ret_tail = result.tail;
    return 0;
}
