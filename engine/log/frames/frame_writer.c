/* See frame_writer.h. */
#include "engine/log/frames/frame_writer.h"

#include "engine/log/frames/codec.h"

#include <errno.h>
#include <string.h>

static void free_plan(gpointer data)
{
    NrdFramePlan *plan = data;
    g_array_unref(plan->spans);
    g_free(plan);
}

static NrdFramePlan *add_plan(GPtrArray *plans)
{
    NrdFramePlan *plan = g_new0(NrdFramePlan, 1);
    plan->spans = g_array_new(FALSE, FALSE, sizeof(NrdFrameSpan));
    g_ptr_array_add(plans, plan);
    return plan;
}

static void add_span(NrdFramePlan *plan, const uint8_t *bytes, size_t size, uint32_t n_records, uint64_t text_bytes)
{
    NrdFrameSpan *last = plan->spans->len > 0 ? &g_array_index(plan->spans, NrdFrameSpan, plan->spans->len - 1) : NULL;
    NrdFrameSpan span = { bytes, size };

    if (last != NULL && last->bytes + last->size == bytes)
        last->size += size;
    else
        g_array_append_val(plan->spans, span);
    plan->raw_bytes += size;
    plan->n_records += n_records;
    plan->text_bytes += text_bytes;
}

/* Adds a batch record by record, starting a new frame whenever one is full. */
static NrdFramePlan *add_split(GPtrArray *plans, NrdFramePlan *plan, const NrdRecordBatch *batch)
{
    const uint8_t *bytes = batch->bytes->data;
    size_t size = batch->bytes->len;
    const uint8_t *envelope;
    size_t n = 0;

    for (size_t pos = 0, from = 0; nrd_frame_next_record(bytes, size, &pos, &envelope, &n); from = pos) {
        NrdRecordView view;
        int r = nrd_record_parse(envelope, n, &view);
        g_assert(r == 0); /* our own memory */
        if (plan->raw_bytes > 0 && plan->raw_bytes + (pos - from) > NRD_FRAME_TARGET_BYTES)
            plan = add_plan(plans);
        add_span(plan, bytes + from, pos - from, 1, view.payload_size + 1);
    }
    return plan;
}

GPtrArray *nrd_frame_plan(NrdRecordBatch *const *batches, size_t n_batches)
{
    GPtrArray *plans = g_ptr_array_new_with_free_func(free_plan);
    NrdFramePlan *plan = add_plan(plans);
    uint64_t total = 0;

    for (size_t i = 0; i < n_batches; i++)
        total += batches[i]->bytes->len;
    for (size_t i = 0; i < n_batches; i++) {
        const NrdRecordBatch *batch = batches[i];
        if (batch->n_records == 0)
            continue;
        if (total <= NRD_FRAME_TARGET_BYTES)
            add_span(plan, batch->bytes->data, batch->bytes->len, batch->n_records, batch->text_bytes);
        else
            plan = add_split(plans, plan, batch);
    }
    if (plan->n_records == 0) /* of nothing there is no frame: it would be damage to whoever reads it */
        g_ptr_array_set_size(plans, 0);
    return plans;
}

void nrd_frame_plan_copy(const NrdFramePlan *plan, uint8_t *to)
{
    for (guint i = 0; i < plan->spans->len; i++) {
        const NrdFrameSpan *span = &g_array_index(plan->spans, NrdFrameSpan, i);
        memcpy(to, span->bytes, span->size);
        to += span->size;
    }
}

/* The payload in one piece. Several batches are copied together: a copy costs little beside the sync that follows, and
 * the CRC, the codec and the search for frames inside then need one pass over one run of bytes. */
static int gather(NrdFrameWriter *writer, const NrdFramePlan *plan, const uint8_t **ret_raw)
{
    if (plan->spans->len == 1) {
        *ret_raw = g_array_index(plan->spans, NrdFrameSpan, 0).bytes;
        return 0;
    }
    int r = nrd_buffer_reserve(&writer->gathered, plan->raw_bytes, 0);
    if (r < 0)
        return r;
    nrd_frame_plan_copy(plan, writer->gathered.data);
    *ret_raw = writer->gathered.data;
    return 0;
}

int nrd_frame_writer_encode(NrdFrameWriter *writer, const NrdFramePlan *plan, uint64_t offset, NrdCodec codec,
                            int zstd_level, NrdFrameImage *ret_image)
{
    const uint8_t *raw;
    NrdFrameHeader header = { .n_records = plan->n_records, .offset = offset };

    if (plan->raw_bytes > NRD_FRAME_MAX_BYTES)
        return -EMSGSIZE;
    int r = gather(writer, plan, &raw);
    if (r < 0)
        return r;
    NrdFrameImage image = { .stored = raw, .stored_bytes = plan->raw_bytes };
    if (codec == NRD_CODEC_ZSTD) {
        r = nrd_codec_compress(zstd_level, raw, plan->raw_bytes, &writer->coded, &image.stored_bytes);
        if (r < 0)
            return r;
        image.stored = writer->coded.data;
        header.flags = NRD_CODEC_ZSTD;
    }
    /* FAULTS, "a frame inside a payload": a damaged outer frame must never let one of these be taken for a frame.
     * Compression leaves bytes that it cannot shorten as they are, so its output is looked through as well. */
    if (nrd_frame_find_header(image.stored, image.stored_bytes, 0) != SIZE_MAX) {
        r = nrd_codec_wrap(raw, plan->raw_bytes, &writer->coded, &image.stored_bytes);
        if (r < 0)
            return r;
        image.stored = writer->coded.data;
        header.flags = NRD_CODEC_ZSTD;
    }
    if (image.stored_bytes > NRD_FRAME_MAX_BYTES)
        return -EMSGSIZE;
    header.raw_bytes = (uint32_t)plan->raw_bytes;
    header.stored_bytes = (uint32_t)image.stored_bytes;
    nrd_frame_encode(&header, image.stored, image.header);
    image.crc = header.crc;
    *ret_image = image;
    return 0;
}

void nrd_frame_writer_clear(NrdFrameWriter *writer)
{
    nrd_buffer_release(&writer->gathered);
    nrd_buffer_release(&writer->coded);
}
