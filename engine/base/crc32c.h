/* CRC-32C (Castagnoli), the checksum of frames and of our own files. Pure; any thread.
 * The work is done by Intel's ISA-L, which uses the processor's instructions where it has them
 * and tables where not (docs/internals.md has the measurement behind the choice). */
#ifndef NRD_BASE_CRC32C_H
#define NRD_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC of the bytes that crc covers followed by data[0..size); start with crc = 0.
 * nrd_crc32c(0, "123456789", 9) == 0xE3069283 (RFC 3720, B.4). */
uint32_t nrd_crc32c(uint32_t crc, const void *data, size_t size);

#endif
