/* Sweeps over every call that a few workloads make: each fails, in each way, once and for ever; before each the process dies
 * or the power goes; each sync lies. What is left is compared with what was promised. See docs/reliability.md.
 *
 *   sweep [--slice] [--workload NAME]... [--run JOB] [--seed N] [--processes N] [--stop] [--list] [-v]
 *
 * The runs are made by processes of their own, one after the other in each. One that finds a violation, dies or hangs is
 * replaced by another. */
#include "tests/sim/sweep.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_PROCESSES 16
#define MAX_WORKLOADS 32
#define MAX_VIOLATIONS 5000
#define HANGS_MS 120000
#define PROGRESS_MS 5000
#define FEW_RUNS 5

typedef struct Options {
    bool slice, stop, list, verbose;
    const char *run;
    GPtrArray *names; /* of workloads; empty: all */
    uint32_t seed;
    int n_processes;
} Options;

typedef struct Tally {
    atomic_uint n_runs, n_fired, n_states, n_violations;
} Tally;

typedef struct Violation {
    int job;
    char why[600];
} Violation;

/* Between the processes. */
typedef struct Shared {
    atomic_int next;
    struct {
        atomic_int job; /* -1: none */
        _Atomic int64_t since_ms;
    } workers[MAX_PROCESSES];
    Tally tallies[MAX_WORKLOADS][JOB_N_KINDS];
    atomic_int n_violations;
    Violation violations[MAX_VIOLATIONS];
    Scouted scouted[MAX_WORKLOADS];
    char scout_why[MAX_WORKLOADS][600];
    atomic_int next_scout;
} Shared;

static Shared *shared;
static Options options = { .seed = 1 };

static const char *const kind_names[JOB_N_KINDS] = { "fault", "crash", "lie", "memory" };
/* How many of each a slice has, for each workload. */
static const unsigned slice_sizes[JOB_N_KINDS] = { 45, 9, 5, 2 };

/* ---- violations ---- */

static void add_violation(const Job *jobs, int job, const char *why)
{
    int i = atomic_fetch_add(&shared->n_violations, 1);
    atomic_fetch_add(&shared->tallies[jobs[job].workload - workloads][jobs[job].kind].n_violations, 1);
    if (i >= MAX_VIOLATIONS)
        return;
    shared->violations[i].job = job;
    g_strlcpy(shared->violations[i].why, why, sizeof shared->violations[i].why);
    g_autofree char *text =
        g_strdup_printf("VIOLATION %s\n    %s\n    again: scripts/sweep --seed %u --workload %s --run '%s' -v\n",
                        jobs[job].name, why, options.seed, jobs[job].workload->name, jobs[job].name);
    fflush(stdout);
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) /* at once: others write, too */
        perror("sweep: write");
}

/* ---- workers ---- */

static void work(const Job *jobs, int n_jobs, int worker)
{
    for (;;) {
        int i = atomic_fetch_add(&shared->next, 1);
        if (i >= n_jobs || (options.stop && atomic_load(&shared->n_violations) > 0))
            break;
        atomic_store(&shared->workers[worker].since_ms, g_get_monotonic_time() / 1000);
        atomic_store(&shared->workers[worker].job, i);
        if (options.verbose)
            fprintf(stderr, "--- %s\n", jobs[i].name);
        JobResult result = sweep_run(&jobs[i], options.seed);
        Tally *tally = &shared->tallies[jobs[i].workload - workloads][jobs[i].kind];
        atomic_fetch_add(&tally->n_runs, 1);
        atomic_fetch_add(&tally->n_fired, result.fired);
        atomic_fetch_add(&tally->n_states, result.n_states);
        if (result.why)
            add_violation(jobs, i, result.why);
        atomic_store(&shared->workers[worker].job, -1);
        if (result.why)
            _exit(1);
    }
    _exit(0);
}

