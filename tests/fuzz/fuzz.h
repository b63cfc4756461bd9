/* What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput: libFuzzer calls it (scripts/fuzz), or
 * replay.c does for each file of its corpus (a normal test, with any compiler). A property that does not hold aborts.
 * One thread. */
#ifndef NRD_TESTS_FUZZ_H
#define NRD_TESTS_FUZZ_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The entry point of a target; 0, always. data is the caller's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts with the text of the condition. Also in builds without assertions. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fuzz_failed(#condition, __FILE__, __LINE__);                                                               \
    } while (0)
_Noreturn void fuzz_failed(const char *condition, const char *file, int line);

/* Takes an input apart, from its front; at its end there are zeros and nothing. Integers are big-endian. */
typedef struct FuzzInput {
    const uint8_t *data;
    size_t size;
} FuzzInput;

uint8_t fuzz_u8(FuzzInput *in);
uint16_t fuzz_u16(FuzzInput *in);
uint32_t fuzz_u32(FuzzInput *in);
uint64_t fuzz_u64(FuzzInput *in);
/* Fills size bytes with the next ones, and zeros where there are none. */
void fuzz_fill(FuzzInput *in, uint8_t *ret_bytes, size_t size);
/* The next size bytes, or what there is of them. They are a copy of their own (g_free), so that a read beyond is seen. */
uint8_t *fuzz_bytes(FuzzInput *in, size_t size, size_t *ret_size);
/* What two bytes of length say, and those bytes; and all that is left. */
uint8_t *fuzz_piece(FuzzInput *in, size_t *ret_size);
uint8_t *fuzz_rest(FuzzInput *in, size_t *ret_size);

/* Lengths of the pieces that a run of bytes is cut into, from a seed: 1 to 16 bytes mostly, all of it now and then. */
typedef struct FuzzCuts {
    uint32_t state;
} FuzzCuts;
size_t fuzz_cut(FuzzCuts *cuts, size_t left);

/* CRC-32C, a plain table of our own: a second opinion about the one that the product uses. */
uint32_t fuzz_crc32c(uint32_t crc, const void *bytes, size_t size);

#endif
