#include "fixture.h"

#include "engine/base/crc32c.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

Fault fault;
bool fixture_really_sync;
static NrdIo faulty;
static GMutex fault_lock; /* some tests have threads; what they set stands before the threads start */

static bool fires_locked(FaultCall call, const char *path)
{
    fault.counts[call]++;
    if (fault.call != call || (path != NULL && fault.suffix != NULL && !g_str_has_suffix(path, fault.suffix)))
        return false;
    fault.n_calls++;
    if (fault.n_calls != fault.nth && !(fault.stays && fault.n_calls > fault.nth))
        return false;
    fault.n_fired++;
    return true;
}

static bool fires(FaultCall call, const char *path)
{
    g_mutex_lock(&fault_lock);
    bool fire = fires_locked(call, path);
    g_mutex_unlock(&fault_lock);
    return fire;
}

static int faulty_open(int dirfd, const char *path, int flags, mode_t mode)
{
    return fires(FAULT_OPEN, path) ? fault.error : nrd_io_real.open(dirfd, path, flags, mode);
}

static ssize_t faulty_pread(int fd, void *buf, size_t size, int64_t pos)
{
    bool fire = fires(FAULT_PREAD, NULL);
    if (fire && fault.error < 0)
        return fault.error;
    ssize_t n = nrd_io_real.pread(fd, buf, size, pos);
    if (fire && n > 0)
        ((uint8_t *)buf)[n / 2] ^= 0x10;
    return n;
}

static ssize_t faulty_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    if (!fires(FAULT_PWRITEV, NULL))
        return nrd_io_real.pwritev(fd, iov, n_iov, pos);
    if (fault.error < 0) {
        /* a failing write may have written a part */
        struct iovec part = { iov[0].iov_base, iov[0].iov_len / 2 };
        ssize_t n = nrd_io_real.pwritev(fd, &part, 1, pos);
        g_assert_cmpint(n, >=, 0);
        return fault.error;
    }
    struct iovec part = { iov[0].iov_base, (iov[0].iov_len + 1) / 2 };
    return nrd_io_real.pwritev(fd, &part, 1, pos);
}

static int faulty_fdatasync(int fd)
{
    if (fault.also == FAULT_FDATASYNC)
        return -EIO;
    if (fires(FAULT_FDATASYNC, NULL))
        return fault.error;
    return fixture_really_sync ? nrd_io_real.fdatasync(fd) : 0;
}

static int faulty_fsync(int fd)
{
    if (fires(FAULT_FSYNC, NULL))
        return fault.error;
    return fixture_really_sync ? nrd_io_real.fsync(fd) : 0;
}

static int faulty_ftruncate(int fd, int64_t size_bytes)
{
    if (fault.also == FAULT_FTRUNCATE)
        return -EIO;
    return fires(FAULT_FTRUNCATE, NULL) ? fault.error : nrd_io_real.ftruncate(fd, size_bytes);
}

static int faulty_unlink(int dirfd, const char *name, bool is_dir)
{
    return fires(FAULT_UNLINK, name) ? fault.error : nrd_io_real.unlink(dirfd, name, is_dir);
}

static int faulty_drop_cache(int fd)
{
    return fixture_really_sync ? nrd_io_real.drop_cache(fd) : 0;
}

static int faulty_list(int dirfd, GPtrArray *names)
{
    return fires(FAULT_LIST, NULL) ? fault.error : nrd_io_real.list(dirfd, names);
}

void fault_set(FaultCall call, unsigned nth, int error, bool stays)
{
    fault = (Fault){ .call = call, .nth = nth, .error = error, .stays = stays };
}

void fault_clear(void)
{
    fault = (Fault){ .call = FAULT_NONE };
}

