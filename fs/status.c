/* `status` of a topic and of a partition: a page that a person reads at a glance. */
#include "fs/fs_private.h"
#include "fs/status_text.h"

#include <errno.h>

static const char *state_word(NrdPartition *partition, const NrdPartitionInfo *info)
{
    if (!nrd_partition_known(partition))
        return "not known"; /* it could not be looked at: the numbers mean nothing */
    return info->fault                           ? "out of service"
           : info->poisoned                      ? "poisoned"
           : info->commit_errno                  ? "failing"
           : info->n_unreadable                  ? "unreadable"
           : info->n_damaged + info->n_holes > 0 ? "damaged"
           : info->anew                          ? "anew"
           : info->n_hidden                      ? "hiding"
           : info->unsaved                       ? "unsaved"
           : info->apart                         ? "differing"
                                                 : "ok";
}

/* Before `reopen`. */
static const char *todo_word(const NrdPartitionInfo *info, const char *when_well)
{
    return info->fault || info->by_others ? NRD_TODO_BY_OTHERS : when_well;
}

static const char *damage_todo(const NrdPartitionInfo *info)
{
    return info->n_holes > 0 ? NRD_TODO_MISSING : NRD_TODO_DAMAGE;
}

typedef struct Totals {
    uint64_t lag, in_flight, size_bytes;
    const char *durability; /* of the engine; where it is another, that is told */
    GString *todo;          /* a line for each partition that is not well */
    const NrdFs *fs;
} Totals;

static bool is_local(const NrdFs *fs)
{
    return g_str_equal(nrd_engine_durability(fs->engine), "fsync");
}

const char *nrd_when_well(const NrdFs *fs)
{
    return is_local(fs) ? NRD_TODO_POISON : NRD_TODO_SERVERS;
}

const char *nrd_when_commits_fail(const NrdFs *fs)
{
    return is_local(fs) ? NRD_TODO_COMMITS_FAIL : NRD_TODO_COMMITS_FAIL_THERE;
}

static void append_partition_row(GString *text, NrdPartition *partition, Totals *totals)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    g_string_append_printf(text, "p%05u  %12" G_GUINT64_FORMAT "  %12" G_GUINT64_FORMAT "  %12" G_GUINT64_FORMAT,
                           nrd_partition_number(partition), info.oldest_offset, info.hwm, info.frontier);
    g_string_append_printf(text, "  %10" G_GUINT64_FORMAT "  %9" G_GUINT64_FORMAT "  %-14s  ", info.lag, info.in_flight,
                           state_word(partition, &info));
    nrd_append_size(text, info.size_bytes);
    g_string_append_c(text, '\n');
    totals->lag += info.lag;
    totals->in_flight += info.in_flight;
    totals->size_bytes += info.size_bytes;
    if (info.passes)
        g_string_append_printf(totals->todo, "p%05u  %s; %s\n", nrd_partition_number(partition), info.reason,
                               NRD_TODO_PASSES);
    else if (info.poisoned || info.fault)
        g_string_append_printf(totals->todo, "p%05u  %s: %s, echo reopen > p%05u/ctl\n",
                               nrd_partition_number(partition), info.reason,
                               todo_word(&info, nrd_when_well(totals->fs)), nrd_partition_number(partition));
    else if (info.commit_errno)
        g_string_append_printf(totals->todo, "p%05u  commits fail: %s; %s\n", nrd_partition_number(partition),
                               g_strerror(info.commit_errno), nrd_when_commits_fail(totals->fs));
    if (info.durability && !g_str_equal(info.durability, totals->durability)) {
        g_string_append_printf(totals->todo, "p%05u  ", nrd_partition_number(partition));
        nrd_append_durability(totals->todo, info.durability);
        g_string_append_c(totals->todo, '\n');
    }
    g_autofree char *damage = nrd_partition_info_damage(&info);
    if (damage)
        g_string_append_printf(totals->todo, "p%05u  %s; %s\n", nrd_partition_number(partition), damage,
                               damage_todo(&info));
    if (info.anew)
        g_string_append_printf(totals->todo, "p%05u  %s; %s: echo reopen > p%05u/ctl\n",
                               nrd_partition_number(partition), nrd_partition_info_anew(&info), NRD_TODO_ANEW,
                               nrd_partition_number(partition));
    g_autofree char *unreadable = nrd_partition_info_unreadable(&info);
    if (unreadable)
        g_string_append_printf(totals->todo, "p%05u  %s; %s: echo reopen > p%05u/ctl\n",
                               nrd_partition_number(partition), unreadable, NRD_TODO_UNREADABLE,
                               nrd_partition_number(partition));
    g_autofree char *hidden = nrd_partition_info_hidden(&info);
    if (hidden)
        g_string_append_printf(totals->todo, "p%05u  %s; %s\n", nrd_partition_number(partition), hidden,
                               NRD_TODO_HIDDEN);
    if (info.unsaved)
        g_string_append_printf(totals->todo, "p%05u  %s; %s\n", nrd_partition_number(partition), info.unsaved,
                               NRD_TODO_UNSAVED);
    if (info.apart)
        g_string_append_printf(totals->todo, "p%05u  %s; %s\n", nrd_partition_number(partition), info.apart,
                               NRD_TODO_APART);
    nrd_partition_info_clear(&info);
}

