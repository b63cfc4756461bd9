#include "engine/base/crc32c.h"

#include <glib.h>
#include <isa-l/crc.h>

uint32_t nrd_crc32c(uint32_t crc, const void *data, size_t size)
{
    /* ISA-L's crc32_iscsi leaves the inversions to its caller, counts in int, and takes a pointer to non-const although
     * it only reads. */
    unsigned int state = ~crc;
    unsigned char *p = (unsigned char *)data;
    while (size > 0) {
        int n = (int)MIN(size, (size_t)1 << 30);
        state = crc32_iscsi(p, n, state);
        p += n;
        size -= (size_t)n;
    }
    return ~state;
}