void fixture_set_up(Fixture *f)
{
    faulty = nrd_io_real;
    faulty.open = faulty_open;
    faulty.pread = faulty_pread;
    faulty.pwritev = faulty_pwritev;
    faulty.fdatasync = faulty_fdatasync;
    faulty.fsync = faulty_fsync;
    faulty.ftruncate = faulty_ftruncate;
    faulty.unlink = faulty_unlink;
    faulty.list = faulty_list;
    faulty.drop_cache = faulty_drop_cache;
    nrd_io = &faulty;
    fault_clear();
    *f = (Fixture){ .path = g_dir_make_tmp("nrd-log-XXXXXX", NULL) };
    g_assert_nonnull(f->path);
    g_assert_cmpint(nrd_io_open_root(f->path, &f->root_fd), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(f->root_fd, "p"), ==, 0);
    f->options = (NrdLogOptions){ .root_fd = f->root_fd,
                                  .dir = "p",
                                  .topic = "t",
                                  .partition = 0,
                                  .settings = { .segment_bytes = 1 << 20, .codec = NRD_CODEC_NONE, .zstd_level = 3 } };
    const char *prealloc = g_getenv("NRD_TEST_PREALLOC");
    if (prealloc != NULL)
        f->options.settings.prealloc_bytes = g_ascii_strtoull(prealloc, NULL, 10);
}

void fixture_tear_down(Fixture *f)
{
    fault_clear();
    if (f->log != NULL)
        fixture_crash(f);
    g_assert_cmpint(nrd_io_remove_tree(f->root_fd, "p"), ==, 0);
    close(f->root_fd);
    g_assert_cmpint(g_rmdir(f->path), ==, 0);
    g_free(f->path);
    nrd_io = &nrd_io_real;
}

void fixture_open(Fixture *f)
{
    g_assert_null(f->log);
    g_assert_cmpint(nrd_log_open(&f->options, &f->log), ==, 0);
}

void fixture_close(Fixture *f)
{
    g_assert_cmpint(nrd_log_close(f->log), ==, 0);
    nrd_log_free(f->log);
    f->log = NULL;
}

void fixture_crash(Fixture *f)
{
    bool had = fixture_exists(f, "hwm");
    GByteArray *hwm = had ? fixture_get(f, "hwm") : NULL;
    Fault saved = fault;

    fault_clear();
    int r = nrd_log_close(f->log);
    g_assert_cmpint(r, <=, 0);
    nrd_log_free(f->log);
    f->log = NULL;
    if (had)
        fixture_put(f, "hwm", hwm->data, hwm->len);
    else if (fixture_exists(f, "hwm"))
        fixture_remove(f, "hwm");
    if (hwm != NULL)
        g_byte_array_unref(hwm);
    fault = saved;
}

NrdRecordBatch *fixture_batch(const char *key, const void *payload, size_t size)
{
    NrdRecordBatch *batch = nrd_record_batch_new();
    nrd_record_batch_add(batch, key, key != NULL ? strlen(key) : 0, payload, size);
    return batch;
}

int fixture_try_commit(Fixture *f, const char *payload, uint64_t *ret_offset)
{
    NrdRecordBatch *batch = fixture_batch(NULL, payload, strlen(payload));
    int r = nrd_log_commit(f->log, &batch, 1, ret_offset);
    nrd_record_batch_free(batch);
    return r;
}

uint64_t fixture_commit(Fixture *f, const char *payload)
{
    uint64_t offset = 0;
    g_assert_cmpint(fixture_try_commit(f, payload, &offset), ==, 0);
    return offset;
}

uint64_t fixture_commit_numbers(Fixture *f, unsigned first, unsigned n)
{
    NrdRecordBatch *batch = nrd_record_batch_new();
    uint64_t offset = 0;
    for (unsigned i = first; i < first + n; i++) {
        char text[16];
        int size = g_snprintf(text, sizeof text, "%u", i);
        nrd_record_batch_add(batch, NULL, 0, text, (size_t)size);
    }
    g_assert_cmpint(nrd_log_commit(f->log, &batch, 1, &offset), ==, 0);
    nrd_record_batch_free(batch);
    return offset;
}

int fixture_read(Fixture *f, uint64_t offset, char **ret_payload, uint64_t *ret_next)
{
    NrdLogCursor *cursor = nrd_log_cursor_new(f->log);
    NrdRecordView view;
    uint64_t next = 0;
    int r = nrd_log_cursor_read(cursor, offset, &view, &next);
    if (r == 0) {
        g_assert_cmpuint(view.offset, ==, offset);
        if (ret_payload != NULL)
            *ret_payload = g_strndup((const char *)view.payload, view.payload_size);
    }
    if (ret_next != NULL)
        *ret_next = next;
    nrd_log_cursor_free(cursor);
    return r;
}

