/* `status` at the root: is all well, and if not, what to do. From memory: no partition is opened or read for it. */
#include "engine/base/diag.h"
#include "engine/base/version.h"
#include "fs/fs_private.h"
#include "fs/status_text.h"

#include <errno.h>

#define N G_GUINT64_FORMAT

static void append_head(GString *text, const NrdFs *fs, int64_t up_ms)
{
    g_string_append_printf(text, "naradfs      %s, up ", nrd_version);
    nrd_append_span(text, up_ms);
    g_string_append(text, ", since ");
    nrd_append_time(text, fs->mounted_ms);
    g_string_append_printf(text, ", mounted %s\n", nrd_engine_read_only(fs->engine) ? "read-only" : "read-write");
    if (fs->options.data_path)
        g_string_append_printf(text, "data         %s\n", fs->options.data_path);
}

/* What the daemon may use, which is what fills up: not the blocks kept for root. */
static void append_disk(GString *text, const NrdFs *fs)
{
    struct statvfs st;
    int error = nrd_engine_statvfs(fs->engine, &st);
    if (error == 0 && st.f_blocks == 0)
        return; /* no disk of this machine */
    if (error < 0) {
        g_string_append_printf(text, "disk         cannot be asked: %s\n", g_strerror(-error));
        return;
    }
    uint64_t free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    uint64_t size_bytes = (uint64_t)st.f_blocks * st.f_frsize;
    g_string_append(text, "disk         ");
    nrd_append_size(text, free_bytes);
    g_string_append(text, " free of ");
    nrd_append_size(text, size_bytes);
    g_string_append_printf(text, " (%.0f%%)\n", size_bytes > 0 ? 100.0 * (double)free_bytes / (double)size_bytes : 0.0);
}

static void append_count(GString *text, bool *first, uint64_t n, const char *what, const char *state)
{
    if (n == 0)
        return;
    g_string_append_printf(text, "%s%" N " %s%s %s", *first ? "" : ", ", n, what, nrd_plural(n), state);
    *first = false;
}

/* Told where it is not what one expects of a disk. */
static void append_durability(GString *text, const NrdFs *fs, const NrdSummary *summary)
{
    const char *word = nrd_engine_durability(fs->engine);
    if (g_str_equal(word, "fsync"))
        return;
    g_string_append(text, "durability   ");
    nrd_append_durability(text, word);
    if (summary->n_otherwise > 0)
        g_string_append_printf(text, "; otherwise in %" N " partition%s, whose status says how", summary->n_otherwise,
                               nrd_plural(summary->n_otherwise));
    g_string_append_c(text, '\n');
}

/* Of an engine whose records are on other machines. */
static void append_servers(GString *text, const NrdSummary *summary)
{
    if (!summary->has_servers)
        return;
    g_string_append(text, summary->connected ? "servers      connected since " : "servers      not connected since ");
    nrd_append_time(text, summary->connection_ms);
    if (summary->connected) {
        g_string_append_c(text, '\n');
        if (summary->topics_fault)
            g_string_append_printf(text, "to do        %s\n", summary->topics_fault);
        return;
    }
    g_string_append_printf(text, ": %s\nto do        %s\n",
                           summary->connection_refused ? summary->connection_refused : "none of them answers",
                           summary->connection_refused ? NRD_TODO_REFUSED_BY_SERVERS : NRD_TODO_NO_SERVERS);
}

/* With less than that left a topic takes no record. */
static bool is_full(const NrdFs *fs)
{
    struct statvfs st;
    return nrd_engine_statvfs(fs->engine, &st) == 0 && st.f_blocks > 0 && (uint64_t)st.f_bavail * st.f_frsize < NRD_MIB;
}

