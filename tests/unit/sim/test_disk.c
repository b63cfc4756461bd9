/* The simulated disk while it is well: what is written is read, room, locks, mappings, counts. */
#include "tests/sim/alloc.h"
#include "tests/unit/sim/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void test_bytes(Fixture *f, gconstpointer data)
{
    int fd = file_open(f, "a");
    char buf[2000];
    struct stat st;

    file_fill(fd, 'x', 1000, 700);
    file_write(fd, "middle", 1000);
    g_assert_cmpint(nrd_io->fstat(fd, &st), ==, 0);
    g_assert_cmpint(st.st_size, ==, 1700);
    g_assert_cmpint(nrd_io->pread(fd, buf, sizeof buf, 0), ==, 1700);
    for (int i = 0; i < 700; i++)
        g_assert_cmpint(buf[i], ==, 0);
    g_assert_cmpmem(buf + 998, 10, "xxmiddlexx", 10);
    g_assert_cmpint(nrd_io->ftruncate(fd, 1003), ==, 0);
    g_assert_cmpint(nrd_io->ftruncate(fd, 1600), ==, 0);
    g_assert_cmpint(nrd_io->pread(fd, buf, sizeof buf, 1000), ==, 600);
    g_assert_cmpmem(buf, 6, "mid\0\0\0", 6);
    g_assert_cmpint(buf[599], ==, 0);
    g_assert_cmpint(nrd_io->punch(fd, 701, 1000), ==, 0);
    g_assert_cmpint(nrd_io->pread(fd, buf, sizeof buf, 700), ==, 900);
    g_assert_cmpmem(buf, 3, "x\0\0", 3);
}

static void test_room(Fixture *f, gconstpointer data)
{
    int fd = file_open(f, "a");
    char buf[3000] = "x";
    struct statvfs st;

    sim_disk_set_capacity(f->disk, 4096, 4); /* the root and SIM_DATA are two of them */
    struct iovec iov = { buf, 3000 };
    g_assert_cmpint(nrd_io->pwritev(fd, &iov, 1, 0), ==, 3000);
    g_assert_cmpint(nrd_io->fstatvfs(fd, &st), ==, 0);
    g_assert_cmpuint(st.f_bavail * st.f_frsize, ==, 1024);
    g_assert_cmpuint(st.f_favail, ==, 1);
    /* what fits is written: up to the end of the last sector */
    g_assert_cmpint(nrd_io->pwritev(fd, &iov, 1, 2500), ==, 4096 - 2500);
    g_assert_cmpint(nrd_io->pwritev(fd, &iov, 1, 4096), ==, -ENOSPC);
    g_assert_cmpint(nrd_io->pwritev(fd, &iov, 1, 0), ==, 3000); /* over what is there */
    int other = file_open(f, "b");
    g_assert_cmpint(nrd_io->open(f->data_fd, "c", O_RDWR | O_CREAT, 0600), ==, -ENOSPC);
    g_assert_cmpint(nrd_io->mkdir(f->data_fd, "c", 0700), ==, -ENOSPC);
    /* the room of a file without a name is free at its last close */
    g_assert_cmpint(nrd_io->unlink(f->data_fd, "a", false), ==, 0);
    g_assert_cmpint(nrd_io->pwritev(other, &iov, 1, 0), ==, -ENOSPC);
    g_assert_cmpint(nrd_io->close(fd), ==, 0);
    g_assert_cmpint(nrd_io->pwritev(other, &iov, 1, 0), ==, 3000);
    g_assert_cmpint(nrd_io->punch(other, 512, 1024), ==, 0);
    g_assert_cmpint(nrd_io->fstatvfs(other, &st), ==, 0);
    g_assert_cmpuint(st.f_bavail, ==, 4);
    sim_disk_set_capacity(f->disk, 1 << 20, 100);
    g_assert_cmpint(nrd_io->mkdir(f->data_fd, "c", 0700), ==, 0);
}

static void test_lock(Fixture *f, gconstpointer data)
{
    int a = file_open(f, "lock"), b = file_open(f, "lock");
    g_assert_cmpint(nrd_io->lock(a), ==, 0);
    g_assert_cmpint(nrd_io->lock(a), ==, 0);
    g_assert_cmpint(nrd_io->lock(b), ==, -EWOULDBLOCK);
    g_assert_cmpint(nrd_io->close(a), ==, 0);
    g_assert_cmpint(nrd_io->lock(b), ==, 0);
}

