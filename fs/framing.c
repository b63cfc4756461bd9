/* See framing.h. */
#include "fs/framing.h"

#include "fs/hash.h"

#include <errno.h>
#include <string.h>

void nrd_framing_init(NrdFraming *framing)
{
    *framing = (NrdFraming){ .partial = g_byte_array_new() };
}

void nrd_framing_clear(NrdFraming *framing)
{
    g_clear_pointer(&framing->partial, g_byte_array_unref);
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

static bool refused_before(NrdFraming *framing, const uint8_t *data, size_t size)
{
    return framing->refused && framing->refused_size == size && framing->refused_hash == nrd_hash(0, data, size);
}

static int refuse(NrdFraming *framing, const uint8_t *data, size_t size, bool holds_end)
{
    empty_partial(framing);
    framing->skipping = !holds_end;
    framing->refused = true;
    framing->refused_size = size;
    framing->refused_hash = nrd_hash(0, data, size);
    framing->refused_skipping = framing->skipping;
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
    if (refused_before(framing, data, size)) {
        framing->skipping = framing->refused_skipping;
        return -EMSGSIZE;
    }
    size_t pos = 0;
    bool was_refused = framing->refused;
    framing->refused = false;
    if (size == 0)
        framing->refused = was_refused;
    while (pos < size) {
        const uint8_t *newline = memchr(data + pos, '\n', size - pos);
        size_t length = newline ? (size_t)(newline - data) - pos : size - pos;
        if (!framing->skipping && framing->partial->len + length > max_record) {
            if (pos == 0)
                return refuse(framing, data, size, newline != NULL);
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
