/* The tree, as a table: a new file is a row here and its operations in a file of their own. */
#include "fs/fs_private.h"

#include <string.h>

#define DIR_MODE (S_IFDIR | 0777)
#define LINK_MODE (S_IFLNK | 0777)
#define WRITABLE (S_IFREG | 0666)
#define READABLE (S_IFREG | 0444)

#define ROW(k) [NRD_KIND_##k] = { .kind = NRD_KIND_##k

/* clang-format off */
static const NrdKindInfo kinds[NRD_N_KINDS] = {
    ROW(ROOT), .mode = DIR_MODE, .steady = true },
    ROW(HELP), .parent = NRD_KIND_ROOT, .name = "HELP", .mode = READABLE, .listed = true, .steady = true,
        .ops = &nrd_help_ops },
    ROW(ROOT_STATUS), .parent = NRD_KIND_ROOT, .name = "status", .mode = READABLE, .listed = true,
        .ops = &nrd_root_status_ops },
    ROW(METRICS), .parent = NRD_KIND_ROOT, .name = "metrics", .mode = READABLE, .listed = true,
        .ops = &nrd_metrics_ops },
    ROW(TOPICS), .parent = NRD_KIND_ROOT, .name = "topics", .mode = DIR_MODE, .listed = true },
    ROW(TOPIC), .parent = NRD_KIND_TOPICS, .path = "", .mode = DIR_MODE, .brief = true, .listed = true },

    ROW(TOPIC_CONFIG), .parent = NRD_KIND_TOPIC, .name = "config", .path = "config", .mode = WRITABLE, .listed = true,
        .truncate = true, .ops = &nrd_topic_config_ops },
    ROW(TOPIC_CTL), .parent = NRD_KIND_TOPIC, .name = "ctl", .path = "ctl", .mode = WRITABLE, .listed = true,
        .truncate = true, .ops = &nrd_topic_ctl_ops },
    ROW(TOPIC_STATUS), .parent = NRD_KIND_TOPIC, .name = "status", .path = "status", .mode = READABLE, .listed = true,
        .ops = &nrd_topic_status_ops },
    ROW(TOPIC_PRODUCE), .parent = NRD_KIND_TOPIC, .name = "produce", .path = "produce", .mode = WRITABLE,
        .fresh = true, .listed = true, .named = true, .steady = true, .truncate = true, .ops = &nrd_produce_ops },
    ROW(TOPIC_PRODUCE_JSONL), .parent = NRD_KIND_TOPIC, .name = "produce.jsonl", .path = "produce.jsonl", .mode = WRITABLE,
        .fresh = true, .listed = true, .named = true, .steady = true, .truncate = true, .ops = &nrd_produce_ops },
    ROW(TOPIC_PRODUCE_BIN), .parent = NRD_KIND_TOPIC, .name = "produce.bin", .path = "produce.bin", .mode = WRITABLE,
        .fresh = true, .listed = true, .named = true, .steady = true, .truncate = true, .ops = &nrd_produce_ops },
    ROW(TOPIC_CONSUME_LINK), .parent = NRD_KIND_TOPIC, .name = "consume", .mode = LINK_MODE, .listed = true,
        .steady = true, .link = ".streams/consume" },
    ROW(TOPIC_CONSUME_JSONL_LINK), .parent = NRD_KIND_TOPIC, .name = "consume.jsonl", .mode = LINK_MODE,
        .listed = true, .steady = true, .link = ".streams/consume.jsonl" },
    ROW(TOPIC_CONSUME_BIN_LINK), .parent = NRD_KIND_TOPIC, .name = "consume.bin", .mode = LINK_MODE, .listed = true,
        .steady = true, .link = ".streams/consume.bin" },
    ROW(TOPIC_DRAIN_LINK), .parent = NRD_KIND_TOPIC, .name = "drain", .mode = LINK_MODE, .listed = true,
        .steady = true, .link = ".streams/drain" },
    ROW(TOPIC_ACK), .parent = NRD_KIND_TOPIC, .name = "ack", .path = "ack", .mode = WRITABLE, .fresh = true,
        .listed = true, .steady = true, .truncate = true, .ops = &nrd_ack_ops },
    ROW(TOPIC_STREAMS), .parent = NRD_KIND_TOPIC, .name = ".streams", .path = ".streams", .mode = DIR_MODE,
        .steady = true },
    ROW(TOPIC_CONSUME), .parent = NRD_KIND_TOPIC_STREAMS, .name = "consume", .path = ".streams/consume",
        .mode = WRITABLE, .fresh = true, .stream = true, .steady = true, .truncate = true, .ops = &nrd_consume_ops },
    ROW(TOPIC_CONSUME_JSONL), .parent = NRD_KIND_TOPIC_STREAMS, .name = "consume.jsonl",
        .path = ".streams/consume.jsonl", .mode = READABLE, .fresh = true, .stream = true, .steady = true,
        .ops = &nrd_consume_jsonl_ops },
    ROW(TOPIC_CONSUME_BIN), .parent = NRD_KIND_TOPIC_STREAMS, .name = "consume.bin", .path = ".streams/consume.bin",
        .mode = READABLE, .fresh = true, .stream = true, .steady = true, .ops = &nrd_consume_bin_ops },
    ROW(TOPIC_DRAIN), .parent = NRD_KIND_TOPIC_STREAMS, .name = "drain", .path = ".streams/drain", .mode = READABLE,
        .fresh = true, .stream = true, .steady = true, .ops = &nrd_drain_ops },
    ROW(CHILDREN), .parent = NRD_KIND_TOPIC, .name = "children", .path = "children", .mode = DIR_MODE, .listed = true },
    ROW(CHILD), .parent = NRD_KIND_CHILDREN, .path = "children", .mode = DIR_MODE, .brief = true, .listed = true },
    ROW(CHILD_STATUS), .parent = NRD_KIND_CHILD, .name = "status", .path = "status", .mode = READABLE, .listed = true,
        .ops = &nrd_child_status_ops },

    ROW(PARTITION), .parent = NRD_KIND_TOPIC, .path = "", .mode = DIR_MODE, .listed = true, .steady = true },

    ROW(CTL), .parent = NRD_KIND_PARTITION, .name = "ctl", .path = "/ctl", .mode = WRITABLE, .listed = true,
        .truncate = true, .ops = &nrd_partition_ctl_ops },
    ROW(STATUS), .parent = NRD_KIND_PARTITION, .name = "status", .path = "/status", .mode = READABLE, .listed = true,
        .ops = &nrd_partition_status_ops },
    ROW(PRODUCE), .parent = NRD_KIND_PARTITION, .name = "produce", .path = "/produce", .mode = WRITABLE, .fresh = true,
        .listed = true, .named = true, .steady = true, .truncate = true, .pins = true,
        .ops = &nrd_produce_ops },
    ROW(PRODUCE_JSONL), .parent = NRD_KIND_PARTITION, .name = "produce.jsonl", .path = "/produce.jsonl",
        .mode = WRITABLE, .fresh = true, .listed = true, .named = true, .steady = true, .truncate = true, .pins = true,
        .ops = &nrd_produce_ops },
    ROW(PRODUCE_BIN), .parent = NRD_KIND_PARTITION, .name = "produce.bin", .path = "/produce.bin", .mode = WRITABLE,
        .fresh = true, .listed = true, .named = true, .steady = true, .truncate = true, .pins = true,
        .ops = &nrd_produce_ops },
    ROW(CONSUME_LINK), .parent = NRD_KIND_PARTITION, .name = "consume", .mode = LINK_MODE, .listed = true,
        .steady = true, .link = ".streams/consume" },
    ROW(CONSUME_JSONL_LINK), .parent = NRD_KIND_PARTITION, .name = "consume.jsonl", .mode = LINK_MODE, .listed = true,
        .steady = true, .link = ".streams/consume.jsonl" },
    ROW(CONSUME_BIN_LINK), .parent = NRD_KIND_PARTITION, .name = "consume.bin", .mode = LINK_MODE, .listed = true,
        .steady = true, .link = ".streams/consume.bin" },
    ROW(DRAIN_LINK), .parent = NRD_KIND_PARTITION, .name = "drain", .mode = LINK_MODE, .listed = true, .steady = true,
        .link = ".streams/drain" },
    ROW(ACK), .parent = NRD_KIND_PARTITION, .name = "ack", .path = "/ack", .mode = WRITABLE, .fresh = true,
        .listed = true, .steady = true, .truncate = true, .pins = true, .ops = &nrd_ack_ops },
    ROW(LOG), .parent = NRD_KIND_PARTITION, .name = "log", .path = "/log", .mode = READABLE, .fresh = true,
        .listed = true, .pins = true, .ops = &nrd_log_ops },
    /* This one and the files of the folders below show what `log` shows: they have its owner and its mode. */
    ROW(LOG_JSONL), .parent = NRD_KIND_PARTITION, .name = "log.jsonl", .path = "/log", .mode = READABLE,
        .fresh = true, .listed = true, .pins = true, .ops = &nrd_log_jsonl_ops },
    /* For programs. Not listed: whoever goes through a tree has the records in two files already. */
    ROW(LOG_BIN), .parent = NRD_KIND_PARTITION, .name = "log.bin", .path = "/log", .mode = READABLE,
        .fresh = true, .pins = true, .ops = &nrd_log_bin_ops },

    ROW(FROM), .parent = NRD_KIND_PARTITION, .name = "from", .path = "/from", .mode = DIR_MODE, .listed = true,
        .steady = true },
    ROW(FROM_START), .parent = NRD_KIND_FROM, .name = "start", .path = "/log", .mode = READABLE, .fresh = true,
        .listed = true, .pins = true, .ops = &nrd_from_start_ops },
    ROW(FROM_END), .parent = NRD_KIND_FROM, .name = "end", .path = "/log", .mode = READABLE, .fresh = true,
        .listed = true, .pins = true, .ops = &nrd_from_end_ops },
    ROW(FROM_OFFSET), .parent = NRD_KIND_FROM, .path = "/log", .mode = READABLE, .fresh = true, .pins = true,
        .ops = &nrd_from_offset_ops },
    ROW(RECORDS), .parent = NRD_KIND_PARTITION, .name = "records", .path = "/records", .mode = DIR_MODE,
        .listed = true, .steady = true },
    ROW(RECORD), .parent = NRD_KIND_RECORDS, .path = "/log", .mode = READABLE, .brief = true, .listed = true,
        .ops = &nrd_record_ops },
    ROW(BY_TIME), .parent = NRD_KIND_PARTITION, .name = "by-time", .path = "/by-time", .mode = DIR_MODE,
        .listed = true, .steady = true },
    ROW(TIME_LINK), .parent = NRD_KIND_BY_TIME, .mode = LINK_MODE, .brief = true },
    ROW(SEGMENTS), .parent = NRD_KIND_PARTITION, .name = "segments", .path = "/segments", .mode = DIR_MODE,
        .listed = true, .steady = true },
    ROW(SEGMENT), .parent = NRD_KIND_SEGMENTS, .path = "/log", .mode = READABLE, .brief = true, .listed = true,
        .pins = true, .ops = &nrd_segment_ops },

    ROW(STREAMS), .parent = NRD_KIND_PARTITION, .name = ".streams", .path = "/.streams", .mode = DIR_MODE,
        .steady = true },

    ROW(CONSUME), .parent = NRD_KIND_STREAMS, .name = "consume", .path = "/.streams/consume", .mode = WRITABLE,
        .fresh = true, .stream = true, .steady = true, .truncate = true, .pins = true,
        .ops = &nrd_consume_ops },
    ROW(CONSUME_JSONL), .parent = NRD_KIND_STREAMS, .name = "consume.jsonl", .path = "/.streams/consume.jsonl",
        .mode = READABLE, .fresh = true, .stream = true, .steady = true, .pins = true,
        .ops = &nrd_consume_jsonl_ops },
    ROW(CONSUME_BIN), .parent = NRD_KIND_STREAMS, .name = "consume.bin", .path = "/.streams/consume.bin",
        .mode = READABLE, .fresh = true, .stream = true, .steady = true, .pins = true, .ops = &nrd_consume_bin_ops },
    ROW(DRAIN), .parent = NRD_KIND_STREAMS, .name = "drain", .path = "/.streams/drain", .mode = READABLE,
        .fresh = true, .stream = true, .steady = true, .pins = true, .ops = &nrd_drain_ops },
};
/* clang-format on */

const NrdKindInfo *nrd_kind_info(NrdKind kind)
{
    g_assert(kind < NRD_N_KINDS);
    return &kinds[kind];
}

static bool name_matches(const NrdKindInfo *info, const char *name, const char **ret_alias)
{
    size_t length = strlen(info->name);
    if (strncmp(info->name, name, length) != 0)
        return false;
    if (name[length] == '\0') {
        *ret_alias = NULL;
        return true;
    }
    if (!info->named || name[length] != '@')
        return false;
    *ret_alias = name + length + 1;
    return true;
}

const NrdKindInfo *nrd_kind_find(NrdKind parent, const char *name, const char **ret_alias)
{
    for (size_t i = NRD_KIND_ROOT + 1; i < NRD_N_KINDS; i++)
        if (kinds[i].parent == parent && kinds[i].name && name_matches(&kinds[i], name, ret_alias))
            return &kinds[i];
    return NULL;
}
