/* The engine at a glance, from what is known: nobody is asked. */
#include "engine/jetstream/store.h"

static void add_trouble(NrdSummary *summary, NrdTrouble trouble)
{
    if (summary->troubles->len < NRD_MAX_TROUBLES)
        g_ptr_array_add(summary->troubles, g_memdup2(&trouble, sizeof trouble));
    else
        g_free(trouble.reason);
}

static void sum_partition(NrdSummary *summary, NrdPartition *partition)
{
    NrdPartitionInfo info;
    g_mutex_lock(&partition->lock);
    bool known = partition->known;
    g_mutex_unlock(&partition->lock);
    nrd_js_partition_info(partition, &info);
    summary->n_partitions++;
    summary->n_open += known;
    summary->n_unknown += !known;
    summary->n_poisoned += info.poisoned;
    summary->n_otherwise += info.durability && strcmp(info.durability, partition->topic->engine->durability) != 0;
    summary->n_apart += info.apart != NULL;
    summary->n_failing += !info.poisoned && info.commit_errno != 0;
    summary->size_bytes += info.size_bytes;
    summary->lag += info.lag;
    summary->in_flight += info.in_flight;
    if (info.poisoned || info.commit_errno != 0)
        add_trouble(summary,
                    (NrdTrouble){ .topic = g_strdup(partition->topic->name),
                                  .partition = partition->number,
                                  .poisoned = info.poisoned,
                                  .passes = info.passes,
                                  .failing = !info.poisoned,
                                  .reason = g_strdup(info.poisoned ? info.reason : g_strerror(info.commit_errno)) });
    if (info.apart)
        add_trouble(summary, (NrdTrouble){ .topic = g_strdup(partition->topic->name),
                                           .partition = partition->number,
                                           .apart = true,
                                           .reason = g_strdup(info.apart) });
    nrd_partition_info_clear(&info);
}

static void free_trouble(gpointer data)
{
    NrdTrouble *trouble = data;
    g_free(trouble->topic);
    g_free(trouble->reason);
    g_free(trouble);
}

static void add_connection(NrdSummary *summary, NrdEngine *engine)
{
    NrdJsHealth health;
    nrd_js_conn_health(engine->conn, &health);
    summary->has_servers = true;
    summary->connected = health.up;
    summary->connection_ms = health.since_ms;
    summary->connection_refused = health.refusal; /* taken over */
}

void nrd_js_engine_summary(NrdEngine *engine, NrdSummary *ret_summary)
{
    NrdSummary summary = { .ingress = true, .troubles = g_ptr_array_new_with_free_func(free_trouble) };
    g_autoptr(GPtrArray) topics = nrd_js_topics(engine);
    for (guint i = 0; i < topics->len; i++) {
        NrdTopic *topic = topics->pdata[i];
        char *fault = nrd_js_topic_fault(topic);
        summary.n_topics++;
        summary.n_topics_out += fault != NULL;
        if (fault)
            add_trouble(&summary,
                        (NrdTrouble){ .topic = g_strdup(topic->name), .partition = -1, .lost = true, .reason = fault });
        for (uint32_t p = 0; p < nrd_js_topic_n_partitions(topic); p++)
            sum_partition(&summary, nrd_js_topic_partition(topic, p));
    }
    summary.n_produced = nrd_counter_get(NRD_COUNTER_PRODUCED);
    summary.n_settled = nrd_counter_get(NRD_COUNTER_SETTLED);
    add_connection(&summary, engine);
    summary.topics_fault = nrd_js_bucket_fault(engine);
    *ret_summary = summary;
}
