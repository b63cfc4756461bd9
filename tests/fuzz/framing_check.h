/* The producing framings against a plain reading of their rules, however the bytes are cut into requests. */
#ifndef NRD_TESTS_FUZZ_FRAMING_CHECK_H
#define NRD_TESTS_FUZZ_FRAMING_CHECK_H

#include "fs/framing.h"

/* Input: flags (1: requests may be pieces of a write; 2: a descriptor is closed now and then), a seed for the cuts (2
 * bytes), the bytes that a program writes. Limits: 64 bytes a payload. */
void framing_check(NrdFramingKind kind, const uint8_t *data, size_t size);

#endif
