/* The checkpoint: what is written is read, damage is damage, and a crash leaves the old one or the new one. */
#include "fixture.h"
#include "tests/unit/bad_reads.h"

#include "engine/ingress/checkpoint.h"

#include <errno.h>
#include <glib/gstdio.h>
#include <string.h>

static void fill(NrdCheckpoint *c)
{
    NrdCheckpointPart parts[] = { { 9, 1, 2, 55 }, { 7, 3, 3, UINT64_MAX }, { 7, 0, 0, 8 } };
    nrd_checkpoint_init(c);
    c->top = 12;
    g_array_append_vals(c->parts, parts, 3);
    c->trust = 5;
    nrd_checkpoint_sort(c);
}

static const NrdCheckpointPart *outstanding(const NrdCheckpoint *c, uint64_t sequence, uint32_t partition, bool *ret)
{
    const NrdCheckpointPart *part;
    *ret = nrd_checkpoint_outstanding(c, sequence, partition, &part);
    return part;
}

static void assert_filled(const NrdCheckpoint *c)
{
    bool is;
    g_assert_cmpuint(c->top, ==, 12);
    g_assert_cmpuint(c->trust, ==, 5);
    g_assert_cmpuint(outstanding(c, 7, 0, &is)->expected, ==, 8);
    g_assert_cmpuint(outstanding(c, 7, 3, &is)->expected, ==, UINT64_MAX);
    g_assert_true(is);
    g_assert_null(outstanding(c, 7, 1, &is));
    g_assert_false(is);
    g_assert_null(outstanding(c, 8, 0, &is));
    g_assert_false(is);
    g_assert_cmpuint(outstanding(c, 9, 1, &is)->to, ==, 2);
    g_assert_true(is);
    g_assert_null(outstanding(c, 11, 0, &is));
    g_assert_false(is);
    g_assert_null(outstanding(c, 12, 0, &is));
    g_assert_true(is);
}

static void test_round_trip(void)
{
    NrdCheckpoint c, again;
    fill(&c);
    nrd_checkpoint_init(&again);
    g_autoptr(GByteArray) bytes = nrd_checkpoint_encode(&c);
    g_assert_cmpint(nrd_checkpoint_decode(bytes->data, bytes->len, &again), ==, 0);
    assert_filled(&again);
    nrd_checkpoint_clear(&c);
    nrd_checkpoint_clear(&again);
}

static void test_damage(void)
{
    NrdCheckpoint c, again;
    fill(&c);
    nrd_checkpoint_init(&again);
    g_autoptr(GByteArray) bytes = nrd_checkpoint_encode(&c);
    for (guint i = 0; i < bytes->len * 8; i++) {
        bytes->data[i / 8] ^= (guint8)(1 << i % 8);
        g_assert_cmpint(nrd_checkpoint_decode(bytes->data, bytes->len, &again), ==, -EBADMSG);
        bytes->data[i / 8] ^= (guint8)(1 << i % 8);
    }
    for (guint n = 0; n < bytes->len; n++) {
        g_autofree uint8_t *copy = g_memdup2(bytes->data, n + 1);
        g_assert_cmpint(nrd_checkpoint_decode(copy, n, &again), ==, -EBADMSG);
    }
    g_assert_cmpuint(again.top, ==, 0);
    nrd_checkpoint_clear(&c);
    nrd_checkpoint_clear(&again);
}

static void assert_loaded(Fixture *f, uint64_t top, bool is_damaged)
{
    bool damaged = !is_damaged;
    NrdCheckpoint c;
    nrd_checkpoint_init(&c);
    g_assert_cmpint(nrd_checkpoint_load(f->root_fd, &c, &damaged), ==, 0);
    g_assert_cmpuint(c.top, ==, top);
    g_assert_true(damaged == is_damaged);
    nrd_checkpoint_clear(&c);
}

static void test_store_and_load(void)
{
    Fixture f;
    NrdCheckpoint c;
    fixture_set_up(&f);
    fill(&c);
    assert_loaded(&f, 0, false);
    g_assert_cmpint(nrd_checkpoint_store(f.root_fd, &c), ==, 0);
    assert_loaded(&f, 12, false);
    /* whatever of the replacement fails, the file is the old one or the new one */
    static const FaultCall calls[] = { FAULT_OPEN, FAULT_PWRITEV, FAULT_FSYNC, FAULT_RENAME };
    for (size_t i = 0; i < G_N_ELEMENTS(calls); i++) {
        c.top = 13 + i;
        fault_set(calls[i], 1, -EIO, true);
        g_assert_cmpint(nrd_checkpoint_store(f.root_fd, &c), <, 0);
        g_assert_cmpint(atomic_load(&fault_fired), >, 0);
        fault_clear();
        assert_loaded(&f, 12, false);
    }
    /* a sync that cannot be proven is no success; what the file is then, the next open finds out */
    fault_set(FAULT_PREAD, 1, -EIO, true);
    g_assert_cmpint(nrd_checkpoint_store(f.root_fd, &c), ==, -EIO);
    fault_clear();
    g_assert_cmpint(nrd_checkpoint_store(f.root_fd, &c), ==, 0);
    assert_loaded(&f, 16, false);
    g_autofree char *path = fixture_file(&f, "checkpoint");
    g_assert_true(g_file_set_contents(path, "nothing", -1, NULL));
    assert_loaded(&f, 0, true);
    g_assert_cmpint(g_unlink(path), ==, 0);
    g_assert_cmpint(g_mkdir(path, 0700), ==, 0);
    NrdCheckpoint other;
    bool damaged;
    nrd_checkpoint_init(&other);
    g_assert_cmpint(nrd_checkpoint_load(f.root_fd, &other, &damaged), <, 0);
    nrd_checkpoint_clear(&other);
    nrd_checkpoint_clear(&c);
    fixture_tear_down(&f);
}

static void test_bad_reads(void)
{
    Fixture f;
    NrdCheckpoint c;
    fixture_set_up(&f);
    fill(&c);
    g_assert_cmpint(nrd_checkpoint_store(f.root_fd, &c), ==, 0);
    for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) {
        NrdCheckpoint found;
        bool damaged = true;
        nrd_checkpoint_init(&found);
        g_assert_cmpint(nrd_checkpoint_load(f.root_fd, &found, &damaged), ==, 0);
        g_assert_false(damaged);
        bad_read_end(&bad);
        assert_filled(&found);
        nrd_checkpoint_clear(&found);
    }
    nrd_checkpoint_clear(&c);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ingress/checkpoint/round-trip", test_round_trip);
    g_test_add_func("/ingress/checkpoint/damage", test_damage);
    g_test_add_func("/ingress/checkpoint/store-and-load", test_store_and_load);
    g_test_add_func("/ingress/checkpoint/bad-reads", test_bad_reads);
    return g_test_run();
}
