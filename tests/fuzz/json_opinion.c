/* See json_opinion.h. Values nest on a stack of brackets, so that depth costs a byte. */
#include "json_opinion.h"

#include "fuzz.h"

#include <string.h>

typedef struct Text {
    const uint8_t *p, *end;
} Text;

static void skip_space(Text *t)
{
    while (t->p < t->end && (*t->p == ' ' || *t->p == '\t' || *t->p == '\n' || *t->p == '\r'))
        t->p++;
}

static bool take(Text *t, char c)
{
    bool is = t->p < t->end && *t->p == (uint8_t)c;
    t->p += is;
    return is;
}

static bool take_word(Text *t, const char *word)
{
    size_t n = strlen(word);
    bool is = (size_t)(t->end - t->p) >= n && memcmp(t->p, word, n) == 0;
    t->p += is ? n : 0;
    return is;
}

static size_t take_digits(Text *t)
{
    size_t n = 0;
    for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; n++)
        t->p++;
    return n;
}

static bool take_number(Text *t)
{
    (void)take(t, '-');
    if (!take(t, '0') && take_digits(t) == 0)
        return false;
    if (take(t, '.') && take_digits(t) == 0)
        return false;
    if (take(t, 'e') || take(t, 'E')) {
        if (!take(t, '+'))
            (void)take(t, '-');
        return take_digits(t) > 0;
    }
    return true;
}

/* Behind the first byte of a character: its other bytes, as RFC 3629 bounds them. */
static bool take_utf8(Text *t, uint8_t first)
{
    uint8_t low = 0x80, high = 0xBF;
    int n = first >= 0xC2 && first <= 0xDF   ? 1
            : first >= 0xE0 && first <= 0xEF ? 2
            : first >= 0xF0 && first <= 0xF4 ? 3
                                             : 0;
    if (n == 0)
        return false;
    if (first == 0xE0)
        low = 0xA0;
    else if (first == 0xED)
        high = 0x9F;
    else if (first == 0xF0)
        low = 0x90;
    else if (first == 0xF4)
        high = 0x8F;
    for (; n > 0; n--, low = 0x80, high = 0xBF)
        if (t->p >= t->end || *t->p < low || *t->p++ > high)
            return false;
    return true;
}

static bool take_escape(Text *t)
{
    if (t->p >= t->end)
        return false;
    uint8_t c = *t->p++;
    if (c != 'u')
        return c != '\0' && strchr("\"\\/bfnrt", c) != NULL;
    for (int i = 0; i < 4; i++)
        if (t->p >= t->end || !g_ascii_isxdigit((char)*t->p++))
            return false;
    return true;
}

static bool take_string(Text *t)
{
    if (!take(t, '"'))
        return false;
    while (t->p < t->end) {
        uint8_t c = *t->p++;
        if (c == '"')
            return true;
        if (c < 0x20 || (c == '\\' && !take_escape(t)) || (c >= 0x80 && !take_utf8(t, c)))
            return false;
    }
    return false;
}

static bool take_scalar(Text *t)
{
    if (t->p < t->end && *t->p == '"')
        return take_string(t);
    return take_word(t, "true") || take_word(t, "false") || take_word(t, "null") || take_number(t);
}

static bool take_name(Text *t)
{
    skip_space(t);
    if (!take_string(t))
        return false;
    skip_space(t);
    return take(t, ':');
}

/* Opens brackets until a scalar or an empty bracket ends a value. */
static bool take_down(Text *t, GByteArray *stack)
{
    for (;;) {
        skip_space(t);
        uint8_t open = t->p < t->end ? *t->p : 0;
        if (open != '{' && open != '[')
            return take_scalar(t);
        t->p++;
        skip_space(t);
        if (take(t, open == '{' ? '}' : ']'))
            return true;
        g_byte_array_append(stack, &open, 1);
        if (open == '{' && !take_name(t))
            return false;
    }
}

bool json_opinion(const uint8_t *text, size_t size)
{
    Text t = { text, text + size };
    g_autoptr(GByteArray) stack = g_byte_array_new();
    for (;;) {
        if (!take_down(&t, stack))
            return false;
        skip_space(&t);
        while (stack->len > 0 && take(&t, stack->data[stack->len - 1] == '{' ? '}' : ']')) {
            g_byte_array_set_size(stack, stack->len - 1);
            skip_space(&t);
        }
        if (stack->len == 0)
            return t.p == t.end;
        if (!take(&t, ',') || (stack->data[stack->len - 1] == '{' && !take_name(&t)))
            return false;
    }
}