static bool all_well(NrdTopic *topic)
{
    bool well = true;
    for (uint32_t i = 0; well && i < nrd_topic_n_partitions(topic); i++) {
        NrdPartitionInfo info;
        nrd_partition_info(nrd_topic_partition(topic, i), &info);
        well = !info.fault && !info.poisoned && info.commit_errno == 0 && !info.anew && !info.unsaved && !info.apart &&
               info.n_damaged + info.n_holes + info.n_hidden + info.n_unreadable == 0;
        nrd_partition_info_clear(&info);
    }
    return well;
}

static void append_lag(GString *text, NrdTopic *parent, const char *child)
{
    NrdChildInfo info;
    if (nrd_topic_child_info(parent, child, &info) < 0) {
        g_string_append(text, "not copied now");
        return;
    }
    g_string_append_printf(text, "lag %" G_GUINT64_FORMAT, info.lag);
    if (info.delay_ms > 0)
        g_string_append_printf(text, ", after %" G_GINT64_FORMAT " ms", info.delay_ms);
    nrd_child_info_clear(&info);
}

static void append_parent(GString *text, NrdFs *fs, NrdTopic *topic)
{
    char *name = nrd_topic_parent(topic);
    NrdTopic *parent = NULL;
    if (name && nrd_topic_find(fs->engine, name, &parent) == 0) {
        g_string_append_printf(text, "parent       %s, ", name);
        append_lag(text, parent, nrd_topic_name(topic));
        g_string_append_c(text, '\n');
    }
    nrd_topic_unref(parent);
    g_free(name);
}

static void append_children(GString *text, NrdTopic *topic)
{
    GPtrArray *names = nrd_topic_children(topic);
    if (names->len > 0)
        g_string_append_printf(text, "children     %u\n", names->len);
    for (guint i = 0; i < names->len; i++) {
        g_string_append_printf(text, "  %-10s ", (const char *)names->pdata[i]);
        append_lag(text, topic, names->pdata[i]);
        g_string_append_c(text, '\n');
    }
    g_ptr_array_unref(names);
}

static void append_partitions(GString *text, const NrdFs *fs, NrdTopic *topic, uint32_t n)
{
    Totals totals = { .todo = g_string_new(NULL), .durability = nrd_engine_durability(fs->engine), .fs = fs };
    g_string_append(text,
                    "partition      oldest           hwm      frontier         lag  in flight  state           size\n");
    for (uint32_t i = 0; i < n; i++) {
        NrdPartition *partition = nrd_topic_partition(topic, i);
        if (partition)
            append_partition_row(text, partition, &totals);
    }
    if (n > 1) {
        g_string_append_printf(text, "all     %52" G_GUINT64_FORMAT "  %9" G_GUINT64_FORMAT "  %-14s  ", totals.lag,
                               totals.in_flight, "");
        nrd_append_size(text, totals.size_bytes);
        g_string_append_c(text, '\n');
    }
    if (totals.todo->len > 0)
        g_string_append_printf(text, "\n%s", totals.todo->str);
    g_string_free(totals.todo, TRUE);
}

