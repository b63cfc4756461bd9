/* Lines of command files: cutting requests into lines, and reading verbs and numbers strictly. Pure; the caller
 * serialises the calls.
 *
 * A last line without newline: as the only line of a request (`printf %s ... > ack`) it counts as complete, and a
 * newline that begins the next request belongs to it. After complete lines it is what a buffered writer or the kernel
 * cut off: it is kept, and the next request completes it, or a flush. */
#ifndef NRD_FS_LINES_H
#define NRD_FS_LINES_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest line of a command file; longer ones are malformed. */
#define NRD_LINE_MAX 128

typedef struct NrdLines {
    char kept[NRD_LINE_MAX];
    size_t kept_size;
    bool owes_newline; /* the last line counted as complete without its newline */
} NrdLines;

/* A line as programs mean it: without the CR of a CR LF, each run of spaces and tabs as one space. -EINVAL: too long. */
int nrd_line_tidy(const char *text, size_t size, char ret_line[NRD_LINE_MAX], size_t *ret_size) NRD_MUST_CHECK;

/* Acts on a line (without newline, tidied; valid during the call): 0 when it took effect, else a negative errno. */
typedef int (*NrdLineFn)(void *user_data, const char *line, size_t size);

/* Feeds a request. *ret_taken: the bytes of the lines that took effect, and of a line kept. When the first line of the
 * request does not take effect its error is returned; after others, they are taken and it is not. */
int nrd_lines_feed(NrdLines *lines, const char *data, size_t size, NrdLineFn fn, void *user_data,
                   size_t *ret_taken) NRD_MUST_CHECK;

/* Acts on complete lines, as they came, each with its newline: the bytes of those that took effect, up to the first that did
 * not, whose error is set (0: all did). */
typedef size_t (*NrdManyLinesFn)(void *user_data, const char *lines, size_t size, int *ret_error);

/* As nrd_lines_feed, but hands over lines that are complete within the request together, to many; fn gets the others. */
int nrd_lines_feed_many(NrdLines *lines, const char *data, size_t size, NrdLineFn fn, NrdManyLinesFn many,
                        void *user_data, size_t *ret_taken) NRD_MUST_CHECK;

/* Takes the kept line as complete. It stays kept when it does not take effect: it may be unfinished. */
int nrd_lines_flush(NrdLines *lines, NrdLineFn fn, void *user_data) NRD_MUST_CHECK;

/* A decimal number, the whole of text: digits only, no leading zero, at most max. */
int nrd_number_parse(const char *text, size_t size, uint64_t max, uint64_t *ret_number) NRD_MUST_CHECK;

/* If text begins with word, followed by one space or by its end, *ret_rest is what follows. */
bool nrd_word_match(const char *text, size_t size, const char *word, const char **ret_rest, size_t *ret_rest_size);

#endif
