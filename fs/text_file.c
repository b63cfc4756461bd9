/* Files whose content is a short text: made at the first read, and anew by every read from the start, so that a file
 * read in pieces is of one moment and a file kept open shows the present when read again. state is a string, guarded
 * by the handle's lock. */
#include "fs/fs_private.h"

void nrd_text_file_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    char *fresh = handle->ops->text(handle->node);
    g_mutex_lock(&handle->lock);
    if (off == 0 || !handle->state) {
        char *old = handle->state;
        handle->state = fresh;
        fresh = old;
    }
    size_t length = strlen(handle->state);
    size_t start = (size_t)MIN((uint64_t)off, length);
    size_t n = MIN(size, length - start);
    char *piece = g_strndup((char *)handle->state + start, n);
    g_mutex_unlock(&handle->lock);
    g_free(fresh);
    fuse_reply_buf(req, piece, n);
    g_free(piece);
}

void nrd_text_file_destroy(NrdHandle *handle)
{
    g_free(handle->state);
}

uint64_t nrd_text_file_size(NrdNode *node)
{
    char *text = node->info->ops->text(node);
    size_t length = strlen(text);
    g_free(text);
    return length;
}
