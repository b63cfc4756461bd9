/* One pass of one cursor.
 *
 * The plan is what of the batch under way is not committed yet: offsets and the child's partitions they were given. A pass
 * without one reads a batch and makes it; a pass after a failure reads the planned records once more (so a failure keeps
 * no payload in memory). The cursor moves when the plan is empty, and only then is its file written: what a crash finds
 * there is below everything that is not in the child.
 *
 * The file is synced a second after a write, and once more is looked at: a cursor that has not copied for a second gives
 * back its descriptor and its claims. Claims stay meanwhile, since one may cost the ingress a checkpoint. */
#include "engine/fanout/fanout_private.h"

#include "engine/base/clock.h"
#include "engine/fanout/gate.h"

#include <errno.h>
#include <string.h>

#define TIDY_MS 1000
#define FIRST_DELAY_MS 25
#define MAX_DELAY_MS 1000
#define AWAY_DELAY_MS                                                                                                  \
    5000 /* of a parent that cannot be looked at, and of topics that go away: then the link is stopped */
#define PASSES_BEFORE_MOVE 3
#define NO_ROUTE UINT32_MAX

static const NrdFanoutOps *ops_of(const NrdFanCursor *cursor)
{
    return &cursor->link->fanout->options.ops;
}

static NrdPlace place_of(const NrdFanCursor *cursor)
{
    return (NrdPlace){ cursor->link->parent_name, cursor->partition, (int64_t)cursor->offset };
}

static bool goes_away(int error)
{
    return error == -EIDRM || error == -ENODEV || error == -ESHUTDOWN;
}

NrdFanCursor *nrd_fan_cursor_new(NrdLink *link, uint32_t partition)
{
    NrdFanCursor *cursor = g_new0(NrdFanCursor, 1);
    cursor->link = link;
    cursor->partition = partition;
    cursor->ready_link.data = cursor;
    cursor->node.owner = cursor->tidy.owner = cursor;
    cursor->shown.partition = partition;
    cursor->plan = g_array_new(FALSE, FALSE, sizeof(NrdPlanned));
    nrd_cursor_store_init(&cursor->store, link->fanout->options.root_fd, link->parent_name, partition, link->child_name,
                          &link->owner);
    return cursor;
}

void nrd_cursor_free(NrdFanCursor *cursor)
{
    nrd_cursor_store_clear(&cursor->store);
    g_array_unref(cursor->plan);
    g_free(cursor);
}

static void close_source(NrdFanCursor *cursor)
{
    if (cursor->source)
        ops_of(cursor)->close(cursor->source);
    cursor->source = NULL;
}

static int open_source(NrdFanCursor *cursor)
{
    return cursor->source ? 0 : ops_of(cursor)->open(cursor->link->parent, cursor->partition, &cursor->source);
}

/* ---- claims ---- */

static int claim(NrdFanCursor *cursor, uint32_t partition)
{
    uint8_t bit = (uint8_t)(1U << partition % 8);
    if (cursor->claimed[partition / 8] & bit)
        return 0;
    int rc = ops_of(cursor)->claim(cursor->link->child, partition);
    if (rc < 0)
        return rc;
    cursor->claimed[partition / 8] |= bit;
    if (cursor->tidy_at_ms == 0)
        cursor->tidy_at_ms = nrd_clock_mono_ms() + TIDY_MS;
    return 0;
}

static void unclaim_all(NrdFanCursor *cursor)
{
    for (uint32_t i = 0; i < NRD_FANOUT_MAX_PARTITIONS; i++) {
        if (cursor->claimed[i / 8] & 1U << i % 8)
            ops_of(cursor)->unclaim(cursor->link->child, i);
    }
    memset(cursor->claimed, 0, sizeof cursor->claimed);
}

void nrd_cursor_rest(NrdFanCursor *cursor)
{
    close_source(cursor);
    unclaim_all(cursor);
    nrd_cursor_store_rest(&cursor->store);
}

/* ---- the file ---- */

/* The cursor stays behind on disk: after a crash records come twice. Told once, until it is over. */
static void note_file(NrdFanCursor *cursor, int rc)
{
    cursor->behind = rc < 0;
    if (rc < 0)
        nrd_counter_add(NRD_COUNTER_FANOUT_CURSOR, 1);
    if (rc < 0 && cursor->told_errno == 0)
        nrd_diag(NRD_LEVEL_ERROR, place_of(cursor),
                 "%s cannot be written: %s; copying goes on, a crash may repeat what is copied until it can be",
                 cursor->store.path, g_strerror(-rc));
    if (rc == 0 && cursor->told_errno != 0)
        nrd_diag(NRD_LEVEL_NOTICE, place_of(cursor), "%s is written again", cursor->store.path);
    cursor->told_errno = rc;
}

