/* Links of by-time/: where in `from` the records of a time begin. The way there is found when the link is read, and
 * anew each time: as long as nothing was committed at or after the time it leads to the high watermark. */
#include "fs/fs_private.h"

#include <errno.h>
#include <stdio.h>

/* A stat tells the length of the last answer. */
static void remember_length(NrdNode *node, int length)
{
    NrdSeen seen = { .size_bytes = (uint64_t)length };
    nrd_node_set_seen(node, &seen);
}

void nrd_time_link_read(NrdNode *node, fuse_req_t req)
{
    char target[40];
    uint64_t offset;
    int error = nrd_partition_find_time(node->partition, (int64_t)node->arg, &offset);
    if (error < 0) {
        nrd_reply_error(req, error == -EIDRM ? -ENOENT : error);
        return;
    }
    remember_length(node, snprintf(target, sizeof target, "../from/%" G_GUINT64_FORMAT, offset));
    fuse_reply_readlink(req, target);
}
