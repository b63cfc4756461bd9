/* Steps that work on a partition's log, and the comparisons. */
#include "world.h"

#include "engine/base/clock.h"
#include "engine/housekeeping.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Any offset, one too high among them; every second time where a segment begins, or the end. */
static uint64_t pick_offset(const World *w, const Partition *p)
{
    uint32_t n = w->step.n / 2;
    if (w->step.n % 2 == 0)
        return n % (partition_hwm(p) + 2);
    n %= p->bases->len + 1;
    return n < p->bases->len ? g_array_index(p->bases, uint64_t, n) : partition_hwm(p);
}

static void seek(World *w, Partition *p, NrdPartition *partition)
{
    uint64_t hwm = partition_hwm(p), oldest = partition_oldest(p), offset = pick_offset(w, p);
    NrdSeek to = w->step.n % 5 == 0 ? NRD_SEEK_START : w->step.n % 5 == 1 ? NRD_SEEK_END : NRD_SEEK_OFFSET;
    int rc = nrd_partition_seek(partition, to, offset);
    bool above = to == NRD_SEEK_OFFSET && offset > hwm;
    WORLD_SAME(w, rc, above ? -EINVAL : 0);
    if (rc == 0)
        partition_seek(p, to == NRD_SEEK_START ? oldest : to == NRD_SEEK_END ? hwm : MAX(offset, oldest));
}

static void trim(World *w, Partition *p, NrdPartition *partition)
{
    uint64_t hwm = partition_hwm(p), offset = pick_offset(w, p);
    int rc = nrd_partition_trim(partition, offset);
    WORLD_SAME(w, rc, offset > hwm ? -EINVAL : 0);
    if (rc == 0)
        partition_trim(p, offset);
}

/* Retention by age, in all partitions of the topic: for as long as the step takes, since afterwards nothing expires. The
 * engine's own sweep, which the setting asks for, finds the same. Ages are sums of the steps of wait, and none of them comes
 * near a bound. */
static void expire(World *w, int topic)
{
    static const int64_t ages_ms[] = { 250000, 1050000, 2550000, 4050000 };
    const Topic *model = &w->broker.topics[topic];
    int64_t age_ms = ages_ms[w->step.n % G_N_ELEMENTS(ages_ms)];
    g_autofree char *line = g_strdup_printf("retention_ms=%" G_GINT64_FORMAT "\n", age_ms);
    int rc = nrd_topic_config_write(w->topics[topic], line, strlen(line));
    bool too_short =
        broker_has_children(&w->broker, topic) && age_ms < 3600000 + broker_max_delay_ms(&w->broker, topic);
    WORLD_SAME(w, rc, too_short ? -EINVAL : 0);
    for (uint32_t i = 0; rc == 0 && i < model->partitions->len; i++) {
        nrd_retention_sweep(nrd_topic_partition(w->topics[topic], i), nrd_clock_wall_ms());
        partition_expire_records(model->partitions->pdata[i], age_ms, w->broker.now_ms);
    }
    WORLD_SAME(w, nrd_topic_config_write(w->topics[topic], WORLD_NO_RETENTION, strlen(WORLD_NO_RETENTION)), 0);
}

static GArray *file_sizes(const World *w, int topic, uint32_t number, const Partition *p)
{
    GArray *sizes = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    for (guint i = 0; i < p->bases->len; i++) {
        g_autofree char *path = g_strdup_printf("%s/topics/%s/p%05u/%020" G_GUINT64_FORMAT ".log", w->path,
                                                world_topic_name(topic), number, g_array_index(p->bases, uint64_t, i));
        struct stat st = { .st_size = 0 };
        (void)stat(path, &st); /* before the first record there is none */
        uint64_t size = (uint64_t)st.st_size;
        g_array_append_val(sizes, size);
    }
    return sizes;
}

/* Retention by bytes, likewise. The newest segments are closed first: then what is in a file is a segment's, and no zeros. */
static void expire_bytes(World *w, int topic)
{
    static const uint64_t bounds[] = { 65536, 100000, 150000 };
    const Topic *model = &w->broker.topics[topic];
    uint64_t bound = bounds[w->step.n % G_N_ELEMENTS(bounds)];
    g_autofree char *line = g_strdup_printf("segment_bytes=65536\nretention_bytes=%" G_GUINT64_FORMAT "\n", bound);
    static const char back[] = "retention_bytes=0\nsegment_bytes=67108864\n";
    for (uint32_t i = 0; i < model->partitions->len; i++) {
        WORLD_SAME(w, nrd_partition_roll(nrd_topic_partition(w->topics[topic], i)), 0);
        partition_roll(model->partitions->pdata[i]);
        g_autoptr(GArray) sizes = file_sizes(w, topic, i, model->partitions->pdata[i]);
        partition_expire_bytes(model->partitions->pdata[i], sizes, bound);
        w->n_by_bytes += sizes->len - ((Partition *)model->partitions->pdata[i])->bases->len;
    }
    WORLD_SAME(w, nrd_topic_config_write(w->topics[topic], line, strlen(line)), 0);
    for (uint32_t i = 0; i < model->partitions->len; i++)
        nrd_retention_sweep(nrd_topic_partition(w->topics[topic], i), nrd_clock_wall_ms());
    WORLD_SAME(w, nrd_topic_config_write(w->topics[topic], back, strlen(back)), 0);
}

