/* Before and after each call: counts, planned faults, the watcher, the trace. */
#include "tests/sim/disk_private.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

const char *sim_call_name(SimCall call)
{
    static const char *const names[] = {
        [SIM_OPEN_ROOT] = "open_root",
        [SIM_OPEN] = "open",
        [SIM_CREATE] = "create",
        [SIM_CLOSE] = "close",
        [SIM_PREAD] = "pread",
        [SIM_PWRITEV] = "pwritev",
        [SIM_FDATASYNC] = "fdatasync",
        [SIM_FSYNC] = "fsync",
        [SIM_FSYNC_DIR] = "fsync_dir",
        [SIM_FTRUNCATE] = "ftruncate",
        [SIM_PUNCH] = "punch",
        [SIM_SET_MTIME] = "set_mtime",
        [SIM_FSTAT] = "fstat",
        [SIM_FSTATAT] = "fstatat",
        [SIM_MKDIR] = "mkdir",
        [SIM_RENAME] = "rename",
        [SIM_UNLINK] = "unlink",
        [SIM_RMDIR] = "rmdir",
        [SIM_LIST] = "list",
        [SIM_DROP_CACHE] = "drop_cache",
        [SIM_LOCK] = "lock",
        [SIM_FSTATVFS] = "fstatvfs",
        [SIM_MAP] = "map",
        [SIM_UNMAP] = "unmap",
        [SIM_ANY_CALL] = "any call",
        [SIM_ANY_SYNC] = "any sync",
    };
    return names[call];
}

static bool is_sync(SimCall call)
{
    return call == SIM_FDATASYNC || call == SIM_FSYNC || call == SIM_FSYNC_DIR;
}

static bool call_matches(SimCall wanted, SimCall call)
{
    return wanted == SIM_ANY_CALL || wanted == call || (wanted == SIM_ANY_SYNC && is_sync(call));
}

/* ---- plans ---- */

static const char *intern(SimDisk *disk, const char *path)
{
    return path != NULL ? g_string_chunk_insert_const(disk->paths, path) : NULL;
}

int sim_disk_plan(SimDisk *disk, const SimFault *fault)
{
    SimPlan *plan = g_new0(SimPlan, 1);
    g_assert_true(fault->kind != SIM_FAIL || fault->error < 0);
    plan->fault = *fault;
    plan->fault.nth = MAX(fault->nth, 1);
    plan->pattern = fault->pattern != NULL ? g_pattern_spec_new(fault->pattern) : NULL;
    g_rec_mutex_lock(&disk->lock);
    plan->fault.pattern = intern(disk, fault->pattern);
    g_ptr_array_add(disk->plans, plan);
    int id = (int)disk->plans->len - 1;
    g_rec_mutex_unlock(&disk->lock);
    return id;
}

void sim_plan_free(gpointer p)
{
    SimPlan *plan = p;
    g_clear_pointer(&plan->pattern, g_pattern_spec_free);
    g_free(plan);
}

void sim_disk_unplan(SimDisk *disk, int id)
{
    g_rec_mutex_lock(&disk->lock);
    ((SimPlan *)disk->plans->pdata[id])->ended = true;
    g_rec_mutex_unlock(&disk->lock);
}

void sim_disk_unplan_all(SimDisk *disk)
{
    g_rec_mutex_lock(&disk->lock);
    for (guint i = 0; i < disk->plans->len; i++)
        ((SimPlan *)disk->plans->pdata[i])->ended = true;
    g_rec_mutex_unlock(&disk->lock);
}

void sim_disk_fired(SimDisk *disk, int id, SimFired *ret_fired)
{
    g_rec_mutex_lock(&disk->lock);
    *ret_fired = ((SimPlan *)disk->plans->pdata[id])->fired;
    g_rec_mutex_unlock(&disk->lock);
}

/* ---- counts ---- */

static void count(SimDisk *disk, const SimCallInfo *info)
{
    uint64_t *counts = g_hash_table_lookup(disk->counts, info->path);
    if (counts == NULL) {
        counts = g_new0(uint64_t, SIM_N_CALLS);
        g_hash_table_insert(disk->counts, (gpointer)info->path, counts);
    }
    counts[info->call]++;
}

