/* naradctl copy SOURCE TARGET: a topic becomes one of another mount, whatever engines stand behind the two. See copy.h.
 *
 * It uses files of the mounts alone, with the rights of whoever calls it. Partitions are copied side by side, each by a
 * thread of its own; this one draws the progress. */
#include "ctl/copy.h"

#include "ctl/cli.h"
#include "ctl/verbs.h"
#include "engine/base/diag.h"
#include "engine/base/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define DRAW_EVERY_US 100000
#define TELL_EVERY_US 5000000 /* lines instead of a bar */
#define BAR_CELLS 24
#define EXIT_NOT_ALL 3

static const NrdCliVerb verb = {
    .arguments = "SOURCE TARGET",
    .summary =
        "Copies a topic to another mount: records in order, keys, settings, and where its consumers are. SOURCE is a\n"
        "topic, TARGET where it goes, MNT/topics/TOPIC or MNT/topics; it is made if it is not there. What is there\n"
        "already is compared, and the copy goes on behind it, so after an interruption, or when more has come, the\n"
        "same command is given again. All of it is read back and compared by count and checksum.",
    .details =
        "Offsets begin at 0 in the target. Times are those of the copy. Exit status: 0 all is copied and verified,\n"
        "1 not done, 2 usage, 3 copied and verified, but the source has moved on, or has records that cannot be\n"
        "read.\n\n"
        "naradctl copy /mnt/local/topics/orders /mnt/cluster/topics/orders",
    .n_least = 2,
    .n_most = 2,
};

typedef struct Run {
    NrdCopyJob job;
    NrdCopyPart *parts;
    bool quiet, verbose;
    gint next; /* atomic: the partition that nobody has taken yet */
    GMutex lock;
    GCond change;
    /* guarded by lock */
    unsigned n_running;
    bool refused; /* there are not the threads that it takes: nothing is copied */
} Run;

/* ---- threads ---- */

static gpointer work(gpointer data)
{
    Run *run = data;
    g_mutex_lock(&run->lock);
    bool refused = run->refused;
    g_mutex_unlock(&run->lock);
    for (guint64 i; !refused && (i = (guint64)g_atomic_int_add(&run->next, 1)) < run->job.n_partitions;) {
        nrd_copy_part_run(&run->parts[i]);
        if (run->parts[i].error < 0)
            atomic_store(&run->job.failed, true);
    }
    g_mutex_lock(&run->lock);
    run->n_running--;
    g_cond_signal(&run->change);
    g_mutex_unlock(&run->lock);
    return NULL;
}

/* ---- progress ---- */

static void draw(const Run *run, int64_t start_us, bool bar)
{
    uint64_t done = atomic_load(&run->job.n_done), total = MAX(atomic_load(&run->job.n_total), 1);
    uint64_t written = atomic_load(&run->job.n_written), compared = atomic_load(&run->job.n_compared);
    bool compares = atomic_load(&run->job.n_comparing) > 0;
    double seconds = (double)MAX(g_get_monotonic_time() - start_us, 1) / 1e6;
    unsigned percent = (unsigned)(MIN(done, total) * 100 / total);
    GString *text = g_string_new(bar ? "\r[" : "");
    for (unsigned i = 0; bar && i < BAR_CELLS; i++)
        g_string_append_c(text, i * 100 < percent * BAR_CELLS ? '#' : '.');
    g_string_append_printf(text, "%s%3u%%  ", bar ? "] " : "", percent);
    if (compared > 0)
        g_string_append_printf(text, "%" PRIu64 " record%s that %s there compared%s  ", compared, nrd_plural(compared),
                               compared == 1 ? "was" : "were", compares ? "..." : "");
    if (written > 0 || !compares)
        g_string_append_printf(text, "%" PRIu64 " record%s copied  %.0f records/s", written, nrd_plural(written),
                               (double)written / seconds);
    fprintf(stderr, bar ? "%s\033[K" : "%s\n", text->str);
    fflush(stderr);
    g_string_free(text, TRUE);
}

