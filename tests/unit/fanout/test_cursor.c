/* The cursor's file: what goes in comes out, no damage comes out as a higher offset, and the order of writes and syncs
 * leaves one slot that is durable at every moment. */
#include "engine/fanout/cursor_store.h"
#include "engine/io/io.h"
#include "tests/unit/bad_reads.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const NrdCursorOwner owner = { 0x1122334455667788, 0xfedcba9876543210 };

/* ---- the format ---- */

static void make_file(uint8_t bytes[NRD_CURSOR_FILE_BYTES], uint64_t first, uint64_t second)
{
    memset(bytes, 0, NRD_CURSOR_FILE_BYTES);
    nrd_cursor_slot_encode(&(NrdCursorSlot){ owner, 6, first }, bytes);
    nrd_cursor_slot_encode(&(NrdCursorSlot){ owner, 7, second }, bytes + NRD_CURSOR_SLOT_GAP);
}

static void test_round_trip(void)
{
    static const uint64_t offsets[] = { 0, 1, 450832, NRD_CURSOR_OFFSET_MAX };
    for (size_t i = 0; i < G_N_ELEMENTS(offsets); i++) {
        uint8_t bytes[NRD_CURSOR_SLOT_BYTES];
        NrdCursorSlot slot = { owner, UINT64_MAX, offsets[i] }, back;
        nrd_cursor_slot_encode(&slot, bytes);
        g_assert_cmpint(nrd_cursor_slot_decode(bytes, &back), ==, 0);
        g_assert_cmpmem(&slot, sizeof slot, &back, sizeof back);
    }
    uint8_t bytes[NRD_CURSOR_SLOT_BYTES];
    NrdCursorSlot back;
    nrd_cursor_slot_encode(&(NrdCursorSlot){ owner, 1, NRD_CURSOR_OFFSET_MAX + 1 }, bytes);
    g_assert_cmpint(nrd_cursor_slot_decode(bytes, &back), ==, -EBADMSG);
    nrd_cursor_slot_encode(&(NrdCursorSlot){ owner, 0, 5 }, bytes);
    g_assert_cmpint(nrd_cursor_slot_decode(bytes, &back), ==, -EBADMSG);
}

static void test_bytes(void)
{
    static const uint8_t expected[48] = "NRDFANCU\0\0\0\1\0\0\0\0"
                                        "\0\0\0\0\0\0\0\7\x11\x22\x33\x44\x55\x66\x77\x88"
                                        "\xfe\xdc\xba\x98\x76\x54\x32\x10\0\0\0\0\0\0\1\2";
    uint8_t bytes[NRD_CURSOR_SLOT_BYTES];
    nrd_cursor_slot_encode(&(NrdCursorSlot){ owner, 7, 258 }, bytes);
    g_assert_cmpmem(bytes, 48, expected, 48);
}

static void test_every_flip(void)
{
    uint8_t bytes[NRD_CURSOR_FILE_BYTES];
    make_file(bytes, 100, 200);
    for (size_t i = 0; i < sizeof bytes; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            NrdCursorSlot slot = { 0 };
            unsigned index;
            bytes[i] ^= (uint8_t)(1U << bit);
            g_assert_cmpint(nrd_cursor_file_decode(bytes, sizeof bytes, &owner, &slot, &index), ==, NRD_CURSOR_VALID);
            g_assert_cmpuint(slot.offset, ==, i >= NRD_CURSOR_SLOT_GAP ? 100 : 200);
            bytes[i] ^= (uint8_t)(1U << bit);
        }
    }
}

static void test_every_cut(void)
{
    uint8_t bytes[NRD_CURSOR_FILE_BYTES];
    make_file(bytes, 100, 200);
    for (size_t size = 0; size <= sizeof bytes; size++) {
        NrdCursorSlot slot = { 0 };
        unsigned index;
        g_autofree uint8_t *cut = g_memdup2(bytes, size); /* of its own, so that a sanitizer sees a read behind it */
        NrdCursorFound found = nrd_cursor_file_decode(cut, size, &owner, &slot, &index);
        g_assert_cmpint(found, ==, size < NRD_CURSOR_SLOT_BYTES ? NRD_CURSOR_DAMAGED : NRD_CURSOR_VALID);
        g_assert_cmpuint(slot.offset, ==, size < NRD_CURSOR_SLOT_BYTES ? 0 : size < sizeof bytes ? 100 : 200);
    }
}

