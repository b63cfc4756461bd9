/* See json_object.h. */
#include "fs/json_object.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

static bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* Past white space and the marks that stand between members. */
static const uint8_t *skip_marks(const uint8_t *at, const uint8_t *end)
{
    while (at < end && (is_space(*at) || *at == ':' || *at == ','))
        at++;
    return at;
}

/* at is at the opening quote; the result is past the closing one: the first with an even number of backslashes before it. */
static const uint8_t *string_end(const uint8_t *at, const uint8_t *end)
{
    const uint8_t *start = at + 1;
    while (start < end) {
        const uint8_t *quote = memchr(start, '"', (size_t)(end - start));
        if (!quote)
            return end;
        const uint8_t *slash = quote;
        while (slash > start && slash[-1] == '\\')
            slash--;
        if ((quote - slash) % 2 == 0)
            return quote + 1;
        start = quote + 1;
    }
    return end;
}

/* at is at the opening bracket of an object or an array. */
static const uint8_t *nested_end(const uint8_t *at, const uint8_t *end)
{
    size_t depth = 0;
    while (at < end) {
        if (*at == '"') {
            at = string_end(at, end);
            continue;
        }
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
        if (depth == 0)
            break;
    }
    return at;
}

static const uint8_t *value_end(const uint8_t *at, const uint8_t *end)
{
    if (at == end)
        return end;
    if (*at == '"')
        return string_end(at, end);
    if (*at == '{' || *at == '[')
        return nested_end(at, end);
    while (at < end && *at != ',' && *at != '}' && !is_space(*at))
        at++;
    return at;
}

void nrd_json_walk_init(NrdJsonWalk *walk, const uint8_t *text, size_t size)
{
    walk->end = text + size;
    walk->at = memchr(text, '{', size);
    walk->at = walk->at ? walk->at + 1 : walk->end;
}

bool nrd_json_walk_next(NrdJsonWalk *walk, NrdJsonMember *ret_member)
{
    const uint8_t *name = skip_marks(walk->at, walk->end);
    if (name == walk->end || *name != '"')
        return false;
    const uint8_t *name_end = string_end(name, walk->end);
    const uint8_t *value = skip_marks(name_end, walk->end);
    walk->at = value_end(value, walk->end);
    *ret_member = (NrdJsonMember){ name + 1, (size_t)(name_end - name) - 2, value, (size_t)(walk->at - value) };
    return true;
}

/* ---- strings ---- */

static uint32_t hex4(const uint8_t *digits)
{
    uint32_t number = 0;
    for (int i = 0; i < 4; i++)
        number = number << 4 | (uint32_t)g_ascii_xdigit_value((char)digits[i]);
    return number;
}

/* The character that `\uXXXX` at text says, a pair of them when it takes two. *ret_size: how many bytes of text. */
static int unicode_escape(const uint8_t *text, size_t size, uint32_t *ret_char, size_t *ret_size)
{
    uint32_t high = hex4(text + 2);
    if (high < 0xD800 || high > 0xDFFF) {
        *ret_char = high;
        *ret_size = 6;
        return 0;
    }
    if (high > 0xDBFF || size < 12 || text[6] != '\\' || text[7] != 'u')
        return -EINVAL;
    uint32_t low = hex4(text + 8);
    if (low < 0xDC00 || low > 0xDFFF)
        return -EINVAL;
    *ret_char = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    *ret_size = 12;
    return 0;
}

static uint8_t short_escape(uint8_t letter)
{
    static const char from[] = "nrtbf";
    static const char to[] = "\n\r\t\b\f";
    const char *at = strchr(from, letter);
    return at ? (uint8_t)to[at - from] : letter; /* a quote, a slash, a backslash */
}

/* One escape, which text begins with. */
static int unescape_one(const uint8_t *text, size_t size, uint8_t *out, size_t *ret_in, size_t *ret_out)
{
    if (text[1] != 'u') {
        *out = short_escape(text[1]);
        *ret_in = 2;
        *ret_out = 1;
        return 0;
    }
    uint32_t c;
    char utf8[6];
    int error = unicode_escape(text, size, &c, ret_in);
    if (error < 0)
        return error;
    *ret_out = (size_t)g_unichar_to_utf8(c, utf8);
    memcpy(out, utf8, *ret_out);
    return 0;
}

int nrd_json_unescape(const uint8_t *text, size_t size, uint8_t *out, size_t *ret_size)
{
    size_t pos = 0, n_out = 0;
    while (pos < size) {
        const uint8_t *escape = memchr(text + pos, '\\', size - pos);
        size_t run = escape ? (size_t)(escape - text) - pos : size - pos;
        memmove(out + n_out, text + pos, run);
        n_out += run;
        pos += run;
        if (!escape)
            break;
        size_t n_in = 0, n = 0;
        int error = unescape_one(text + pos, size - pos, out + n_out, &n_in, &n);
        if (error < 0)
            return error;
        pos += n_in;
        n_out += n;
    }
    *ret_size = n_out;
    return 0;
}