static pid_t start_worker(const Job *jobs, int n_jobs, int worker)
{
    atomic_store(&shared->workers[worker].job, -1);
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        perror("sweep: fork");
        exit(2);
    }
    if (pid == 0)
        work(jobs, n_jobs, worker);
    return pid;
}

/* The process has ended: whether another one shall go on in its place. */
static bool ended(const Job *jobs, int n_jobs, int worker, int status)
{
    int job = atomic_load(&shared->workers[worker].job);
    if (job >= 0) {
        g_autofree char *why = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                   ? g_strdup("I3: it hangs")
                                   : g_strdup_printf("I3: the process died (status %#x)", (unsigned)status);
        add_violation(jobs, job, why);
    }
    if (options.stop && atomic_load(&shared->n_violations) > 0)
        return false;
    return atomic_load(&shared->next) < n_jobs;
}

static void kill_hanging(const pid_t *pids, int n)
{
    int64_t now_ms = g_get_monotonic_time() / 1000;
    for (int i = 0; i < n; i++) {
        if (pids[i] > 0 && atomic_load(&shared->workers[i].job) >= 0 &&
            now_ms - atomic_load(&shared->workers[i].since_ms) > HANGS_MS)
            kill(pids[i], SIGKILL);
    }
}

static void run_all(const Job *jobs, int n_jobs)
{
    pid_t pids[MAX_PROCESSES] = { 0 };
    int n_alive = 0, status;
    int64_t told_ms = g_get_monotonic_time() / 1000;
    for (int i = 0; i < options.n_processes; i++, n_alive++)
        pids[i] = start_worker(jobs, n_jobs, i);
    while (n_alive > 0) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        for (int i = 0; pid > 0 && i < options.n_processes; i++) {
            if (pids[i] != pid)
                continue;
            bool more = ended(jobs, n_jobs, i, status);
            pids[i] = more ? start_worker(jobs, n_jobs, i) : 0;
            n_alive -= !more;
        }
        if (pid > 0)
            continue;
        g_usleep(5000);
        kill_hanging(pids, options.n_processes);
        if (g_get_monotonic_time() / 1000 - told_ms > PROGRESS_MS) {
            told_ms = g_get_monotonic_time() / 1000;
            printf("%d of %d runs, %d violations\n", MIN(atomic_load(&shared->next), n_jobs), n_jobs,
                   atomic_load(&shared->n_violations));
            fflush(stdout);
        }
    }
}

/* ---- scouting ---- */

static bool is_wanted(const Workload *workload)
{
    for (guint i = 0; i < options.names->len; i++) {
        if (strcmp(options.names->pdata[i], workload->name) == 0)
            return true;
    }
    return options.names->len == 0;
}

static void scout_some(void)
{
    for (int i; workloads[i = atomic_fetch_add(&shared->next_scout, 1)].name != NULL;) {
        if (!is_wanted(&workloads[i]))
            continue;
        g_strlcpy(shared->scout_why[i], "the process died", sizeof shared->scout_why[i]);
        char *why = sweep_scout(&workloads[i], options.seed, &shared->scouted[i]);
        g_strlcpy(shared->scout_why[i], why ? why : "", sizeof shared->scout_why[i]);
        if (why)
            _exit(1);
        if (workloads[i + 1].name == NULL)
            break;
    }
    _exit(0);
}

static bool scout_all(void)
{
    bool good = true;
    int n_workloads = 0;
    while (workloads[n_workloads].name)
        n_workloads++;
    while (atomic_load(&shared->next_scout) < n_workloads) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            scout_some();
        waitpid(pid, &status, 0);
    }
    for (int i = 0; i < n_workloads; i++) {
        if (shared->scout_why[i][0] == '\0')
            continue;
        printf("VIOLATION %s, on a well disk\n    %s\n", workloads[i].name, shared->scout_why[i]);
        good = false;
    }
    return good;
}

/* ---- the list ---- */