static void append_produce_error(GString *text, int error)
{
    if (error < 0)
        g_string_append_printf(text, "produce      refused: %s\nto do        %s\n", g_strerror(-error),
                               error == -EAGAIN ? NRD_TODO_REFUSED_BUSY
                               : error == -EIO  ? NRD_TODO_REFUSED_EIO
                                                : NRD_TODO_REFUSED_FULL);
}

/* Whether the topic is out of service, and there is nothing more to tell. */
static bool append_topic_state(GString *text, NrdTopic *topic)
{
    g_autofree char *fault = nrd_topic_fault(topic);
    if (!fault) {
        int error = nrd_topic_produce_error(topic);
        g_string_append_printf(text, "state        %s\n",
                               nrd_topic_deleted(topic)        ? "deleted"
                               : error == 0 && all_well(topic) ? "ok"
                                                               : "not all is well, see below");
        append_produce_error(text, error);
        return false;
    }
    g_string_append_printf(text, "state        out of service: %s\n", fault);
    if (nrd_topic_lost(topic))
        g_string_append_printf(text,
                               "to do        put meta/%s.topic in the data directory right, then start the daemon "
                               "again\n",
                               nrd_topic_name(topic));
    else
        g_string_append(text, "to do        nothing here: its next use tries again\n");
    return true;
}

/* What was refused last, since whoever wrote got no more than an errno. */
static void append_refusal(GString *text, NrdTopic *topic)
{
    int64_t ms;
    g_autofree char *refusal = nrd_topic_refusal(topic, &ms);
    if (!refusal)
        return;
    g_string_append(text, "refused      ");
    nrd_append_time(text, ms);
    g_string_append_printf(text, ": %s\n", refusal);
}

/* Of a setting that is more than the engine can do. */
static void append_longest(GString *text, NrdTopic *topic)
{
    g_autofree char *set = nrd_topic_config_value(topic, "max_record_bytes");
    int64_t longest = nrd_topic_max_record_bytes(topic);
    if (set && g_ascii_strtoll(set, NULL, 10) > longest)
        g_string_append_printf(text,
                               "longest      %" G_GINT64_FORMAT
                               " bytes of a record: the servers take no more, though max_record_bytes is %s\n",
                               MAX(longest, 0), set);
}

static char *topic_status_text(NrdNode *node)
{
    NrdTopic *topic = node->topic;
    GString *text = g_string_new(NULL);
    g_string_append_printf(text, "topic        %s\n", nrd_topic_name(topic));
    bool out = append_topic_state(text, topic);
    append_refusal(text, topic);
    if (out)
        return g_string_free(text, FALSE);
    uint32_t n = nrd_topic_n_partitions(topic);
    g_string_append_printf(text, "incarnation  %s\ncreated      ", nrd_topic_incarnation(topic));
    nrd_append_time(text, nrd_topic_created_ms(topic));
    g_string_append_printf(text, "\npartitions   %u\n", n);
    append_longest(text, topic);
    append_parent(text, node->fs, topic);
    append_children(text, topic);
    g_string_append_c(text, '\n');
    append_partitions(text, node->fs, topic, n);
    return g_string_free(text, FALSE);
}

static void append_number(GString *text, const char *label, uint64_t number, const char *what)
{
    g_string_append_printf(text, "%-13s%-14" G_GUINT64_FORMAT " %s\n", label, number, what);
}

static void append_time_and_age(GString *text, int64_t ms)
{
    nrd_append_time(text, ms);
    if (ms > 0) {
        g_string_append(text, ", ");
        nrd_append_span(text, g_get_real_time() / 1000 - ms);
        g_string_append(text, " ago");
    }
    g_string_append_c(text, '\n');
}

