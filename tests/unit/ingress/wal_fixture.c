/* See wal_fixture.h. */
#include "wal_fixture.h"

#include <string.h>

uint32_t note(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view)
{
    Found *found = user_data;
    for (uint32_t i = 0; i < view->head.n_parts; i++) {
        NrdEntryPart part;
        NrdEntryRecord record;
        nrd_entry_part(view, i, &part);
        while (nrd_entry_next_record(&part.records, &part.size, &record)) {
            g_string_append_len(found->text, (const char *)record.payload, (gssize)record.payload_size);
            g_string_append_c(found->text, '\n');
            found->n++;
        }
    }
    return view->head.n_parts;
}

NrdWal *open_wal(Fixture *f, uint64_t segment_bytes, Found *found)
{
    NrdWal *wal = NULL;
    NrdWalOptions options = { .root_fd = f->root_fd, .segment_bytes = segment_bytes, .min_sequence = 1 };
    found->text = g_string_new(NULL);
    found->n = 0;
    g_assert_cmpint(nrd_wal_open(&options, note, found, &wal), ==, 0);
    return wal;
}

void assert_found(Found *found, const char *expected)
{
    g_assert_cmpstr(found->text->str, ==, expected);
    g_string_free(found->text, TRUE);
}

void assert_next_open(Fixture *f, const char *expected)
{
    Found found;
    NrdWal *wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, expected);
    nrd_wal_close(wal, 0);
}

int put(NrdWal *wal, const char *payload)
{
    return append_now(wal, "t", ID_A, 0, payload, NULL);
}

NrdWal *open_with_one(Fixture *f)
{
    Found found;
    NrdWal *wal = open_wal(f, 1 << 20, &found);
    assert_found(&found, "");
    g_assert_cmpint(put(wal, "one"), ==, 0);
    return wal;
}

uint32_t keep_some(void *user_data, NrdWalSegment *segment, uint64_t pos, const NrdEntryView *view)
{
    NrdEntryPart part;
    nrd_entry_part(view, 0, &part);
    uint32_t n = note(user_data, segment, pos, view);
    return part.records[8] == 'k' ? n : 0;
}

void put_filled(NrdWal *wal, char first)
{
    char payload[20001];
    memset(payload, first, sizeof payload - 1);
    payload[sizeof payload - 1] = '\0';
    g_assert_cmpint(put(wal, payload), ==, 0);
}