/* Evenly over the calls; another seed takes others. */
static void append_slice(GArray *jobs, const GArray *of_workload)
{
    for (int kind = 0; kind < JOB_N_KINDS; kind++) {
        g_autoptr(GArray) of_kind = g_array_new(FALSE, FALSE, sizeof(Job));
        for (guint i = 0; i < of_workload->len; i++) {
            if ((int)g_array_index(of_workload, Job, i).kind == kind)
                g_array_append_val(of_kind, g_array_index(of_workload, Job, i));
        }
        guint n = MIN(of_kind->len, slice_sizes[kind]);
        for (guint i = 0; i < n; i++) {
            guint at = (guint)(((uint64_t)i * of_kind->len + options.seed * 7919u % of_kind->len) / n % of_kind->len);
            g_array_append_val(jobs, g_array_index(of_kind, Job, at));
        }
    }
}

typedef unsigned PerSite[JOB_N_KINDS][SIM_N_CALLS][SITE_N_FILES];

static unsigned *of_site(PerSite counts, const Job *job)
{
    return &counts[job->kind][job->site.call][job->site.file];
}

/* One of each kind of run at each site that the slices have left out: what few workloads do, and seldom. */
static void append_left_out(GArray *jobs, const GArray *all)
{
    PerSite n_taken = { 0 }, n_all = { 0 }, n_passed = { 0 };
    for (guint i = 0; i < jobs->len; i++)
        (*of_site(n_taken, &g_array_index(jobs, Job, i)))++;
    for (guint i = 0; i < all->len; i++)
        (*of_site(n_all, &g_array_index(all, Job, i)))++;
    for (guint i = 0; i < all->len; i++) {
        const Job *job = &g_array_index(all, Job, i);
        unsigned nth = (*of_site(n_passed, job))++;
        if (*of_site(n_taken, job) == 0 && nth == options.seed * 7919u % *of_site(n_all, job))
            g_array_append_vals(jobs, job, 1);
    }
}

static GArray *list_jobs(void)
{
    GArray *jobs = g_array_new(FALSE, FALSE, sizeof(Job));
    g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(Job));
    for (int i = 0; workloads[i].name; i++) {
        g_autoptr(GArray) of_workload = g_array_new(FALSE, FALSE, sizeof(Job));
        if (!is_wanted(&workloads[i]) || shared->scout_why[i][0])
            continue;
        sweep_list(&workloads[i], &shared->scouted[i], of_workload);
        if (options.slice) {
            append_slice(jobs, of_workload);
            g_array_append_vals(all, of_workload->data, of_workload->len);
            continue;
        }
        for (guint k = 0; k < of_workload->len; k++) {
            if (!options.run || g_pattern_match_simple(options.run, g_array_index(of_workload, Job, k).name))
                g_array_append_val(jobs, g_array_index(of_workload, Job, k));
        }
    }
    append_left_out(jobs, all);
    return jobs;
}

/* ---- telling ---- */

static void print_summary(double seconds)
{
    unsigned sums[JOB_N_KINDS + 1][4] = { { 0 } };
    printf("%-12s %8s %8s %8s %8s %8s\n", "workload", "kind", "runs", "fired", "states", "wrong");
    for (int i = 0; workloads[i].name; i++) {
        for (int kind = 0; kind < JOB_N_KINDS; kind++) {
            const Tally *t = &shared->tallies[i][kind];
            unsigned row[4] = { t->n_runs, t->n_fired, t->n_states, t->n_violations };
            for (int k = 0; k < 4; k++)
                sums[kind][k] += row[k];
            if (row[0] + row[3] > 0)
                printf("%-12s %8s %8u %8u %8u %8u\n", workloads[i].name, kind_names[kind], row[0], row[1], row[2],
                       row[3]);
        }
    }
    for (int kind = 0; kind < JOB_N_KINDS; kind++) {
        printf("%-12s %8s %8u %8u %8u %8u\n", "all", kind_names[kind], sums[kind][0], sums[kind][1], sums[kind][2],
               sums[kind][3]);
        for (int k = 0; k < 4; k++)
            sums[JOB_N_KINDS][k] += sums[kind][k];
    }
    const unsigned *all = sums[JOB_N_KINDS];
    printf("%u runs, %u fired, %u states of the disk checked, %u violations; seed %u, %.0f s\n", all[0], all[1], all[2],
           all[3], options.seed, seconds);
}

