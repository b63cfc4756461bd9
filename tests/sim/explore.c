/* Explores what power cuts leave: at each sync of short workloads, before it and after it, every state that a cut can leave
 * where they are few, and many at random where they are not; each is opened again and compared with what was promised.
 *
 *   explore [--workload NAME]... [--most N] [--seed N] [--moment N] [-v]
 *
 *   --most N    states of one moment at most, 64; a moment that has no more is explored whole
 *   --moment N  that moment alone
 *
 * A sweep (sweep.c) asks at every call for a few states; this asks at the calls that promises hang on for all of them.
 * Each workload runs in a process of its own, which ends at its first violation; another one goes on behind that moment.
 * Exits 1 when there was a violation. */
#include "tests/sim/disk.h"
#include "tests/sim/workload.h"

#include "engine/base/diag.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANGS_S 120 /* one state */

typedef struct Options {
    GPtrArray *names; /* of workloads; empty: all */
    guint most, only; /* only: a moment, from 1; 0: all */
    uint32_t seed;
    bool verbose;
} Options;

static Options options = { .most = 64, .seed = 1 };

/* ---- moments ---- */

/* Just before a sync, or just after it. */
typedef struct Moment {
    char *what;
    SimImage *image;
    Oracle *oracle; /* what was promised by then */
} Moment;

typedef struct Recording {
    GArray *moments; /* of Moment */
    Oracle *oracle;
    bool begun;
} Recording;

static void clear_moment(gpointer data)
{
    Moment *moment = data;
    g_free(moment->what);
    sim_image_unref(moment->image);
    oracle_free(moment->oracle);
}

static void on_call(SimDisk *disk, const SimCallInfo *call, bool before, void *user_data)
{
    Recording *recording = user_data;
    if (!recording->begun || (call->call != SIM_FDATASYNC && call->call != SIM_FSYNC && call->call != SIM_FSYNC_DIR))
        return;
    Moment moment = { .image = sim_disk_snapshot(disk), .oracle = oracle_copy(recording->oracle) };
    moment.what = g_strdup_printf("%s %s %s, call %" G_GUINT64_FORMAT, before ? "before" : "after",
                                  sim_call_name(call->call), call->path, call->index);
    g_array_append_val(recording->moments, moment);
}

static void on_begin(void *user_data)
{
    ((Recording *)user_data)->begun = true;
}

/* Runs the workload on a well disk: NULL, or what it found wrong (g_free). */
static char *record(const Workload *workload, Recording *recording)
{
    SimDiskOptions disk_options = { .seed = options.seed };
    SimDisk *disk = sim_disk_new(&disk_options, NULL);
    WorkloadHooks hooks = { .begin = on_begin, .user_data = recording };

    recording->moments = g_array_new(FALSE, FALSE, sizeof(Moment));
    g_array_set_clear_func(recording->moments, clear_moment);
    recording->oracle = oracle_new(options.seed);
    sim_disk_watch(disk, on_call, recording);
    sim_disk_install(disk);
    char *why = workload_run(workload, recording->oracle, WORKLOAD_RETRY, &hooks);
    if (why != NULL)
        return why; /* the engine may still run on that disk */
    sim_disk_install(NULL);
    sim_disk_free(disk);
    return NULL;
}

/* ---- states ---- */

typedef struct Tally {
    guint n_moments, n_whole, n_states, n_violations;
    guint at; /* the moment at hand, from 1 */
} Tally;

static Tally *tally; /* shared with the processes */

/* Tries one state that was not seen yet at this moment; takes the image. */
static void check_state(SimImage *state, const Moment *moment, SimNames names, GHashTable *seen, const char *how)
{
    uint64_t digest = sim_image_digest(state);
    if (!g_hash_table_add(seen, g_memdup2(&digest, sizeof digest))) {
        sim_image_unref(state);
        return;
    }
    SimDisk *disk = sim_disk_new(NULL, state);
    Oracle *oracle = oracle_copy(moment->oracle);
    oracle->n_crashes++;
    oracle->unordered |= names == SIM_NAMES_ANY_SUBSET;
    sim_disk_install(disk);
    alarm(HANGS_S);
    char *why = oracle_check(oracle);
    alarm(0);
    tally->n_states++;
    if (why != NULL) {
        printf("VIOLATION %s\n    moment %u (%s), %s\n", why, tally->at, moment->what, how);
        if (options.verbose)
            sim_disk_print_trace(disk, stdout);
        fflush(stdout);
        _exit(1); /* whatever still runs finds its disk */
    }
    sim_disk_install(NULL);
    sim_disk_free(disk);
    oracle_free(oracle);
    sim_image_unref(state);
}

