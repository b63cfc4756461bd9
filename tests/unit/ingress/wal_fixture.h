/* A WAL that is opened, filled and opened again: what its tests share. */
#ifndef NRD_TESTS_INGRESS_WAL_FIXTURE_H
#define NRD_TESTS_INGRESS_WAL_FIXTURE_H

#include "fixture.h"

/* What an open has found: payloads, one a line. */
typedef struct Found {
    GString *text;
    uint32_t n;
} Found;

/* An NrdWalFoundFn for a Found: notes the entry's records, and takes all of its parts over. */
uint32_t note(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view);

/* Must succeed. *found is for assert_found, which frees its text. */
NrdWal *open_wal(Fixture *f, uint64_t segment_bytes, Found *found);

void assert_found(Found *found, const char *expected);

/* Opens the WAL, which must hold that, and closes it. */
void assert_next_open(Fixture *f, const char *expected);

/* One entry of one record; what the append has said. */
int put(NrdWal *wal, const char *payload);

/* An empty one, opened, and then with the entry "one". */
NrdWal *open_with_one(Fixture *f);

/* Takes the entries over that begin with 'k' and leaves the others. */
uint32_t keep_some(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view);

void put_filled(NrdWal *wal, char first);

#endif