/* Until all threads are done. */
static void watch(Run *run)
{
    bool bar = !run->quiet && isatty(STDERR_FILENO), shown = bar || (run->verbose && !run->quiet);
    int64_t start_us = g_get_monotonic_time(), step_us = bar ? DRAW_EVERY_US : TELL_EVERY_US,
            next_us = start_us + step_us;
    g_mutex_lock(&run->lock);
    while (run->n_running > 0) {
        if (!shown)
            g_cond_wait(&run->change, &run->lock);
        if (!shown || g_cond_wait_until(&run->change, &run->lock, next_us))
            continue;
        next_us += step_us;
        g_mutex_unlock(&run->lock);
        draw(run, start_us, bar);
        g_mutex_lock(&run->lock);
    }
    g_mutex_unlock(&run->lock);
    if (bar) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

/* ---- what is told in the end ---- */

static uint64_t count_lost(const NrdCopyPart *part)
{
    uint64_t n = 0;
    for (guint i = 0; i < part->gaps->len; i++)
        n += g_array_index(part->gaps, NrdCopyGap, i).n;
    return n;
}

static void tell_lost(const NrdCopyPart *part)
{
    for (guint i = 0; i < part->gaps->len; i++) {
        const NrdCopyGap *gap = &g_array_index(part->gaps, NrdCopyGap, i);
        nrd_cli_say("p%05u: %" PRIu64 " record%s from offset %" PRIu64
                    " on cannot be read in the source (damaged, or gone with retention) and %s not copied",
                    part->number, gap->n, nrd_plural(gap->n), gap->offset, gap->n == 1 ? "is" : "are");
    }
}

/* What retention has taken while it was copied. */
static void tell_retention(const NrdCopyPart *part)
{
    uint64_t oldest;
    if (nrd_tree_number(part->from, "oldest_offset", &oldest) == 0 && oldest > part->first_offset)
        nrd_cli_say("p%05u: retention has removed the records below offset %" PRIu64
                    " from the source meanwhile; the copy has them. Another run cannot compare them, and refuses: set "
                    "retention_ms=0 in the source, and begin again, if there is more to copy",
                    part->number, oldest);
}

static void tell_part(const NrdCopyPart *part)
{
    g_autofree char *sum = nrd_copy_tally_text(&part->there);
    printf("p%05u: %" PRIu64 " record%s verified, %" PRIu64 " new, offset %" PRIu64
           " became 0, sha256 %s, frontier %" PRIu64 " became %" PRIu64 "%s\n",
           part->number, part->there.n, nrd_plural(part->there.n), part->n_new, part->first_offset, sum, part->frontier,
           part->frontier_there, part->is_ahead ? " (where consumers of the target already were)" : "");
    if (part->n_ahead > 0)
        printf("p%05u: %" PRIu64 " record%s settled ahead of the frontier will be delivered again\n", part->number,
               part->n_ahead, nrd_plural(part->n_ahead));
}

static int tell(const Run *run)
{
    int status = NRD_EXIT_GOOD;
    unsigned n_failed = 0;
    for (uint64_t i = 0; i < run->job.n_partitions; i++)
        n_failed += run->parts[i].error < 0 && run->parts[i].error != -ECANCELED;
    for (uint64_t i = 0; i < run->job.n_partitions; i++) {
        const NrdCopyPart *part = &run->parts[i];
        if (part->error < 0) {
            status = NRD_EXIT_FAILED;
            if (part->error != -ECANCELED || n_failed == 0)
                nrd_cli_say("p%05u: %s", part->number, part->why ? part->why : g_strerror(-part->error));
            continue;
        }
        if (!run->quiet)
            tell_part(part);
        tell_lost(part);
        tell_retention(part);
        if (part->moved)
            nrd_cli_say("p%05u: the source has moved on behind offset %" PRIu64
                        "; run it again, or stop its producers first",
                        part->number, part->next_offset);
        if (status == NRD_EXIT_GOOD && (part->moved || count_lost(part) > 0))
            status = EXIT_NOT_ALL;
    }
    return status;
}

/* ---- the verb ---- */

static void sum_up(Run *run)
{
    NrdTopicSums sums;
    (void)!nrd_tree_sums(run->job.from.dir, &sums); /* it is for the progress only */
    atomic_store(&run->job.n_total, 2 * sums.n_records);
    nrd_tree_sums_clear(&sums);
}

/* How many could be had. They begin when all are there: who follows needs one for each partition, for the others one is
 * enough. */
static unsigned start_threads(Run *run, GThread **threads, unsigned n_wanted)
{
    unsigned n = 0;
    g_mutex_lock(&run->lock);
    while (n < n_wanted && (threads[n] = g_thread_try_new("copy", work, run, NULL)))
        n++;
    run->n_running = n;
    run->refused = n == 0 || (run->job.follow && n < n_wanted);
    g_mutex_unlock(&run->lock);
    if (!run->refused)
        return n;
    g_autofree char *why = nrd_pool_why_none("each partition that is copied at a time", 0);
    nrd_cli_say("%s", why);
    return n;
}

static int run_parts(Run *run, unsigned n_jobs)
{
    g_autofree GThread **threads = g_new0(GThread *, n_jobs);
    run->parts = g_new0(NrdCopyPart, run->job.n_partitions);
    for (uint64_t i = 0; i < run->job.n_partitions; i++)
        nrd_copy_part_init(&run->parts[i], &run->job, (unsigned)i);
    unsigned n_threads = start_threads(run, threads, n_jobs);
    watch(run);
    for (unsigned i = 0; i < n_threads; i++)
        g_thread_join(threads[i]);
    int status = run->refused ? NRD_EXIT_FAILED : tell(run);
    for (uint64_t i = 0; i < run->job.n_partitions; i++)
        nrd_copy_part_clear(&run->parts[i]);
    g_free(run->parts);
    return status;
}

static int find(Run *run, char **argv, char **ret_why)
{
    int rc = nrd_tree_find_topic(NULL, argv[1], &run->job.from, ret_why);
    if (rc == 0 && run->job.from.partition) {
        *ret_why = g_strdup_printf("%s is a partition; a topic is copied as a whole", argv[1]);
        rc = -EINVAL;
    }
    if (rc == 0)
        rc = nrd_tree_find_target(argv[2], run->job.from.topic, &run->job.to, ret_why);
    return rc < 0 ? rc : nrd_copy_prepare(&run->job, ret_why);
}

#define FILES_OF_PARTITION 3 /* log.bin of both sides, and produce.bin */
#define FILES_BESIDE 32

/* Who follows has all partitions open at once. false: so many files are not allowed, which is said. */
static bool allow_files(const NrdCopyJob *job)
{
    struct rlimit limit;
    rlim_t wanted = FILES_OF_PARTITION * job->n_partitions + FILES_BESIDE;
    if (!job->follow || getrlimit(RLIMIT_NOFILE, &limit) < 0 || wanted <= limit.rlim_cur)
        return true;
    limit.rlim_cur = limit.rlim_max;
    if (wanted <= limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return true;
    nrd_cli_say("to follow %" PRIu64 " partition%s takes %" PRIu64 " open files, %d for each, and %" PRIu64
                " are allowed: raise that (ulimit -Hn), or copy without --follow",
                job->n_partitions, nrd_plural(job->n_partitions), (uint64_t)wanted, FILES_OF_PARTITION,
                (uint64_t)limit.rlim_max);
    return false;
}

static int copy(Run *run, char **argv, int n_jobs)
{
    g_autofree char *why = NULL;
    if (find(run, argv, &why) < 0) {
        nrd_cli_say("%s", why);
        return NRD_EXIT_FAILED;
    }
    for (guint i = 0; i < run->job.notes->len && !run->quiet; i++)
        nrd_cli_say("%s", (const char *)run->job.notes->pdata[i]);
    sum_up(run);
    if (!allow_files(&run->job))
        return NRD_EXIT_FAILED;
    /* who follows one partition has no time for another */
    return run_parts(
        run, (unsigned)(run->job.follow ? run->job.n_partitions : MIN((uint64_t)n_jobs, run->job.n_partitions)));
}

int nrd_verb_copy(int argc, char **argv)
{
    gboolean quiet = FALSE, verbose = FALSE, follow = FALSE;
    gint n_jobs = 4, batch = 1000;
    const GOptionEntry entries[] = {
        { "follow", 'f', 0, G_OPTION_ARG_NONE, &follow, "Go on with what comes, until interrupted; then finish", NULL },
        { "jobs", 'J', 0, G_OPTION_ARG_INT, &n_jobs, "Partitions at a time (4)", "N" },
        { "batch", 0, 0, G_OPTION_ARG_INT, &batch, "Records in an fsync, at most (1000)", "N" },
        { "quiet", 'q', 0, G_OPTION_ARG_NONE, &quiet, "Print nothing when all is well", NULL },
        { "verbose", 'v', 0, G_OPTION_ARG_NONE, &verbose, "Tell the progress also where there is no terminal", NULL },
        G_OPTION_ENTRY_NULL,
    };
    if (!nrd_cli_parse(&verb, entries, &argc, &argv))
        return NRD_EXIT_USAGE;
    if (n_jobs < 1 || n_jobs > 256 || batch < 1 || batch > 100000) {
        nrd_cli_say("--jobs takes a number up to 256, --batch one up to 100000");
        return NRD_EXIT_USAGE;
    }
    Run run = { .job = { .follow = follow, .batch_records = (uint32_t)batch, .kept_fd = -1 }, .quiet = quiet };
    run.verbose = verbose;
    run.job.notes = g_ptr_array_new_with_free_func(g_free);
    g_mutex_init(&run.lock);
    g_cond_init(&run.change);
    nrd_cli_catch_interrupts();
    int status = copy(&run, argv, n_jobs);
    if (run.job.kept_fd >= 0)
        close(run.job.kept_fd);
    g_ptr_array_unref(run.job.notes);
    nrd_tree_place_clear(&run.job.from);
    nrd_tree_place_clear(&run.job.to);
    g_mutex_clear(&run.lock);
    g_cond_clear(&run.change);
    return nrd_cli_flush() ? status : NRD_EXIT_FAILED;
}