/* One line that says whether to read on. */
static void append_state(GString *text, const NrdFs *fs, const NrdSummary *summary, bool read_only)
{
    bool well = true;
    g_string_append(text, "state        ");
    if (is_full(fs)) {
        g_string_append(text, "disk full");
        well = false;
    }
    if (summary->has_servers && !summary->connected) {
        g_string_append_printf(text, "%sno connection to the servers", well ? "" : ", ");
        well = false;
    }
    if (summary->topics_fault) {
        g_string_append_printf(text, "%stopics cannot be made, changed or removed", well ? "" : ", ");
        well = false;
    }
    append_count(text, &well, summary->n_topics_out, "topic", "out of service");
    append_count(text, &well, summary->n_poisoned, "partition", "poisoned");
    append_count(text, &well, summary->n_faulty, "partition", "out of service");
    append_count(text, &well, summary->n_unreadable, "partition", "with segments that cannot be read");
    append_count(text, &well, summary->n_damaged, "partition", "with lost records");
    append_count(text, &well, summary->n_anew, "partition", "whose folder was missing");
    append_count(text, &well, summary->n_hiding, "partition", "with records that are not served");
    append_count(text, &well, summary->n_unsaved, "partition", "whose consumers' progress cannot be written");
    append_count(text, &well, summary->n_apart, "partition", "with copies that differ");
    append_count(text, &well, summary->n_failing, "partition", "that cannot commit");
    append_count(text, &well, summary->n_refused, "topic",
                 "that cannot be produced to as a whole (its status says why)");
    append_count(text, &well, summary->ingress_stuck, "partition", "behind, with records that could not be committed");
    append_count(text, &well, summary->n_fan_failing, "partition", "not copied to a child (see children/*/status)");
    if (!summary->ingress && !read_only) {
        g_string_append_printf(text, "%stopics cannot be produced to as a whole", well ? "" : ", ");
        well = false;
    }
    g_string_append(text, well ? "ok\n" : "\n");
}

static void append_partitions(GString *text, const NrdSummary *summary)
{
    uint64_t n_bad = summary->n_faulty;
    g_string_append_printf(text, "partitions   %" N ": %" N " open, %" N " closed", summary->n_partitions,
                           summary->n_open, summary->n_partitions - summary->n_open - summary->n_unknown - n_bad);
    if (n_bad > 0)
        g_string_append_printf(text, ", %" N " out of service", n_bad);
    if (summary->n_poisoned > 0)
        g_string_append_printf(text, " (%" N " poisoned)", summary->n_poisoned);
    if (summary->n_unknown > 0)
        g_string_append_printf(text, ", %" N " not used since the start, which count in none of the sums below",
                               summary->n_unknown);
    g_string_append_c(text, '\n');
}

static void append_sums(GString *text, const NrdSummary *summary)
{
    g_string_append_printf(text, "topics       %" N "\n", summary->n_topics);
    append_partitions(text, summary);
    g_string_append(text, "stored       ");
    nrd_append_size(text, summary->size_bytes);
    g_string_append_printf(text, "\nbacklog      %" N " record%s readable and not settled\n", summary->lag,
                           nrd_plural(summary->lag));
    g_string_append_printf(text, "in flight    %" N " record%s leased to consumers\n", summary->in_flight,
                           nrd_plural(summary->in_flight));
}

static void append_ingress(GString *text, const NrdSummary *summary, bool read_only)
{
    if (read_only)
        return;
    if (summary->ingress_error < 0) {
        g_string_append_printf(text, "ingress      refused: %s\nto do        %s\n", g_strerror(-summary->ingress_error),
                               summary->ingress_error == -EIO ? NRD_TODO_REFUSED_EIO : NRD_TODO_REFUSED_FULL);
        return;
    }
    if (!summary->ingress) {
        g_string_append(text, "ingress      its WAL cannot be read: the log says why; who opens a topic's produce "
                              "tries again; partitions can be produced to\n");
        return;
    }
    g_string_append_printf(text, "ingress      %" N " part%s waiting, ", summary->ingress_parts,
                           nrd_plural(summary->ingress_parts));
    if (summary->ingress_stuck > 0)
        g_string_append_printf(text, "%" N " partition%s stuck, ", summary->ingress_stuck,
                               nrd_plural(summary->ingress_stuck));
    g_string_append(text, "WAL ");
    nrd_append_size(text, summary->ingress_bytes);
    g_string_append_c(text, '\n');
}

static void append_flow(GString *text, const char *label, uint64_t n, int64_t up_ms)
{
    g_string_append_printf(text, "%-13s%" N " record%s since the start, ", label, n, nrd_plural(n));
    nrd_append_rate(text, n, up_ms);
    g_string_append_c(text, '\n');
}

static void append_topic_trouble(GString *text, const NrdTrouble *trouble)
{
    g_string_append_printf(text, "\n%s  out of service: %s\n", trouble->topic, trouble->reason);
    if (trouble->lost)
        g_string_append_printf(text, "    put meta/%s.topic in the data directory right, then start the daemon again\n",
                               trouble->topic);
    else
        g_string_append(text, "    nothing to do here: its next use tries again\n");
}

