/* See fixture.h. */
#include "tests/unit/engine/fixture.h"

#include "engine/io/io.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

atomic_int fail_fdatasync, fail_open, fail_pwritev, fail_fsync, fail_unlink;
atomic_int n_fdatasync, n_pread, n_unlink;
atomic_int renames_left = INT_MAX;
static NrdIo io;

static int maybe_open(int dirfd, const char *path, int flags, mode_t mode)
{
    int error = atomic_load(&fail_open);
    return error ? -error : nrd_io_real.open(dirfd, path, flags, mode);
}

static int maybe_fdatasync(int fd)
{
    atomic_fetch_add(&n_fdatasync, 1);
    return atomic_exchange(&fail_fdatasync, 0) ? -EIO : nrd_io_real.fdatasync(fd);
}

static int maybe_fsync(int fd)
{
    return atomic_load(&fail_fsync) ? -EIO : nrd_io_real.fsync(fd);
}

static ssize_t maybe_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    return atomic_load(&fail_pwritev) ? -ENOSPC : nrd_io_real.pwritev(fd, iov, n_iov, pos);
}

static ssize_t counted_pread(int fd, void *buf, size_t size, int64_t pos)
{
    atomic_fetch_add(&n_pread, 1);
    return nrd_io_real.pread(fd, buf, size, pos);
}

static int maybe_unlink(int dirfd, const char *name, bool is_dir)
{
    atomic_fetch_add(&n_unlink, 1);
    return atomic_load(&fail_unlink) && !is_dir ? -EPERM : nrd_io_real.unlink(dirfd, name, is_dir);
}

static int maybe_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    if (atomic_load(&renames_left) != INT_MAX && atomic_fetch_sub(&renames_left, 1) <= 0)
        return -ENOSPC;
    return nrd_io_real.rename(from_dirfd, from, to_dirfd, to, replace);
}

void fixture_start(Fixture *f)
{
    g_autofree char *why = NULL;
    f->options.data_path = f->path;
    int rc = nrd_engine_open(&f->options, &f->engine, &why);
    if (rc < 0)
        g_error("%s", why);
    rc = nrd_topic_find(f->engine, "t", &f->topic);
    if (rc == -ENOENT)
        rc = nrd_topic_create(f->engine, "t", &(NrdAttr){ 0, 0, 0755 }, 022, &f->topic);
    g_assert_cmpint(rc, ==, 0);
    f->partition = nrd_topic_partition(f->topic, 0);
    g_assert_nonnull(f->partition);
    g_assert_cmpint(nrd_partition_pin(f->partition), ==, 0);
}

void fixture_stop(Fixture *f)
{
    nrd_engine_stop(f->engine);
    nrd_partition_unpin(f->partition);
    nrd_topic_unref(f->topic);
    g_assert_cmpint(nrd_engine_close(f->engine), ==, 0);
}

void fixture_set_up(Fixture *f, gconstpointer data)
{
    g_autoptr(GError) error = NULL;
    f->path = g_dir_make_tmp("naradfs-engine-XXXXXX", &error);
    g_assert_no_error(error);
    io = nrd_io_real;
    io.open = maybe_open;
    io.fdatasync = maybe_fdatasync;
    io.pwritev = maybe_pwritev;
    io.fsync = maybe_fsync;
    io.pread = counted_pread;
    io.unlink = maybe_unlink;
    io.rename = maybe_rename;
    nrd_io = &io;
    if (data)
        f->options = *(const NrdEngineOptions *)data;
    fixture_start(f);
}

void fixture_tear_down(Fixture *f, gconstpointer data)
{
    fixture_stop(f);
    nrd_io = &nrd_io_real;
    g_autofree char *parent = g_path_get_dirname(f->path);
    g_autofree char *name = g_path_get_basename(f->path);
    int fd = -1;
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
    g_free(f->path);
}

static void store_error(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

int sync_now(NrdProducer *producer)
{
    atomic_int error = 1;
    nrd_producer_sync(producer, NRD_SYNC_OWN, store_error, &error);
    /* alone, the commit runs on this thread; beside a sweep it may be the sweep's */
    for (int i = 0; atomic_load(&error) == 1 && i < 10000; i++)
        g_usleep(1000);
    g_assert_cmpint(atomic_load(&error), !=, 1);
    return atomic_load(&error);
}

void produce(NrdPartition *partition, const char *payload)
{
    NrdProducer *producer = NULL;
    g_assert_cmpint(nrd_producer_open(partition, false, &producer), ==, 0);
    nrd_producer_add(producer, NULL, 0, payload, strlen(payload));
    g_assert_cmpint(sync_now(producer), ==, 0);
    nrd_producer_close(producer, NULL, NULL);
}

void on_delivery(void *user_data, int error, const NrdDelivery *delivery)
{
    Got *got = user_data;
    got->n_calls++;
    got->error = error;
    if (error != 0)
        return;
    got->offset = delivery->offset;
    got->nonce = delivery->nonce;
    size_t n = MIN(delivery->payload_size, sizeof got->payload - 1);
    memcpy(got->payload, delivery->payload, n);
    got->payload[n] = '\0';
}

void take(NrdPartition *partition, Got *got, int64_t wait_ms)
{
    *got = (Got){ .error = 1 };
    nrd_waiter_init(&got->waiter);
    nrd_partition_take(partition, &got->waiter, wait_ms, on_delivery, got);
}

char *read_log(NrdPartition *partition)
{
    NrdReader *reader = NULL;
    g_assert_cmpint(nrd_reader_open(partition, NRD_FROM_START, 0, &reader), ==, 0);
    size_t size = nrd_reader_size(reader), n = 0;
    char *text = g_malloc0(size + 1);
    g_assert_cmpint(nrd_reader_read(reader, 0, text, size + 1, &n), ==, 0);
    g_assert_cmpuint(n, ==, size);
    nrd_reader_close(reader);
    return text;
}

void assert_log(NrdPartition *partition, const char *expected)
{
    g_autofree char *text = read_log(partition);
    g_assert_cmpstr(text, ==, expected);
}

unsigned count_files(Fixture *f, const char *suffix)
{
    g_autofree char *path = g_strconcat(f->path, "/topics/t/p00000", NULL);
    GDir *dir = g_dir_open(path, 0, NULL);
    const char *name;
    unsigned n = 0;
    g_assert_nonnull(dir);
    while ((name = g_dir_read_name(dir)))
        n += g_str_has_suffix(name, suffix);
    g_dir_close(dir);
    return n;
}
