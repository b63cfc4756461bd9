/* See json_check.h. The JSON parser is yajl: it works through the text without building anything, and without callbacks
 * it converts no number, so that one of any size passes. What follows the value we look at ourselves: a string without an
 * end there yajl takes for one that is still to come, and says nothing. Of UTF-8 it checks the outline only: overlong forms,
 * surrogates and what is beyond Unicode are found by a check of our own. */
#include "fs/json_check.h"

#include <glib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

static bool only_space(const uint8_t *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\n' && text[i] != '\r')
            return false;
    return true;
}

/* yajl takes them for white space. In a string they have to be escaped, so they stand nowhere in JSON. */
static bool has_foreign_space(const uint8_t *text, size_t size)
{
    return memchr(text, '\v', size) || memchr(text, '\f', size);
}

bool nrd_json_valid(const uint8_t *text, size_t size)
{
    yajl_handle parser = yajl_alloc(NULL, NULL, NULL);
    yajl_config(parser, yajl_allow_trailing_garbage, 1);
    bool valid = yajl_parse(parser, text, size) == yajl_status_ok;
    size_t end = valid ? yajl_get_bytes_consumed(parser) : 0;
    valid = valid && only_space(text + end, size - end) && yajl_complete_parse(parser) == yajl_status_ok;
    yajl_free(parser);
    return valid && !has_foreign_space(text, size) && nrd_utf8_valid(text, size);
}

bool nrd_utf8_valid(const uint8_t *text, size_t size)
{
    /* glib takes a NUL for the end: check what is between them. */
    while (size > 0) {
        const uint8_t *nul = memchr(text, 0, size);
        size_t n = nul ? (size_t)(nul - text) : size;
        if (!g_utf8_validate_len((const char *)text, n, NULL))
            return false;
        n += nul != NULL;
        text += n;
        size -= n;
    }
    return true;
}