static gint compare_paths(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

typedef struct CountRow {
    const char *path;
    uint64_t counts[SIM_N_CALLS];
} CountRow;

/* A copy, by path. */
static GArray *count_rows(SimDisk *disk)
{
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(CountRow));
    GHashTableIter iter;
    gpointer path, counts;

    g_rec_mutex_lock(&disk->lock);
    g_hash_table_iter_init(&iter, disk->counts);
    while (g_hash_table_iter_next(&iter, &path, &counts)) {
        CountRow row = { .path = path };
        memcpy(row.counts, counts, sizeof row.counts);
        g_array_append_val(rows, row);
    }
    g_rec_mutex_unlock(&disk->lock);
    g_array_sort(rows, compare_paths);
    return rows;
}

void sim_disk_foreach_count(SimDisk *disk, SimCountFn f, void *user_data)
{
    g_autoptr(GArray) rows = count_rows(disk);
    for (guint i = 0; i < rows->len; i++) {
        const CountRow *row = &g_array_index(rows, CountRow, i);
        for (SimCall call = 0; call < SIM_N_CALLS; call++) {
            if (row->counts[call] > 0)
                f(call, row->path, row->counts[call], user_data);
        }
    }
}

typedef struct Sum {
    SimCall call;
    GPatternSpec *pattern;
    uint64_t n;
} Sum;

static void add_to_sum(SimCall call, const char *path, uint64_t n, void *user_data)
{
    Sum *sum = user_data;
    if (call_matches(sum->call, call) && (sum->pattern == NULL || g_pattern_spec_match_string(sum->pattern, path)))
        sum->n += n;
}

uint64_t sim_disk_count(SimDisk *disk, SimCall call, const char *pattern)
{
    Sum sum = { call, pattern != NULL ? g_pattern_spec_new(pattern) : NULL, 0 };
    sim_disk_foreach_count(disk, add_to_sum, &sum);
    g_clear_pointer(&sum.pattern, g_pattern_spec_free);
    return sum.n;
}

/* ---- around a call ---- */

static bool plan_matches(const SimPlan *plan, const SimAct *act)
{
    if (plan->ended || !call_matches(plan->fault.call, act->info.call))
        return false;
    if (plan->pattern != NULL && !g_pattern_spec_match_string(plan->pattern, act->info.path) &&
        (act->to_path == NULL || !g_pattern_spec_match_string(plan->pattern, act->to_path)))
        return false;
    return plan->fault.when == NULL || plan->fault.when(&act->info, plan->fault.user_data);
}

static void look_for_faults(SimAct *act)
{
    for (guint i = 0; i < act->disk->plans->len; i++) {
        SimPlan *plan = act->disk->plans->pdata[i];
        if (!plan_matches(plan, act))
            continue;
        uint64_t n = ++plan->fired.n_matched;
        if (act->plan != NULL || !(n == plan->fault.nth || (plan->fault.stays && n > plan->fault.nth)))
            continue;
        act->plan = plan;
        act->info.fault = (int)i;
        if (plan->fired.n_fired++ == 0)
            plan->fired.first = act->info;
    }
}

/* Whether the call shall work all the same, in part or with another outcome. */
static bool works_with_fault(SimAct *act)
{
    const SimFault *fault = &act->plan->fault;
    switch (fault->kind) {
    case SIM_FAIL:
        act->error = fault->error;
        return fault->done_anyway || fault->short_by != 0 || is_sync(act->info.call) || act->info.call == SIM_CLOSE;
    case SIM_CRASH:
        act->error = -EIO;
        if (!fault->done_anyway)
            sim_disk_power_off_locked(act->disk);
        return fault->done_anyway;
    default:
        return true;
    }
}

bool sim_act_begin(SimAct *act)
{
    SimDisk *disk = act->disk;
    g_rec_mutex_lock(&disk->lock);
    act->info.fault = -1;
    if (disk->is_off) {
        act->error = -EIO;
        return false;
    }
    act->info.index = ++disk->n_calls;
    act->info.path = intern(disk, act->info.path);
    act->to_path = intern(disk, act->to_path);
    count(disk, &act->info);
    if (disk->watch != NULL)
        disk->watch(disk, &act->info, true, disk->watch_data);
    look_for_faults(act);
    return act->plan == NULL || works_with_fault(act);
}