/* Whether all of them were had. */
static bool walk(const Moment *moment, SimNames names, GHashTable *seen)
{
    SimWalk *walk = sim_walk_new(moment->image, names);
    SimImage *state = NULL;
    guint n = 0;

    /* first whether they are few: a walk that is cut short would only turn the last decisions */
    while (n <= options.most && (state = sim_walk_next(walk)) != NULL) {
        sim_image_unref(state);
        n++;
    }
    sim_walk_free(walk);
    if (n > options.most)
        return false;
    walk = sim_walk_new(moment->image, names);
    for (n = 0; (state = sim_walk_next(walk)) != NULL; n++) {
        g_autofree char *how = g_strdup_printf("state %u of the walk, names %d", n, names);
        check_state(state, moment, names, seen, how);
    }
    sim_walk_free(walk);
    return true;
}

static void try_random(const Moment *moment, SimNames names, GHashTable *seen)
{
    for (guint i = 0; i < options.most; i++) {
        SimKeep keep = i == 0 ? SIM_KEEP_NONE : i == 1 ? SIM_KEEP_ALL : SIM_KEEP_RANDOM;
        SimCrash crash = { keep, names, ((uint64_t)options.seed << 32) + i };
        g_autofree char *how = g_strdup_printf("random state %u, names %d", i, names);
        check_state(sim_image_power_cut(moment->image, &crash), moment, names, seen, how);
    }
}

static void explore_moment(const Moment *moment)
{
    static const SimNames names[] = { SIM_NAMES_ORDERED, SIM_NAMES_ANY_SUBSET };
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    bool whole = true;

    for (guint i = 0; i < G_N_ELEMENTS(names); i++) {
        if (walk(moment, names[i], seen))
            continue;
        whole = false;
        try_random(moment, names[i], seen);
    }
    tally->n_moments++;
    tally->n_whole += whole;
}

/* ---- processes ---- */

G_GNUC_NORETURN static void explore_from(const Workload *workload, guint first)
{
    Recording recording = { 0 };
    char *why = record(workload, &recording);
    if (why != NULL) {
        printf("VIOLATION %s\n    %s, on a disk that is well\n", why, workload->name);
        fflush(stdout);
        tally->at = G_MAXUINT;
        _exit(1);
    }
    for (guint i = first; i <= recording.moments->len; i++) {
        tally->at = i;
        if (options.only == 0 || options.only == i)
            explore_moment(&g_array_index(recording.moments, Moment, i - 1));
    }
    _exit(0);
}

static void explore(const Workload *workload)
{
    int status = 1;

    *tally = (Tally){ 0 };
    while (status != 0 && tally->at != G_MAXUINT) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
            explore_from(workload, tally->at + 1);
        if (pid < 0 || waitpid(pid, &status, 0) != pid) {
            perror("explore: fork");
            exit(2);
        }
        if (status == 0)
            break;
        tally->n_violations++;
        if (WIFSIGNALED(status))
            printf("VIOLATION I3: %s at moment %u: %s\n", workload->name, tally->at,
                   WTERMSIG(status) == SIGALRM ? "it hangs" : g_strsignal(WTERMSIG(status)));
    }
    printf("%-12s %5u moments, %5u of them whole, %6u states, %u violations\n", workload->name, tally->n_moments,
           tally->n_whole, tally->n_states, tally->n_violations);
}

static bool is_wanted(const Workload *workload)
{
    return options.names->len == 0 ||
           g_ptr_array_find_with_equal_func(options.names, workload->name, g_str_equal, NULL);
}

static void parse(int argc, char **argv)
{
    options.names = g_ptr_array_new();
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "-v") == 0) {
            options.verbose = true;
            continue;
        }
        if (strcmp(argv[i], "--workload") == 0 && workload_find(value) != NULL)
            g_ptr_array_add(options.names, (gpointer)value);
        else if (strcmp(argv[i], "--most") == 0)
            options.most = (guint)g_ascii_strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            options.seed = (uint32_t)g_ascii_strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--moment") == 0)
            options.only = (guint)g_ascii_strtoull(value, NULL, 10);
        else {
            fprintf(stderr,
                    "explore: do not know '%s %s'\n"
                    "usage: explore [--workload NAME]... [--most N] [--seed N] [--moment N] [-v]\n",
                    argv[i], value);
            exit(2);
        }
        i++;
    }
}

int main(int argc, char **argv)
{
    guint n_states = 0, n_violations = 0;

    parse(argc, argv);
    nrd_diag_set_level(options.verbose ? NRD_LEVEL_INFO : 0); /* recovery has much to tell */
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g_assert_true(tally != MAP_FAILED);
    printf("seed %u, at most %u states of a moment in each order of names\n", options.seed, options.most);
    for (const Workload *workload = workloads; workload->name != NULL; workload++) {
        if (!is_wanted(workload))
            continue;
        explore(workload);
        n_states += tally->n_states;
        n_violations += tally->n_violations;
    }
    printf("%u states, %u violations\n", n_states, n_violations);
    g_ptr_array_unref(options.names);
    return n_violations > 0;
}
