/* `config` of a topic: its settings as lines; a write sets those it names, all or none. */
#include "fs/fs_private.h"

static char *config_text(NrdNode *node)
{
    return nrd_topic_config_lines(node->topic);
}

static void config_write(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, int flags)
{
    int error = nrd_topic_config_write(handle->topic, buf, size);
    if (error < 0)
        nrd_reply_error(req, error);
    else
        fuse_reply_write(req, size);
}

const NrdFileOps nrd_topic_config_ops = {
    .read = nrd_text_file_read,
    .write = config_write,
    .write_waits = true,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = config_text,
};
