/* Side files that are mapped: damaged anywhere, cut behind our back, replaced, and more of them than stay mapped. */
#include "model.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/log/index/index_file.h"
#include "engine/log/segments/map_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define INDEX_0 "00000000000000000000.index"
#define N_BIG 130 /* frames with an entry each: two blocks of entries */

/* A record of 5000 bytes that begins with its number. */
static void commit_big(Fixture *f, unsigned number)
{
    char payload[5000];
    uint64_t offset = 0;
    memset(payload, 'x', sizeof payload);
    int n = g_snprintf(payload, sizeof payload, "%u", number);
    payload[n] = '.';
    NrdRecordBatch *batch = fixture_batch(NULL, payload, sizeof payload);
    g_assert_cmpint(nrd_log_commit(f->log, &batch, 1, &offset), ==, 0);
    nrd_record_batch_free(batch);
}

/* A sealed segment of big records, cold. */
static void fill_big(Fixture *f)
{
    fixture_set_up(f);
    f->options.settings.segment_bytes = 1 << 30;
    fixture_open(f);
    for (unsigned i = 0; i < N_BIG; i++)
        commit_big(f, i);
    g_assert_cmpint(nrd_log_roll(f->log), ==, 0);
    fixture_commit(f, "tail");
    fixture_close(f);
    fixture_open(f);
}

static void expect_number(Fixture *f, uint64_t offset)
{
    char *payload = NULL, want[24];
    g_assert_cmpint(fixture_read(f, offset, &payload, NULL), ==, 0);
    g_snprintf(want, sizeof want, "%u.", (unsigned)offset);
    g_assert_true(g_str_has_prefix(payload, want));
    g_free(payload);
}

static void expect_all(Fixture *f)
{
    NrdText *text;
    char buf[16];
    size_t n;
    for (uint64_t i = 0; i < N_BIG; i++)
        expect_number(f, i);
    g_assert_cmpint(nrd_text_open(f->log, &text), ==, 0);
    g_assert_cmpuint(nrd_text_size(text), ==, N_BIG * 5001 + 5);
    for (uint64_t i = 0; i < N_BIG; i++) {
        char want[24];
        int size = g_snprintf(want, sizeof want, "%u.", (unsigned)i);
        g_assert_cmpint(nrd_text_read(text, i * 5001, buf, (size_t)size, &n), ==, 0);
        g_assert_cmpmem(buf, n, want, (size_t)size);
    }
    nrd_text_close(text);
}

/* Every byte of a file with two blocks of entries. */
static void test_every_byte(void)
{
    Fixture f;
    fill_big(&f);
    GByteArray *good = fixture_get(&f, INDEX_0);
    g_assert_cmpuint(good->len, ==, 3 * NRD_INDEX_BLOCK_BYTES);
    for (guint i = 0; i < good->len; i++) {
        fixture_close(&f);
        good->data[i] ^= 0x41;
        fixture_put(&f, INDEX_0, good->data, good->len);
        good->data[i] ^= 0x41;
        uint64_t count = nrd_counter_get(NRD_COUNTER_INDEX_REBUILT);
        fixture_open(&f);
        expect_number(&f, i % N_BIG);
        expect_number(&f, N_BIG - 1);
        expect_number(&f, 0);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INDEX_REBUILT), ==, count + 1);
        if (i % 512 == 0)
            expect_all(&f);
        GByteArray *is = fixture_get(&f, INDEX_0);
        g_assert_cmpmem(is->data, is->len, good->data, good->len);
        g_byte_array_unref(is);
    }
    g_byte_array_unref(good);
    fixture_tear_down(&f);
}