/* A crash before this repeats the batch; one after it at most what no sync has covered. */
static void write_file(NrdFanCursor *cursor)
{
    int rc = nrd_cursor_store_write(&cursor->store, cursor->offset);
    if (rc < 0 || cursor->told_errno == 0 || !cursor->store.dirty)
        note_file(cursor, rc); /* after a failed sync only the next sync says that it is over */
    cursor->used = true;
    if (cursor->tidy_at_ms == 0)
        cursor->tidy_at_ms = nrd_clock_mono_ms() + TIDY_MS;
}

static void sync_file(NrdFanCursor *cursor)
{
    int rc = cursor->behind ? nrd_cursor_store_write(&cursor->store, cursor->offset) : 0;
    if (rc == 0)
        rc = nrd_cursor_store_sync(&cursor->store);
    note_file(cursor, rc);
}

/* When it is time: what was written becomes durable; who has not copied since the last time rests. */
static void tidy(NrdFanCursor *cursor)
{
    int64_t now_ms = nrd_clock_mono_ms();
    if (cursor->tidy_at_ms == 0 || now_ms < cursor->tidy_at_ms)
        return;
    sync_file(cursor);
    bool more = cursor->used || cursor->behind;
    cursor->used = false;
    cursor->tidy_at_ms = more ? now_ms + TIDY_MS : 0;
    if (!more)
        nrd_cursor_rest(cursor);
}

void nrd_cursor_flush(NrdFanCursor *cursor)
{
    if (cursor->loaded && (cursor->store.dirty || cursor->behind))
        sync_file(cursor);
    nrd_cursor_rest(cursor);
}

/* ---- where it starts ---- */

/* Nothing tells how far it was: everything since the attach, so that nothing is lost. */
static int start_from_attach(NrdFanCursor *cursor, NrdCursorFound found, bool missing, uint64_t hwm)
{
    uint64_t offset = 0;
    int rc = hwm == 0 ? 0 : open_source(cursor);
    if (rc == 0 && hwm > 0)
        rc = ops_of(cursor)->find_time(cursor->source, cursor->link->attached_ms, &offset);
    if (rc < 0)
        return rc;
    cursor->offset = offset;
    if (hwm > 0)
        nrd_diag(
            NRD_LEVEL_WARNING, place_of(cursor),
            "%s %s: copying to %s goes on with the first record committed since the attach, records may come twice",
            cursor->store.path,
            missing                      ? "is not there"
            : found == NRD_CURSOR_OTHERS ? "is of another attachment"
                                         : "is damaged",
            cursor->link->child_name);
    write_file(cursor);
    return 0;
}

static int load(NrdFanCursor *cursor, uint64_t hwm)
{
    NrdCursorFound found = NRD_CURSOR_DAMAGED;
    bool missing = false;
    int rc = nrd_cursor_store_load(&cursor->store, &found, &cursor->offset, &missing);
    if (rc == 0 && found != NRD_CURSOR_VALID)
        rc = start_from_attach(cursor, found, missing, hwm);
    cursor->loaded = cursor->reloaded = rc == 0;
    return rc;
}

void nrd_cursor_peek(NrdFanCursor *cursor)
{
    NrdCursorFound found = NRD_CURSOR_DAMAGED;
    bool missing = false;
    if (nrd_cursor_store_load(&cursor->store, &found, &cursor->offset, &missing) == 0)
        cursor->loaded = found == NRD_CURSOR_VALID;
}

/* The partition has other files than before (its folder was another incarnation's, or gone): nothing that is remembered is
 * about these. */
static void check_identity(NrdFanCursor *cursor)
{
    uintptr_t identity = ops_of(cursor)->identity(cursor->link->parent, cursor->partition);
    if (identity == cursor->identity)
        return;
    close_source(cursor);
    g_array_set_size(cursor->plan, 0);
    cursor->identity = identity;
    cursor->loaded = false;
}

/* ---- a batch ---- */

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
        part = ops_of(cursor)->batch_new();
        g_hash_table_insert(batch->parts, key, part);
        g_array_append_val(batch->partitions, partition);
    }
    ops_of(cursor)->batch_add(part, record);
    batch->n_bytes += record->key_size + record->payload_size;
}

/* Records of a partition that seems unwell go to a sibling, all of one batch to the same one. */
static uint32_t route(NrdFanCursor *cursor, Batch *batch, uint32_t partition)
{
    const NrdFanoutOps *ops = ops_of(cursor);
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
                             ? ops_of(cursor)->key_partition(record->key, record->key_size, batch->n_partitions)
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
    if (rc != -ENOENT || ops_of(cursor)->bounds(cursor->link->parent, cursor->partition, true, &oldest, &now_hwm) < 0)
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
        rc = ops_of(cursor)->read(cursor->source, offset, &record, &next);
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
        int read_rc = rc < 0 ? rc : ops_of(cursor)->read(cursor->source, planned->offset, &record, &next);
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
    const NrdFanoutOps *ops = ops_of(cursor);
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
        nrd_diag(NRD_LEVEL_WARNING, place_of(cursor), "%u copies for partition %05u of %s go to %05u instead", n_moved,
                 partition, cursor->link->child_name, to);
}

