/* One pass of one cursor: where it starts, what it leaves on disk, and when it is to be tried again. copy.c copies.
 *
 * The file is synced a second after a write, and once more is looked at: a cursor that has not copied for a second gives
 * back its descriptor and its claims. Claims stay meanwhile, since one may cost the ingress a checkpoint. */
#include "engine/fanout/fanout_private.h"

#include "engine/base/clock.h"

#include <errno.h>
#include <string.h>

#define TIDY_MS 1000
#define MAX_FILES 256 /* cursors beyond sync and close their files at each write */
#define FIRST_DELAY_MS 25
#define MAX_DELAY_MS 1000
#define AWAY_DELAY_MS                                                                                                  \
    5000 /* of a parent that cannot be looked at, and of topics that go away: then the link is stopped */

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
        nrd_cursor_ops(cursor)->close(cursor->source);
    cursor->source = NULL;
}

int nrd_cursor_open_source(NrdFanCursor *cursor)
{
    return cursor->source ? 0 : nrd_cursor_ops(cursor)->open(cursor->link->parent, cursor->partition, &cursor->source);
}

/* ---- claims ---- */

int nrd_cursor_claim(NrdFanCursor *cursor, uint32_t partition)
{
    uint8_t bit = (uint8_t)(1U << partition % 8);
    if (cursor->claimed[partition / 8] & bit)
        return 0;
    int rc = nrd_cursor_ops(cursor)->claim(cursor->link->child, partition);
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
            nrd_cursor_ops(cursor)->unclaim(cursor->link->child, i);
    }
    memset(cursor->claimed, 0, sizeof cursor->claimed);
}

static void close_file(NrdFanCursor *cursor)
{
    nrd_cursor_store_rest(&cursor->store);
    if (cursor->keeps_file)
        atomic_fetch_sub(&cursor->link->fanout->n_files, 1);
    cursor->keeps_file = false;
}

void nrd_cursor_rest(NrdFanCursor *cursor)
{
    close_source(cursor);
    unclaim_all(cursor);
    close_file(cursor);
}

/* ---- the file ---- */

/* The cursor stays behind on disk: after a crash records come twice. Told once, until it is over. */
static void note_file(NrdFanCursor *cursor, int rc)
{
    cursor->behind = rc < 0;
    if (rc < 0)
        nrd_counter_add(NRD_COUNTER_FANOUT_CURSOR, 1);
    if (rc < 0 && cursor->told_errno == 0)
        nrd_diag(NRD_LEVEL_ERROR, nrd_cursor_place(cursor),
                 "%s cannot be written: %s; copying goes on, a crash may repeat what is copied until it can be",
                 cursor->store.path, g_strerror(-rc));
    if (rc == 0 && cursor->told_errno != 0)
        nrd_diag(NRD_LEVEL_NOTICE, nrd_cursor_place(cursor), "%s is written again", cursor->store.path);
    cursor->told_errno = rc;
}

static void sync_file(NrdFanCursor *cursor)
{
    int rc = cursor->behind ? nrd_cursor_store_write(&cursor->store, cursor->offset) : 0;
    if (rc == 0)
        rc = nrd_cursor_store_sync(&cursor->store);
    note_file(cursor, rc);
}

/* However many cursors copy at once, they leave descriptors to the others. */
static void keep_file(NrdFanCursor *cursor)
{
    atomic_uint *n_files = &cursor->link->fanout->n_files;
    if (cursor->keeps_file || cursor->store.fd < 0)
        return;
    cursor->keeps_file = true;
    if (atomic_fetch_add(n_files, 1) < MAX_FILES)
        return;
    sync_file(cursor);
    close_file(cursor);
}

/* A crash before this repeats the batch; one after it at most what no sync has covered. */
void nrd_cursor_write_file(NrdFanCursor *cursor)
{
    int rc = nrd_cursor_store_write(&cursor->store, cursor->offset);
    if (rc < 0 || cursor->told_errno == 0 || !cursor->store.dirty)
        note_file(cursor, rc); /* after a failed sync only the next sync says that it is over */
    keep_file(cursor);
    cursor->used = true;
    if (cursor->tidy_at_ms == 0)
        cursor->tidy_at_ms = nrd_clock_mono_ms() + TIDY_MS;
}

/* When it is time: what was written becomes durable; who has not copied since the last time rests. */
static void tidy(NrdFanCursor *cursor)
{
    int64_t now_ms = nrd_clock_mono_ms();
    if (cursor->tidy_at_ms == 0 || now_ms < cursor->tidy_at_ms)
        return;
    if (cursor->loaded) /* else `offset` is of other files */
        sync_file(cursor);
    bool more = cursor->used || cursor->behind;
    cursor->used = false;
    cursor->tidy_at_ms = more ? now_ms + TIDY_MS : 0;
    if (!more)
        nrd_cursor_rest(cursor);
}

/* ---- where it starts ---- */

/* Nothing tells how far it was, or what does is not to be believed: everything since the attach, so that nothing is lost.
 * why is NULL when that is no news. */