static void test_others(void)
{
    uint8_t bytes[NRD_CURSOR_FILE_BYTES];
    NrdCursorSlot slot = { 0 };
    unsigned index;
    NrdCursorOwner epoch = { owner.epoch + 1, owner.child }, child = { owner.epoch, owner.child + 1 };
    make_file(bytes, 100, 200);
    g_assert_cmpint(nrd_cursor_file_decode(bytes, sizeof bytes, &epoch, &slot, &index), ==, NRD_CURSOR_OTHERS);
    g_assert_cmpint(nrd_cursor_file_decode(bytes, sizeof bytes, &child, &slot, &index), ==, NRD_CURSOR_OTHERS);
    /* a slot of an owner's, however new, does not hide ours */
    nrd_cursor_slot_encode(&(NrdCursorSlot){ epoch, 99, 500 }, bytes + NRD_CURSOR_SLOT_GAP);
    g_assert_cmpint(nrd_cursor_file_decode(bytes, sizeof bytes, &owner, &slot, &index), ==, NRD_CURSOR_VALID);
    g_assert_cmpuint(slot.offset, ==, 100);
}

/* ---- the file ---- */

typedef struct Fixture {
    char *path;
    int root_fd;
    NrdCursorStore store;
} Fixture;

static int n_syncs, fail_sync, fail_write;
static int64_t written_pos[64];
static int n_written;
static NrdIo io;

static int counted_sync(int fd)
{
    n_syncs++;
    return fail_sync ? -EIO : nrd_io_real.fdatasync(fd);
}

static ssize_t noted_write(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    if (fail_write)
        return -fail_write;
    if (n_written < (int)G_N_ELEMENTS(written_pos))
        written_pos[n_written++] = pos;
    return nrd_io_real.pwritev(fd, iov, n_iov, pos);
}

static void set_up(Fixture *f, gconstpointer data)
{
    (void)data;
    f->path = g_dir_make_tmp("naradfs-fanout-XXXXXX", NULL);
    g_assert_cmpint(nrd_io_open_root(f->path, &f->root_fd), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(f->root_fd, "topics"), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(f->root_fd, "topics/p"), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(f->root_fd, "topics/p/p00003"), ==, 0);
    nrd_cursor_store_init(&f->store, f->root_fd, "p", 3, "c", &owner);
    g_assert_cmpstr(f->store.path, ==, "topics/p/p00003/fanout-c.offset");
    io = nrd_io_real;
    io.fdatasync = counted_sync;
    io.pwritev = noted_write;
    nrd_io = &io;
    n_syncs = n_written = fail_sync = fail_write = 0;
}

static void tear_down(Fixture *f, gconstpointer data)
{
    (void)data;
    nrd_io = &nrd_io_real;
    nrd_cursor_store_clear(&f->store);
    g_assert_cmpint(nrd_io_remove_tree(f->root_fd, "topics"), ==, 0);
    nrd_io_close(&f->root_fd);
    g_autofree char *parent = g_path_get_dirname(f->path);
    g_autofree char *name = g_path_get_basename(f->path);
    int fd;
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
    g_free(f->path);
}

static void restart(Fixture *f, const NrdCursorOwner *new_owner)
{
    nrd_cursor_store_clear(&f->store);
    nrd_cursor_store_init(&f->store, f->root_fd, "p", 3, "c", new_owner);
}

static void assert_loads(Fixture *f, NrdCursorFound found, bool missing, uint64_t offset)
{
    NrdCursorFound got = NRD_CURSOR_OTHERS;
    uint64_t got_offset = 0;
    bool got_missing = !missing;
    g_assert_cmpint(nrd_cursor_store_load(&f->store, &got, &got_offset, &got_missing), ==, 0);
    g_assert_cmpint(got, ==, found);
    g_assert_cmpint(got_missing, ==, missing);
    g_assert_cmpuint(got_offset, ==, offset);
}

static void test_store(Fixture *f, gconstpointer data)
{
    (void)data;
    assert_loads(f, NRD_CURSOR_DAMAGED, true, 0);
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 7), ==, 0);
    restart(f, &owner);
    assert_loads(f, NRD_CURSOR_VALID, false, 7);
    for (uint64_t i = 8; i < 20; i++)
        g_assert_cmpint(nrd_cursor_store_write(&f->store, i), ==, 0);
    restart(f, &owner); /* as a kill: no sync */
    assert_loads(f, NRD_CURSOR_VALID, false, 19);
    NrdCursorOwner other = { owner.epoch + 1, owner.child };
    restart(f, &other);
    assert_loads(f, NRD_CURSOR_OTHERS, false, 0);
    g_assert_cmpint(nrd_cursor_store_remove(&f->store), ==, 0); /* not his */
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 3), ==, 0);
    restart(f, &owner);
    assert_loads(f, NRD_CURSOR_OTHERS, false, 0);
    restart(f, &other);
    g_assert_cmpint(nrd_cursor_store_remove(&f->store), ==, 0);
    assert_loads(f, NRD_CURSOR_DAMAGED, true, 0);
    g_assert_cmpint(nrd_cursor_store_remove(&f->store), ==, 0); /* nothing there */
}

