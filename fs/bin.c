/* See bin.h. */
#include "fs/bin.h"

#include "engine/base/endian.h"

size_t nrd_bin_size(size_t key_size, size_t payload_size)
{
    return NRD_BIN_HEAD_BYTES + key_size + payload_size;
}

void nrd_bin_put(uint8_t *at, const NrdRenderRecord *record, uint64_t nonce)
{
    nrd_put_be32(at, (uint32_t)(nrd_bin_size(record->key_size, record->payload_size) - 4));
    nrd_put_be32(at + 4, record->partition);
    nrd_put_be64(at + 8, record->offset);
    nrd_put_be64(at + 16, nonce);
    nrd_put_be64(at + 24, (uint64_t)record->timestamp_ms);
    nrd_put_be32(at + 32, (uint32_t)record->key_size);
    if (record->key_size > 0)
        memcpy(at + NRD_BIN_HEAD_BYTES, record->key, record->key_size);
    if (record->payload_size > 0)
        memcpy(at + NRD_BIN_HEAD_BYTES + record->key_size, record->payload, record->payload_size);
}

static uint64_t length(const NrdRenderRecord *record)
{
    return nrd_bin_size(record->key_size, record->payload_size);
}

static void append(GString *out, const NrdRenderRecord *record)
{
    gsize at = out->len;
    g_string_set_size(out, at + nrd_bin_size(record->key_size, record->payload_size));
    nrd_bin_put((uint8_t *)out->str + at, record, 0);
}

const NrdRendering nrd_bin_rendering = { .name = "bin", .version = 1, .length = length, .append = append };
