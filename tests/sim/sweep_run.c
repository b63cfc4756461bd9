/* See sweep.h: one run. */
#include "tests/sim/alloc.h"
#include "tests/sim/sweep.h"

#include "engine/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define N_RANDOM 4      /* random power cuts of one moment, for each way in which names are lost */
#define N_SOON 8        /* moments after a sync that failed */
#define N_RECOVERIES 2  /* crashes while one of them is recovered from */
#define MAX_RECOVERY 64 /* moments of a recovery */
#define THREADS_WAIT_MS 20000

/* A moment of the recorded run. */
typedef struct Moment {
    Site site;
    unsigned nth;
    SimImage *image;
    Oracle *oracle;
} Moment;

/* A run under way. */
typedef struct Run {
    const Job *job;
    SimDisk *disk;
    Oracle *oracle;
    bool begun, healed, fired;
    int fault_id;
    Scouted *scouted; /* counts calls, or NULL */
    unsigned n[SIM_N_CALLS][SITE_N_FILES];
    atomic_uint n_syncs_failed; /* of segments */
    bool hit;                   /* the first fault has happened; under the disk's lock */
    GArray *moments;            /* of Moment: records them, or NULL */
    SimImage *failed_image;     /* when a sync had failed, and nothing had been done about it */
    Oracle *failed_oracle;
    SimImage *end_image; /* before the last close */
    Oracle *end_oracle;
} Run;

static void clear_moment(gpointer data)
{
    Moment *moment = data;
    sim_image_unref(moment->image);
    oracle_free(moment->oracle);
}

/* ---- watching ---- */

static void note_lie(Run *run)
{
    SiteFile file = run->job->site.file;
    run->oracle->lied = true;
    run->oracle->layout_lied = file == SITE_DATA || file == SITE_FORMAT;
    /* What waits for its partition, and topics whose folders are being made, rely on what comes. */
    for (int id = 0; id < run->oracle->n_records; id++)
        run->oracle->records[id].unsure |= run->oracle->records[id].offset == ORACLE_UNKNOWN;
    for (int i = 0; i < run->oracle->n_topics; i++)
        run->oracle->topics[i].unsure |=
            file == SITE_MARKER || file == SITE_RECORD || file == SITE_TOPIC || file == SITE_TOPICS;
}

static void on_call(SimDisk *disk, const SimCallInfo *call, bool before, void *user_data)
{
    Run *run = user_data;
    if (!before) {
        run->hit |= call->fault >= 0;
        if (call->fault >= 0 && run->job && run->job->kind == JOB_LIE)
            note_lie(run);
        if (call->result < 0 && call->call == SIM_FDATASYNC && site_file(call->path) == SITE_LOG)
            atomic_fetch_add(&run->n_syncs_failed, 1);
        if (call->result < 0 && call->fault >= 0 && site_syncs(call->call) && !run->failed_image) {
            run->failed_image = sim_disk_snapshot(disk);
            run->failed_oracle = oracle_copy(run->oracle);
        }
        return;
    }
    if (!run->begun)
        return;
    SiteFile file = site_file(call->path);
    unsigned nth = ++run->n[call->call][file];
    bool soon = run->job && site_syncs(run->job->site.call) && run->hit && run->moments->len < N_SOON;
    if (!run->moments || !site_changes(call->call) || (run->job && !soon))
        return;
    Moment moment = { { call->call, file }, nth, sim_disk_snapshot(disk), oracle_copy(run->oracle) };
    g_array_append_val(run->moments, moment);
}

static bool at_site(const SimCallInfo *call, void *user_data)
{
    const Run *run = user_data;
    return site_file(call->path) == run->job->site.file;
}

static bool at_site_after_hit(const SimCallInfo *call, void *user_data)
{
    return ((const Run *)user_data)->hit && at_site(call, user_data);
}

/* ---- hooks ---- */

