/* One batch: read, given partitions of the child, committed part after part; then the cursor moves.
 *
 * The plan is what of the batch under way is not committed yet: offsets and the child's partitions they were given. A pass
 * without one reads a batch and makes it; a pass after a failure reads the planned records once more (so a failure keeps
 * no payload in memory). The cursor moves when the plan is empty, and only then is its file written: what a crash finds
 * there is below everything that is not in the child. */
#include "engine/fanout/fanout_private.h"

#include "engine/base/clock.h"
#include "engine/fanout/gate.h"

#include <errno.h>

#define PASSES_BEFORE_MOVE 3
#define NO_ROUTE UINT32_MAX

typedef struct Batch {
    GHashTable *parts;  /* partition + 1 -> batch of the operations, until it is committed */
    GArray *partitions; /* of uint32_t, in the order of their first records */
    uint32_t *routes;   /* by partition: where its records go, or NO_ROUTE: not looked at yet */
    uint32_t n_partitions;
    size_t n_bytes;
    uint64_t n_dropped;
} Batch;

static void batch_init(Batch *batch, uint32_t n_partitions)
{
    *batch = (Batch){ .n_partitions = n_partitions };
    batch->parts = g_hash_table_new(NULL, NULL);
    batch->partitions = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    batch->routes = g_new(uint32_t, n_partitions);
    for (uint32_t i = 0; i < n_partitions; i++)
        batch->routes[i] = NO_ROUTE;
}

static void batch_add(NrdFanCursor *cursor, Batch *batch, uint32_t partition, const NrdFanoutRecord *record)
{
    gpointer key = GUINT_TO_POINTER(partition + 1);
    void *part = g_hash_table_lookup(batch->parts, key);
    if (!part) {
        part = nrd_cursor_ops(cursor)->batch_new();
        g_hash_table_insert(batch->parts, key, part);
        g_array_append_val(batch->partitions, partition);
    }
    nrd_cursor_ops(cursor)->batch_add(part, record);
    batch->n_bytes += record->key_size + record->payload_size;
}

/* Records of a partition that seems unwell go to a sibling, all of one batch to the same one. */
static uint32_t route(NrdFanCursor *cursor, Batch *batch, uint32_t partition)
{
    const NrdFanoutOps *ops = nrd_cursor_ops(cursor);
    void *child = cursor->link->child;
    if (batch->routes[partition] != NO_ROUTE)
        return batch->routes[partition];
    uint32_t to = partition;
    if (!ops->well(child, partition) && ops->sibling(child, partition, &to))
        to = MIN(to, batch->n_partitions - 1);
    batch->routes[partition] = to;
    return to;
}

static uint32_t choose(NrdFanCursor *cursor, Batch *batch, const NrdFanoutRecord *record)
{
    uint32_t partition = record->key_size > 0
                             ? nrd_cursor_ops(cursor)->key_partition(record->key, record->key_size, batch->n_partitions)
                             : atomic_fetch_add(&cursor->link->turn, 1) % batch->n_partitions;
    return route(cursor, batch, partition);
}

static bool is_full(NrdFanCursor *cursor, const Batch *batch, const NrdFanoutRecord *record)
{
    return cursor->plan->len > 0 && (cursor->plan->len >= NRD_FANOUT_BATCH_RECORDS ||
                                     batch->n_bytes + record->key_size + record->payload_size > NRD_FANOUT_BATCH_BYTES);
}

/* The next offset worth trying after one that cannot be read; 0: the error is not about the record. */
static uint64_t past_loss(NrdFanCursor *cursor, uint64_t offset, uint64_t hwm, int rc, uint64_t next)
{
    uint64_t oldest = 0, now_hwm = 0;
    if (rc == -EBADMSG)
        return MIN(MAX(next, offset + 1), hwm);
    if (rc != -ENOENT ||
        nrd_cursor_ops(cursor)->bounds(cursor->link->parent, cursor->partition, true, &oldest, &now_hwm) < 0)
        return 0;
    return oldest > offset ? MIN(oldest, hwm) : 0;
}

