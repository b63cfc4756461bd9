/* See jsonl.h. */
#include "fs/jsonl.h"

#include "fs/json_check.h"

#include <string.h>

/* Where a line goes: every piece is counted, and kept unless only the length is asked for. One way through, so that the
 * length is always that of the line. */
typedef struct Out {
    GString *text; /* NULL: only the length is asked for */
    uint64_t size;
} Out;

static void put(Out *out, const void *bytes, size_t size)
{
    out->size += size;
    if (out->text)
        g_string_append_len(out->text, bytes, (gssize)size);
}

static void put_text(Out *out, const char *text)
{
    put(out, text, strlen(text));
}

static void put_unsigned(Out *out, const char *name, uint64_t number)
{
    char text[64];
    int n = g_snprintf(text, sizeof text, "%s%" G_GUINT64_FORMAT, name, number);
    put(out, text, (size_t)n);
}

static void put_signed(Out *out, const char *name, int64_t number)
{
    char text[64];
    int n = g_snprintf(text, sizeof text, "%s%" G_GINT64_FORMAT, name, number);
    put(out, text, (size_t)n);
}

static void put_escaped(Out *out, uint8_t byte)
{
    static const char from[] = "\"\\\n\r\t\b\f";
    static const char to[] = "\"\\nrtbf";
    const char *at = byte ? strchr(from, byte) : NULL;
    char text[8];
    int n = at ? g_snprintf(text, sizeof text, "\\%c", to[at - from]) : g_snprintf(text, sizeof text, "\\u%04x", byte);
    put(out, text, (size_t)n);
}

static void put_string(Out *out, const uint8_t *text, size_t size)
{
    put_text(out, "\"");
    size_t start = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] >= 0x20 && text[i] != '"' && text[i] != '\\')
            continue;
        put(out, text + start, i - start);
        put_escaped(out, text[i]);
        start = i + 1;
    }
    put(out, text + start, size - start);
    put_text(out, "\"");
}

static void put_base64(Out *out, const uint8_t *data, size_t size, const char *encoding_key)
{
    put_text(out, "\"");
    if (out->text) {
        char *text = g_base64_encode(data, size);
        put_text(out, text);
        g_free(text);
    } else {
        out->size += ((uint64_t)size + 2) / 3 * 4;
    }
    put_text(out, "\",\"");
    put_text(out, encoding_key);
    put_text(out, "\":\"base64\"");
}

static void put_string_or_base64(Out *out, const uint8_t *data, size_t size, const char *encoding_key)
{
    if (nrd_utf8_valid(data, size))
        put_string(out, data, size);
    else
        put_base64(out, data, size, encoding_key);
}

static void put_verbatim(Out *out, const uint8_t *json, size_t size)
{
    put(out, json, size);
    if (!out->text)
        return;
    for (gsize i = out->text->len - size; i < out->text->len; i++)
        if (out->text->str[i] == '\n' || out->text->str[i] == '\r')
            out->text->str[i] = ' ';
}

static void put_record(Out *out, const NrdJsonlRecord *record)
{
    put_text(out, "{");
    if (record->receipt) {
        put_text(out, "\"handle\":\"");
        put_text(out, record->receipt);
        put_text(out, "\",");
    }
    put_unsigned(out, "\"partition\":", record->partition);
    put_unsigned(out, ",\"offset\":", record->offset);
    put_signed(out, ",\"timestamp\":", record->timestamp_ms);
    put_text(out, ",\"key\":");
    if (record->key_size == 0)
        put_text(out, "null");
    else
        put_string_or_base64(out, record->key, record->key_size, "key_encoding");
    put_text(out, ",\"payload\":");
    if (nrd_json_valid(record->payload, record->payload_size))
        put_verbatim(out, record->payload, record->payload_size);
    else
        put_string_or_base64(out, record->payload, record->payload_size, "payload_encoding");
    put_text(out, "}\n");
}

void nrd_jsonl_append(GString *text, const NrdJsonlRecord *record)
{
    Out out = { .text = text };
    put_record(&out, record);
}

uint64_t nrd_jsonl_length(const NrdJsonlRecord *record)
{
    Out out = { .text = NULL };
    put_record(&out, record);
    return out.size;
}
