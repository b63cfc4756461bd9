/* The frames of a commit: written, read back and checked, and kept for who reads at the tail. See commit.c. */
#include "engine/log/commit_private.h"

#include "engine/base/crc32c.h"
#include "engine/io/io.h"
#include "engine/log/zero_ahead.h"

#include <errno.h>
#include <string.h>

#define READ_BACK_BYTES ((size_t)256 * 1024)

static void clear_written(gpointer data)
{
    nrd_frame_data_unref(((NrdWritten *)data)->frame);
}

GArray *nrd_commit_written_new(void)
{
    GArray *written = g_array_new(FALSE, FALSE, sizeof(NrdWritten));
    g_array_set_clear_func(written, clear_written);
    return written;
}

/* The frame as a reader would decode it, or NULL when it is not to be kept. */
static NrdFrameData *decoded_frame(const NrdCommit *c, const NrdFramePlan *plan, uint64_t offset, uint64_t pos,
                                   uint64_t end_pos)
{
    if (!c->keep || plan->raw_bytes > NRD_FRAME_CACHE_MAX_FRAME_BYTES)
        return NULL;
    NrdFrameData *frame = nrd_frame_data_new(plan->raw_bytes);
    if (frame == NULL)
        return NULL;
    frame->n_records = plan->n_records;
    frame->offset = offset;
    frame->pos = pos;
    frame->end_pos = end_pos;
    frame->summary = (NrdFrameSummary){ plan->text_bytes, c->commit_ms };
    nrd_frame_plan_copy(plan, frame->payload);
    return frame;
}

int nrd_commit_write_frames(NrdCommit *c, GPtrArray *plans, const NrdLogSettings *settings)
{
    NrdFrameWriter writer = { 0 };
    uint64_t pos = c->pos;
    uint64_t offset = c->offset;
    int r = 0;

    for (guint i = 0; r == 0 && i < plans->len; i++) {
        const NrdFramePlan *plan = plans->pdata[i];
        NrdFrameImage image;
        r = nrd_frame_writer_encode(&writer, plan, offset, settings->codec, settings->zstd_level, &image);
        if (r < 0)
            break;
        NrdWritten written = { .stored_bytes = image.stored_bytes,
                               .crc = image.crc,
                               .n_records = plan->n_records,
                               .text_bytes = plan->text_bytes };
        memcpy(written.header, image.header, sizeof written.header);
        uint64_t end_pos = pos + NRD_FRAME_HEADER_BYTES + image.stored_bytes;
        written.frame = decoded_frame(c, plan, offset, pos, end_pos);
        g_array_append_val(c->written, written);
        struct iovec iov[2] = { { image.header, sizeof image.header },
                                { (void *)(uintptr_t)image.stored, image.stored_bytes } };
        r = nrd_io_pwritev_full(c->fd, iov, 2, (int64_t)pos);
        pos = end_pos;
        offset += plan->n_records;
    }
    nrd_frame_writer_clear(&writer);
    if (r == 0)
        nrd_zero_ahead_write(c->log, c->fd, pos, pos - c->pos, settings);
    return r;
}

/* Reads one frame back, streamed through a buffer; -EIO when it is not what was written. */
static int read_back(const NrdCommit *c, const NrdWritten *written, uint64_t pos, NrdBuffer *buffer)
{
    uint64_t left = NRD_FRAME_HEADER_BYTES + written->stored_bytes;
    uint32_t crc = 0;
    size_t skip = NRD_FRAME_HEADER_BYTES; /* of the first read */

    while (left > 0) {
        size_t n = 0;
        size_t want = (size_t)MIN((uint64_t)READ_BACK_BYTES, left);
        int r = nrd_io_pread_full(c->fd, buffer->data, want, (int64_t)pos, &n);
        if (r < 0)
            return r;
        if (n < want)
            return -EIO;
        if (skip > 0) {
            if (memcmp(buffer->data, written->header, NRD_FRAME_HEADER_BYTES) != 0)
                return -EIO;
            crc = nrd_frame_crc_start(buffer->data);
        }
        crc = nrd_crc32c(crc, buffer->data + skip, n - skip);
        skip = 0;
        pos += n;
        left -= n;
    }
    return crc == written->crc ? 0 : -EIO;
}

int nrd_commit_verify_frames(const NrdCommit *c)
{
    NrdBuffer buffer = { 0 };
    uint64_t pos = c->pos;
    uint64_t longest = 0;

    for (guint i = 0; i < c->written->len; i++)
        longest = MAX(longest, g_array_index(c->written, NrdWritten, i).stored_bytes + NRD_FRAME_HEADER_BYTES);
    int r = nrd_buffer_reserve(&buffer, (size_t)MIN(longest, (uint64_t)READ_BACK_BYTES), 0);
    for (guint i = 0; r == 0 && i < c->written->len; i++) {
        const NrdWritten *written = &g_array_index(c->written, NrdWritten, i);
        r = read_back(c, written, pos, &buffer);
        pos += NRD_FRAME_HEADER_BYTES + written->stored_bytes;
    }
    nrd_buffer_release(&buffer);
    return r;
}

void nrd_commit_fill_cache(const NrdCommit *c)
{
    uint64_t version = nrd_segment_version(c->active);

    for (guint i = 0; i < c->written->len; i++) {
        NrdFrameData *frame = g_array_index(c->written, NrdWritten, i).frame;
        if (frame == NULL)
            continue;
        nrd_frame_cache_put(c->active, version, frame);
        nrd_frame_cache_note(c->active, frame->offset, frame->pos, frame->offset);
    }
}
