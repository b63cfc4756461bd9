/* A line of `produce.jsonl`: the record that an object says. Pure.
 *
 *   {"key":"k","payload":<any JSON value>}
 *   {"key":"k","payload":"<base64>","payload_encoding":"base64"}
 *
 * payload           needed. A string is stored as its text, anything else as its bytes exactly as written
 * payload_encoding  "base64" and nothing else; the payload is then a string of strict base64, stored decoded
 * key               a string, stored as its text; absent, null or empty: no key
 * key_encoding      "base64", as for the payload
 * handle, partition, offset, timestamp
 *                   passed over: `consume.jsonl` writes them, and what it writes can be written again
 *
 * Anything else is malformed: another member, a member twice, a key that is a number, text that is not one whole JSON
 * object in UTF-8 (RFC 8259) without byte order mark, half of a surrogate pair in a string that is stored. \u0000 is a
 * NUL byte. Nesting may be as deep as a line is long, and numbers of any size: nothing of a payload is converted. White
 * space around the object is none of it (so lines may end with CR LF), and a line of white space is no record. */
#ifndef NRD_FS_JSONL_IN_H
#define NRD_FS_JSONL_IN_H

#include "fs/framing.h"

/* Longest line: the text of a record may take six bytes a byte (an escaped control character), and beside the payload
 * there are the key and the names. */
size_t nrd_jsonl_line_max(size_t max_record);

typedef struct NrdJsonlLine {
    NrdNewRecord record; /* its bytes are the line's, or `decoded` */
    uint8_t *decoded;    /* g_free; may be NULL */
    bool blank;          /* no record */
} NrdJsonlLine;

/* Its limit is max_record, which has a name of its own with whoever gave it. */
extern const char nrd_jsonl_payload_too_long[];

/* Parses a line (without newline). -EINVAL malformed, -EMSGSIZE payload or key too long; *ret_why then is one phrase for
 * the log, static. */
int nrd_jsonl_parse(const uint8_t *line, size_t size, size_t max_record, NrdJsonlLine *ret_line,
                    const char **ret_why) NRD_MUST_CHECK;

#endif