void do_log_step(World *w, int topic)
{
    NrdPartition *partition;
    Partition *p = world_partition(w, topic, w->step.partition, &partition);
    w->done[w->step.kind]++;
    switch (w->step.kind) {
    case STEP_SEEK:
        seek(w, p, partition);
        break;
    case STEP_TRIM:
        trim(w, p, partition);
        break;
    case STEP_EXPIRE:
        expire(w, topic);
        break;
    case STEP_EXPIRE_BYTES:
        expire_bytes(w, topic);
        break;
    case STEP_ROLL:
        WORLD_SAME(w, nrd_partition_roll(partition), 0);
        partition_roll(p);
        break;
    case STEP_REOPEN:
        WORLD_SAME(w, nrd_partition_reopen(partition), 0);
        break;
    default:
        compare_log(w, topic, nrd_partition_number(partition));
    }
}

/* ---- comparing ---- */

/* Readability first: it is what makes the engine count what lies below the oldest record as settled. */
void compare_partition(World *w, int topic, uint32_t number)
{
    const Topic *model = &w->broker.topics[topic];
    const Partition *p = model->partitions->pdata[number];
    NrdPartition *partition = nrd_topic_partition(w->topics[topic], number);
    NrdPartitionInfo info;
    uint64_t next, frontier = partition_frontier(p);
    unsigned n_ahead = partition_count(p, SETTLED);
    WORLD_SAME(w, nrd_partition_readable(partition), partition_next(model, p, &next));
    nrd_partition_info(partition, &info);
    WORLD_SAME(w, info.oldest_offset, partition_oldest(p));
    WORLD_SAME(w, info.hwm, partition_hwm(p));
    WORLD_SAME(w, info.next_offset, partition_hwm(p));
    WORLD_SAME(w, info.frontier, frontier);
    WORLD_SAME(w, info.acked_ahead, n_ahead);
    WORLD_SAME(w, info.in_flight, partition_count(p, LEASED));
    WORLD_SAME(w, info.lag, partition_hwm(p) - frontier - n_ahead);
    if (partition_hwm(p) > 0)
        WORLD_SAME(w, info.segments, p->bases->len);
    WORLD_CHECK(w, !info.poisoned && !info.fault && info.open);
    nrd_partition_info_clear(&info);
}

void compare_topic(World *w, int topic)
{
    const Topic *model = &w->broker.topics[topic];
    g_autofree char *parent = nrd_topic_parent(w->topics[topic]);
    WORLD_CHECK(w, strcmp(nrd_topic_incarnation(w->topics[topic]), model->id) == 0);
    WORLD_CHECK(w, g_strcmp0(parent, model->parent == NO_TOPIC ? NULL : world_topic_name(model->parent)) == 0);
    WORLD_SAME(w, nrd_topic_n_partitions(w->topics[topic]), model->partitions->len);
    for (uint32_t i = 0; i < model->partitions->len; i++)
        compare_partition(w, topic, i);
}

static void compare_text(World *w, const Partition *p, NrdPartition *partition)
{
    g_autoptr(GString) want = g_string_new(NULL), got = g_string_new(NULL);
    NrdReader *reader = NULL;
    char buf[256];
    size_t n = 0;
    for (uint64_t offset = partition_oldest(p); offset < partition_hwm(p); offset++)
        g_string_append_printf(want, "%s\n", partition_at(p, offset)->payload);
    WORLD_SAME(w, nrd_reader_open(partition, NRD_FROM_START, 0, &reader), 0);
    WORLD_SAME(w, nrd_reader_size(reader), want->len);
    do {
        WORLD_SAME(w, nrd_reader_read(reader, got->len, buf, sizeof buf, &n), 0);
        g_string_append_len(got, buf, (gssize)n);
    } while (n > 0);
    nrd_reader_close(reader);
    WORLD_CHECK(w, g_string_equal(want, got));
}

void compare_log(World *w, int topic, uint32_t number)
{
    const Partition *p = w->broker.topics[topic].partitions->pdata[number];
    NrdPartition *partition = nrd_topic_partition(w->topics[topic], number);
    int64_t time_ms = 0;
    for (uint64_t offset = 0; offset < partition_hwm(p) + 2; offset++) {
        bool there = offset >= partition_oldest(p) && offset < partition_hwm(p);
        NrdRecord record;
        WORLD_SAME(w, nrd_partition_record(partition, offset, &record), there ? 0 : -ENOENT);
        if (!there)
            continue;
        const Record *model = partition_at(p, offset);
        WORLD_CHECK(w, record.payload_size == strlen(model->payload) &&
                           memcmp(record.payload, model->payload, record.payload_size) == 0);
        WORLD_CHECK(w, record.key_size == strlen(model->key) && memcmp(record.key, model->key, record.key_size) == 0);
        WORLD_CHECK(w, record.timestamp_ms >= time_ms);
        time_ms = record.timestamp_ms;
        nrd_record_clear(&record);
    }
    compare_text(w, p, partition);
}
