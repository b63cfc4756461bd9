/* How far copying has come, for who asks. */
#include "engine/fanout/fanout_private.h"

static bool copy_rows(NrdFanout *f, const void *parent, const char *child, NrdFanoutInfo *info)
{
    pthread_mutex_lock(&f->lock);
    const NrdLink *link = nrd_link_find_locked(f, parent, child, true);
    if (link) {
        info->delay_ms = link->delay_ms;
        info->attached_ms = link->attached_ms;
        info->n_copied = atomic_load(&link->n_copied);
        info->n_dropped = atomic_load(&link->n_dropped);
    }
    for (guint i = 0; link && i < link->cursors->len; i++) {
        const NrdFanCursor *cursor = link->cursors->pdata[i];
        NrdFanoutRow row = cursor->shown;
        if (!cursor->shown_known)
            row.cursor = NRD_NOT_PREPARED;
        g_array_append_val(info->rows, row);
    }
    pthread_mutex_unlock(&f->lock);
    return link != NULL;
}

/* What the partition says now. A cursor that was not read yet is somewhere: the lowest place is what is told. */
static void complete_row(NrdFanout *f, void *parent, NrdFanoutRow *row)
{
    uint64_t oldest = 0, hwm = 0;
    if (f->options.ops.bounds(parent, row->partition, false, &oldest, &hwm) == 0)
        row->hwm = MAX(row->hwm, hwm);
    if (row->cursor == NRD_NOT_PREPARED)
        row->cursor = oldest;
}

bool nrd_fanout_info(NrdFanout *f, const void *parent, const char *child, NrdFanoutInfo *ret_info)
{
    NrdFanoutInfo info = { .rows = g_array_new(FALSE, FALSE, sizeof(NrdFanoutRow)) };
    if (!copy_rows(f, parent, child, &info)) {
        g_array_unref(info.rows);
        return false;
    }
    uint32_t n_partitions = f->options.ops.n_partitions((void *)parent);
    for (uint32_t i = info.rows->len; i < n_partitions; i++) { /* added just now */
        NrdFanoutRow row = { .partition = i };
        g_array_append_val(info.rows, row);
    }
    for (guint i = 0; i < info.rows->len; i++) {
        NrdFanoutRow *row = &g_array_index(info.rows, NrdFanoutRow, i);
        complete_row(f, (void *)parent, row);
        info.lag += row->hwm > row->cursor ? row->hwm - row->cursor : 0;
    }
    *ret_info = info;
    return true;
}
