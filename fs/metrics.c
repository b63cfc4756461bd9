/* `metrics` at the root: counters and gauges of the engine, and a few of the files themselves, as Prometheus reads them. */
#include "engine/base/memory.h"
#include "fs/node.h"
#include "fs/stream.h"

/* Descriptors of one node share what is held: then it counts for each of them. */
static void count_open(NrdFs *fs, uint64_t *ret_n_handles, uint64_t *ret_n_held)
{
    GHashTableIter iter;
    void *key;
    *ret_n_held = 0;
    g_mutex_lock(&fs->lock);
    *ret_n_handles = g_hash_table_size(fs->handles);
    g_hash_table_iter_init(&iter, fs->handles);
    while (g_hash_table_iter_next(&iter, &key, NULL)) {
        NrdHandle *handle = key;
        if (handle->ops->takes)
            *ret_n_held += nrd_stream_n_held(handle);
    }
    g_mutex_unlock(&fs->lock);
}

static void append_gauge(GString *text, const char *name, const char *help, uint64_t value)
{
    g_string_append_printf(text, "# HELP %s %s\n# TYPE %s gauge\n%s %" G_GUINT64_FORMAT "\n", name, help, name, name,
                           value);
}

static char *metrics_text(NrdNode *node)
{
    uint64_t n_handles, n_held;
    char *engine = nrd_engine_metrics(node->fs->engine);
    GString *text = g_string_new(engine);
    g_free(engine);
    count_open(node->fs, &n_handles, &n_held);
    append_gauge(text, "narad_start_time_seconds", "When the mount began, Unix seconds.",
                 (uint64_t)node->fs->mounted_ms / 1000);
    append_gauge(text, "narad_open_files", "Open files of the mounted tree.", n_handles);
    append_gauge(text, "narad_held_leases", "Leases that open consuming files remember.", n_held);
    append_gauge(text, "narad_nodes", "Files and folders that the kernel remembers.", nrd_nodes_count(node->fs->nodes));
    append_gauge(text, "narad_memory_used_bytes", "Memory allocated, without what the allocator keeps free.",
                 nrd_memory_used_bytes());
    return g_string_free(text, FALSE);
}

const NrdFileOps nrd_metrics_ops = {
    .open = nrd_text_file_open,
    .read = nrd_text_file_read,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = metrics_text,
};