/* One commit. The batch is taken over. */
static int commit_part(NrdFanCursor *cursor, uint32_t partition, void *part, bool *ret_committed)
{
    int rc = claim(cursor, partition);
    *ret_committed = rc == 0;
    if (rc < 0)
        return rc;
    return ops_of(cursor)->commit(cursor->link->child, partition, part);
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
        else if (!goes_away(rc))
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
        ops_of(cursor)->batch_free(part);
    g_hash_table_unref(batch->parts);
    g_array_unref(batch->partitions);
    g_free(batch->routes);
}

/* ---- the pass ---- */

static void tell_dropped(NrdFanCursor *cursor, uint64_t n)
{
    if (n == 0)
        return;
    atomic_fetch_add(&cursor->link->n_dropped, n);
    nrd_counter_add(NRD_COUNTER_FANOUT_DROPPED, n);
    nrd_diag(NRD_LEVEL_ERROR, place_of(cursor),
             "%" G_GUINT64_FORMAT " records will never be copied to %s: retention was faster, or they are damaged", n,
             cursor->link->child_name);
}

/* The batch under way, or a new one. */
static int copy(NrdFanCursor *cursor, uint64_t hwm)
{
    Batch batch;
    uint32_t n_partitions = ops_of(cursor)->n_partitions(cursor->link->child);
    if (n_partitions == 0 || n_partitions > NRD_FANOUT_MAX_PARTITIONS)
        return -EIO;
    int rc = open_source(cursor);
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
        if (moved)
            write_file(cursor);
    }
    batch_clear(cursor, &batch);
    return rc;
}

static bool is_due(NrdFanCursor *cursor)
{
    return cursor->plan->len > 0 || cursor->due_ms == 0 || cursor->due_ms <= nrd_clock_wall_ms();
}

/* Whether there is something to copy, once it is known where the cursor and the partition stand. */
static int look(NrdFanCursor *cursor, uint64_t *ret_hwm)
{
    uint64_t oldest = 0;
    check_identity(cursor);
    int rc = ops_of(cursor)->bounds(cursor->link->parent, cursor->partition, true, &oldest, ret_hwm);
    if (rc == 0 && !cursor->loaded)
        rc = load(cursor, *ret_hwm);
    return rc;
}

static NrdPassResult failed(NrdFanCursor *cursor, uint64_t hwm, int rc, int64_t max_delay_ms)
{
    int64_t delay_ms = FIRST_DELAY_MS << MIN(cursor->n_failed, 10);
    cursor->retry_ms = nrd_clock_mono_ms() + MIN(delay_ms, max_delay_ms);
    if (!goes_away(rc)) {
        nrd_counter_add(NRD_COUNTER_FANOUT_FAILED, 1);
        if (cursor->n_failed == 0)
            nrd_diag(NRD_LEVEL_WARNING, place_of(cursor), "copying to %s failed: %s; it is tried again",
                     cursor->link->child_name, g_strerror(-rc));
    }
    cursor->n_failed++;
    cursor->error = rc;
    close_source(cursor);
    return (NrdPassResult){ NRD_OUTCOME_FAILED, hwm, rc };
}

static NrdPassResult succeeded(NrdFanCursor *cursor, uint64_t hwm)
{
    if (cursor->n_failed > 0)
        nrd_diag(NRD_LEVEL_NOTICE, place_of(cursor), "copying to %s goes on", cursor->link->child_name);
    cursor->n_failed = 0;
    cursor->error = 0;
    cursor->retry_ms = 0;
    if (cursor->due_ms == 0 && cursor->offset < hwm)
        return (NrdPassResult){ NRD_OUTCOME_MORE, hwm, 0 };
    close_source(cursor);
    return (NrdPassResult){ cursor->due_ms > 0 ? NRD_OUTCOME_DELAYED : NRD_OUTCOME_IDLE, hwm, 0 };
}

NrdPassResult nrd_cursor_pass(NrdFanCursor *cursor)
{
    uint64_t hwm = 0;
    if (atomic_load(&cursor->link->stopping))
        return (NrdPassResult){ NRD_OUTCOME_IDLE, 0, 0 };
    tidy(cursor);
    if (cursor->retry_ms > nrd_clock_mono_ms()) /* only the tidying was due */
        return (NrdPassResult){ NRD_OUTCOME_FAILED, 0, cursor->error };
    int rc = look(cursor, &hwm);
    if (rc < 0)
        return failed(cursor, hwm, rc, AWAY_DELAY_MS);
    if (cursor->offset < hwm && is_due(cursor))
        rc = copy(cursor, hwm);
    return rc < 0 ? failed(cursor, hwm, rc, goes_away(rc) ? AWAY_DELAY_MS : MAX_DELAY_MS) : succeeded(cursor, hwm);
}
