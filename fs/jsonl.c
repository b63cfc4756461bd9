/* See jsonl.h. */
#include "fs/jsonl.h"

#include "fs/json_check.h"

#include <string.h>

static void append_escaped(GString *out, uint8_t byte)
{
    static const char from[] = "\"\\\n\r\t\b\f";
    static const char to[] = "\"\\nrtbf";
    const char *at = byte ? strchr(from, byte) : NULL;
    if (at)
        g_string_append_printf(out, "\\%c", to[at - from]);
    else
        g_string_append_printf(out, "\\u%04x", byte);
}

static void append_string(GString *out, const uint8_t *text, size_t size)
{
    g_string_append_c(out, '"');
    size_t start = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] >= 0x20 && text[i] != '"' && text[i] != '\\')
            continue;
        g_string_append_len(out, (const char *)text + start, (gssize)(i - start));
        append_escaped(out, text[i]);
        start = i + 1;
    }
    g_string_append_len(out, (const char *)text + start, (gssize)(size - start));
    g_string_append_c(out, '"');
}

static void append_base64(GString *out, const uint8_t *data, size_t size, const char *encoding_key)
{
    char *text = g_base64_encode(data, size);
    g_string_append_printf(out, "\"%s\",\"%s\":\"base64\"", text, encoding_key);
    g_free(text);
}

static void append_text(GString *out, const uint8_t *data, size_t size, const char *encoding_key)
{
    if (nrd_utf8_valid(data, size))
        append_string(out, data, size);
    else
        append_base64(out, data, size, encoding_key);
}

static void append_verbatim(GString *out, const uint8_t *json, size_t size)
{
    gsize start = out->len;
    g_string_append_len(out, (const char *)json, (gssize)size);
    for (gsize i = start; i < out->len; i++)
        if (out->str[i] == '\n' || out->str[i] == '\r')
            out->str[i] = ' ';
}

void nrd_jsonl_append(GString *out, const NrdJsonlRecord *record)
{
    g_string_append_printf(out,
                           "{\"handle\":\"%s\",\"partition\":%u,\"offset\":%" G_GUINT64_FORMAT
                           ",\"timestamp\":%" G_GINT64_FORMAT ",\"key\":",
                           record->receipt, record->partition, record->offset, record->timestamp_ms);
    if (record->key_size == 0)
        g_string_append(out, "null");
    else
        append_text(out, record->key, record->key_size, "key_encoding");
    g_string_append(out, ",\"payload\":");
    if (nrd_json_valid(record->payload, record->payload_size))
        append_verbatim(out, record->payload, record->payload_size);
    else
        append_text(out, record->payload, record->payload_size, "payload_encoding");
    g_string_append(out, "}\n");
}