/* The file of an older version counts as missing. */
static void test_old_version(void)
{
    Fixture f;
    fill_big(&f);
    fixture_close(&f);
    GByteArray *bytes = fixture_get(&f, INDEX_0);
    bytes->data[7] = 1;
    fixture_put(&f, INDEX_0, bytes->data, bytes->len);
    uint64_t count = nrd_counter_get(NRD_COUNTER_INDEX_REBUILT);
    fixture_open(&f);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INDEX_REBUILT), ==, count + 1);
    expect_all(&f);
    bytes->data[7] = 2;
    GByteArray *is = fixture_get(&f, INDEX_0);
    g_assert_cmpmem(is->data, is->len, bytes->data, bytes->len);
    g_byte_array_unref(is);
    g_byte_array_unref(bytes);
    fixture_tear_down(&f);
}

/* Cut while it is mapped, in every block. */
static void test_truncated(void)
{
    for (int64_t left = 0; left < 3; left++) {
        Fixture f;
        fill_big(&f);
        expect_number(&f, 0);
        expect_number(&f, N_BIG - 1);
        g_assert_cmpuint(nrd_map_cache_length(), >, 0);
        uint64_t count = nrd_counter_get(NRD_COUNTER_INDEX_REBUILT);
        char *path = fixture_file(&f, INDEX_0);
        g_assert_cmpint(truncate(path, left * NRD_INDEX_BLOCK_BYTES), ==, 0);
        expect_all(&f);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INDEX_REBUILT), ==, count + 1);
        g_free(path);
        fixture_close(&f);
        fixture_open(&f);
        expect_all(&f);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INDEX_REBUILT), ==, count + 1);
        fixture_tear_down(&f);
    }
}

/* Removed, or replaced by rubbish of its own: what is mapped stays what it is. */
static void test_replaced(void)
{
    Fixture f;
    fill_big(&f);
    expect_number(&f, 0);
    uint64_t count = nrd_counter_get(NRD_COUNTER_INDEX_REBUILT);
    fixture_remove(&f, INDEX_0);
    expect_all(&f);
    fixture_put(&f, INDEX_0, "rubbish", 7);
    expect_all(&f);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INDEX_REBUILT), ==, count);
    fixture_tear_down(&f);
}

/* A file system without mappings, and one whose disk fails at them. */
static int no_map(int fd, size_t size, void **ret_addr)
{
    (void)fd;
    (void)size;
    (void)ret_addr;
    return -ENODEV;
}

static int failing_map(int fd, size_t size, void **ret_addr)
{
    (void)fd;
    (void)size;
    (void)ret_addr;
    return -ENOMEM;
}

static void test_no_map(void)
{
    for (int i = 0; i < 3; i++) {
        Fixture f;
        fill_big(&f);
        NrdIo table = *nrd_io;
        table.map = i == 0 ? no_map : i == 1 ? failing_map : NULL;
        nrd_io = &table;
        uint64_t count = nrd_counter_get(NRD_COUNTER_INDEX_REBUILT);
        expect_all(&f);
        g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INDEX_REBUILT), ==, count + (i == 1));
        fixture_tear_down(&f);
    }
}

/* More segments than stay mapped. */
static void test_bound(void)
{
    Fixture f;
    fixture_set_up(&f);
    f.options.settings.segment_bytes = 1;
    fixture_open(&f);
    for (unsigned i = 0; i < NRD_MAP_CACHE_MAX + 50; i++)
        fixture_commit_numbers(&f, i, 1);
    fixture_close(&f);
    g_assert_cmpuint(nrd_map_cache_length(), ==, 0);
    fixture_open(&f);
    for (int round = 0; round < 2; round++) {
        for (unsigned i = 0; i < NRD_MAP_CACHE_MAX + 50; i++) {
            char want[16];
            g_snprintf(want, sizeof want, "%u", i);
            fixture_expect(&f, i, want);
        }
        g_assert_cmpuint(nrd_map_cache_length(), ==, NRD_MAP_CACHE_MAX);
    }
    fixture_tear_down(&f);
    g_assert_cmpuint(nrd_map_cache_length(), ==, 0);
}

/* Searchers on threads of their own, while the file is cut and mended. */
typedef struct Race {
    NrdLog *log;
    gint stop;
} Race;

