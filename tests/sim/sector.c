/* Sectors: 512 bytes, never changed once they are shared. Counts are atomic, since images travel between threads. */
#include "tests/sim/disk_private.h"

#include <string.h>

static const uint8_t zero_bytes[SIM_SECTOR_BYTES];
static SimSector zeros = { .refs = 1 }; /* written zeros: they take room, unlike a hole. Never freed */

SimSector *sim_sector_new(const uint8_t *bytes)
{
    if (memcmp(bytes, zero_bytes, SIM_SECTOR_BYTES) == 0)
        return sim_sector_ref(&zeros);
    SimSector *sector = g_new(SimSector, 1);
    sector->refs = 1;
    memcpy(sector->bytes, bytes, SIM_SECTOR_BYTES);
    return sector;
}

SimSector *sim_sector_ref(SimSector *sector)
{
    if (sector != NULL)
        g_atomic_int_inc(&sector->refs);
    return sector;
}

void sim_sector_unref(SimSector *sector)
{
    if (sector != NULL && g_atomic_int_dec_and_test(&sector->refs))
        g_free(sector);
}

const uint8_t *sim_sector_bytes(const SimSector *sector)
{
    return sector != NULL ? sector->bytes : zero_bytes;
}

SimSector *sim_sector_cut(SimSector *sector, uint64_t number, int64_t file_size)
{
    int64_t start = (int64_t)number * SIM_SECTOR_BYTES;
    uint8_t bytes[SIM_SECTOR_BYTES] = { 0 };

    if (sector == NULL || file_size >= start + SIM_SECTOR_BYTES)
        return sim_sector_ref(sector);
    if (file_size <= start)
        return NULL;
    memcpy(bytes, sector->bytes, (size_t)(file_size - start));
    return sim_sector_new(bytes);
}

static void unref_sector(gpointer sector)
{
    sim_sector_unref(sector);
}

SimSector *sim_sectors_get(GPtrArray *sectors, uint64_t number)
{
    return number < sectors->len ? sectors->pdata[number] : NULL;
}

void sim_sectors_set(GPtrArray *sectors, uint64_t number, SimSector *sector)
{
    if (number >= sectors->len) {
        if (sector == NULL)
            return;
        g_ptr_array_set_size(sectors, (gint)number + 1);
    }
    SimSector *old = sectors->pdata[number];
    sectors->pdata[number] = sector;
    sim_sector_unref(old);
}

GPtrArray *sim_sectors_copy(GPtrArray *sectors)
{
    GPtrArray *copy = g_ptr_array_new_full(sectors != NULL ? sectors->len : 0, unref_sector);
    for (guint i = 0; sectors != NULL && i < sectors->len; i++)
        g_ptr_array_add(copy, sim_sector_ref(sectors->pdata[i]));
    return copy;
}
