/* What a power cut leaves on the simulated disk, and what it may not leave. */
#include "tests/unit/sim/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static const SimCrash lose_all = { .keep = SIM_KEEP_NONE }, keep_all = { .keep = SIM_KEEP_ALL };

/* ---- every state, as sentences ---- */

/* All that a power cut can leave, each told by tell, in a set (g_hash_table_unref). */
static GHashTable *states(Fixture *f, SimNames names, char *(*tell)(const SimImage *image), guint *ret_n)
{
    GHashTable *set = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    SimImage *image = sim_disk_snapshot(f->disk);
    SimWalk *walk = sim_walk_new(image, names);
    SimImage *state;

    for (*ret_n = 0; (state = sim_walk_next(walk)) != NULL; ++*ret_n) {
        g_assert_cmpuint(sim_image_n_undecided(state), ==, 0);
        g_hash_table_add(set, tell(state));
        sim_image_unref(state);
    }
    sim_walk_free(walk);
    sim_image_unref(image);
    return set;
}

static void assert_states(GHashTable *set, const char *const *wanted)
{
    guint n = 0;
    for (; wanted[n] != NULL; n++) {
        if (!g_hash_table_contains(set, wanted[n]))
            g_error("no such state: %s", wanted[n]);
    }
    g_assert_cmpuint(g_hash_table_size(set), ==, n);
}

/* The first byte of each sector of the file a, and its size. */
static char *tell_sectors(const SimImage *image)
{
    g_autoptr(GBytes) bytes = sim_image_read(image, SIM_CACHED, "/data/a");
    GString *text = g_string_new(NULL);
    gsize size = 0;
    const char *data = g_bytes_get_data(bytes, &size);
    for (gsize pos = 0; pos < size; pos += SIM_SECTOR_BYTES)
        g_string_append_c(text, data[pos] != '\0' ? data[pos] : '0');
    g_string_append_printf(text, " %d", (int)size);
    return g_string_free(text, FALSE);
}

static char *tell_names(const SimImage *image)
{
    g_autoptr(GPtrArray) paths = sim_image_paths(image, SIM_CACHED);
    GString *text = g_string_new(NULL);
    for (guint i = 0; i < paths->len; i++) {
        const char *path = paths->pdata[i];
        if (strcmp(path, "/data/") != 0)
            g_string_append_printf(text, "%s ", path + strlen("/data/"));
    }
    return g_string_free(text, FALSE);
}

/* ---- what is durable ---- */

static void test_durable(Fixture *f, gconstpointer data)
{
    int fd = file_open(f, "a");
    file_write(fd, "synced", 0);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, 0);
    fixture_power_cycle(f, &lose_all);
    g_assert_null(file_read(f, "a", NULL)); /* its name was not */

    file_make(f, "a", "synced");
    fd = file_open(f, "a");
    file_write(fd, "not synced", 0);
    fixture_power_cycle(f, NULL); /* the process died: the cache has it still */
    g_autofree char *cached = file_read(f, "a", NULL);
    g_assert_cmpstr(cached, ==, "not synced");
    fixture_power_cycle(f, &lose_all); /* and it was never durable */
    g_autofree char *durable = file_read(f, "a", NULL);
    g_assert_cmpstr(durable, ==, "synced");

    fd = file_open(f, "a");
    file_write(fd, "not synced", 0);
    fixture_power_cycle(f, &keep_all);
    g_autofree char *kept = file_read(f, "a", NULL);
    g_assert_cmpstr(kept, ==, "not synced");
    fixture_power_cycle(f, &lose_all);
    g_autofree char *still = file_read(f, "a", NULL);
    g_assert_cmpstr(still, ==, "not synced");
}

static void test_names_with_files(Fixture *f, gconstpointer data)
{
    g_assert_cmpint(nrd_io->mkdir(f->data_fd, "d", 0700), ==, 0);
    int fd = nrd_io->open(f->data_fd, "d/a", O_RDWR | O_CREAT, 0600);
    (void)file_open(f, "b");
    g_assert_cmpint(nrd_io->fsync(fd), ==, 0);
    fixture_power_cycle(f, &lose_all);
    g_autoptr(SimImage) image = sim_disk_snapshot(f->disk);
    g_autofree char *names = tell_names(image);
    g_assert_cmpstr(names, ==, "d/ d/a ");
}