static void append_oldest(GString *text, const NrdPartitionInfo *info)
{
    if (info->next_offset == info->oldest_offset)
        g_string_append(text, "no record is kept\n");
    else if (info->oldest_ms > 0)
        append_time_and_age(text, info->oldest_ms);
    else
        g_string_append_printf(text, "getfattr -n user.narad.timestamp records/%" G_GUINT64_FORMAT "\n",
                               info->oldest_offset);
}

static char *partition_status_text(NrdNode *node)
{
    NrdPartitionInfo info;
    nrd_partition_info(node->partition, &info);
    g_autofree char *damage = nrd_partition_info_damage(&info);
    g_autofree char *unreadable = nrd_partition_info_unreadable(&info);
    g_autofree char *hidden = nrd_partition_info_hidden(&info);
    GString *text = g_string_new(NULL);
    g_string_append_printf(text, "partition    p%05u of %s\n", nrd_partition_number(node->partition),
                           nrd_topic_name(node->topic));
    g_string_append_printf(text, "state        %s%s%s\n", state_word(node->partition, &info), *info.reason ? ": " : "",
                           info.reason);
    if (info.passes)
        g_string_append(text, "to do        " NRD_TODO_PASSES "\n");
    else if (info.poisoned || info.fault)
        g_string_append_printf(text, "to do        %s: echo reopen > ctl\n", todo_word(&info, nrd_when_well(node->fs)));
    else if (info.commit_errno)
        g_string_append_printf(text, "commits      fail: %s\nto do        %s\n", g_strerror(info.commit_errno),
                               nrd_when_commits_fail(node->fs));
    if (damage)
        g_string_append_printf(text, "damage       %s\nto do        %s\n", damage, damage_todo(&info));
    if (info.anew)
        g_string_append_printf(text, "anew         %s\nto do        %s: echo reopen > ctl\n",
                               nrd_partition_info_anew(&info), NRD_TODO_ANEW);
    if (unreadable)
        g_string_append_printf(text, "unreadable   %s\nto do        %s: echo reopen > ctl\n", unreadable,
                               NRD_TODO_UNREADABLE);
    if (hidden)
        g_string_append_printf(text, "hidden       %s\nto do        %s\n", hidden, NRD_TODO_HIDDEN);
    if (info.unsaved)
        g_string_append_printf(text, "unsaved      %s\nto do        %s\n", info.unsaved, NRD_TODO_UNSAVED);
    if (info.apart)
        g_string_append_printf(text, "copies       %s\nto do        %s\n", info.apart, NRD_TODO_APART);
    if (info.durability) {
        g_string_append(text, "durability   ");
        nrd_append_durability(text, info.durability);
        g_string_append_c(text, '\n');
    }
    append_number(text, "oldest", info.oldest_offset, "first record kept");
    append_number(text, "hwm", info.hwm, "high watermark: records below it are readable");
    append_number(text, "next", info.next_offset, "offset of the next record");
    append_number(text, "frontier", info.frontier, "lowest record not settled");
    append_number(text, "lag", info.lag, "readable and not settled");
    append_number(text, "in flight", info.in_flight, "leased to consumers");
    append_number(text, "acked ahead", info.acked_ahead, "settled above the frontier");
    append_number(text, "segments", info.segments, "files");
    append_number(text, "size", info.size_bytes, "bytes on disk");
    g_string_append(text, "oldest from  ");
    append_oldest(text, &info);
    g_string_append(text, "last commit  ");
    append_time_and_age(text, info.last_commit_ms);
    nrd_partition_info_clear(&info);
    return g_string_free(text, FALSE);
}

const NrdFileOps nrd_topic_status_ops = {
    .open = nrd_text_file_open,
    .read = nrd_text_file_read,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = topic_status_text,
};

const NrdFileOps nrd_partition_status_ops = {
    .open = nrd_text_file_open,
    .read = nrd_text_file_read,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = partition_status_text,
};
