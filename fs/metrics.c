/* `metrics` at the root: counters and gauges of the engine, as Prometheus reads them. */
#include "fs/fs_private.h"

static char *metrics_text(NrdNode *node)
{
    return nrd_engine_metrics(node->fs->engine);
}

const NrdFileOps nrd_metrics_ops = {
    .open = nrd_text_file_open,
    .read = nrd_text_file_read,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = metrics_text,
};
