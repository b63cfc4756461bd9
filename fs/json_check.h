/* Whether bytes are one whole JSON text (RFC 8259, UTF-8). Pure; no recursion, so nesting costs a bit a level; numbers
 * of any size pass, since they are not converted. */
#ifndef NRD_FS_JSON_CHECK_H
#define NRD_FS_JSON_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool nrd_json_valid(const uint8_t *text, size_t size);

/* Whether bytes are UTF-8; NULs are characters like others. */
bool nrd_utf8_valid(const uint8_t *text, size_t size);

#endif
