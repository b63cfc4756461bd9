/* See lines.h. */
#include "fs/lines.h"

#include <errno.h>
#include <string.h>

static int keep(NrdLines *lines, const char *text, size_t size)
{
    if (lines->kept_size + size > NRD_LINE_MAX)
        return -EINVAL;
    memcpy(lines->kept + lines->kept_size, text, size);
    lines->kept_size += size;
    return 0;
}

int nrd_line_tidy(const char *text, size_t size, char ret_line[NRD_LINE_MAX], size_t *ret_size)
{
    size_t n = 0;
    if (size > NRD_LINE_MAX)
        return -EINVAL;
    if (size > 0 && text[size - 1] == '\r')
        size--;
    for (size_t i = 0; i < size; i++) {
        bool blank = text[i] == ' ' || text[i] == '\t';
        if (!blank || n == 0 || ret_line[n - 1] != ' ')
            ret_line[n++] = blank ? ' ' : text[i];
    }
    *ret_size = n;
    return 0;
}

static int run_tidied(const char *text, size_t size, NrdLineFn fn, void *user_data)
{
    char line[NRD_LINE_MAX];
    size_t n;
    int error = nrd_line_tidy(text, size, line, &n);
    return error < 0 ? error : fn(user_data, line, n);
}

/* Runs fn on the kept beginning and text together; the kept part is gone afterwards either way, since a line that
 * failed has been told. */
static int run(NrdLines *lines, const char *text, size_t size, NrdLineFn fn, void *user_data)
{
    if (lines->kept_size == 0)
        return run_tidied(text, size, fn, user_data);
    int error = keep(lines, text, size);
    if (error == 0)
        error = run_tidied(lines->kept, lines->kept_size, fn, user_data);
    lines->kept_size = 0;
    return error;
}

/* One line, or what there is of it; the bytes taken. */
static size_t feed_one(NrdLines *lines, const char *data, size_t size, bool first, NrdLineFn fn, void *user_data,
                       int *ret_error)
{
    const char *newline = memchr(data, '\n', size);
    size_t length = newline ? (size_t)(newline - data) : size;
    int error;
    if (newline || first) {
        error = run(lines, data, length, fn, user_data);
        lines->owes_newline = error == 0 && newline == NULL;
    } else {
        error = keep(lines, data, length);
    }
    *ret_error = error;
    return error == 0 ? length + (newline != NULL) : 0;
}

/* Size of the complete lines at the front of data. */
static size_t size_of_lines(const char *data, size_t size)
{
    const char *last = memrchr(data, '\n', size);
    return last ? (size_t)(last - data) + 1 : 0;
}

/* Size of the line end at the front of data. */
static size_t newline_size(const char *data, size_t size)
{
    if (size > 1 && data[0] == '\r' && data[1] == '\n')
        return 2;
    return size > 0 && data[0] == '\n' ? 1 : 0;
}

int nrd_lines_feed_many(NrdLines *lines, const char *data, size_t size, NrdLineFn fn, NrdManyLinesFn many,
                        void *user_data, size_t *ret_taken)
{
    size_t pos = lines->owes_newline ? newline_size(data, size) : 0;
    if (size > 0)
        lines->owes_newline = false;
    int error = 0;
    bool first = lines->kept_size == 0;
    while (pos < size && error == 0) {
        size_t n_many = many && lines->kept_size == 0 ? size_of_lines(data + pos, size - pos) : 0;
        if (n_many > 0)
            pos += many(user_data, data + pos, n_many, &error);
        else
            pos += feed_one(lines, data + pos, size - pos, first, fn, user_data, &error);
        first = false;
    }
    if (error < 0 && pos == 0)
        return error;
    *ret_taken = pos;
    return 0;
}

int nrd_lines_feed(NrdLines *lines, const char *data, size_t size, NrdLineFn fn, void *user_data, size_t *ret_taken)
{
    return nrd_lines_feed_many(lines, data, size, fn, NULL, user_data, ret_taken);
}

int nrd_lines_flush(NrdLines *lines, NrdLineFn fn, void *user_data)
{
    if (lines->kept_size == 0)
        return 0;
    int error = run_tidied(lines->kept, lines->kept_size, fn, user_data);
    if (error < 0)
        return error;
    lines->kept_size = 0;
    lines->owes_newline = true;
    return 0;
}

int nrd_number_parse(const char *text, size_t size, uint64_t max, uint64_t *ret_number)
{
    uint64_t number = 0;
    if (size == 0 || (size > 1 && text[0] == '0'))
        return -EINVAL;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -EINVAL;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (number > (UINT64_MAX - digit) / 10)
            return -EINVAL;
        number = number * 10 + digit;
    }
    if (number > max)
        return -EINVAL;
    *ret_number = number;
    return 0;
}

bool nrd_word_match(const char *text, size_t size, const char *word, const char **ret_rest, size_t *ret_rest_size)
{
    size_t length = strlen(word);
    if (size < length || memcmp(text, word, length) != 0)
        return false;
    if (size > length && text[length] != ' ')
        return false;
    size_t skip = size > length ? length + 1 : length;
    *ret_rest = text + skip;
    *ret_rest_size = size - skip;
    return true;
}