void fixture_expect(Fixture *f, uint64_t offset, const char *payload)
{
    char *got = NULL;
    g_assert_cmpint(fixture_read(f, offset, &got, NULL), ==, 0);
    g_assert_cmpstr(got, ==, payload);
    g_free(got);
}

GString *fixture_text(NrdText *text, size_t chunk)
{
    GString *all = g_string_new(NULL);
    char buf[4096];

    for (;;) {
        size_t want = chunk > 0 ? MIN(chunk, sizeof buf) : (size_t)g_test_rand_int_range(1, sizeof buf);
        size_t n = 0;
        g_assert_cmpint(nrd_text_read(text, all->len, buf, want, &n), ==, 0);
        if (n == 0)
            break;
        g_string_append_len(all, buf, (gssize)n);
    }
    return all;
}

NrdLogStats fixture_stats(Fixture *f)
{
    NrdLogStats stats;
    nrd_log_stats(f->log, &stats);
    return stats;
}

char *fixture_file(Fixture *f, const char *name)
{
    return g_build_filename(f->path, "p", name, NULL);
}

GByteArray *fixture_get(Fixture *f, const char *name)
{
    char *path = fixture_file(f, name);
    char *bytes = NULL;
    gsize size = 0;
    g_assert_true(g_file_get_contents(path, &bytes, &size, NULL));
    GByteArray *array = g_byte_array_new();
    g_byte_array_append(array, (const guint8 *)bytes, (guint)size);
    g_free(bytes);
    g_free(path);
    return array;
}

/* The zeros that preallocation leaves behind the frames of a segment, when the tests run with them. */
static void put_zero_tail(int fd, const char *name)
{
    const char *n = g_getenv("NRD_TEST_ZEROS");
    off_t end = lseek(fd, 0, SEEK_END);
    if (n != NULL && end > 0 && g_str_has_suffix(name, ".log"))
        g_assert_cmpint(ftruncate(fd, end + (off_t)g_ascii_strtoull(n, NULL, 10)), ==, 0);
}

void fixture_put(Fixture *f, const char *name, const void *bytes, size_t size)
{
    char *path = fixture_file(f, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(write(fd, bytes, size), ==, (ssize_t)size);
    put_zero_tail(fd, name);
    close(fd);
    g_free(path);
}

bool fixture_exists(Fixture *f, const char *name)
{
    char *path = fixture_file(f, name);
    bool there = g_file_test(path, G_FILE_TEST_EXISTS);
    g_free(path);
    return there;
}

void fixture_remove(Fixture *f, const char *name)
{
    char *path = fixture_file(f, name);
    g_assert_cmpint(g_unlink(path), ==, 0);
    g_free(path);
}

void fixture_flip(Fixture *f, const char *name, size_t pos)
{
    GByteArray *bytes = fixture_get(f, name);
    g_assert_cmpuint(pos, <, bytes->len);
    bytes->data[pos] ^= 0x20;
    fixture_put(f, name, bytes->data, bytes->len);
    g_byte_array_unref(bytes);
}

void fixture_append_frame(GByteArray *bytes, uint64_t offset, const char *const *payloads)
{
    GByteArray *body = g_byte_array_new();
    uint8_t head[27] = { 0xCA, 0xFE, 0 };
    uint32_t n = 0;

    for (; payloads[n] != NULL; n++) {
        size_t size = strlen(payloads[n]);
        uint8_t envelope[14] = { 0, 0, 0, 0, 0x02, 0x00 };
        nrd_put_be32(envelope, (uint32_t)(10 + size));
        nrd_put_be64(envelope + 6, 1000);
        g_byte_array_append(body, envelope, sizeof envelope);
        g_byte_array_append(body, (const guint8 *)payloads[n], (guint)size);
    }
    nrd_put_be32(head + 3, n);
    nrd_put_be64(head + 7, offset);
    nrd_put_be32(head + 15, body->len);
    nrd_put_be32(head + 19, body->len);
    uint32_t crc = nrd_crc32c(0, head + 2, 21);
    nrd_put_be32(head + 23, nrd_crc32c(crc, body->data, body->len));
    g_byte_array_append(bytes, head, sizeof head);
    g_byte_array_append(bytes, body->data, body->len);
    g_byte_array_unref(body);
}