static void on_begin(void *user_data)
{
    Run *run = user_data;
    run->begun = true;
    if (!run->job) {
        sim_alloc_fail(0, false);
        return;
    }
    if (run->job->kind == JOB_MEMORY) {
        sim_alloc_fail(run->job->nth, run->job->fault.stays);
        return;
    }
    SimFault fault = run->job->fault;
    fault.call = run->job->site.call;
    fault.nth = run->job->nth;
    fault.when = at_site;
    fault.user_data = run;
    run->fault_id = sim_disk_plan(run->disk, &fault);
    fault = run->job->also;
    fault.when = at_site_after_hit;
    fault.user_data = run;
    if (fault.error < 0 || fault.kind == SIM_FLIP)
        (void)sim_disk_plan(run->disk, &fault);
}

static bool has_fired(Run *run)
{
    SimFired fired;
    if (!run->job || !run->begun || run->fired)
        return run->fired;
    if (run->job->kind == JOB_MEMORY)
        run->fired = sim_alloc_n_failed() > 0;
    else {
        sim_disk_fired(run->disk, run->fault_id, &fired);
        run->fired = fired.n_fired > 0;
    }
    return run->fired;
}

static void on_heal(void *user_data)
{
    Run *run = user_data;
    if (!run->begun || run->healed || !has_fired(run))
        return; /* what is still to come is not taken away by a failure that is none of ours */
    run->healed = true;
    sim_disk_unplan_all(run->disk);
    sim_disk_set_capacity(run->disk, 0, 0);
    if (run->job->kind == JOB_MEMORY)
        sim_alloc_fail(0, false);
}

static bool on_well(void *user_data)
{
    Run *run = user_data;
    return run->healed || !run->job || !(run->job->fault.stays || run->job->also.stays) || !has_fired(run);
}

static bool on_failed(void *user_data)
{
    return has_fired(user_data);
}

static unsigned on_n_syncs_failed(void *user_data)
{
    return atomic_load(&((Run *)user_data)->n_syncs_failed);
}

static void on_tighten(void *user_data, uint64_t capacity_bytes)
{
    sim_disk_set_capacity(((Run *)user_data)->disk, capacity_bytes, 0);
}

static void on_end(void *user_data)
{
    Run *run = user_data;
    run->end_image = sim_disk_snapshot(run->disk);
    run->end_oracle = oracle_copy(run->oracle);
}

static void start(Run *run, uint32_t seed)
{
    SimDiskOptions options = { .seed = seed };
    run->disk = sim_disk_new(&options, NULL);
    run->oracle = oracle_new(seed);
    sim_disk_watch(run->disk, on_call, run);
    sim_disk_install(run->disk);
}

static void stop(Run *run)
{
    sim_disk_install(NULL);
    sim_disk_free(run->disk);
    oracle_free(run->oracle);
    oracle_free(run->end_oracle);
    sim_image_unref(run->end_image);
    oracle_free(run->failed_oracle);
    sim_image_unref(run->failed_image);
}

/* ---- leaks ---- */

static unsigned count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    unsigned n = 0;
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* I10: after a close. */
static char *check_leaks(Run *run)
{
    unsigned n_open = sim_disk_n_open(run->disk), n_mapped = sim_disk_n_mapped(run->disk), n_threads = 0;
    if (n_open > 0)
        return g_strdup_printf("I10: %u descriptors are open after the close", n_open);
    if (n_mapped > 0)
        return g_strdup_printf("I10: %u mappings are left after the close", n_mapped);
    for (int ms = 0; ms < THREADS_WAIT_MS; ms++) {
        g_thread_pool_stop_unused_threads();
        n_threads = count_threads();
        if (n_threads <= 3) /* ours, and two dots */
            return NULL;
        g_usleep(1000);
    }
    return g_strdup_printf("I10: %u threads are left after the close", n_threads - 3);
}

/* ---- states ---- */

