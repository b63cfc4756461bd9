/* See jsonl_in.h. The JSON library says whether the line is valid; where the members are is looked up in the valid text,
 * so that a payload keeps every byte. */
#include "fs/jsonl_in.h"

#include "fs/base64.h"
#include "fs/json_check.h"
#include "fs/json_object.h"

#include <errno.h>
#include <string.h>

#define BYTES_PER_BYTE 6
#define BESIDE_BYTES (BYTES_PER_BYTE * NRD_KEY_MAX + 4096)

typedef enum Field {
    FIELD_KEY,
    FIELD_KEY_ENCODING,
    FIELD_PAYLOAD,
    FIELD_PAYLOAD_ENCODING,
    FIELD_HANDLE,
    FIELD_PARTITION,
    FIELD_OFFSET,
    FIELD_TIMESTAMP,
    N_FIELDS,
} Field;

static const char *const field_names[N_FIELDS] = {
    "key", "key_encoding", "payload", "payload_encoding", "handle", "partition", "offset", "timestamp",
};

#define LONGEST_NAME_BYTES 16

/* A value as written; bytes is NULL when the member is not there. */
typedef struct Value {
    const uint8_t *bytes;
    size_t size;
} Value;

size_t nrd_jsonl_line_max(size_t max_record)
{
    return BYTES_PER_BYTE * max_record + BESIDE_BYTES;
}

static int malformed(const char *why, const char **ret_why)
{
    *ret_why = why;
    return -EINVAL;
}

/* N_FIELDS: none of them. */
static Field field_of(const NrdJsonMember *member)
{
    uint8_t name[LONGEST_NAME_BYTES * BYTES_PER_BYTE];
    size_t size;
    if (member->name_size > sizeof name || nrd_json_unescape(member->name, member->name_size, name, &size) < 0)
        return N_FIELDS;
    for (Field field = 0; field < N_FIELDS; field++)
        if (strlen(field_names[field]) == size && memcmp(field_names[field], name, size) == 0)
            return field;
    return N_FIELDS;
}

static int find_fields(const uint8_t *line, size_t size, Value fields[N_FIELDS], const char **ret_why)
{
    NrdJsonWalk walk;
    NrdJsonMember member;
    nrd_json_walk_init(&walk, line, size);
    while (nrd_json_walk_next(&walk, &member)) {
        Field field = field_of(&member);
        if (field == N_FIELDS)
            return malformed("it has a member of an unknown name", ret_why);
        if (fields[field].bytes)
            return malformed("it has a member twice", ret_why);
        fields[field] = (Value){ member.value, member.value_size };
    }
    return 0;
}

static bool is_string(Value value)
{
    return value.bytes && value.bytes[0] == '"';
}

/* A string is never longer decoded than as written. */
static size_t string_room(Value value)
{
    return is_string(value) ? value.size : 0;
}

static bool is_word(Value value, const char *word)
{
    return value.size == strlen(word) && memcmp(value.bytes, word, value.size) == 0;
}

/* What a string says; out has room for all of it as written. */
static int decode_string(Value value, bool base64, uint8_t *out, size_t *ret_size, const char **ret_why)
{
    size_t size;
    if (nrd_json_unescape(value.bytes + 1, value.size - 2, out, &size) < 0)
        return malformed("a string has half of a surrogate pair", ret_why);
    if (base64 && nrd_base64_decode(out, size, out, &size) < 0)
        return malformed("a string is not base64", ret_why);
    *ret_size = size;
    return 0;
}

static int check_encoding(Value encoding, Value value, const char **ret_why)
{
    if (!encoding.bytes)
        return 0;
    if (!is_word(encoding, "\"base64\""))
        return malformed("an encoding is not \"base64\"", ret_why);
    return is_string(value) ? 0 : malformed("what is said to be base64 is not a string", ret_why);
}

static int check_fields(const Value fields[N_FIELDS], const char **ret_why)
{
    Value key = fields[FIELD_KEY];
    if (!fields[FIELD_PAYLOAD].bytes)
        return malformed("it has no payload", ret_why);
    if (key.bytes && !is_string(key) && !is_word(key, "null"))
        return malformed("its key is not a string", ret_why);
    int error = check_encoding(fields[FIELD_KEY_ENCODING], key, ret_why);
    return error < 0 ? error : check_encoding(fields[FIELD_PAYLOAD_ENCODING], fields[FIELD_PAYLOAD], ret_why);
}

/* Reads key and payload; strings are decoded into buf, one behind the other. */
static int read_fields(const Value fields[N_FIELDS], uint8_t *buf, NrdNewRecord *ret_record, const char **ret_why)
{
    Value key = fields[FIELD_KEY], payload = fields[FIELD_PAYLOAD];
    NrdNewRecord record = { .key = buf, .payload = payload.bytes, .payload_size = payload.size };
    int error = 0;
    if (is_string(key))
        error = decode_string(key, fields[FIELD_KEY_ENCODING].bytes != NULL, buf, &record.key_size, ret_why);
    if (error == 0 && is_string(payload)) {
        bool base64 = fields[FIELD_PAYLOAD_ENCODING].bytes != NULL;
        record.payload = buf + record.key_size;
        error = decode_string(payload, base64, buf + record.key_size, &record.payload_size, ret_why);
    }
    if (error == 0)
        *ret_record = record;
    return error;
}

const char nrd_jsonl_payload_too_long[] = "its payload is longer than a record may be";

static int check_sizes(const NrdNewRecord *record, size_t max_record, const char **ret_why)
{
    if (record->payload_size <= max_record && record->key_size <= NRD_KEY_MAX)
        return 0;
    *ret_why = record->key_size > NRD_KEY_MAX ? "its key is longer than 64 KiB" : nrd_jsonl_payload_too_long;
    return -EMSGSIZE;
}

/* line: a valid object. */
static int read_object(const uint8_t *line, size_t size, size_t max_record, NrdJsonlLine *ret_line,
                       const char **ret_why)
{
    Value fields[N_FIELDS] = { 0 };
    NrdNewRecord record;
    int error = find_fields(line, size, fields, ret_why);
    if (error == 0)
        error = check_fields(fields, ret_why);
    if (error < 0)
        return error;
    size_t room = string_room(fields[FIELD_KEY]) + string_room(fields[FIELD_PAYLOAD]);
    uint8_t *buf = room > 0 ? g_try_malloc(room) : NULL;
    if (room > 0 && !buf) {
        *ret_why = "there is no memory for it";
        return -ENOMEM;
    }
    error = read_fields(fields, buf, &record, ret_why);
    if (error == 0)
        error = check_sizes(&record, max_record, ret_why);
    if (error == 0)
        *ret_line = (NrdJsonlLine){ .record = record, .decoded = buf };
    else
        g_free(buf);
    return error;
}

static bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

int nrd_jsonl_parse(const uint8_t *line, size_t size, size_t max_record, NrdJsonlLine *ret_line, const char **ret_why)
{
    while (size > 0 && is_space(line[size - 1]))
        size--;
    while (size > 0 && is_space(*line)) {
        line++;
        size--;
    }
    if (size == 0) {
        *ret_line = (NrdJsonlLine){ .blank = true };
        return 0;
    }
    if (*line != '{' || line[size - 1] != '}') /* also what is unfinished, at little cost */
        return malformed("it is no whole JSON object", ret_why);
    if (!nrd_json_valid(line, size))
        return malformed("it is no valid JSON", ret_why);
    return read_object(line, size, max_record, ret_line, ret_why);
}
