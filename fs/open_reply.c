/* The answer to OPEN, made by hand: libfuse 3.14 has no field for FOPEN_STREAM, without which a second reader of a
 * shared descriptor waits in the kernel, beyond the reach of signals, while the first one's read is parked. */
#include "fs/fs_private.h"

#include <linux/fuse.h>

void nrd_reply_open(fuse_req_t req, NrdHandle *handle)
{
    struct fuse_open_out out = { .fh = (uintptr_t)handle, .open_flags = FOPEN_DIRECT_IO };
    if (handle->cached)
        out.open_flags = FOPEN_KEEP_CACHE;
    if (handle->node->info->stream)
        out.open_flags |= FOPEN_STREAM;
    /* A failure means that the open was interrupted: no RELEASE will come. */
    if (fuse_reply_buf(req, (const char *)&out, sizeof out) < 0)
        nrd_handle_close(handle);
}
