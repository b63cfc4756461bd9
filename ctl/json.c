/* See json.h. On top of yajl's generator, whose states make a malformed text a bug of ours: asserted. */
#include "ctl/json.h"

#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <yajl/yajl_gen.h>

struct NrdJson {
    yajl_gen gen;
    unsigned depth;
};

static void check(yajl_gen_status status)
{
    g_assert(status == yajl_gen_status_ok || status == yajl_gen_generation_complete);
}

NrdJson *nrd_json_new(void)
{
    NrdJson *json = g_new0(NrdJson, 1);
    json->gen = yajl_gen_alloc(NULL);
    g_assert(json->gen != NULL);
    return json;
}

void nrd_json_free(NrdJson *json)
{
    if (!json)
        return;
    yajl_gen_free(json->gen);
    g_free(json);
}

static void put_string(NrdJson *json, const char *text)
{
    g_autofree char *valid = g_utf8_make_valid(text, -1);
    check(yajl_gen_string(json->gen, (const unsigned char *)valid, strlen(valid)));
}

static void put_key(NrdJson *json, const char *key)
{
    if (key)
        put_string(json, key);
}

/* What is there so far goes out, so that a long array takes no memory. */
static void drain(NrdJson *json)
{
    const unsigned char *text;
    size_t size;
    check(yajl_gen_get_buf(json->gen, &text, &size));
    fwrite(text, 1, size, stdout);
    yajl_gen_clear(json->gen);
}

void nrd_json_object(NrdJson *json, const char *key)
{
    put_key(json, key);
    check(yajl_gen_map_open(json->gen));
    json->depth++;
}

void nrd_json_object_end(NrdJson *json)
{
    check(yajl_gen_map_close(json->gen));
    drain(json);
    if (--json->depth > 0)
        return;
    putchar('\n');
    yajl_gen_reset(json->gen, NULL);
}

void nrd_json_array(NrdJson *json, const char *key)
{
    put_key(json, key);
    check(yajl_gen_array_open(json->gen));
    json->depth++;
}

void nrd_json_array_end(NrdJson *json)
{
    check(yajl_gen_array_close(json->gen));
    g_assert(json->depth > 1);
    json->depth--;
}

void nrd_json_string(NrdJson *json, const char *key, const char *text)
{
    put_key(json, key);
    put_string(json, text);
}

static void put_number(NrdJson *json, const char *key, const char *digits)
{
    put_key(json, key);
    check(yajl_gen_number(json->gen, digits, strlen(digits)));
}

void nrd_json_number(NrdJson *json, const char *key, uint64_t number)
{
    char digits[24];
    g_snprintf(digits, sizeof digits, "%" G_GUINT64_FORMAT, number);
    put_number(json, key, digits);
}

void nrd_json_signed(NrdJson *json, const char *key, int64_t number)
{
    char digits[24];
    g_snprintf(digits, sizeof digits, "%" G_GINT64_FORMAT, number);
    put_number(json, key, digits);
}

void nrd_json_real(NrdJson *json, const char *key, double number)
{
    char digits[G_ASCII_DTOSTR_BUF_SIZE];
    put_number(json, key, g_ascii_formatd(digits, sizeof digits, "%.6g", number));
}

void nrd_json_bool(NrdJson *json, const char *key, bool value)
{
    put_key(json, key);
    check(yajl_gen_bool(json->gen, value));
}

void nrd_json_null(NrdJson *json, const char *key)
{
    put_key(json, key);
    check(yajl_gen_null(json->gen));
}

void nrd_json_bytes(NrdJson *json, const char *key, const uint8_t *bytes, size_t size)
{
    if (g_utf8_validate_len((const char *)bytes, size, NULL)) {
        put_key(json, key);
        check(yajl_gen_string(json->gen, size > 0 ? bytes : (const unsigned char *)"", size));
        return;
    }
    g_autofree char *name = g_strconcat(key, "_encoding", NULL);
    g_autofree char *text = g_base64_encode(bytes, size);
    nrd_json_string(json, key, text);
    nrd_json_string(json, name, "base64");
}

void nrd_json_word(NrdJson *json, const char *key, const char *text)
{
    const char *digits = text + (*text == '-' ? 1 : 0);
    size_t n = strlen(digits);
    bool number = n > 0 && n < 19 && strspn(digits, "0123456789") == n && (digits[0] != '0' || strcmp(text, "0") == 0);
    if (number)
        put_number(json, key, text);
    else
        nrd_json_string(json, key, text);
}
