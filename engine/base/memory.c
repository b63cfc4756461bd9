/* See memory.h. */
#include "engine/base/memory.h"

#include <glib.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MIN_ARENAS 2 /* one waits for the other's lock less often than for the disk */
#define MAX_ARENAS 8
#define MIN_FREE_BYTES ((size_t)16 << 20) /* not worth the page faults below it */
#define CHANGE_BYTES ((size_t)64 << 10)

void nrd_memory_limit_arenas(void)
{
    const char *tunables = g_getenv("GLIBC_TUNABLES");
    if (!g_getenv("MALLOC_ARENA_MAX") && !(tunables && strstr(tunables, "arena_max")))
        mallopt(M_ARENA_MAX, (int)CLAMP(g_get_num_processors(), MIN_ARENAS, MAX_ARENAS));
}

uint64_t nrd_memory_used_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return (uint64_t)info.uordblks + info.hblkhd;
}

static bool differs(size_t a, size_t b)
{
    return MAX(a, b) - MIN(a, b) >= CHANGE_BYTES;
}

/* What is free stays so in the allocator's books when its pages are gone: only a change tells. */
bool nrd_memory_trim(bool idle)
{
    static atomic_size_t last_used, last_free; /* a loop that hung may come back beside the one in its place */
    struct mallinfo2 info = mallinfo2();
    size_t worth_it = idle ? MIN_FREE_BYTES : MAX(info.uordblks + info.hblkhd, MIN_FREE_BYTES);
    bool changed = differs(info.uordblks, atomic_load(&last_used)) || differs(info.fordblks, atomic_load(&last_free));
    if (info.fordblks < worth_it || !changed)
        return false;
    malloc_trim(0);
    info = mallinfo2();
    atomic_store(&last_used, info.uordblks);
    atomic_store(&last_free, info.fordblks);
    return true;
}
