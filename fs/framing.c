/* See framing.h. */
#include "fs/framing.h"

#include <errno.h>
#include <string.h>

/* Requests that continue a record and begin with so many equal bytes are taken for the same one sent again. */
#define HEAD_BYTES ((size_t)4096)

void nrd_framing_init(NrdFraming *framing)
{
    *framing = (NrdFraming){ .partial = g_byte_array_new(), .refused = g_byte_array_new() };
}

void nrd_framing_clear(NrdFraming *framing)
{
    g_clear_pointer(&framing->partial, g_byte_array_unref);
    g_clear_pointer(&framing->refused, g_byte_array_unref);
}

/* A long record leaves its buffer behind only until the next one is done: many handles stay open for long. */
static void empty_partial(NrdFraming *framing)
{
    if (framing->partial->len <= 4096) {
        g_byte_array_set_size(framing->partial, 0);
        return;
    }
    g_byte_array_unref(framing->partial);
    framing->partial = g_byte_array_new();
}

/* As much of a refused request as tells it from another one. */
static size_t head_size(size_t size)
{
    return MIN(size, HEAD_BYTES);
}

bool nrd_framing_resent(const NrdFraming *framing, const uint8_t *data, size_t size)
{
    const GByteArray *head = framing->refused;
    return head->len > 0 && size >= head->len && memcmp(head->data, data, head->len) == 0;
}

static int refuse(NrdFraming *framing, const uint8_t *data, size_t size, bool inside)
{
    empty_partial(framing);
    framing->skipping = memchr(data, '\n', size) == NULL;
    g_byte_array_set_size(framing->refused, 0);
    if (inside)
        g_byte_array_append(framing->refused, data, (guint)head_size(size));
    return -EMSGSIZE;
}

static void emit(NrdFraming *framing, const uint8_t *data, size_t size, NrdRecordFn fn, void *user_data)
{
    if (framing->partial->len == 0) {
        fn(user_data, data, size);
        return;
    }
    g_byte_array_append(framing->partial, data, (guint)size);
    fn(user_data, framing->partial->data, framing->partial->len);
    empty_partial(framing);
}

int nrd_framing_feed(NrdFraming *framing, const uint8_t *data, size_t size, size_t max_record, NrdRecordFn fn,
                     void *user_data, size_t *ret_taken)
{
    if (nrd_framing_resent(framing, data, size))
        return refuse(framing, data, size, true);
    size_t pos = 0;
    if (size > 0)
        g_byte_array_set_size(framing->refused, 0);
    while (pos < size) {
        const uint8_t *newline = memchr(data + pos, '\n', size - pos);
        size_t length = newline ? (size_t)(newline - data) - pos : size - pos;
        if (!framing->skipping && framing->partial->len + length > max_record) {
            if (pos == 0)
                return refuse(framing, data, size, framing->partial->len > 0);
            break;
        }
        if (framing->skipping)
            framing->skipping = newline == NULL;
        else if (newline)
            emit(framing, data + pos, length, fn, user_data);
        else
            g_byte_array_append(framing->partial, data + pos, (guint)length);
        pos += length + (newline != NULL);
    }
    *ret_taken = pos;
    return 0;
}

void nrd_framing_end(NrdFraming *framing, NrdRecordFn fn, void *user_data)
{
    if (framing->partial->len == 0)
        return;
    fn(user_data, framing->partial->data, framing->partial->len);
    empty_partial(framing);
}