static void test_map(Fixture *f, gconstpointer data)
{
    const void *addr = NULL;
    int fd = file_open(f, "a");

    file_write(fd, "hello", 0);
    g_assert_cmpint(nrd_io_map(fd, 8192, &addr), ==, 0);
    g_assert_cmpstr(addr, ==, "hello");
    g_assert_cmpuint(sim_disk_n_mapped(f->disk), ==, 1);
    file_write(fd, "y, you", 4); /* shared: what is written is seen, also when the descriptor is closed */
    g_assert_cmpstr(addr, ==, "helly, you");
    g_assert_cmpint(nrd_io->ftruncate(fd, 4), ==, 0);
    g_assert_cmpint(nrd_io->close(fd), ==, 0);
    g_assert_cmpstr(addr, ==, "hell");
    nrd_io_unmap(addr, 8192);
    g_assert_cmpuint(sim_disk_n_mapped(f->disk), ==, 0);
}

static void test_descriptors(Fixture *f, gconstpointer data)
{
    int fd = file_open(f, "a");
    char byte;

    g_assert_cmpuint(sim_disk_n_open(f->disk), ==, 2);
    g_assert_cmpint(nrd_io->close(fd), ==, 0);
    g_assert_cmpuint(sim_disk_n_bad(f->disk), ==, 0);
    g_assert_cmpint(nrd_io->close(fd), ==, -EBADF);
    g_assert_cmpint(nrd_io->pread(fd, &byte, 1, 0), ==, -EBADF);
    g_assert_cmpuint(sim_disk_n_bad(f->disk), ==, 2);
    g_assert_cmpint(file_open(f, "a"), !=, fd);
}

static void test_few_descriptors(Fixture *f, gconstpointer data)
{
    int fd = file_open(f, "a");
    g_assert_cmpint(nrd_io->open(f->data_fd, "b", O_RDWR | O_CREAT, 0600), ==, -EMFILE);
    struct stat st;
    g_assert_cmpint(nrd_io->fstatat(f->data_fd, "b", &st), ==, -ENOENT);
    g_assert_cmpint(nrd_io->close(fd), ==, 0);
    (void)file_open(f, "b");
}

/* An open file lives without its name, and another one may take it. */
static void test_unlinked(Fixture *f, gconstpointer data)
{
    int fd = file_open(f, "a");
    char buf[8];

    file_write(fd, "old", 0);
    g_assert_cmpint(nrd_io->unlink(f->data_fd, "a", false), ==, 0);
    file_make(f, "a", "new");
    g_assert_cmpint(nrd_io->pread(fd, buf, sizeof buf, 0), ==, 3);
    g_assert_cmpmem(buf, 3, "old", 3);
    g_autofree char *text = file_read(f, "a", NULL);
    g_assert_cmpstr(text, ==, "new");
}

static void test_times(Fixture *f, gconstpointer data)
{
    int fd = file_open(f, "a");
    struct stat st;

    g_assert_cmpint(nrd_io->set_mtime(fd, 1234567), ==, 0);
    g_assert_cmpint(nrd_io->fstat(fd, &st), ==, 0);
    g_assert_cmpint(st.st_mtim.tv_sec, ==, 1234);
    g_assert_cmpint(st.st_mtim.tv_nsec, ==, 567000000);
    file_write(fd, "x", 0);
    g_assert_cmpint(nrd_io->fstat(fd, &st), ==, 0);
    g_assert_cmpint(st.st_mtim.tv_sec, >, 1234);
}

static void see_count(SimCall call, const char *path, uint64_t n, void *user_data)
{
    g_string_append_printf(user_data, "%s %s %d\n", sim_call_name(call), path, (int)n);
}

static void test_counts(Fixture *f, gconstpointer data)
{
    int fd = file_open(f, "a");
    g_autoptr(GString) seen = g_string_new(NULL);

    file_write(fd, "x", 0);
    file_write(fd, "y", 0);
    g_assert_cmpint(nrd_io->fdatasync(fd), ==, 0);
    g_assert_cmpint(nrd_io->fsync(fd), ==, 0);
    g_assert_cmpint(nrd_io->fsync(f->data_fd), ==, 0);
    sim_disk_foreach_count(f->disk, see_count, seen);
    g_assert_cmpstr(seen->str, ==,
                    "open_root /data 1\nfsync_dir /data 1\n"
                    "create /data/a 1\npwritev /data/a 2\nfdatasync /data/a 1\nfsync /data/a 1\n");
    g_assert_cmpuint(sim_disk_count(f->disk, SIM_PWRITEV, "*/a"), ==, 2);
    g_assert_cmpuint(sim_disk_count(f->disk, SIM_PWRITEV, "*/b"), ==, 0);
    g_assert_cmpuint(sim_disk_count(f->disk, SIM_ANY_SYNC, NULL), ==, 3);
    g_assert_cmpuint(sim_disk_count(f->disk, SIM_ANY_CALL, NULL), ==, 7);
}