/* Between two syncs only one slot is written; the other one is what the last sync made durable. */
static void test_anchor(Fixture *f, gconstpointer data)
{
    (void)data;
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 1), ==, 0); /* replaced as a whole: slot 0 */
    n_written = n_syncs = 0;
    for (uint64_t i = 2; i < 5; i++)
        g_assert_cmpint(nrd_cursor_store_write(&f->store, i), ==, 0);
    g_assert_cmpint(n_syncs, ==, 0);
    g_assert_cmpint(nrd_cursor_store_sync(&f->store), ==, 0);
    g_assert_cmpint(nrd_cursor_store_sync(&f->store), ==, 0); /* nothing to do */
    g_assert_cmpint(n_syncs, ==, 1);
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 5), ==, 0);
    g_assert_cmpint(n_written, ==, 4);
    for (int i = 0; i < 3; i++)
        g_assert_cmpint(written_pos[i], ==, NRD_CURSOR_SLOT_GAP);
    g_assert_cmpint(written_pos[3], ==, 0);
    /* a failed sync proves nothing: the same slot again */
    fail_sync = 1;
    g_assert_cmpint(nrd_cursor_store_sync(&f->store), ==, -EIO);
    fail_sync = 0;
    nrd_cursor_store_rest(&f->store);
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 6), ==, 0);
    g_assert_cmpint(written_pos[4], ==, 0);
    g_assert_cmpint(nrd_cursor_store_sync(&f->store), ==, 0);
    restart(f, &owner);
    assert_loads(f, NRD_CURSOR_VALID, false, 6);
}

/* What an earlier process left is written once more, with the bytes it has, and synced, before the other slot is. */
static void test_prove(Fixture *f, gconstpointer data)
{
    (void)data;
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 1), ==, 0);
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 2), ==, 0); /* the second slot, not synced */
    restart(f, &owner);
    assert_loads(f, NRD_CURSOR_VALID, false, 2);
    n_written = n_syncs = 0;
    fail_sync = 1;
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 3), ==, -EIO);
    g_assert_cmpint(n_written, ==, 1); /* the first slot may be all that the disk has */
    g_assert_cmpint(written_pos[0], ==, NRD_CURSOR_SLOT_GAP);
    fail_sync = 0;
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 3), ==, 0);
    g_assert_cmpint(n_syncs, ==, 2);
    g_assert_cmpint(n_written, ==, 3);
    g_assert_cmpint(written_pos[1], ==, NRD_CURSOR_SLOT_GAP);
    g_assert_cmpint(written_pos[2], ==, 0);
    restart(f, &owner);
    assert_loads(f, NRD_CURSOR_VALID, false, 3);
}

static void test_full_disk(Fixture *f, gconstpointer data)
{
    (void)data;
    fail_write = ENOSPC;
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 1), ==, -ENOSPC);
    fail_write = 0;
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 1), ==, 0);
    fail_write = ENOSPC;
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 2), ==, -ENOSPC);
    fail_write = 0;
    assert_loads(f, NRD_CURSOR_VALID, false, 1);
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 2), ==, 0);
    assert_loads(f, NRD_CURSOR_VALID, false, 2);
}

/* Whatever lies under the name, it is no reason to stop. */
static void test_garbage(Fixture *f, gconstpointer data)
{
    (void)data;
    g_autofree uint8_t *garbage = g_malloc(100000);
    memset(garbage, 0xa5, 100000);
    for (size_t size = 1; size <= 100000; size = size * 10 + 3) {
        g_assert_cmpint(nrd_io_replace_file(f->root_fd, f->store.path, garbage, MIN(size, 100000)), ==, 0);
        assert_loads(f, NRD_CURSOR_DAMAGED, false, 0);
        g_assert_cmpint(nrd_cursor_store_write(&f->store, size), ==, 0);
        restart(f, &owner);
        assert_loads(f, NRD_CURSOR_VALID, false, size);
    }
    /* taken away under us */
    g_assert_cmpint(nrd_cursor_file_remove(f->root_fd, f->store.path), ==, 0);
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 5), ==, 0);
    restart(f, &owner);
    assert_loads(f, NRD_CURSOR_VALID, false, 5);
}