/* Reads a batch and plans it, up to the first record that is not due. */
static int gather(NrdFanCursor *cursor, Batch *batch, uint64_t hwm)
{
    uint64_t offset = cursor->offset;
    int64_t wall_ms = nrd_clock_wall_ms();
    int rc = 0;
    cursor->due_ms = 0;
    while (offset < hwm && rc == 0) {
        NrdFanoutRecord record;
        uint64_t next = 0;
        rc = nrd_cursor_ops(cursor)->read(cursor->source, offset, &record, &next);
        if (rc < 0) {
            next = past_loss(cursor, offset, hwm, rc, next);
            rc = next > 0 ? 0 : rc;
            batch->n_dropped += next > 0 ? next - offset : 0;
            offset = MAX(offset, next);
            continue;
        }
        if (!nrd_gate_open(record.commit_ms, cursor->link->delay_ms, wall_ms)) {
            cursor->due_ms = nrd_gate_due_ms(record.commit_ms, cursor->link->delay_ms);
            break;
        }
        if (is_full(cursor, batch, &record))
            break;
        NrdPlanned planned = { .offset = offset, .partition = choose(cursor, batch, &record) };
        batch_add(cursor, batch, planned.partition, &record);
        g_array_append_val(cursor->plan, planned);
        offset++;
    }
    cursor->plan_to = offset;
    /* What was gathered before an error is worth committing, and the next pass meets the error again. */
    return cursor->plan->len > 0 || batch->n_dropped > 0 ? 0 : rc;
}

/* Reads what is left of the plan once more. What can never be read any more leaves it. */
static int gather_again(NrdFanCursor *cursor, Batch *batch, uint64_t hwm)
{
    int rc = 0;
    guint kept = 0;
    for (guint i = 0; i < cursor->plan->len; i++) {
        NrdPlanned *planned = &g_array_index(cursor->plan, NrdPlanned, i);
        NrdFanoutRecord record;
        uint64_t next = 0;
        int read_rc = rc < 0 ? rc : nrd_cursor_ops(cursor)->read(cursor->source, planned->offset, &record, &next);
        if (read_rc < 0 && rc == 0 && past_loss(cursor, planned->offset, hwm, read_rc, next) > 0) {
            batch->n_dropped++;
            continue;
        }
        if (read_rc < 0)
            rc = read_rc;
        else
            batch_add(cursor, batch, planned->partition, &record);
        g_array_index(cursor->plan, NrdPlanned, kept++) = *planned;
    }
    g_array_set_size(cursor->plan, kept);
    return rc;
}

/* ---- committing ---- */

static void part_done(NrdFanCursor *cursor, uint32_t partition)
{
    guint kept = 0;
    for (guint i = 0; i < cursor->plan->len; i++) {
        NrdPlanned planned = g_array_index(cursor->plan, NrdPlanned, i);
        if (planned.partition != partition)
            g_array_index(cursor->plan, NrdPlanned, kept++) = planned;
    }
    uint64_t n = cursor->plan->len - kept;
    g_array_set_size(cursor->plan, kept);
    atomic_fetch_add(&cursor->link->n_copied, n);
    nrd_counter_add(NRD_COUNTER_FANOUT_COPIED, n);
}

/* After three passes, or at once when the partition does not seem well, its records go to a sibling. */
static void part_failed(NrdFanCursor *cursor, uint32_t partition)
{
    const NrdFanoutOps *ops = nrd_cursor_ops(cursor);
    void *child = cursor->link->child;
    bool well = ops->well(child, partition);
    uint32_t to = partition, n_moved = 0;
    for (guint i = 0; i < cursor->plan->len; i++) {
        NrdPlanned *planned = &g_array_index(cursor->plan, NrdPlanned, i);
        if (planned->partition != partition)
            continue;
        planned->n_failed++;
        if (well && planned->n_failed < PASSES_BEFORE_MOVE)
            continue;
        if (to == partition && !ops->sibling(child, partition, &to))
            return; /* nowhere to go */
        planned->partition = to;
        planned->n_failed = 0;
        n_moved++;
    }
    if (n_moved > 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_cursor_place(cursor),
                 "%u record%s for partition %05u of %s copied to %05u instead", n_moved, nrd_plural(n_moved), partition,
                 cursor->link->child_name, to);
}

