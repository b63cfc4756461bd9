/* A second opinion about JSON: RFC 8259 as a small automaton, without the library that the product uses. */
#ifndef NRD_TESTS_FUZZ_JSON_OPINION_H
#define NRD_TESTS_FUZZ_JSON_OPINION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the bytes are one JSON text in UTF-8, perhaps between white space. */
bool json_opinion(const uint8_t *text, size_t size);

#endif
