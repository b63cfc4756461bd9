/* The engine at a glance: sums over what memory knows of topics and partitions, and what is not well. */
#include "engine/engine_private.h"

#include "engine/ingress/ingress.h"

static void free_trouble(gpointer data)
{
    NrdTrouble *trouble = data;
    g_free(trouble->topic);
    g_free(trouble->reason);
    g_free(trouble);
}

/* *entry's reason is taken over. */
static void add_trouble(NrdSummary *summary, const NrdTopic *topic, NrdTrouble entry)
{
    if (summary->troubles->len >= NRD_MAX_TROUBLES) {
        g_free(entry.reason);
        return;
    }
    entry.topic = g_strdup(topic->name);
    g_ptr_array_add(summary->troubles, g_memdup2(&entry, sizeof entry));
}

static void add_anew(NrdSummary *summary, NrdPartition *partition)
{
    if (!atomic_load(&partition->folder_lost))
        return;
    NrdPartitionInfo info = { .anew = true };
    summary->n_anew++;
    add_trouble(summary, partition->topic,
                (NrdTrouble){
                    .partition = partition->number, .anew = true, .reason = g_strdup(nrd_partition_info_anew(&info)) });
}

static void add_partition(NrdSummary *summary, NrdPartition *partition)
{
    NrdPartitionInfo info;
    add_anew(summary, partition);
    if (!nrd_partition_known(partition)) {
        summary->n_unknown++;
        return;
    }
    nrd_partition_info(partition, &info);
    summary->n_open += info.open;
    summary->n_poisoned += info.poisoned;
    summary->n_faulty += info.fault;
    summary->n_failing += info.commit_errno != 0 && !info.poisoned;
    summary->n_damaged += info.n_damaged + info.n_holes > 0;
    summary->n_lost += info.n_lost + info.n_missing;
    summary->n_unreadable += info.n_unreadable > 0;
    summary->n_hiding += info.n_hidden > 0;
    summary->size_bytes += info.size_bytes;
    summary->lag += info.lag;
    summary->in_flight += info.in_flight;
    if (info.poisoned || info.fault)
        add_trouble(summary, partition->topic,
                    (NrdTrouble){ .partition = partition->number,
                                  .poisoned = info.poisoned,
                                  .by_others = info.by_others || info.fault,
                                  .reason = g_steal_pointer(&info.reason) });
    else if (info.commit_errno != 0)
        add_trouble(summary, partition->topic,
                    (NrdTrouble){ .partition = partition->number,
                                  .failing = true,
                                  .reason = g_strdup(g_strerror(info.commit_errno)) });
    if (info.n_damaged + info.n_holes > 0)
        add_trouble(summary, partition->topic,
                    (NrdTrouble){ .partition = partition->number,
                                  .damaged = true,
                                  .missing = info.n_holes > 0,
                                  .reason = nrd_partition_info_damage(&info) });
    if (info.n_unreadable > 0)
        add_trouble(summary, partition->topic,
                    (NrdTrouble){ .partition = partition->number,
                                  .unreadable = true,
                                  .reason = nrd_partition_info_unreadable(&info) });
    if (info.n_hidden > 0)
        add_trouble(
            summary, partition->topic,
            (NrdTrouble){ .partition = partition->number, .hidden = true, .reason = nrd_partition_info_hidden(&info) });
    if (info.unsaved) {
        summary->n_unsaved++;
        add_trouble(
            summary, partition->topic,
            (NrdTrouble){ .partition = partition->number, .unsaved = true, .reason = g_steal_pointer(&info.unsaved) });
    }
    nrd_partition_info_clear(&info);
}

static void add_child(NrdSummary *summary, const NrdChildInfo *info)
{
    if (info->delay_ms > 0)
        summary->fan_lag_delayed += info->lag;
    else
        summary->fan_lag += info->lag;
    for (guint i = 0; i < info->rows->len; i++)
        summary->n_fan_failing += g_array_index(info->rows, NrdChildRow, i).n_failed > 0;
}

/* A child that copies nothing, because its record is damaged for one, has no lag to tell. */
static void add_family(NrdSummary *summary, NrdTopic *topic)
{
    g_autoptr(GPtrArray) children = nrd_topic_children(topic);
    NrdChildInfo info;
    for (guint i = 0; i < children->len; i++) {
        if (nrd_topic_child_info(topic, children->pdata[i], &info) < 0)
            continue;
        add_child(summary, &info);
        nrd_child_info_clear(&info);
    }
    summary->n_children += children->len;
    summary->n_parents += children->len > 0;
}

static void add_topic(NrdSummary *summary, NrdTopic *topic)
{
    char *fault = nrd_topic_fault(topic);
    uint32_t n = nrd_topic_n_partitions(topic);
    summary->n_topics_out += fault != NULL;
    summary->n_refused +=
        summary->ingress && nrd_topic_produce_error(topic) < 0; /* else it is none of one topic alone */
    summary->n_partitions += n;
    if (fault)
        add_trouble(summary, topic,
                    (NrdTrouble){ .partition = NRD_NO_PARTITION, .lost = nrd_topic_lost(topic), .reason = fault });
    for (uint32_t i = 0; i < n; i++)
        add_partition(summary, nrd_topic_partition(topic, i));
    add_family(summary, topic);
}

static gint by_name(gconstpointer a, gconstpointer b)
{
    return strcmp((*(NrdTopic *const *)a)->name, (*(NrdTopic *const *)b)->name);
}

static void add_ingress(NrdSummary *summary, NrdEngine *engine)
{
    NrdIngressStats stats = { 0 };
    if (engine->ingress)
        nrd_ingress_stats(engine->ingress, &stats);
    summary->ingress = engine->ingress && stats.error == 0;
    summary->ingress_error = stats.error;
    summary->ingress_parts = stats.n_parts;
    summary->ingress_stuck = stats.n_waiting;
    summary->ingress_bytes = stats.wal_bytes;
}

void nrd_local_engine_summary(NrdEngine *engine, NrdSummary *ret_summary)
{
    NrdSummary summary = {
        .troubles = g_ptr_array_new_with_free_func(free_trouble),
        .n_produced = nrd_counter_get(NRD_COUNTER_PRODUCED),
        .n_copied = nrd_counter_get(NRD_COUNTER_FANOUT_COPIED),
        .n_settled = nrd_counter_get(NRD_COUNTER_SETTLED),
    };
    g_autoptr(GPtrArray) topics = nrd_engine_topics(engine);
    g_ptr_array_sort(topics, by_name);
    summary.n_topics = topics->len;
    add_ingress(&summary, engine);
    for (guint i = 0; i < topics->len; i++)
        add_topic(&summary, topics->pdata[i]);
    *ret_summary = summary;
}

void nrd_summary_clear(NrdSummary *summary)
{
    g_clear_pointer(&summary->troubles, g_ptr_array_unref);
    g_clear_pointer(&summary->connection_refused, g_free);
    g_clear_pointer(&summary->topics_fault, g_free);
}