static int start_from_attach(NrdFanCursor *cursor, const char *why, uint64_t hwm)
{
    uint64_t offset = 0;
    int rc = hwm == 0 ? 0 : nrd_cursor_open_source(cursor);
    if (rc == 0 && hwm > 0)
        rc = nrd_cursor_ops(cursor)->find_time(cursor->source, cursor->link->attached_ms, &offset);
    if (rc < 0)
        return rc;
    if (why)
        nrd_diag(
            NRD_LEVEL_WARNING, nrd_cursor_place(cursor),
            "%s %s: copying to %s goes on with the first record committed since the attach, records may come twice",
            cursor->store.path, why, cursor->link->child_name);
    cursor->offset = offset;
    cursor->due_ms = 0;
    g_array_set_size(cursor->plan, 0);
    nrd_cursor_write_file(cursor);
    return 0;
}

/* The log has lost its end: what is committed there next has offsets that count as copied. */
static const char above_the_end[] = "is above the end of the partition";

/* Why the file does not tell where to go on, or NULL. */
static const char *distrust(NrdCursorFound found, bool missing, uint64_t offset, uint64_t hwm)
{
    if (found == NRD_CURSOR_VALID)
        return offset > hwm ? above_the_end : NULL;
    if (missing)
        return "is not there";
    if (found == NRD_CURSOR_NO_FILE)
        return "is no regular file";
    return found == NRD_CURSOR_OTHERS ? "is of another attachment" : "is damaged";
}

static int load(NrdFanCursor *cursor, uint64_t hwm)
{
    NrdCursorFound found = NRD_CURSOR_DAMAGED;
    bool missing = false;
    uint64_t offset = 0;
    int rc = nrd_cursor_store_load(&cursor->store, &found, &offset, &missing);
    if (rc < 0 && cursor->n_failed == 0)
        nrd_diag(NRD_LEVEL_WARNING, nrd_cursor_place(cursor), "%s cannot be read: %s", cursor->store.path,
                 g_strerror(-rc));
    if (rc < 0)
        return rc;
    const char *why = distrust(found, missing, offset, hwm);
    if (why)
        rc = start_from_attach(cursor, hwm > 0 || !missing ? why : NULL, hwm);
    else
        cursor->offset = offset;
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

static uintptr_t identity_now(const NrdFanCursor *cursor)
{
    return nrd_cursor_ops(cursor)->identity(cursor->link->parent, cursor->partition);
}

bool nrd_cursor_same_files(const NrdFanCursor *cursor)
{
    return identity_now(cursor) == cursor->identity;
}

/* The partition has other files than before (its folder was another incarnation's, or gone): nothing that is remembered is
 * about these. */
static void check_identity(NrdFanCursor *cursor)
{
    if (nrd_cursor_same_files(cursor))
        return;
    close_source(cursor);
    g_array_set_size(cursor->plan, 0);
    cursor->identity = identity_now(cursor);
    cursor->due_ms = 0;
    cursor->loaded = cursor->behind = false;
}

void nrd_cursor_flush(NrdFanCursor *cursor)
{
    check_identity(cursor);
    if (cursor->loaded && (cursor->store.dirty || cursor->behind))
        sync_file(cursor);
    nrd_cursor_rest(cursor);
}

/* ---- the pass ---- */

static bool is_due(NrdFanCursor *cursor)
{
    return cursor->plan->len > 0 || cursor->due_ms == 0 || cursor->due_ms <= nrd_clock_wall_ms();
}

/* Whether there is something to copy, once it is known where the cursor and the partition stand. */
static int look(NrdFanCursor *cursor, uint64_t *ret_hwm)
{
    uint64_t oldest = 0;
    int rc = nrd_cursor_ops(cursor)->bounds(cursor->link->parent, cursor->partition, true, &oldest, ret_hwm);
    if (rc == 0 && !cursor->loaded)
        return load(cursor, *ret_hwm);
    if (rc == 0 && cursor->offset > *ret_hwm) {
        rc = start_from_attach(cursor, above_the_end, *ret_hwm);
        cursor->reloaded = rc == 0;
    }
    return rc;
}

static NrdPassResult failed(NrdFanCursor *cursor, uint64_t hwm, int rc, int64_t max_delay_ms)
{
    int64_t delay_ms = FIRST_DELAY_MS << MIN(cursor->n_failed, 10);
    cursor->retry_ms = nrd_clock_mono_ms() + MIN(delay_ms, max_delay_ms);
    if (!nrd_goes_away(rc)) {
        nrd_counter_add(NRD_COUNTER_FANOUT_FAILED, 1);
        if (cursor->n_failed == 0)
            nrd_diag(NRD_LEVEL_WARNING, nrd_cursor_place(cursor), "copying to %s failed: %s; it is tried again",
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
        nrd_diag(NRD_LEVEL_NOTICE, nrd_cursor_place(cursor), "copying to %s goes on", cursor->link->child_name);
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
    check_identity(cursor); /* before the tidying: what is known of the old files is not written beside the new ones */
    tidy(cursor);
    if (cursor->retry_ms > nrd_clock_mono_ms()) /* only the tidying was due */
        return (NrdPassResult){ NRD_OUTCOME_FAILED, 0, cursor->error };
    int rc = look(cursor, &hwm);
    if (rc < 0)
        return failed(cursor, hwm, rc, AWAY_DELAY_MS);
    if (cursor->offset < hwm && is_due(cursor))
        rc = nrd_cursor_copy(cursor, hwm);
    return rc < 0 ? failed(cursor, hwm, rc, nrd_goes_away(rc) ? AWAY_DELAY_MS : MAX_DELAY_MS) : succeeded(cursor, hwm);
}
