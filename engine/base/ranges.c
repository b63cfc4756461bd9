/* See ranges.h. */
#include "engine/base/ranges.h"

#include <string.h>

void nrd_ranges_add(GString *ranges, uint32_t partition, uint64_t first, uint64_t last)
{
    if (ranges->len >= NRD_RANGES_BYTES) {
        size_t kept = (size_t)(strchr(ranges->str, '\n') - ranges->str) + 1;
        size_t from = (size_t)(strchr(ranges->str + NRD_RANGES_BYTES / 2, '\n') - ranges->str) + 1;
        g_string_erase(ranges, (gssize)kept, (gssize)(from - kept));
    }
    g_string_append_printf(ranges, "p%05u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT "\n", partition, first, last);
}

size_t nrd_ranges_take(GString *ranges, char *buf, size_t size)
{
    size_t n = MIN(size, ranges->len);
    if (n == 0)
        return 0;
    memcpy(buf, ranges->str, n);
    g_string_erase(ranges, 0, (gssize)n);
    return n;
}