static void count_calls(SimDisk *disk, const SimCallInfo *call, bool before, void *user_data)
{
    unsigned *n = user_data;
    n[before ? 0 : 1]++;
    if (!before && call->call == SIM_PWRITEV) {
        SimImage *image = sim_disk_snapshot(disk);
        g_autofree char *text = image_text(image, SIM_CACHED, call->path);
        g_assert_cmpstr(text, ==, "x");
        g_assert_cmpint(call->result, ==, 1);
        sim_image_unref(image);
    }
}

static void test_watch(Fixture *f, gconstpointer data)
{
    unsigned n[2] = { 0 };
    int fd = file_open(f, "a");
    sim_disk_watch(f->disk, count_calls, n);
    file_write(fd, "x", 0);
    g_assert_cmpint(nrd_io->close(fd), ==, 0);
    sim_disk_watch(f->disk, NULL, NULL);
    (void)file_open(f, "a");
    g_assert_cmpuint(n[0], ==, 2);
    g_assert_cmpuint(n[1], ==, 2);
}

typedef struct Worker {
    Fixture *f;
    int number;
} Worker;

static gpointer write_and_read(gpointer data)
{
    const Worker *worker = data;
    g_autofree char *name = g_strdup_printf("f%d", worker->number);
    for (int i = 0; i < 300; i++) {
        g_autofree char *text = g_strdup_printf("%d of %d", i, worker->number);
        file_make(worker->f, name, text);
        g_autofree char *found = file_read(worker->f, name, NULL);
        g_assert_cmpstr(found, ==, text);
        g_assert_cmpint(nrd_io_unlink(worker->f->data_fd, name), ==, 0);
    }
    return NULL;
}

static void test_threads(Fixture *f, gconstpointer data)
{
    Worker workers[4];
    GThread *threads[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (Worker){ f, i };
        threads[i] = g_thread_new("worker", write_and_read, &workers[i]);
    }
    for (int i = 0; i < 4; i++)
        g_thread_join(threads[i]);
    g_assert_cmpuint(sim_disk_n_open(f->disk), ==, 1);
}

static void test_allocations(void)
{
    sim_alloc_fail(2, false);
    g_autofree char *a = g_try_malloc(8);
    g_autofree char *b = g_try_new0(char, 8);
    g_autofree char *c = g_try_malloc0(8);
    g_assert_nonnull(a);
    g_assert_null(b);
    g_assert_nonnull(c);
    g_assert_cmpuint(sim_alloc_n_calls(), ==, 3);
    g_assert_cmpuint(sim_alloc_n_failed(), ==, 1);
    sim_alloc_fail(1, true);
    g_assert_null(g_try_malloc(8));
    g_assert_null(g_try_realloc(NULL, 8));
    g_assert_cmpuint(sim_alloc_n_failed(), ==, 2);
    sim_alloc_fail(0, false);
    g_autofree char *d = g_try_malloc(8);
    g_assert_nonnull(d);
}

#define ADD(name, options, test)                                                                                       \
    g_test_add("/sim/disk/" name, Fixture, options, fixture_set_up, test, fixture_tear_down)

int main(int argc, char **argv)
{
    static const SimDiskOptions two_descriptors = { .max_open = 2 };
    g_test_init(&argc, &argv, NULL);
    ADD("bytes", NULL, test_bytes);
    ADD("room", NULL, test_room);
    ADD("lock", NULL, test_lock);
    ADD("map", NULL, test_map);
    ADD("descriptors", NULL, test_descriptors);
    ADD("few-descriptors", &two_descriptors, test_few_descriptors);
    ADD("unlinked", NULL, test_unlinked);
    ADD("times", NULL, test_times);
    ADD("counts", NULL, test_counts);
    ADD("watch", NULL, test_watch);
    ADD("threads", NULL, test_threads);
    g_test_add_func("/sim/disk/allocations", test_allocations);
    return g_test_run();
}