int64_t sim_act_end(SimAct *act, int64_t result)
{
    SimDisk *disk = act->disk;
    if (act->error < 0)
        result = act->error;
    act->info.result = result;
    if (act->info.index > 0) {
        disk->trace[act->info.index % N_TRACE] = (SimTraced){ act->info, (long)gettid() };
        if (act->plan != NULL && act->plan->fired.first.index == act->info.index)
            ((SimPlan *)disk->plans->pdata[act->info.fault])->fired.first = act->info;
        if (disk->watch != NULL && !disk->is_off)
            disk->watch(disk, &act->info, false, disk->watch_data);
        if (act->plan != NULL && act->plan->fault.kind == SIM_CRASH)
            sim_disk_power_off_locked(disk);
    }
    g_rec_mutex_unlock(&disk->lock);
    return result;
}

uint64_t sim_act_limit(const SimAct *act, uint64_t size)
{
    if (act->plan == NULL || (act->plan->fault.kind != SIM_SHORT && act->plan->fault.kind != SIM_FAIL))
        return size;
    int64_t by = act->plan->fault.short_by;
    switch (by) {
    case SIM_SHORT_HALF:
        return size / 2;
    case SIM_SHORT_ALL_BUT_ONE:
        return MIN(size, 1);
    case SIM_SHORT_ALL:
        return 0;
    default:
        return size - MIN((uint64_t)by, size);
    }
}

/* ---- the trace ---- */

static void print_call(const SimTraced *traced, FILE *to)
{
    const SimCallInfo *info = &traced->info;
    fprintf(to, "%" PRIu64 " [%ld] %s %s", info->index, traced->thread, sim_call_name(info->call), info->path);
    if (info->size > 0 || info->pos != 0)
        fprintf(to, " pos=%" PRId64 " size=%" PRIu64, info->pos, info->size);
    if (info->result < 0)
        fprintf(to, " = %s", g_strerror((int)-info->result));
    else
        fprintf(to, " = %" PRId64, info->result);
    if (info->fault >= 0)
        fprintf(to, " (fault %d)", info->fault);
    fputc('\n', to);
}

static void print_plan(const SimPlan *plan, guint id, FILE *to)
{
    static const char *const kinds[] = {
        [SIM_FAIL] = "fail", [SIM_SHORT] = "short", [SIM_FLIP] = "flip", [SIM_LIE] = "lie", [SIM_CRASH] = "crash"
    };
    fprintf(to, "fault %u: %s %s number %" PRIu64 "%s on %s: matched %" PRIu64 ", fired %" PRIu64, id,
            kinds[plan->fault.kind], sim_call_name(plan->fault.call), plan->fault.nth,
            plan->fault.stays ? " and later" : "", plan->fault.pattern != NULL ? plan->fault.pattern : "every path",
            plan->fired.n_matched, plan->fired.n_fired);
    if (plan->fired.n_fired > 0)
        fprintf(to, ", first at call %" PRIu64 " on %s pos=%" PRId64, plan->fired.first.index, plan->fired.first.path,
                plan->fired.first.pos);
    fputc('\n', to);
}

void sim_disk_print_trace(SimDisk *disk, FILE *to)
{
    g_rec_mutex_lock(&disk->lock);
    fprintf(to, "simulated disk: seed %" PRIu64 ", %" PRIu64 " calls, power %s\n", disk->options.seed, disk->n_calls,
            disk->is_off ? "off" : "on");
    for (guint i = 0; i < disk->plans->len; i++)
        print_plan(disk->plans->pdata[i], i, to);
    uint64_t first = disk->n_calls > N_TRACE ? disk->n_calls - N_TRACE + 1 : 1;
    for (uint64_t index = first; index <= disk->n_calls; index++) {
        const SimTraced *traced = &disk->trace[index % N_TRACE];
        if (traced->info.index == index) /* else the call is under way */
            print_call(traced, to);
    }
    g_rec_mutex_unlock(&disk->lock);
}
