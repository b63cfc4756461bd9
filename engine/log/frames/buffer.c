/* See buffer.h. */
#include "engine/log/frames/buffer.h"

#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <string.h>

/* The free list never holds more than N_SPARE * SPARE_MAX_BYTES. */
#define N_SPARE 8
#define SPARE_MAX_BYTES (1 * NRD_MIB)
#define ROUND_BYTES ((size_t)16 * 1024)

static GMutex spare_lock;
/* guarded by spare_lock */
static NrdBuffer spare[N_SPARE];
static unsigned n_spare;

static bool take_spare(size_t capacity, NrdBuffer *ret_buffer)
{
    bool found = false;

    g_mutex_lock(&spare_lock);
    for (unsigned i = n_spare; i-- > 0 && !found;) {
        /* not a huge one for a small need: somebody else wants it */
        if (spare[i].capacity < capacity || spare[i].capacity / 16 > capacity)
            continue;
        *ret_buffer = spare[i];
        spare[i] = spare[--n_spare];
        found = true;
    }
    g_mutex_unlock(&spare_lock);
    return found;
}

int nrd_buffer_reserve(NrdBuffer *buffer, size_t size, size_t keep)
{
    NrdBuffer fresh;

    g_assert(keep <= buffer->capacity && keep <= size);
    if (size <= buffer->capacity && buffer->data != NULL)
        return 0;
    size_t capacity = (MAX(size, 1) + ROUND_BYTES - 1) / ROUND_BYTES * ROUND_BYTES;
    if (!take_spare(capacity, &fresh)) {
        fresh.capacity = capacity;
        fresh.data = g_try_malloc(capacity);
        if (fresh.data == NULL)
            return -ENOMEM;
    }
    if (keep > 0)
        memcpy(fresh.data, buffer->data, keep);
    nrd_buffer_release(buffer);
    *buffer = fresh;
    return 0;
}

void nrd_buffer_release(NrdBuffer *buffer)
{
    uint8_t *surplus = buffer->data;

    if (buffer->data != NULL && buffer->capacity <= SPARE_MAX_BYTES) {
        g_mutex_lock(&spare_lock);
        if (n_spare < N_SPARE) {
            spare[n_spare++] = *buffer;
            surplus = NULL;
        }
        g_mutex_unlock(&spare_lock);
    }
    g_free(surplus);
    *buffer = (NrdBuffer){ 0 };
}
