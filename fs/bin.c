/* See bin.h. */
#include "fs/bin.h"

static uint64_t length(const NrdRenderRecord *record)
{
    return nrd_bin_size(record->key_size, record->payload_size);
}

static void append(GString *out, const NrdRenderRecord *record)
{
    gsize at = out->len;
    g_string_set_size(out, at + nrd_bin_size(record->key_size, record->payload_size));
    nrd_bin_put((uint8_t *)out->str + at, record->partition, record->offset, 0, record->timestamp_ms, record->key,
                record->key_size, record->payload, record->payload_size);
}

const NrdRendering nrd_bin_rendering = { .name = "bin", .version = 1, .length = length, .append = append };