/* While the power is off every call fails, and a dead engine can be closed. */
static void test_off(Fixture *f, gconstpointer data)
{
    const void *addr = NULL;
    int fd = file_open(f, "a");
    char byte;
    struct statvfs st;

    file_write(fd, "x", 0);
    g_assert_cmpint(nrd_io_map(fd, 1, &addr), ==, 0);
    sim_disk_power_off(f->disk);
    g_assert_true(sim_disk_is_off(f->disk));
    g_assert_cmpint(nrd_io->pread(fd, &byte, 1, 0), ==, -EIO);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, -EIO);
    g_assert_cmpint(nrd_io->open(f->data_fd, "a", O_RDONLY, 0), ==, -EIO);
    g_assert_cmpint(nrd_io->open_root(SIM_DATA), ==, -EIO);
    g_assert_cmpint(nrd_io->mkdir(f->data_fd, "d", 0700), ==, -EIO);
    g_assert_cmpint(nrd_io->rename(f->data_fd, "a", f->data_fd, "b", true), ==, -EIO);
    g_assert_cmpint(nrd_io->fstatvfs(fd, &st), ==, -EIO);
    g_assert_cmpint(nrd_io->close(fd), ==, 0);
    nrd_io_unmap(addr, 1);
    g_assert_cmpuint(sim_disk_n_open(f->disk), ==, 1);
    sim_disk_power_on(f->disk, NULL);
    g_assert_cmpuint(sim_disk_n_open(f->disk), ==, 0);
    g_assert_cmpint(nrd_io->pread(f->data_fd, &byte, 1, 0), ==, -EBADF);
}

/* ---- bytes that are not durable ---- */

static void test_sectors(Fixture *f, gconstpointer data)
{
    guint n;
    file_make(f, "a", "");
    int fd = file_open(f, "a");
    file_fill(fd, 'o', 1024, 0);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, 0);
    file_fill(fd, 'n', 1024, 0);
    g_autoptr(GHashTable) set = states(f, SIM_NAMES_ORDERED, tell_sectors, &n);
    assert_states(set, (const char *[]){ "oo 1024", "on 1024", "no 1024", "nn 1024", NULL });
    g_assert_cmpuint(n, ==, 4);
    file_fill(fd, 'm', 512, 0); /* the write between may be what has come */
    g_autoptr(GHashTable) more = states(f, SIM_NAMES_ORDERED, tell_sectors, &n);
    assert_states(more, (const char *[]){ "oo 1024", "on 1024", "no 1024", "nn 1024", "mo 1024", "mn 1024", NULL });
}

static void test_growth(Fixture *f, gconstpointer data)
{
    guint n;
    file_make(f, "a", "");
    int fd = file_open(f, "a");
    file_fill(fd, 'n', 1000, 0);
    g_autoptr(GHashTable) set = states(f, SIM_NAMES_ORDERED, tell_sectors, &n);
    assert_states(set, (const char *[]){ " 0", "0 512", "n 512", "00 1000", "0n 1000", "n0 1000", "nn 1000", NULL });
    g_autoptr(SimImage) image = sim_disk_snapshot(f->disk);
    g_assert_cmpuint(sim_image_n_undecided(image), ==, 3);
}

/* What comes after a cut may not be there without it, and what was before it not with it. */
static void test_cut(Fixture *f, gconstpointer data)
{
    guint n;
    file_make(f, "a", "");
    int fd = file_open(f, "a");
    file_fill(fd, 'o', 1024, 0);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, 0);
    g_assert_cmpint(nrd_io->ftruncate(fd, 512), ==, 0);
    file_fill(fd, 'n', 3, 512);
    g_autoptr(GHashTable) set = states(f, SIM_NAMES_ORDERED, tell_sectors, &n);
    assert_states(set, (const char *[]){ "oo 1024", "o 512", "on 515", "o0 515", NULL });
}

/* The bytes behind a size that was kept are zeros, and stay so when the file grows again. */
static void test_nothing_behind(Fixture *f, gconstpointer data)
{
    size_t size = 0;
    file_make(f, "a", "synced");
    int fd = file_open(f, "a");
    file_write(fd, " and more", 6);
    for (uint64_t seed = 0; seed < 50; seed++) {
        g_autoptr(SimImage) image = sim_disk_snapshot(f->disk);
        SimCrash crash = { .keep = SIM_KEEP_RANDOM, .seed = seed };
        g_autoptr(SimImage) after = sim_image_power_cut(image, &crash);
        Fixture next = { .disk = sim_disk_new(NULL, after) };
        sim_disk_install(next.disk);
        g_assert_cmpint(nrd_io_open_root(SIM_DATA, &next.data_fd), ==, 0);
        g_autofree char *found = file_read(&next, "a", &size);
        g_assert_true(size == 6 || size == 15);
        if (size == 6)
            g_assert_cmpstr(found, ==, "synced");
        g_assert_cmpint(nrd_io->ftruncate(file_open(&next, "a"), 100), ==, 0);
        g_autofree char *grown = file_read(&next, "a", &size);
        g_assert_cmpuint(size, ==, 100);
        g_assert_cmpstr(grown, ==, found);
        sim_disk_install(f->disk);
        sim_disk_free(next.disk);
    }
}