static void append_partition_trouble(GString *text, const NrdFs *fs, const NrdTrouble *trouble)
{
    if (trouble->damaged || trouble->hidden || trouble->unsaved || trouble->apart) {
        g_string_append_printf(text, "\n%s/p%05u  %s\n    %s\n", trouble->topic, (unsigned)trouble->partition,
                               trouble->reason,
                               trouble->hidden    ? NRD_TODO_HIDDEN
                               : trouble->unsaved ? NRD_TODO_UNSAVED
                               : trouble->apart   ? NRD_TODO_APART
                               : trouble->missing ? NRD_TODO_MISSING
                                                  : NRD_TODO_DAMAGE);
        return;
    }
    if (trouble->unreadable || trouble->anew) {
        g_string_append_printf(text, "\n%s/p%05u  %s\n    %s: echo reopen > topics/%s/p%05u/ctl\n", trouble->topic,
                               (unsigned)trouble->partition, trouble->reason,
                               trouble->anew ? NRD_TODO_ANEW : NRD_TODO_UNREADABLE, trouble->topic,
                               (unsigned)trouble->partition);
        return;
    }
    if (trouble->failing) {
        g_string_append_printf(text, "\n%s/p%05u  commits fail: %s\n    %s\n", trouble->topic,
                               (unsigned)trouble->partition, trouble->reason, nrd_when_commits_fail(fs));
        return;
    }
    g_string_append_printf(text, "\n%s/p%05u  %s: %s\n", trouble->topic, (unsigned)trouble->partition,
                           trouble->poisoned ? "poisoned" : "out of service", trouble->reason);
    if (trouble->passes) {
        g_string_append(text, "    " NRD_TODO_PASSES "\n");
        return;
    }
    g_string_append_printf(text, "    %s: echo reopen > topics/%s/p%05u/ctl\n",
                           trouble->by_others ? NRD_TODO_BY_OTHERS : nrd_when_well(fs), trouble->topic,
                           (unsigned)trouble->partition);
}

static void append_troubles(GString *text, const NrdFs *fs, const NrdSummary *summary)
{
    uint64_t n = summary->n_topics_out + summary->n_poisoned + summary->n_faulty + summary->n_failing +
                 summary->n_damaged + summary->n_hiding + summary->n_unreadable + summary->n_anew + summary->n_unsaved +
                 summary->n_apart;
    for (guint i = 0; i < summary->troubles->len; i++) {
        const NrdTrouble *trouble = summary->troubles->pdata[i];
        if (trouble->partition < 0)
            append_topic_trouble(text, trouble);
        else
            append_partition_trouble(text, fs, trouble);
    }
    if (n > summary->troubles->len)
        g_string_append_printf(text, "\n... and %" N " more\n", n - summary->troubles->len);
}

static char *root_status_text(NrdNode *node)
{
    const NrdFs *fs = node->fs;
    bool read_only = nrd_engine_read_only(fs->engine);
    int64_t up_ms = g_get_monotonic_time() / 1000 - fs->mounted_mono_ms;
    NrdSummary summary;
    nrd_engine_summary(fs->engine, &summary);
    GString *text = g_string_new(NULL);
    append_head(text, fs, up_ms);
    append_disk(text, fs);
    append_durability(text, fs, &summary);
    append_state(text, fs, &summary, read_only);
    append_servers(text, &summary);
    g_string_append_c(text, '\n');
    append_sums(text, &summary);
    if (g_str_equal(nrd_engine_durability(fs->engine), "fsync")) /* the others have no WAL */
        append_ingress(text, &summary, read_only);
    if (summary.n_children > 0)
        g_string_append_printf(text, "fan-out      %" N " child%s of %" N " topic%s\n", summary.n_children,
                               summary.n_children == 1 ? "" : "ren", summary.n_parents, nrd_plural(summary.n_parents));
    append_flow(text, "produced", summary.n_produced, up_ms);
    if (summary.n_children > 0 || summary.n_copied > 0)
        append_flow(text, "copied", summary.n_copied, up_ms);
    append_flow(text, "settled", summary.n_settled, up_ms);
    append_troubles(text, fs, &summary);
    nrd_summary_clear(&summary);
    return g_string_free(text, FALSE);
}

const NrdFileOps nrd_root_status_ops = {
    .open = nrd_text_file_open,
    .read = nrd_text_file_read,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = root_status_text,
};