/* One commit. The batch is taken over. */
static int commit_part(NrdFanCursor *cursor, uint32_t partition, void *part, bool *ret_committed)
{
    int rc = nrd_cursor_claim(cursor, partition);
    *ret_committed = rc == 0;
    if (rc < 0)
        return rc;
    return nrd_cursor_ops(cursor)->commit(cursor->link->child, partition, part);
}

/* Every part is tried, whatever becomes of the others; the first failure is what the pass has to tell. */
static int commit_parts(NrdFanCursor *cursor, Batch *batch)
{
    int first_error = 0;
    g_autoptr(GArray) failed = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    for (guint i = 0; i < batch->partitions->len; i++) {
        uint32_t partition = g_array_index(batch->partitions, uint32_t, i);
        gpointer key = GUINT_TO_POINTER(partition + 1);
        void *part = g_hash_table_lookup(batch->parts, key);
        bool taken = false;
        if (atomic_load(&cursor->link->stopping))
            return -EIDRM;
        int rc = commit_part(cursor, partition, part, &taken);
        if (taken)
            g_hash_table_remove(batch->parts, key);
        if (rc == 0)
            part_done(cursor, partition);
        else if (!nrd_goes_away(rc))
            g_array_append_val(failed, partition);
        first_error = first_error < 0 ? first_error : rc;
    }
    /* Only now: what moves to a partition is not in the part that was committed there. */
    for (guint i = 0; i < failed->len; i++)
        part_failed(cursor, g_array_index(failed, uint32_t, i));
    return first_error;
}

static void batch_clear(NrdFanCursor *cursor, Batch *batch)
{
    GHashTableIter iter;
    gpointer part;
    g_hash_table_iter_init(&iter, batch->parts);
    while (g_hash_table_iter_next(&iter, NULL, &part))
        nrd_cursor_ops(cursor)->batch_free(part);
    g_hash_table_unref(batch->parts);
    g_array_unref(batch->partitions);
    g_free(batch->routes);
}

/* ---- all of it ---- */

static void tell_dropped(NrdFanCursor *cursor, uint64_t n)
{
    if (n == 0)
        return;
    atomic_fetch_add(&cursor->link->n_dropped, n);
    nrd_counter_add(NRD_COUNTER_FANOUT_DROPPED, n);
    nrd_diag(NRD_LEVEL_ERROR, nrd_cursor_place(cursor),
             "%" G_GUINT64_FORMAT " record%s will never be copied to %s: retention was faster, or damage", n,
             nrd_plural(n), cursor->link->child_name);
}

/* The batch under way, or a new one. */
int nrd_cursor_copy(NrdFanCursor *cursor, uint64_t hwm)
{
    Batch batch;
    uint32_t n_partitions = nrd_cursor_ops(cursor)->n_partitions(cursor->link->child);
    if (n_partitions == 0 || n_partitions > NRD_FANOUT_MAX_PARTITIONS)
        return -EIO;
    int rc = nrd_cursor_open_source(cursor);
    if (rc == 0 && !nrd_cursor_same_files(cursor))
        rc =
            -ESHUTDOWN; /* what was opened may be the new ones, and the cursor is the old ones': the next pass loads it */
    if (rc < 0)
        return rc;
    batch_init(&batch, n_partitions);
    bool again = cursor->plan->len > 0;
    rc = again ? gather_again(cursor, &batch, hwm) : gather(cursor, &batch, hwm);
    tell_dropped(cursor, batch.n_dropped);
    if (rc == 0)
        rc = commit_parts(cursor, &batch);
    if (rc == 0) {
        g_assert(cursor->plan->len == 0);
        bool moved = cursor->plan_to > cursor->offset;
        cursor->offset = cursor->plan_to;
        if (moved && nrd_cursor_same_files(cursor))
            nrd_cursor_write_file(cursor);
    }
    batch_clear(cursor, &batch);
    return rc;
}
