/* Base64 as RFC 4648 (section 4) has it, and nothing else: no white space, no missing padding, no stray bits. glib's
 * decoder passes over what it does not know, which would store something that nobody wrote. Pure. */
#ifndef NRD_FS_BASE64_H
#define NRD_FS_BASE64_H

#include "engine/base/macros.h"

#include <stddef.h>
#include <stdint.h>

/* Decodes all of text; out has room for size / 4 * 3 bytes and may be text itself. -EINVAL: it is not base64. */
int nrd_base64_decode(const uint8_t *text, size_t size, uint8_t *out, size_t *ret_size) NRD_MUST_CHECK;

#endif
