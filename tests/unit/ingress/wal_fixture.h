/* A WAL that is opened, filled and opened again: what its tests share. */
#ifndef NRD_TESTS_INGRESS_WAL_FIXTURE_H
#define NRD_TESTS_INGRESS_WAL_FIXTURE_H

#include "fixture.h"

/* Found payloads, one a line: "<sequence> <partition> <payload>". */
typedef struct Found {
    GString *text;
    uint32_t n;
} Found;

uint32_t note(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view);

NrdWal *open_wal(Fixture *f, uint64_t segment_bytes, Found *found);

void assert_found(Found *found, const char *expected);

void assert_next_open(Fixture *f, const char *expected);

int put(NrdWal *wal, const char *payload);

/* An empty one, opened, and then with the entry "one". */
NrdWal *open_with_one(Fixture *f);

/* Takes the entries over that begin with 'k' and leaves the others. */
uint32_t keep_some(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view);

void put_filled(NrdWal *wal, char first);

#endif
