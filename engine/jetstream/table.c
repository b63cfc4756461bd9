/* The table, and what has no meaning here or is not built: segments, fan-out. */
#include "engine/jetstream/partition.h"

const NrdEngineTable nrd_js_table = {
#define NRD_ENTRY(name) .name = nrd_js_##name,
    NRD_ENGINE_FUNCTIONS(NRD_ENTRY)
#undef NRD_ENTRY
        .topic_keep_refusal = nrd_js_topic_keep_refusal,
    .topic_get_config = nrd_js_topic_get_config,
};

/* ---- segments are the servers' own affair ---- */

/* None, and no error: who walks through the tree (tar, find, cp -a) is to come to its end. */
int nrd_js_partition_segments(NrdPartition *partition, GArray **ret_views)
{
    *ret_views = g_array_new(FALSE, FALSE, sizeof(NrdSegmentView));
    return nrd_js_partition_usable(partition);
}

int nrd_js_segment_reader_open(NrdPartition *partition, uint64_t base, NrdSegmentReader **ret_reader)
{
    return -EOPNOTSUPP;
}

/* There is none to be asked. */
void nrd_js_segment_reader_view(NrdSegmentReader *reader, NrdSegmentView *ret_view)
{
    g_assert_not_reached();
}

int nrd_js_segment_reader_read(NrdSegmentReader *reader, uint64_t pos, void *buf, size_t size, size_t *ret_size)
{
    g_assert_not_reached();
}

void nrd_js_segment_reader_close(NrdSegmentReader *reader)
{
    g_assert_not_reached();
}

/* A stream has no damage that is known of: what the servers cannot read they do not serve. */
int nrd_js_partition_lost_ranges(NrdPartition *partition, GArray **ret_ranges)
{
    *ret_ranges = g_array_new(FALSE, FALSE, sizeof(NrdLostRange));
    return 0;
}

/* ---- fan-out ---- */

int nrd_js_topic_attach(NrdTopic *parent, const char *child)
{
    nrd_topic_refuse(parent, NRD_NO_PARTITION, "%s was not attached: " NRD_JS_NO_FANOUT, child);
    return -EOPNOTSUPP;
}

int nrd_js_topic_detach(NrdTopic *parent, const char *child)
{
    return -ENOENT;
}

GPtrArray *nrd_js_topic_children(NrdTopic *topic)
{
    return g_ptr_array_new_with_free_func(g_free);
}

char *nrd_js_topic_parent(NrdTopic *topic)
{
    return NULL;
}

bool nrd_js_topic_is_delayed(NrdTopic *topic)
{
    return false;
}

int nrd_js_topic_child_info(NrdTopic *parent, const char *child, NrdChildInfo *ret_info)
{
    return -ENOENT;
}

/* ---- metrics ---- */

static void append(GString *text, const char *name, const char *type, const char *help, uint64_t value)
{
    g_string_append_printf(text, "# HELP %s %s\n# TYPE %s %s\n%s %" G_GUINT64_FORMAT "\n", name, help, name, type, name,
                           value);
}

/* Of what is known: nobody is asked. */
static void append_summary(GString *text, NrdEngine *engine)
{
    NrdSummary summary;
    nrd_js_engine_summary(engine, &summary);
    append(text, "narad_topics", "gauge", "Topics.", summary.n_topics);
    append(text, "narad_partitions", "gauge", "Partitions.", summary.n_partitions);
    append(text, "narad_partitions_poisoned", "gauge", "Partitions whose stream does not answer, or is another one.",
           summary.n_poisoned);
    append(text, "narad_partitions_differing", "gauge", "Partitions whose stream has copies that differ.",
           summary.n_apart);
    append(text, "narad_partitions_failing", "gauge", "Partitions whose last commit failed.", summary.n_failing);
    nrd_summary_clear(&summary);
}

char *nrd_js_engine_metrics(NrdEngine *engine)
{
    GString *text = g_string_new(NULL);
    append(text, "narad_commits_total", "counter", "Commits that were acknowledged.",
           nrd_counter_get(NRD_COUNTER_COMMITS));
    append(text, "narad_produced_records_total", "counter", "Records committed.",
           nrd_counter_get(NRD_COUNTER_PRODUCED));
    append(text, "narad_settled_records_total", "counter", "Records settled by consumers.",
           nrd_counter_get(NRD_COUNTER_SETTLED));
    append(text, "narad_late_acks_total", "counter",
           "Acks confirmed after the end of their lease: somebody else may have had the record by then.",
           nrd_counter_get(NRD_COUNTER_LATE_ACKS));
    append(text, "narad_acknowledged_missing_total", "counter",
           "Offsets at which the servers have other records than they acknowledged to this mount, or none.",
           nrd_counter_get(NRD_COUNTER_ACKED_MISSING));
    append(text, "narad_servers_connected", "gauge", "1 while there is a connection to a NATS server.",
           nrd_js_conn_is_up(engine->conn));
    append(text, "narad_servers_lost_total", "counter", "Connections to the NATS servers that were lost.",
           nrd_counter_get(NRD_COUNTER_SERVER_LOSSES));
    append(text, "narad_servers_reconnected_total", "counter", "... that were made again.",
           nrd_counter_get(NRD_COUNTER_SERVER_RECONNECTS));
    append(text, "narad_servers_unanswered_total", "counter", "Requests that were not answered in their time.",
           nrd_counter_get(NRD_COUNTER_SERVERS_SILENT));
    append(text, "narad_publish_retries_total", "counter", "Records that were sent once more, under the same id.",
           nrd_counter_get(NRD_COUNTER_PUBLISH_RETRIES));
    append(text, "narad_rerouted_records_total", "counter",
           "Records produced to a topic as a whole that went to another partition, as their own was poisoned.",
           nrd_counter_get(NRD_COUNTER_REROUTED));
    append(text, "narad_outbox_bytes", "gauge", "Memory of records that no server has acknowledged yet.",
           atomic_load(&engine->outbox_bytes));
    append_summary(text, engine);
    return g_string_free(text, FALSE);
}
