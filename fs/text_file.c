/* Files whose content is a short text: made by the open or the first read, and anew by every other read from the start,
 * so that a file read in pieces is of one moment and a file kept open shows the present when read again. state is a
 * Text, guarded by the handle's lock. */
#include "fs/fs_private.h"

typedef struct Text {
    char *text;
    bool unread; /* made by the open */
} Text;

int nrd_text_file_open(NrdHandle *handle)
{
    Text *state = g_new0(Text, 1);
    state->text = handle->ops->text(handle->node);
    state->unread = true;
    handle->state = state;
    return 0;
}

/* Whether a read from there shows the text that is there already. */
static bool goes_on(NrdHandle *handle, off_t off)
{
    g_mutex_lock(&handle->lock);
    const Text *state = handle->state;
    bool there = state && (off != 0 || state->unread);
    g_mutex_unlock(&handle->lock);
    return there;
}

static void replace_locked(NrdHandle *handle, char *fresh)
{
    if (!handle->state)
        handle->state = g_new0(Text, 1);
    Text *state = handle->state;
    g_free(state->text);
    state->text = fresh;
}

void nrd_text_file_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    char *fresh = goes_on(handle, off) ? NULL : handle->ops->text(handle->node);
    g_mutex_lock(&handle->lock);
    if (fresh)
        replace_locked(handle, fresh);
    Text *state = handle->state;
    state->unread = false;
    size_t length = strlen(state->text);
    size_t start = (size_t)MIN((uint64_t)off, length);
    size_t n = MIN(size, length - start);
    char *piece = g_strndup(state->text + start, n);
    g_mutex_unlock(&handle->lock);
    fuse_reply_buf(req, piece, n);
    g_free(piece);
}

void nrd_text_file_destroy(NrdHandle *handle)
{
    Text *state = handle->state;
    if (!state)
        return;
    g_free(state->text);
    g_free(state);
}

/* The length of what the newest handle has read or is about to read. */
static bool open_size(NrdNode *node, size_t *ret_length)
{
    bool found = false;
    g_mutex_lock(&node->lock);
    NrdHandle *handle = node->handles->len > 0 ? node->handles->pdata[node->handles->len - 1] : NULL;
    if (handle) {
        g_mutex_lock(&handle->lock);
        const Text *state = handle->state;
        found = state && handle->ops->open;
        if (found)
            *ret_length = strlen(state->text);
        g_mutex_unlock(&handle->lock);
    }
    g_mutex_unlock(&node->lock);
    return found;
}

uint64_t nrd_text_file_size(NrdNode *node)
{
    size_t length;
    if (open_size(node, &length))
        return length;
    char *text = node->info->ops->text(node);
    length = strlen(text);
    g_free(text);
    return length;
}
