/* A line of consume.jsonl and log.jsonl: JSON by a second opinion, on one line, as long as it was said to be, and what
 * produce.jsonl makes of it is the same key and payload.
 * Input: flags (1: with a receipt), partition (4), offset (8), time (8), length of the key (2), key, payload. */
#include "fuzz.h"
#include "json_opinion.h"

#include "fs/base64.h"
#include "fs/json_check.h"
#include "fs/json_object.h"
#include "fs/jsonl.h"
#include "fs/jsonl_in.h"

#include <string.h>

static bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* What comes back of a payload: itself; of JSON, which stands there as it is, the value: no white space around it, line
 * breaks as spaces, and of a string its text. False: it is a string that no UTF-8 can say. */
static bool comes_back(const uint8_t *payload, size_t size, GByteArray *back)
{
    g_byte_array_append(back, payload, (guint)size);
    if (!json_opinion(payload, size))
        return true;
    while (is_space(back->data[back->len - 1]))
        g_byte_array_set_size(back, back->len - 1);
    while (is_space(back->data[0]))
        g_byte_array_remove_index(back, 0);
    for (guint i = 0; i < back->len; i++)
        if (back->data[i] == '\n' || back->data[i] == '\r')
            back->data[i] = ' ';
    if (back->data[0] != '"')
        return true;
    size_t n;
    g_byte_array_remove_index(back, 0);
    if (nrd_json_unescape(back->data, back->len - 1, back->data, &n) < 0)
        return false;
    g_byte_array_set_size(back, (guint)n);
    return true;
}

static void read_back(const GString *text, const NrdJsonlRecord *record)
{
    NrdJsonlLine line;
    const char *why = NULL;
    g_autoptr(GByteArray) back = g_byte_array_new();
    bool possible = comes_back(record->payload, record->payload_size, back);
    int rc = nrd_jsonl_parse((const uint8_t *)text->str, text->len - 1, text->len, &line, &why);
    FUZZ_CHECK((rc == 0) == possible);
    if (rc < 0)
        return;
    FUZZ_CHECK(!line.blank && line.record.key_size == record->key_size && line.record.payload_size == back->len);
    FUZZ_CHECK(record->key_size == 0 || memcmp(line.record.key, record->key, record->key_size) == 0);
    FUZZ_CHECK(back->len == 0 || memcmp(line.record.payload, back->data, back->len) == 0);
    g_free(line.decoded);
}

static void check_base64(const uint8_t *bytes, size_t size)
{
    size_t n = 0;
    g_autofree uint8_t *out = g_malloc(size + 1);
    g_autofree char *text = g_base64_encode(bytes, size);
    g_autofree uint8_t *made = g_malloc(size + 4);
    FUZZ_CHECK(nrd_base64_decode((const uint8_t *)text, strlen(text), made, &n) == 0);
    FUZZ_CHECK(n == size && memcmp(made, bytes, n) == 0);
    if (nrd_base64_decode(bytes, size, out, &n) == 0) { /* it is base64 itself: to the letter */
        g_autofree char *again = g_base64_encode(out, n);
        FUZZ_CHECK(strlen(again) == size && memcmp(again, bytes, size) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    NrdJsonlRecord record = { .receipt = flags & 1 ? "0:43:881" : NULL, .partition = fuzz_u32(&in) };
    record.offset = fuzz_u64(&in);
    record.timestamp_ms = (int64_t)fuzz_u64(&in);
    uint8_t *key = fuzz_piece(&in, &record.key_size);
    uint8_t *payload = fuzz_rest(&in, &record.payload_size);
    record.key = key;
    record.payload = payload;
    g_autoptr(GString) text = g_string_new(NULL);
    nrd_jsonl_append(text, &record);
    FUZZ_CHECK(nrd_jsonl_length(&record) == text->len);
    FUZZ_CHECK(memchr(text->str, '\n', text->len) == text->str + text->len - 1);
    FUZZ_CHECK(!memchr(text->str, '\r', text->len) && !memchr(text->str, '\0', text->len));
    FUZZ_CHECK(json_opinion((const uint8_t *)text->str, text->len));
    read_back(text, &record);
    check_base64(payload, record.payload_size);
    g_free(key);
    g_free(payload);
    return 0;
}