/* Something that is no file stands in the file's place: 0 and 1 links, 2 a pipe, 3 a folder. */
static void put_in_place(Fixture *f, int what)
{
    g_autofree char *path = g_build_filename(f->path, f->store.path, NULL);
    g_autofree char *other = g_build_filename(f->path, "topics", "other", NULL);
    (void)unlink(path);
    if (what == 0)
        g_assert_cmpint(symlink("nowhere", path), ==, 0);
    else if (what == 1)
        g_assert_cmpint(symlink(other, path), ==, 0);
    else
        g_assert_cmpint(what == 2 ? mkfifo(path, 0600) : mkdir(path, 0700), ==, 0);
}

static void assert_other_is_whole(Fixture *f)
{
    g_autoptr(GBytes) bytes = NULL;
    g_assert_cmpint(nrd_io_read_file(f->root_fd, "topics/other", 100, &bytes), ==, 0);
    g_assert_cmpmem(g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes), "mine", 4);
}

static void test_no_file(Fixture *f, gconstpointer data)
{
    (void)data;
    g_assert_cmpint(nrd_io_replace_file(f->root_fd, "topics/other", "mine", 4), ==, 0);
    for (int what = 0; what < 3; what++) {
        put_in_place(f, what); /* before a start */
        restart(f, &owner);
        assert_loads(f, NRD_CURSOR_NO_FILE, false, 0);
        g_assert_cmpint(nrd_cursor_store_write(&f->store, 7), ==, 0);
        restart(f, &owner);
        assert_loads(f, NRD_CURSOR_VALID, false, 7);
        put_in_place(f, what); /* under us */
        g_assert_cmpint(nrd_cursor_store_write(&f->store, 8), ==, 0);
        g_assert_cmpint(nrd_cursor_store_sync(&f->store), ==, 0);
        restart(f, &owner);
        assert_loads(f, NRD_CURSOR_VALID, false, 8);
        assert_other_is_whole(f);
    }
    put_in_place(f, 3);
    restart(f, &owner);
    assert_loads(f, NRD_CURSOR_NO_FILE, false, 0);
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 9), ==, -EISDIR);
    g_assert_cmpint(nrd_io->unlink(f->root_fd, f->store.path, true), ==, 0);
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 9), ==, 0);
    assert_loads(f, NRD_CURSOR_VALID, false, 9);
}

/* One bad read neither repeats nor skips, and no file of another attachment is removed because of it. */
static void test_bad_reads(Fixture *f, gconstpointer data)
{
    (void)data;
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 7), ==, 0);
    g_assert_cmpint(nrd_cursor_store_write(&f->store, 8), ==, 0);
    for (BadRead bad = bad_read_first(); bad_read_begin(&bad); bad_read_next(&bad)) {
        restart(f, &owner);
        assert_loads(f, NRD_CURSOR_VALID, false, 8);
        NrdCursorOwner other = { owner.epoch + 1, owner.child };
        restart(f, &other);
        g_assert_cmpint(nrd_cursor_store_remove(&f->store), ==, 0);
        bad_read_end(&bad);
    }
    restart(f, &owner);
    assert_loads(f, NRD_CURSOR_VALID, false, 8);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/fanout/cursor/round-trip", test_round_trip);
    g_test_add_func("/fanout/cursor/bytes", test_bytes);
    g_test_add_func("/fanout/cursor/every-flip", test_every_flip);
    g_test_add_func("/fanout/cursor/every-cut", test_every_cut);
    g_test_add_func("/fanout/cursor/others", test_others);
    g_test_add("/fanout/cursor/store", Fixture, NULL, set_up, test_store, tear_down);
    g_test_add("/fanout/cursor/anchor", Fixture, NULL, set_up, test_anchor, tear_down);
    g_test_add("/fanout/cursor/prove", Fixture, NULL, set_up, test_prove, tear_down);
    g_test_add("/fanout/cursor/full-disk", Fixture, NULL, set_up, test_full_disk, tear_down);
    g_test_add("/fanout/cursor/garbage", Fixture, NULL, set_up, test_garbage, tear_down);
    g_test_add("/fanout/cursor/no-file", Fixture, NULL, set_up, test_no_file, tear_down);
    g_test_add("/fanout/cursor/bad-reads", Fixture, NULL, set_up, test_bad_reads, tear_down);
    return g_test_run();
}
