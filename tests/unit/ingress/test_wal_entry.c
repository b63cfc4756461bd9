/* The bytes of an entry: what is written is read, and no changed byte and no cut passes. */
#include "engine/ingress/wal_entry.h"

#include <errno.h>
#include <string.h>

#define ID "0123456789abcdef"

static void make(uint8_t **bytes, size_t *size)
{
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 5, "k", 1, "five-a", 6);
    nrd_entry_draft_add(draft, 0, NULL, 0, "", 0);
    nrd_entry_draft_add(draft, 5, NULL, 0, "five-b", 6);
    nrd_entry_draft_add(draft, 1023, "key", 3, "last\0one", 8);
    g_assert_cmpuint(draft->n_records, ==, 4);
    g_assert_cmpint(nrd_entry_encode(draft, "orders", ID, bytes, size), ==, 0);
    nrd_entry_draft_free(draft);
    nrd_entry_set_expected(*bytes, 1, 77);
    nrd_entry_seal(*bytes, *size, 4711, 42);
}

static void assert_record(const uint8_t **bytes, size_t *size, const char *key, const char *payload)
{
    NrdEntryRecord record;
    g_assert_true(nrd_entry_next_record(bytes, size, &record));
    g_assert_cmpmem(record.key, record.key_size, key, strlen(key));
    g_assert_cmpmem(record.payload, MIN(record.payload_size, strlen(payload)), payload, strlen(payload));
}

static void test_round_trip(void)
{
    uint8_t *bytes;
    size_t size;
    NrdEntryView view;
    NrdEntryPart part;
    make(&bytes, &size);
    g_assert_cmpint(nrd_entry_decode(bytes, size, 4711, &view), ==, 0);
    g_assert_cmpuint(view.head.sequence, ==, 42);
    g_assert_cmpuint(view.head.n_parts, ==, 3);
    g_assert_cmpuint(view.head.n_records, ==, 4);
    g_assert_cmpstr(view.head.id, ==, ID);
    g_assert_cmpmem(view.topic, view.head.topic_size, "orders", 6);
    nrd_entry_part(&view, 0, &part);
    g_assert_cmpuint(part.partition, ==, 0);
    g_assert_cmpuint(part.expected, ==, NRD_ENTRY_OFFSET_UNKNOWN);
    assert_record(&part.records, &part.size, "", "");
    nrd_entry_part(&view, 1, &part);
    g_assert_cmpuint(part.partition, ==, 5);
    g_assert_cmpuint(part.n_records, ==, 2);
    g_assert_cmpuint(part.expected, ==, 77);
    assert_record(&part.records, &part.size, "k", "five-a");
    assert_record(&part.records, &part.size, "", "five-b");
    g_assert_cmpuint(part.size, ==, 0);
    nrd_entry_part(&view, 2, &part);
    assert_record(&part.records, &part.size, "key", "last");
    g_free(bytes);
}

/* With the checksums made good again too, so that the other conditions are met alone: then it may be valid, but must
 * not read outside. */
static void test_every_byte_flipped(void)
{
    uint8_t *bytes;
    size_t size;
    NrdEntryView view;
    make(&bytes, &size);
    for (size_t i = 0; i < size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            g_assert_cmpint(nrd_entry_decode(bytes, size, 4711, &view), ==, -EBADMSG);
            uint8_t *copy = g_memdup2(bytes, size);
            nrd_entry_seal(copy, size, 4711, 42);
            (void)!nrd_entry_decode(copy, size, 4711, &view);
            g_free(copy);
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
    g_assert_cmpint(nrd_entry_decode(bytes, size, 4711, &view), ==, 0);
    g_assert_cmpint(nrd_entry_decode(bytes, size, 4712, &view), ==, -EBADMSG);
    g_free(bytes);
}

static void test_every_cut(void)
{
    uint8_t *bytes;
    size_t size;
    NrdEntryView view;
    make(&bytes, &size);
    for (size_t n = 0; n < size; n++) {
        uint8_t *copy = g_malloc(n + 1); /* exactly as long, for the sanitizer */
        memcpy(copy, bytes, n);
        g_assert_cmpint(nrd_entry_decode(copy, n, 4711, &view), ==, -EBADMSG);
        g_free(copy);
    }
    g_free(bytes);
}

static void test_bounds(void)
{
    uint8_t *bytes;
    size_t size;
    g_autofree char *name = g_strnfill(201, 'n');
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, 0, NULL, 0, "x", 1);
    g_assert_cmpint(nrd_entry_encode(draft, name, ID, &bytes, &size), ==, -EINVAL);
    g_assert_cmpint(nrd_entry_encode(draft, "", ID, &bytes, &size), ==, -EINVAL);
    g_assert_cmpint(nrd_entry_encode(draft, "t", "0123456789ABCDEF", &bytes, &size), ==, -EINVAL);
    g_assert_cmpint(nrd_entry_encode(draft, "t", "", &bytes, &size), ==, -EINVAL);
    name[200] = '\0';
    g_assert_cmpint(nrd_entry_encode(draft, name, ID, &bytes, &size), ==, 0);
    g_free(bytes);
    nrd_entry_draft_free(draft);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ingress/entry/round-trip", test_round_trip);
    g_test_add_func("/ingress/entry/every-byte-flipped", test_every_byte_flipped);
    g_test_add_func("/ingress/entry/every-cut", test_every_cut);
    g_test_add_func("/ingress/entry/bounds", test_bounds);
    return g_test_run();
}