static gpointer race_reader(gpointer data)
{
    Race *race = data;
    uint64_t i = 0;
    while (!g_atomic_int_get(&race->stop)) {
        NrdLogCursor *cursor = nrd_log_cursor_new(race->log);
        NrdRecordView view;
        uint64_t next, offset = i++ * 37 % N_BIG;
        char want[24];
        int size = g_snprintf(want, sizeof want, "%u.", (unsigned)offset);
        g_assert_cmpint(nrd_log_cursor_read(cursor, offset, &view, &next), ==, 0);
        g_assert_cmpmem(view.payload, (size_t)size, want, (size_t)size);
        nrd_log_cursor_free(cursor);
    }
    return NULL;
}

static void test_race(void)
{
    Fixture f;
    GThread *threads[3];
    fill_big(&f);
    nrd_io = &nrd_io_real; /* the fault table counts without locks */
    fixture_close(&f);
    fixture_open(&f);
    Race race = { .log = f.log };
    for (int i = 0; i < 3; i++)
        threads[i] = g_thread_new("reader", race_reader, &race);
    for (int i = 0; i < 20; i++) {
        char *path = fixture_file(&f, INDEX_0);
        g_assert_cmpint(truncate(path, i % 3 * 3000), ==, 0);
        g_free(path);
        g_usleep(3000);
    }
    g_atomic_int_set(&race.stop, 1);
    for (int i = 0; i < 3; i++)
        g_thread_join(threads[i]);
    fixture_tear_down(&f);
}

/* A SIGBUS that is none of ours does what it would have done. */
static void test_foreign_sigbus(void)
{
    Fixture f;
    fill_big(&f);
    expect_number(&f, 0); /* the handler is in force */
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(20);
        char *path = fixture_file(&f, "foreign");
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        volatile char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        _exit(p[0]);
    }
    int status = 0;
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    g_assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0)); /* a sanitizer exits */
    if (WIFSIGNALED(status))
        g_assert_cmpint(WTERMSIG(status), ==, SIGBUS);
    pid = fork();
    if (pid == 0) {
        alarm(20);
        kill(getpid(), SIGBUS);
        pause();
        _exit(0);
    }
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    g_assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0));
    fixture_tear_down(&f);
}

/* Files with gaps: in blocks of their own, and counted once. */
static void test_gaps(void)
{
    Fixture f;
    fill_big(&f);
    fixture_close(&f);
    size_t frame = 27 + 14 + 5000;
    for (unsigned i = 0; i < N_BIG; i += 10)
        fixture_flip(&f, SEGMENT_0, i * frame + 100);
    fixture_remove(&f, INDEX_0);
    uint64_t count = nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES);
    fixture_open(&f);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, count + N_BIG / 10);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < N_BIG; i++) {
            uint64_t next = 0;
            if (i % 10 > 0) {
                expect_number(&f, i);
                continue;
            }
            g_assert_cmpint(fixture_read(&f, i, NULL, &next), ==, -EBADMSG);
            g_assert_cmpuint(next, ==, i + 1);
        }
        fixture_close(&f);
        fixture_open(&f);
    }
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_CORRUPT_FRAMES), ==, count + 3 * N_BIG / 10); /* once an open */
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/index-map/every-byte", test_every_byte);
    g_test_add_func("/log/index-map/old-version", test_old_version);
    g_test_add_func("/log/index-map/truncated", test_truncated);
    g_test_add_func("/log/index-map/replaced", test_replaced);
    g_test_add_func("/log/index-map/no-map", test_no_map);
    g_test_add_func("/log/index-map/bound", test_bound);
    g_test_add_func("/log/index-map/race", test_race);
    g_test_add_func("/log/index-map/foreign-sigbus", test_foreign_sigbus);
    g_test_add_func("/log/index-map/gaps", test_gaps);
    return g_test_run();
}