/* What the oracle says of a machine that starts with this image, after a crash. */
static char *check_image(const SimImage *image, const Oracle *oracle, bool unordered)
{
    SimDisk *disk = sim_disk_new(NULL, image);
    Oracle *copy = oracle_copy(oracle);
    copy->n_crashes++;
    copy->unordered |= unordered;
    sim_disk_install(disk);
    char *why = oracle_check(copy);
    if (why) { /* the process ends with it: whatever still runs finds its disk */
        oracle_free(copy);
        return why;
    }
    sim_disk_install(NULL);
    sim_disk_free(disk);
    oracle_free(copy);
    return NULL;
}

static char *check_cut(const SimImage *image, const Oracle *oracle, const SimCrash *crash, const char *what,
                       GHashTable *seen, unsigned *n_states)
{
    SimImage *left = sim_image_power_cut(image, crash);
    uint64_t digest = sim_image_digest(left);
    char *why = NULL;
    if (!seen || g_hash_table_add(seen, g_memdup2(&digest, sizeof digest))) {
        (*n_states)++;
        why = check_image(left, oracle, crash->names == SIM_NAMES_ANY_SUBSET);
    }
    sim_image_unref(left);
    if (!why)
        return NULL;
    char *text = g_strdup_printf("%s [power cut, %s]", why, what);
    g_free(why);
    return text;
}

/* ---- life after a kill ---- */

typedef struct Promised {
    SimImage *image;
    Oracle *oracle;
} Promised;

typedef struct After {
    SimDisk *disk;
    Promised looked, appended;
} After;

static void on_looked(void *user_data, const Oracle *more)
{
    After *after = user_data;
    after->looked = (Promised){ sim_disk_snapshot(after->disk), oracle_copy(more) };
}

static void on_appended(void *user_data, const Oracle *more)
{
    After *after = user_data;
    after->appended = (Promised){ sim_disk_snapshot(after->disk), oracle_copy(more) };
}

static char *check_promised(Promised *promised, const char *what, unsigned *n_states)
{
    SimCrash none = { .keep = SIM_KEEP_NONE };
    if (!promised->image)
        return NULL;
    char *why = check_cut(promised->image, promised->oracle, &none, what, NULL, n_states);
    if (why)
        return why;
    sim_image_unref(promised->image);
    oracle_free(promised->oracle);
    return NULL;
}

/* The process is killed, another one goes on with what it finds in the page cache and serves it, acknowledges more, and then
 * the power goes: whatever the first one did not get to sync has to be durable by then, if it was built upon. */
static char *check_kill_then_cut(const SimImage *image, const Oracle *before, unsigned *n_states)
{
    Oracle *oracle = oracle_copy(before);
    After after = { .disk = sim_disk_new(NULL, image) };
    oracle->n_crashes++;
    sim_disk_install(after.disk);
    char *why = oracle_check_once(oracle, on_looked, on_appended, &after);
    if (why)
        return why;
    sim_disk_install(NULL);
    why = check_promised(&after.looked, "of a process that has served what a killed one left", n_states);
    if (!why)
        why = check_promised(&after.appended, "of a process that went on after a kill -9", n_states);
    if (why)
        return why;
    sim_disk_free(after.disk);
    oracle_free(oracle);
    return NULL;
}

/* Kill -9, and what a power cut may leave: nothing, all, and some of what was not synced. */
static char *check_moment(const Moment *moment, uint32_t seed, unsigned *n_states)
{
    static const SimNames names[] = { SIM_NAMES_ORDERED, SIM_NAMES_ANY_SUBSET };
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    (*n_states)++;
    char *why = check_image(moment->image, moment->oracle, false);
    if (why) {
        char *text = g_strconcat(why, " [kill -9]", NULL);
        g_free(why);
        return text;
    }
    SimCrash none = { .keep = SIM_KEEP_NONE }, all = { .keep = SIM_KEEP_ALL };
    why = check_cut(moment->image, moment->oracle, &none, "nothing unsynced is left", seen, n_states);
    if (!why)
        why = check_cut(moment->image, moment->oracle, &all, "all is left", seen, n_states);
    for (unsigned i = 0; !why && i < 2 * N_RANDOM && sim_image_n_undecided(moment->image) > 0; i++) {
        SimCrash crash = { SIM_KEEP_RANDOM, names[i % 2], seed + i };
        g_autofree char *what = g_strdup_printf("random %u", i);
        why = check_cut(moment->image, moment->oracle, &crash, what, seen, n_states);
    }
    return why;
}

