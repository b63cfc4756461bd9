/* See load.h. */
#include "ctl/load.h"

#include "ctl/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 20)

typedef struct Writer {
    const char *path;
    int64_t until_us;
    bool data_only;
    uint64_t n_syncs;
    int error; /* negative errno */
    GThread *thread;
} Writer;

static int open_for_append(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

static int write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            bytes += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

static int sync_file(int fd, bool data_only)
{
    return (data_only ? fdatasync(fd) : fsync(fd)) < 0 ? -errno : 0;
}

/* Text that a codec does not make vanish, in lines of NRD_LOAD_RECORD_BYTES. */
static void fill_lines(char *bytes, size_t size, uint32_t seed)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-";
    GRand *random = g_rand_new_with_seed(seed);
    for (size_t i = 0; i < size; i++)
        bytes[i] = i % NRD_LOAD_RECORD_BYTES == NRD_LOAD_RECORD_BYTES - 1 ? '\n' : digits[g_rand_int(random) % 64];
    g_rand_free(random);
}

static gpointer run_writer(gpointer data)
{
    Writer *writer = data;
    char line[NRD_LOAD_RECORD_BYTES];
    int fd = open_for_append(writer->path);
    int rc = fd < 0 ? fd : 0;
    fill_lines(line, sizeof line, 1);
    while (rc == 0) { /* once at least, however late this thread comes to run */
        rc = write_all(fd, line, sizeof line);
        if (rc == 0)
            rc = sync_file(fd, writer->data_only);
        writer->n_syncs += rc == 0;
        if (nrd_cli_interrupted() || g_get_monotonic_time() >= writer->until_us)
            break;
    }
    if (fd >= 0 && close(fd) < 0 && rc == 0)
        rc = -errno;
    writer->error = rc;
    return NULL;
}

static double seconds_since(int64_t start_us)
{
    return (double)MAX(g_get_monotonic_time() - start_us, 1) / 1e6;
}

int nrd_load_sync(char *const *paths, unsigned n_writers, double seconds, bool data_only, NrdLoad *ret_load)
{
    g_autofree Writer *writers = g_new0(Writer, n_writers);
    NrdLoad load = { .count = 0 };
    int64_t start_us = g_get_monotonic_time();
    int rc = 0;
    for (unsigned i = 0; i < n_writers; i++) {
        writers[i] = (Writer){ .path = paths[i], .data_only = data_only };
        writers[i].until_us = start_us + (int64_t)(seconds * 1e6);
        writers[i].thread = g_thread_try_new("writer", run_writer, &writers[i], NULL);
        if (!writers[i].thread)
            writers[i].error = -EAGAIN;
    }
    for (unsigned i = 0; i < n_writers; i++) {
        if (writers[i].thread)
            g_thread_join(writers[i].thread);
        load.count += writers[i].n_syncs;
        rc = rc == 0 ? writers[i].error : rc;
    }
    load.seconds = seconds_since(start_us);
    if (rc == 0)
        *ret_load = load;
    return rc;
}

int nrd_load_bulk(const char *path, double seconds, uint64_t max_bytes, bool data_only, NrdLoad *ret_load)
{
    size_t piece = PIECE_BYTES / NRD_LOAD_RECORD_BYTES * NRD_LOAD_RECORD_BYTES; /* whole lines */
    g_autofree char *bytes = g_malloc(piece);
    NrdLoad load = { .count = 0 };
    int fd = open_for_append(path);
    if (fd < 0)
        return fd;
    fill_lines(bytes, piece, 2);
    int64_t start_us = g_get_monotonic_time();
    int rc = 0;
    do {
        rc = write_all(fd, bytes, piece);
        load.count += rc == 0 ? piece : 0;
    } while (rc == 0 && !nrd_cli_interrupted() && load.count < max_bytes && seconds_since(start_us) < seconds);
    if (rc == 0)
        rc = sync_file(fd, data_only);
    load.seconds = seconds_since(start_us);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0)
        *ret_load = load;
    return rc;
}

int nrd_load_read(const char *path, NrdLoad *ret_load)
{
    g_autofree char *bytes = g_malloc(PIECE_BYTES);
    NrdLoad load = { .count = 0 };
    int64_t start_us = g_get_monotonic_time();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = 1;
    while (n > 0 && !nrd_cli_interrupted()) {
        n = read(fd, bytes, PIECE_BYTES);
        load.count += n > 0 ? (uint64_t)n : 0;
    }
    int rc = n < 0 ? -errno : 0;
    load.seconds = seconds_since(start_us);
    close(fd);
    if (rc == 0)
        *ret_load = load;
    return rc;
}