/* ---- names that are not durable ---- */

static void test_names_in_order(Fixture *f, gconstpointer data)
{
    guint n;
    file_make(f, "old", "x");
    (void)file_open(f, "a");
    g_assert_cmpint(nrd_io->rename(f->data_fd, "a", f->data_fd, "b", true), ==, 0);
    g_assert_cmpint(nrd_io->unlink(f->data_fd, "old", false), ==, 0);
    g_autoptr(GHashTable) set = states(f, SIM_NAMES_ORDERED, tell_names, &n);
    assert_states(set, (const char *[]){ "old ", "a old ", "b old ", "b ", NULL });
    g_autoptr(GHashTable) any = states(f, SIM_NAMES_ANY_SUBSET, tell_names, &n);
    assert_states(any, (const char *[]){ "old ", "a old ", "b old ", "b ", "a ", "", NULL });
}

static void test_folders_by_themselves(Fixture *f, gconstpointer data)
{
    guint n;
    g_assert_cmpint(nrd_io_make_dir(f->data_fd, "d"), ==, 0);
    (void)nrd_io->open(f->data_fd, "d/a", O_RDWR | O_CREAT, 0600);
    (void)file_open(f, "b");
    g_autoptr(GHashTable) set = states(f, SIM_NAMES_ORDERED, tell_names, &n);
    assert_states(set, (const char *[]){ "d/ ", "d/ d/a ", "b d/ ", "b d/ d/a ", NULL });
}

/* A rename between two folders is one change, and needs the sync of both. */
static void test_rename_between(Fixture *f, gconstpointer data)
{
    guint n;
    int d = -1;
    g_assert_cmpint(nrd_io_make_dir(f->data_fd, "d"), ==, 0);
    g_assert_cmpint(nrd_io_open_dir(f->data_fd, "d", &d), ==, 0);
    file_make(f, "a", "x");
    g_assert_cmpint(nrd_io->rename(f->data_fd, "a", d, "a", false), ==, 0);
    const char *const both[] = { "a d/ ", "d/ d/a ", NULL };
    g_autoptr(GHashTable) before = states(f, SIM_NAMES_ORDERED, tell_names, &n);
    assert_states(before, both);
    g_assert_cmpint(nrd_io->fsync(d), ==, 0);
    g_autoptr(GHashTable) between = states(f, SIM_NAMES_ORDERED, tell_names, &n);
    assert_states(between, both);
    g_assert_cmpint(nrd_io->fsync(f->data_fd), ==, 0);
    g_autoptr(GHashTable) after = states(f, SIM_NAMES_ORDERED, tell_names, &n);
    assert_states(after, both + 1);
    /* the other way round */
    g_assert_cmpint(nrd_io->rename(d, "a", f->data_fd, "a", false), ==, 0);
    g_assert_cmpint(nrd_io->fsync(d), ==, 0);
    g_autoptr(GHashTable) back = states(f, SIM_NAMES_ORDERED, tell_names, &n);
    assert_states(back, both);
    /* and what follows it in either folder does not come without it */
    (void)nrd_io->open(f->data_fd, "b", O_RDWR | O_CREAT, 0600);
    (void)nrd_io->open(d, "c", O_RDWR | O_CREAT, 0600);
    g_autoptr(GHashTable) more = states(f, SIM_NAMES_ORDERED, tell_names, &n);
    assert_states(more, (const char *[]){ "d/ d/a ", "a d/ ", "a b d/ ", "a d/ d/c ", "a b d/ d/c ", NULL });
}

/* What replaces a file whole: old or new, never neither, never torn. */
static char *tell_replaced(const SimImage *image)
{
    char *text = image_text(image, SIM_CACHED, "/data/a");
    return text != NULL ? text : g_strdup("none");
}

static void check_replaced(SimDisk *disk, const SimCallInfo *call, bool before, void *user_data)
{
    Fixture *f = user_data;
    guint n;
    g_autoptr(GHashTable) set = states(f, SIM_NAMES_ANY_SUBSET, tell_replaced, &n);
    g_hash_table_remove(set, "old");
    g_hash_table_remove(set, "new content");
    g_assert_cmpuint(g_hash_table_size(set), ==, 0);
}

