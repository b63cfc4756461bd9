/* A line of produce.jsonl: what is accepted is JSON by a second opinion, and written as consume.jsonl writes it says the same
 * again.
 * Input: the line. */
#include "fuzz.h"
#include "json_opinion.h"

#include "fs/json_check.h"
#include "fs/json_object.h"
#include "fs/jsonl.h"
#include "fs/jsonl_in.h"

#include <errno.h>
#include <string.h>

#define MAX_RECORD 256

/* The payload is kept as JSON is: so it comes back as it was, but for what a JSON string says. */
static bool survives(const NrdNewRecord *record)
{
    return !json_opinion(record->payload, record->payload_size) ||
           (record->payload[0] > ' ' && record->payload[0] != '"' && record->payload[record->payload_size - 1] > ' ' &&
            !memchr(record->payload, '\n', record->payload_size) &&
            !memchr(record->payload, '\r', record->payload_size));
}

static void write_again(const NrdNewRecord *record)
{
    NrdJsonlRecord out = { .key = record->key,
                           .key_size = record->key_size,
                           .payload = record->payload,
                           .payload_size = record->payload_size };
    NrdJsonlLine line;
    const char *why = NULL;
    g_autoptr(GString) text = g_string_new(NULL);
    nrd_jsonl_append(text, &out);
    FUZZ_CHECK(nrd_jsonl_parse((const uint8_t *)text->str, text->len - 1, MAX_RECORD, &line, &why) == 0 && !line.blank);
    FUZZ_CHECK(line.record.key_size == record->key_size && line.record.payload_size == record->payload_size);
    FUZZ_CHECK(record->key_size == 0 || memcmp(line.record.key, record->key, record->key_size) == 0);
    FUZZ_CHECK(record->payload_size == 0 || memcmp(line.record.payload, record->payload, record->payload_size) == 0);
    g_free(line.decoded);
}

static bool all_space(const uint8_t *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!memchr(" \t\r\n", text[i], 4))
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    NrdJsonlLine line = { 0 };
    const char *why = NULL;
    size_t n;
    uint8_t *text = fuzz_rest(&in, &n);
    bool is_json = json_opinion(text, n);
    int rc = nrd_jsonl_parse(text, n, MAX_RECORD, &line, &why);
    FUZZ_CHECK(nrd_json_valid(text, n) == is_json);
    FUZZ_CHECK(rc == 0 || ((rc == -EINVAL || rc == -EMSGSIZE) && why != NULL));
    FUZZ_CHECK(rc != 0 || line.blank == all_space(text, n));
    if (rc == 0 && !line.blank) {
        FUZZ_CHECK(is_json && line.record.payload_size <= MAX_RECORD && line.record.key_size <= NRD_KEY_MAX);
        if (survives(&line.record))
            write_again(&line.record);
        g_free(line.decoded);
    }
    g_free(text);
    return 0;
}
