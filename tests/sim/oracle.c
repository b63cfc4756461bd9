/* See oracle.h: the journal and the bytes of records. */
#include "tests/sim/oracle_private.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 18 /* "R", 8 digits of the record, 8 of the seed, a space */
#define FRAME_BYTES 27

static pthread_mutex_t journal_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- bytes ---- */

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* A frame that is valid in itself, of one record that nobody produced. */
static void put_frame(uint8_t *at, uint64_t offset)
{
    static const uint8_t envelope[] = { 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'f', 'o', 'r', 'g', 'e', 'd' };
    uint32_t raw = 4 + sizeof envelope;
    memset(at, 0, FRAME_BYTES);
    at[0] = 0xCA;
    at[1] = 0xFE;
    nrd_put_be32(at + 3, 1);
    nrd_put_be64(at + 7, offset);
    nrd_put_be32(at + 15, raw);
    nrd_put_be32(at + 19, raw);
    nrd_put_be32(at + FRAME_BYTES, sizeof envelope);
    memcpy(at + FRAME_BYTES + 4, envelope, sizeof envelope);
    uint32_t crc = nrd_crc32c(0, at + 2, 21);
    nrd_put_be32(at + 23, nrd_crc32c(crc, at + FRAME_BYTES, raw));
}

uint8_t *oracle_payload(uint32_t seed, int id, size_t size)
{
    char name[NAME_BYTES + 1];
    uint8_t *bytes = g_malloc(size + 1);
    uint32_t state = (seed ^ ((uint32_t)id * 2654435761u)) | 1;
    g_snprintf(name, sizeof name, "R%08x%08x ", (unsigned)id, seed);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(next_random(&state) >> 11);
    memcpy(bytes, name, MIN(size, NAME_BYTES));
    if (id % 8 == 5 && size >= NAME_BYTES + FRAME_BYTES + 20)
        put_frame(bytes + NAME_BYTES, (uint64_t)id);
    else if (id % 8 == 3 && size >= NAME_BYTES + 2)
        memcpy(bytes + NAME_BYTES, "\xCA\xFE", 2);
    bytes[size] = 0;
    return bytes;
}

int oracle_identify(const Oracle *oracle, const uint8_t *payload, size_t size)
{
    char name[NAME_BYTES + 1] = { 0 };
    unsigned id, seed;
    if (size < NAME_BYTES)
        return -1;
    memcpy(name, payload, NAME_BYTES);
    if (sscanf(name, "R%8x%8x ", &id, &seed) != 2 || seed != oracle->seed || id >= (unsigned)oracle->n_records ||
        oracle->records[id].size != size)
        return -1;
    g_autofree uint8_t *expected = oracle_payload(oracle->seed, (int)id, size);
    return memcmp(expected, payload, size) == 0 ? (int)id : -1;
}

const char *oracle_key(uint8_t key)
{
    static const char *const keys[] = { "", "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta" };
    return keys[key % G_N_ELEMENTS(keys)];
}

/* FNV-1a, 32 bits: the contract's. */
uint32_t oracle_key_hash(uint8_t key)
{
    uint32_t hash = 2166136261u;
    for (const char *c = oracle_key(key); *c; c++)
        hash = (hash ^ (uint8_t)*c) * 16777619u;
    return hash;
}

/* ---- the journal ---- */

Oracle *oracle_new(uint32_t seed)
{
    Oracle *oracle = g_new0(Oracle, 1);
    oracle->seed = seed;
    return oracle;
}

void oracle_free(Oracle *oracle)
{
    g_free(oracle);
}

Oracle *oracle_copy(const Oracle *oracle)
{
    oracle_lock();
    Oracle *copy = g_memdup2(oracle, sizeof *oracle);
    oracle_unlock();
    return copy;
}

void oracle_lock(void)
{
    pthread_mutex_lock(&journal_lock);
}

void oracle_unlock(void)
{
    pthread_mutex_unlock(&journal_lock);
}

int oracle_add_topic(Oracle *oracle, const char *name, unsigned n_partitions)
{
    oracle_lock();
    g_assert(oracle->n_topics < ORACLE_MAX_TOPICS);
    int topic = oracle->n_topics;
    OracleTopic *t = &oracle->topics[topic];
    *t = (OracleTopic){ .state = ORACLE_CREATING,
                        .n_partitions = (uint8_t)n_partitions,
                        .parent = ORACLE_UNKNOWN,
                        .unsure = oracle->lied };
    g_strlcpy(t->name, name, sizeof t->name);
    oracle->n_topics++;
    oracle_unlock();
    return topic;
}

int oracle_submit(Oracle *oracle, int topic, int partition, uint8_t key, size_t size)
{
    oracle_lock();
    g_assert(oracle->n_records < ORACLE_MAX_RECORDS);
    int id = oracle->n_records++;
    oracle->records[id] = (OracleRecord){ .topic = (int8_t)topic,
                                          .partition = (int8_t)partition,
                                          .key = key,
                                          .n_partitions = oracle->topics[topic].n_partitions,
                                          .at = ORACLE_UNKNOWN,
                                          .offset = ORACLE_UNKNOWN,
                                          .size = (uint32_t)size };
    oracle_unlock();
    return id;
}

char *oracle_told(Oracle *oracle, int id, unsigned partition, uint64_t offset)
{
    char *why = NULL;
    OracleRecord *record = &oracle->records[id];
    oracle_lock();
    OraclePartition *p = &oracle->topics[record->topic].partitions[partition];
    if (record->offset != ORACLE_UNKNOWN)
        why = g_strdup_printf("I4: record %d was told offset %" G_GINT64_FORMAT " and then %" G_GUINT64_FORMAT, id,
                              record->offset, offset);
    else if (offset >= ORACLE_MAX_OFFSETS)
        why = g_strdup_printf("a workload that gets offset %" G_GUINT64_FORMAT " is too long", offset);
    else if (offset < p->floor || (p->told[offset] && !oracle->lied))
        why = g_strdup_printf("I6: offset %" G_GUINT64_FORMAT " of partition %u was told again, for record %d", offset,
                              partition, id);
    record->unsure |= oracle->lied;
    record->at = (int8_t)partition;
    record->offset = (int64_t)offset;
    if (offset < ORACLE_MAX_OFFSETS)
        p->told[offset] = 1;
    p->next = MAX(p->next, offset + 1);
    oracle_unlock();
    return why;
}

void oracle_acked(Oracle *oracle, int id)
{
    oracle_lock();
    oracle->records[id].acked = true;
    oracle->records[id].unsure = oracle->lied;
    oracle_unlock();
}