static bool enough(const char *what, const char *kind, unsigned n_fired, unsigned n_needed, unsigned n_runs)
{
    if (n_fired >= n_needed)
        return true;
    printf("%s: only %u of %u runs of the kind %s have had what they are about\n", what, n_fired, n_runs, kind);
    return false;
}

/* A call that is not made again in some run is no fault that happened. Few may be so, since threads differ: a tenth of each
 * kind, and half of what a workload has of it, where that is more than a few. */
static bool enough_fired(void)
{
    bool good = true;
    for (int kind = 0; kind < JOB_N_KINDS; kind++) {
        unsigned n_runs = 0, n_fired = 0;
        for (int i = 0; workloads[i].name; i++) {
            const Tally *t = &shared->tallies[i][kind];
            n_runs += t->n_runs;
            n_fired += t->n_fired;
            if (t->n_runs >= FEW_RUNS)
                good &= enough(workloads[i].name, kind_names[kind], t->n_fired, t->n_runs / 2, t->n_runs);
        }
        if (n_runs >= FEW_RUNS)
            good &= enough("all", kind_names[kind], n_fired, n_runs - n_runs / 10, n_runs);
    }
    return good;
}

static int usage(void)
{
    fprintf(stderr, "usage: sweep [--slice] [--workload NAME]... [--run PATTERN] [--seed N] [--processes N] [--stop] "
                    "[--list] [-v]\n");
    return 2;
}

static bool parse(int argc, char **argv)
{
    options.names = g_ptr_array_new();
    options.n_processes = (int)sysconf(_SC_NPROCESSORS_ONLN) + 1;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--slice") == 0)
            options.slice = true;
        else if (strcmp(argv[i], "--stop") == 0)
            options.stop = true;
        else if (strcmp(argv[i], "--list") == 0)
            options.list = true;
        else if (strcmp(argv[i], "-v") == 0)
            options.verbose = true;
        else if (!value)
            return false;
        else if (strcmp(argv[i++], "--workload") == 0)
            g_ptr_array_add(options.names, (char *)value);
        else if (strcmp(argv[i - 1], "--run") == 0)
            options.run = value;
        else if (strcmp(argv[i - 1], "--seed") == 0)
            options.seed = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i - 1], "--processes") == 0)
            options.n_processes = (int)CLAMP(strtol(value, NULL, 10), 1, MAX_PROCESSES);
        else
            return false;
    }
    options.n_processes = CLAMP(options.n_processes, 1, MAX_PROCESSES);
    return true;
}

int main(int argc, char **argv)
{
    if (!parse(argc, argv))
        return usage();
    setvbuf(stdout, NULL, _IOLBF, 0);
    nrd_diag_set_level(options.verbose ? NRD_LEVEL_DEBUG : (NrdLevel)0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("sweep: mmap");
        return 2;
    }
    int64_t start_us = g_get_monotonic_time();
    printf("seed %u\n", options.seed);
    bool scouted = scout_all();
    g_autoptr(GArray) jobs = list_jobs();
    for (guint i = 0; options.list && i < jobs->len; i++)
        printf("%s\n", g_array_index(jobs, Job, i).name);
    if (options.list)
        return 0;
    if (jobs->len == 0) {
        printf("no run has that name\n");
        return 2;
    }
    run_all((const Job *)(void *)jobs->data, (int)jobs->len);
    print_summary((double)(g_get_monotonic_time() - start_us) / 1e6);
    return !scouted || shared->n_violations > 0 || !enough_fired() ? 1 : 0;
}
