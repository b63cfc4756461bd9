/* Looking into a JSON object without building anything: where its members stand, and what its strings say. Pure; the
 * text has been found valid (nrd_json_valid), and that is asserted nowhere: never call these with other text. */
#ifndef NRD_FS_JSON_OBJECT_H
#define NRD_FS_JSON_OBJECT_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NrdJsonMember {
    const uint8_t *name; /* between its quotes, escapes as written */
    size_t name_size;
    const uint8_t *value; /* from its first byte to its last, a string with its quotes */
    size_t value_size;
} NrdJsonMember;

/* A walk over the members of one object, in order; nested ones are passed over. */
typedef struct NrdJsonWalk {
    const uint8_t *at;
    const uint8_t *end;
} NrdJsonWalk;

/* text: an object, perhaps between white space. */
void nrd_json_walk_init(NrdJsonWalk *walk, const uint8_t *text, size_t size);

/* The next member; false: there is none. */
bool nrd_json_walk_next(NrdJsonWalk *walk, NrdJsonMember *ret_member);

/* Writes what a string says, given the bytes between its quotes: UTF-8, never longer than those; out may be text itself.
 * -EINVAL: half of a surrogate pair, which no UTF-8 can say. */
int nrd_json_unescape(const uint8_t *text, size_t size, uint8_t *out, size_t *ret_size) NRD_MUST_CHECK;

#endif
