/* Descriptors: what stays open when nobody reads, over many logs, and under a limit that is lowered meanwhile. */
#include "fixture.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/log/segments/frame_cache.h"

#include <sys/resource.h>

#define N_LOGS 60
#define N_SEALED 3

static unsigned n_descriptors(void)
{
    GDir *dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned n = 0;
    while (g_dir_read_name(dir) != NULL)
        n++;
    g_dir_close(dir);
    return n - 1; /* the listing's own */
}

static void read_all(NrdLog *log, const char *payload)
{
    for (uint64_t i = 0; i <= N_SEALED; i++) {
        NrdLogCursor *cursor = nrd_log_cursor_new(log);
        NrdRecordView view;
        uint64_t next;
        g_assert_cmpint(nrd_log_cursor_read(cursor, i, &view, &next), ==, 0);
        g_assert_cmpmem(view.payload, view.payload_size, payload, 1);
        nrd_log_cursor_free(cursor);
    }
}

static void commit(NrdLog *log, const char *payload)
{
    NrdRecordBatch *batch = fixture_batch(NULL, payload, 1);
    uint64_t first;
    g_assert_cmpint(nrd_log_commit(log, &batch, 1, &first), ==, 0);
    nrd_record_batch_free(batch);
}

static NrdLog *make_log(Fixture *f, int i)
{
    NrdLogOptions options = f->options;
    char *dir = g_strdup_printf("p/%d", i);
    NrdLog *log = NULL;
    options.dir = dir;
    g_assert_cmpint(nrd_io_make_dir(f->root_fd, dir), ==, 0);
    g_assert_cmpint(nrd_log_open(&options, &log), ==, 0);
    for (int k = 0; k < N_SEALED; k++) {
        commit(log, "s");
        g_assert_cmpint(nrd_log_roll(log), ==, 0);
    }
    commit(log, "s");
    g_free(dir);
    return log;
}

static void test_budget(void)
{
    Fixture f;
    NrdLog *logs[N_LOGS];
    struct rlimit was, low;
    fixture_set_up(&f);
    nrd_frame_cache_set_limit(0); /* every read needs a descriptor */
    unsigned before = n_descriptors();
    for (int i = 0; i < N_LOGS; i++)
        logs[i] = make_log(&f, i);
    g_assert_cmpuint(n_descriptors(), <=, before + N_LOGS + 32);
    for (int i = 0; i < N_LOGS; i++)
        read_all(logs[i], "s");
    g_assert_cmpuint(n_descriptors(), <=, before + N_LOGS + 32);
    g_assert_cmpuint(n_descriptors(), >=, before + N_LOGS);
    g_assert_cmpint(getrlimit(RLIMIT_NOFILE, &was), ==, 0);
    low = was;
    low.rlim_cur = 64;
    g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &low), ==, 0);
    for (int i = 0; i < N_LOGS; i++)
        read_all(logs[i], "s");
    for (int i = 0; i < N_LOGS; i++)
        commit(logs[i], "s");
    g_assert_cmpuint(n_descriptors(), <=, before + 16 + 16);
    g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &was), ==, 0);
    for (int i = 0; i < N_LOGS; i++) {
        g_assert_cmpint(nrd_log_close(logs[i]), ==, 0);
        nrd_log_free(logs[i]);
    }
    g_assert_cmpuint(n_descriptors(), ==, before);
    fixture_tear_down(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(0);
    g_test_add_func("/log/hot-set/budget", test_budget);
    return g_test_run();
}
