/* See json_check.h. A small push-down automaton: `stack` has one bit a level, set for an object. */
#include "fs/json_check.h"

#include <glib.h>
#include <string.h>

typedef struct Cursor {
    const uint8_t *p;
    const uint8_t *end;
    GByteArray *stack;
    size_t depth;
} Cursor;

bool nrd_utf8_valid(const uint8_t *text, size_t size)
{
    while (size > 0) {
        const uint8_t *nul = memchr(text, 0, size);
        size_t length = nul ? (size_t)(nul - text) : size;
        if (!g_utf8_validate_len((const char *)text, length, NULL))
            return false;
        length += nul != NULL;
        text += length;
        size -= length;
    }
    return true;
}

static void push(Cursor *c, bool object)
{
    if (c->depth / 8 == c->stack->len)
        g_byte_array_append(c->stack, (const guint8 *)"", 1);
    uint8_t bit = (uint8_t)(1u << c->depth % 8);
    uint8_t *byte = &c->stack->data[c->depth / 8];
    *byte = object ? (uint8_t)(*byte | bit) : (uint8_t)(*byte & ~bit);
    c->depth++;
}

static bool in_object(const Cursor *c)
{
    return (c->stack->data[(c->depth - 1) / 8] >> (c->depth - 1) % 8) & 1;
}

static void skip_space(Cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r'))
        c->p++;
}

static bool take(Cursor *c, uint8_t byte)
{
    if (c->p == c->end || *c->p != byte)
        return false;
    c->p++;
    return true;
}

static bool word(Cursor *c, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(c->end - c->p) < length || memcmp(c->p, text, length) != 0)
        return false;
    c->p += length;
    return true;
}

static bool digits(Cursor *c)
{
    const uint8_t *start = c->p;
    while (c->p < c->end && g_ascii_isdigit(*c->p))
        c->p++;
    return c->p > start;
}

static bool number(Cursor *c)
{
    take(c, '-');
    if (!take(c, '0') && !digits(c))
        return false;
    if (take(c, '.') && !digits(c))
        return false;
    if (take(c, 'e') || take(c, 'E')) {
        if (!take(c, '+'))
            take(c, '-');
        return digits(c);
    }
    return true;
}

static bool escape(Cursor *c)
{
    if (c->p == c->end)
        return false;
    uint8_t kind = *c->p++;
    if (kind != 'u')
        return kind != 0 && strchr("\"\\/bfnrt", kind) != NULL;
    for (int i = 0; i < 4; i++, c->p++)
        if (c->p == c->end || !g_ascii_isxdigit(*c->p))
            return false;
    return true;
}

static bool string(Cursor *c)
{
    if (!take(c, '"'))
        return false;
    while (c->p < c->end) {
        uint8_t byte = *c->p++;
        if (byte == '"')
            return true;
        if (byte < 0x20)
            return false;
        if (byte == '\\' && !escape(c))
            return false;
    }
    return false;
}

static bool member_name(Cursor *c)
{
    skip_space(c);
    if (!string(c))
        return false;
    skip_space(c);
    return take(c, ':');
}

/* A value that is not a container. */
static bool scalar(Cursor *c)
{
    switch (*c->p) {
    case '"':
        return string(c);
    case 't':
        return word(c, "true");
    case 'f':
        return word(c, "false");
    case 'n':
        return word(c, "null");
    default:
        return number(c);
    }
}

/* Descends to the next scalar or empty container; the caller climbs. */
static bool descend(Cursor *c)
{
    for (;;) {
        skip_space(c);
        if (c->p == c->end)
            return false;
        if (*c->p != '{' && *c->p != '[')
            return scalar(c);
        bool object = *c->p++ == '{';
        skip_space(c);
        if (take(c, object ? '}' : ']'))
            return true;
        push(c, object);
        if (object && !member_name(c))
            return false;
    }
}

/* After a value: closes what ends here. *ret_more: another value has to follow. */
static bool climb(Cursor *c, bool *ret_more)
{
    while (c->depth > 0) {
        skip_space(c);
        if (take(c, ',')) {
            *ret_more = true;
            return !in_object(c) || member_name(c);
        }
        if (!take(c, in_object(c) ? '}' : ']'))
            return false;
        c->depth--;
    }
    *ret_more = false;
    return true;
}

static bool whole_text(Cursor *c)
{
    bool more = true;
    while (more)
        if (!descend(c) || !climb(c, &more))
            return false;
    skip_space(c);
    return c->p == c->end;
}

bool nrd_json_valid(const uint8_t *text, size_t size)
{
    Cursor c = { .p = text, .end = text + size, .stack = g_byte_array_new() };
    bool valid = whole_text(&c) && nrd_utf8_valid(text, size);
    g_byte_array_unref(c.stack);
    return valid;
}
