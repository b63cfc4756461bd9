/* See top_page.h. */
#include "ctl/top_page.h"

#include "ctl/cli.h"
#include "engine/base/diag.h"

#include <inttypes.h>
#include <string.h>

typedef struct Row {
    const NrdTopTopic *topic;
    bool has_rates;
    double produced; /* records a second */
    double settled;
} Row;

static void clear_topic(gpointer data)
{
    NrdTopTopic *topic = data;
    g_free(topic->name);
    nrd_tree_sums_clear(&topic->sums);
}

int nrd_top_sample(const char *mnt, NrdTopSample *ret_sample)
{
    g_autoptr(GPtrArray) names = NULL;
    int rc = nrd_tree_topics(mnt, &names);
    if (rc < 0)
        return rc;
    GArray *topics = g_array_new(FALSE, FALSE, sizeof(NrdTopTopic));
    g_array_set_clear_func(topics, clear_topic);
    for (guint i = 0; i < names->len; i++) {
        g_autofree char *dir = g_strdup_printf("%s/topics/%s", mnt, (const char *)names->pdata[i]);
        NrdTopTopic topic = { .name = g_strdup(names->pdata[i]) };
        if (nrd_tree_sums(dir, &topic.sums) < 0 && nrd_tree_is_gone(dir))
            clear_topic(&topic);
        else
            g_array_append_val(topics, topic);
    }
    *ret_sample = (NrdTopSample){ .taken_us = g_get_monotonic_time(), .topics = topics };
    return 0;
}

void nrd_top_sample_clear(NrdTopSample *sample)
{
    g_clear_pointer(&sample->topics, g_array_unref);
}

static const NrdTopTopic *find(const NrdTopSample *sample, const char *name)
{
    for (guint i = 0; i < sample->topics->len; i++) {
        const NrdTopTopic *topic = &g_array_index(sample->topics, NrdTopTopic, i);
        if (strcmp(topic->name, name) == 0)
            return topic;
    }
    return NULL;
}

/* A number that went back (a seek, another topic of that name) makes no rate. */
static double rate(uint64_t before, uint64_t now, double seconds)
{
    return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

static gint busiest_first(gconstpointer a, gconstpointer b)
{
    const Row *left = a, *right = b;
    double l = left->produced + left->settled, r = right->produced + right->settled;
    if (l != r)
        return l > r ? -1 : 1;
    return strcmp(left->topic->name, right->topic->name);
}

static GArray *make_rows(const NrdTopSample *before, const NrdTopSample *now)
{
    GArray *rows = g_array_new(FALSE, FALSE, sizeof(Row));
    double seconds = (double)(now->taken_us - before->taken_us) / 1e6;
    for (guint i = 0; i < now->topics->len; i++) {
        Row row = { .topic = &g_array_index(now->topics, NrdTopTopic, i) };
        const NrdTopTopic *old = find(before, row.topic->name);
        if (old) {
            row.has_rates = true;
            row.produced = rate(old->sums.produced, row.topic->sums.produced, seconds);
            row.settled = rate(old->sums.settled, row.topic->sums.settled, seconds);
        }
        g_array_append_val(rows, row);
    }
    g_array_sort(rows, busiest_first);
    return rows;
}

static void append_line(GString *page, char *line, unsigned width)
{
    g_autofree char *valid = g_utf8_make_valid(line, -1);
    if (g_utf8_strlen(valid, -1) > (glong)width)
        *g_utf8_offset_to_pointer(valid, (glong)width) = '\0';
    g_string_append(page, valid);
    g_string_append_c(page, '\n');
    g_free(line);
}

static void append_row(GString *page, const Row *row, unsigned width)
{
    const NrdTopicSums *sums = &row->topic->sums;
    g_autofree char *size = nrd_cli_size(sums->size_bytes);
    g_autofree char *in = row->has_rates ? g_strdup_printf("%.0f", row->produced) : g_strdup("-");
    g_autofree char *out = row->has_rates ? g_strdup_printf("%.0f", row->settled) : g_strdup("-");
    append_line(page,
                g_strdup_printf("%-24s %11s %11s %12" PRIu64 " %12" PRIu64 " %10" PRIu64 " %11s  %s", row->topic->name,
                                in, out, sums->n_records, sums->lag, sums->in_flight, size, sums->state),
                width);
}

static void append_sums(GString *page, const GArray *rows, unsigned width)
{
    double produced = 0, settled = 0;
    uint64_t lag = 0;
    for (guint i = 0; i < rows->len; i++) {
        const Row *row = &g_array_index(rows, Row, i);
        produced += row->produced;
        settled += row->settled;
        lag += row->topic->sums.lag;
    }
    append_line(page,
                g_strdup_printf("%u topic%s; %.0f records/s produced, %.0f records/s settled; lag %" PRIu64, rows->len,
                                nrd_plural(rows->len), produced, settled, lag),
                width);
}

GString *nrd_top_page(const NrdTopSample *before, const NrdTopSample *now, unsigned max_rows, unsigned width)
{
    GString *page = g_string_new(NULL);
    g_autoptr(GArray) rows = make_rows(before, now);
    append_sums(page, rows, width);
    append_line(page,
                g_strdup_printf("%-24s %11s %11s %12s %12s %10s %11s  %s", "topic", "produced/s", "settled/s",
                                "records", "lag", "in flight", "size", "state"),
                width);
    for (guint i = 0; i < MIN(rows->len, max_rows); i++)
        append_row(page, &g_array_index(rows, Row, i), width);
    return page;
}