static void test_replace_file(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "old");
    sim_disk_watch(f->disk, check_replaced, f);
    g_assert_cmpint(nrd_io_replace_file(f->data_fd, "a", "new content", 11), ==, 0);
    sim_disk_watch(f->disk, NULL, NULL);
    fixture_power_cycle(f, &lose_all);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "new content");
}

/* A removal that is not durable brings the file back, with what was durable of it. */
static void test_unlink_lost(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "durable");
    int fd = file_open(f, "a");
    file_write(fd, "changed", 0);
    g_assert_cmpint(nrd_io->unlink(f->data_fd, "a", false), ==, 0);
    g_assert_cmpint(nrd_io->close(fd), ==, 0);
    g_assert_null(file_read(f, "a", NULL));
    fixture_power_cycle(f, &lose_all);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "durable");
    struct statvfs st;
    g_assert_cmpint(nrd_io->fstatvfs(f->data_fd, &st), ==, 0);
    g_assert_cmpuint(st.f_blocks - st.f_bfree, ==, 1);
    g_assert_cmpint(nrd_io_unlink(f->data_fd, "a"), ==, 0);
    fixture_power_cycle(f, &lose_all);
    g_assert_null(file_read(f, "a", NULL));
}

/* ---- seeds, images ---- */

static void write_much(Fixture *f)
{
    for (int i = 0; i < 20; i++) {
        g_autofree char *name = g_strdup_printf("f%d", i);
        file_fill(file_open(f, name), 'a' + (char)i, 3000, 0);
    }
}

static void test_seeds(Fixture *f, gconstpointer data)
{
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    write_much(f);
    g_autoptr(SimImage) image = sim_disk_snapshot(f->disk);
    for (uint64_t seed = 0; seed < 200; seed++) {
        SimCrash crash = { .keep = SIM_KEEP_RANDOM, .seed = seed };
        g_autoptr(SimImage) a = sim_image_power_cut(image, &crash);
        g_autoptr(SimImage) b = sim_image_power_cut(image, &crash);
        uint64_t digest = sim_image_digest(a);
        g_assert_cmpuint(digest, ==, sim_image_digest(b));
        g_hash_table_add(seen, g_memdup2(&digest, sizeof digest));
    }
    g_assert_cmpuint(g_hash_table_size(seen), >, 100);
}

/* Images do not change when the disk does, nor a disk when another one made from the same image does. */
static void test_images(Fixture *f, gconstpointer data)
{
    file_make(f, "a", "first");
    g_autoptr(SimImage) image = sim_disk_snapshot(f->disk);
    uint64_t digest = sim_image_digest(image);
    int fd = file_open(f, "a");
    file_write(fd, "other", 0);
    g_assert_cmpint(nrd_io->fsync(fd), ==, 0);
    g_assert_cmpint(nrd_io_unlink(f->data_fd, "a"), ==, 0);
    g_assert_cmpuint(sim_image_digest(image), ==, digest);
    fixture_load(f, image);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "first");
    g_autoptr(SimImage) damaged = sim_image_with_file(image, "/data/a", "fi\0st and more", 14);
    g_assert_cmpuint(sim_image_digest(damaged), !=, digest);
    fixture_load(f, damaged);
    fixture_power_cycle(f, &lose_all);
    size_t size = 0;
    g_autofree char *bytes = file_read(f, "a", &size);
    g_assert_cmpmem(bytes, size, "fi\0st and more", 14);
    g_autofree char *untouched = image_text(image, SIM_DURABLE, "/data/a");
    g_assert_cmpstr(untouched, ==, "first");
}

#define ADD(name, options, test)                                                                                       \
    g_test_add("/sim/power/" name, Fixture, options, fixture_set_up, test, fixture_tear_down)

int main(int argc, char **argv)
{
    static const SimDiskOptions like_ext4 = { .names_with_files = true };
    g_test_init(&argc, &argv, NULL);
    ADD("durable", NULL, test_durable);
    ADD("names-with-files", &like_ext4, test_names_with_files);
    ADD("off", NULL, test_off);
    ADD("sectors", NULL, test_sectors);
    ADD("growth", NULL, test_growth);
    ADD("cut", NULL, test_cut);
    ADD("nothing-behind", NULL, test_nothing_behind);
    ADD("names-in-order", NULL, test_names_in_order);
    ADD("folders-by-themselves", NULL, test_folders_by_themselves);
    ADD("rename-between", NULL, test_rename_between);
    ADD("replace-file", NULL, test_replace_file);
    ADD("unlink-lost", NULL, test_unlink_lost);
    ADD("seeds", NULL, test_seeds);
    ADD("images", NULL, test_images);
    return g_test_run();
}