/* ---- crashes while a crash is recovered from ---- */

static char *check_recovery(const Moment *moment, uint32_t seed, unsigned *n_states)
{
    SimCrash first = { SIM_KEEP_RANDOM, SIM_NAMES_ORDERED, seed };
    SimImage *left = sim_image_power_cut(moment->image, &first);
    Run run = { .begun = true, .oracle = oracle_copy(moment->oracle) };
    run.moments = g_array_new(FALSE, FALSE, sizeof(Moment));
    g_array_set_clear_func(run.moments, clear_moment);
    run.oracle->n_crashes++;
    run.disk = sim_disk_new(NULL, left);
    sim_disk_watch(run.disk, on_call, &run);
    sim_disk_install(run.disk);
    char *why = oracle_check_once(run.oracle, NULL, NULL, NULL);
    if (why)
        return why;
    sim_disk_install(NULL);
    for (unsigned i = 0; !why && i < N_RECOVERIES && run.moments->len > 0; i++) {
        const Moment *again = &g_array_index(run.moments, Moment, (seed + i * 7919u) % run.moments->len);
        SimCrash crash = { SIM_KEEP_RANDOM, SIM_NAMES_ANY_SUBSET, seed + i };
        g_autofree char *what =
            g_strdup_printf("random, after one in recovery at %s %s:%u", sim_call_name(again->site.call),
                            site_file_name(again->site.file), again->nth);
        why = check_cut(again->image, again->oracle, &crash, what, NULL, n_states);
    }
    if (why)
        return why;
    g_array_unref(run.moments);
    sim_disk_free(run.disk);
    oracle_free(run.oracle);
    sim_image_unref(left);
    return NULL;
}

/* ---- runs ---- */

static WorkloadHooks hooks_of(Run *run)
{
    return (WorkloadHooks){ on_begin, on_heal, on_well, on_failed, on_n_syncs_failed, on_end, on_tighten, run };
}

/* The recording of one workload, kept for the crashes of that workload that follow. */
static GArray *recorded;
static const Workload *recorded_workload;

static char *record(const Workload *workload, uint32_t seed)
{
    Run run = { 0 };
    if (recorded_workload == workload)
        return NULL;
    g_clear_pointer(&recorded, g_array_unref);
    recorded_workload = NULL;
    run.moments = g_array_new(FALSE, FALSE, sizeof(Moment));
    g_array_set_clear_func(run.moments, clear_moment);
    start(&run, seed);
    WorkloadHooks hooks = hooks_of(&run);
    char *why = workload_run(workload, run.oracle, WORKLOAD_RETRY, &hooks);
    if (why)
        return why;
    recorded = run.moments;
    recorded_workload = workload;
    stop(&run);
    return NULL;
}

static JobResult run_crash(const Job *job, uint32_t seed)
{
    JobResult result = { .why = record(job->workload, seed) };
    for (guint i = 0; !result.why && i < recorded->len; i++) {
        const Moment *moment = &g_array_index(recorded, Moment, i);
        if (moment->site.call != job->site.call || moment->site.file != job->site.file || moment->nth != job->nth)
            continue;
        result.fired = true;
        result.why = check_moment(moment, seed + i, &result.n_states);
        if (!result.why)
            result.why = check_kill_then_cut(moment->image, moment->oracle, &result.n_states);
        if (!result.why)
            result.why = check_recovery(moment, seed + i, &result.n_states);
    }
    return result;
}

/* A sync that lied, or failed: what a power cut leaves of the run's end. */
static char *check_end(Run *run, uint32_t seed, unsigned *n_states)
{
    SimCrash none = { .keep = SIM_KEEP_NONE }, some = { SIM_KEEP_RANDOM, SIM_NAMES_ORDERED, seed };
    char *why = check_cut(run->end_image, run->end_oracle, &none, "at the end", NULL, n_states);
    if (!why && run->job->kind == JOB_LIE)
        why = check_cut(run->end_image, run->end_oracle, &some, "random, at the end", NULL, n_states);
    return why;
}

/* The process is killed, or the power goes, soon after a sync has failed: what was acknowledged meanwhile. */
static char *check_soon(Run *run, unsigned *n_states)
{
    SimCrash none = { .keep = SIM_KEEP_NONE };
    char *why = NULL;
    for (guint i = 0; !why && i < run->moments->len; i++) {
        const Moment *moment = &g_array_index(run->moments, Moment, i);
        moment->oracle->rerouted = true;
        (*n_states)++;
        why = check_image(moment->image, moment->oracle, false);
        if (!why)
            why = check_cut(moment->image, moment->oracle, &none, "soon after a failed sync", NULL, n_states);
    }
    return why;
}

/* What a call is to be asked again for, so that nobody is told. */
static bool is_harmless(const Job *job)
{
    bool interrupted = job->fault.kind == SIM_FAIL && job->fault.error == -EINTR;
    return job->kind == JOB_FAULT && (job->fault.kind == SIM_SHORT || (interrupted && !site_syncs(job->site.call)));
}

static JobResult run_fault(const Job *job, uint32_t seed)
{
    JobResult result = { 0 };
    Run run = { .job = job };
    run.moments = g_array_new(FALSE, FALSE, sizeof(Moment));
    g_array_set_clear_func(run.moments, clear_moment);
    start(&run, seed);
    WorkloadHooks hooks = hooks_of(&run);
    result.why = workload_run(job->workload, run.oracle, job->mode, &hooks);
    result.fired = has_fired(&run);
    if (!result.why && is_harmless(job) && run.oracle->rerouted)
        result.why = g_strdup("a call that was interrupted, or did less than asked, has made a step fail");
    if (result.why)
        return result;
    sim_alloc_fail(0, false);
    sim_disk_unplan_all(run.disk);
    if (result.fired)
        run.oracle->rerouted = run.end_oracle->rerouted = run.end_oracle->twice = true;
    result.why = check_leaks(&run);
    SimImage *closed = sim_disk_snapshot(run.disk);
    result.n_states++;
    if (!result.why && job->kind != JOB_LIE)
        result.why = oracle_check(run.oracle);
    if (result.why)
        return result;
    sim_disk_install(NULL);
    result.why = check_end(&run, seed, &result.n_states);
    if (!result.why && job->kind == JOB_LIE) {
        SimCrash none = { .keep = SIM_KEEP_NONE };
        result.why = check_cut(closed, run.oracle, &none, "after the close", NULL, &result.n_states);
    }
    sim_image_unref(closed);
    if (!result.why && job->kind == JOB_FAULT)
        result.why = check_soon(&run, &result.n_states);
    if (!result.why && run.failed_image) {
        run.failed_oracle->rerouted = run.failed_oracle->twice = true;
        result.why = check_kill_then_cut(run.failed_image, run.failed_oracle, &result.n_states);
    }
    if (!result.why) {
        g_array_unref(run.moments);
        stop(&run);
    }
    return result;
}

JobResult sweep_run(const Job *job, uint32_t seed)
{
    return job->kind == JOB_CRASH ? run_crash(job, seed) : run_fault(job, seed);
}

char *sweep_scout(const Workload *workload, uint32_t seed, Scouted *ret_scouted)
{
    Run run = { 0 };
    start(&run, seed);
    WorkloadHooks hooks = hooks_of(&run);
    char *why = workload_run(workload, run.oracle, WORKLOAD_RETRY, &hooks);
    if (!why && run.oracle->rerouted)
        why = g_strdup("a step has failed, on a well disk");
    if (!why)
        why = check_leaks(&run);
    memcpy(ret_scouted->n, run.n, sizeof run.n);
    ret_scouted->n_allocations = (unsigned)sim_alloc_n_calls();
    if (!why)
        why = oracle_check(run.oracle);
    if (!why)
        stop(&run);
    return why;
}
