/* The frames that follow, read ahead by a thread: what of them is taken, and when it ends. */
#include "engine/io/io.h"
#include "engine/log/reading/frame_ahead.h"
#include "engine/log/reading/text_private.h"
#include "model.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define READ_BYTES ((size_t)64 * 1024)
#define FRAME_RECORDS 400 /* of up to 2000 bytes: frames of about 400 KB */

/* Reads on another thread than the test's wait while it is shut. */
static struct {
    GMutex lock;
    GCond changed;
    bool shut;
    unsigned n_waiting;
} gate;
static GThread *tester;
static ssize_t (*pread_behind)(int fd, void *buf, size_t size, int64_t pos);

static ssize_t gated_pread(int fd, void *buf, size_t size, int64_t pos)
{
    g_mutex_lock(&gate.lock);
    if (g_thread_self() != tester) {
        gate.n_waiting++;
        g_cond_broadcast(&gate.changed);
        while (gate.shut)
            g_cond_wait(&gate.changed, &gate.lock);
        gate.n_waiting--;
    }
    g_mutex_unlock(&gate.lock);
    return pread_behind(fd, buf, size, pos);
}

/* The system gives no threads. */
static bool no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *data);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *data);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *data)
{
    return no_threads ? EAGAIN : __real_pthread_create(thread, attr, run, data);
}

static void gate_set(bool shut)
{
    g_mutex_lock(&gate.lock);
    gate.shut = shut;
    g_cond_broadcast(&gate.changed);
    g_mutex_unlock(&gate.lock);
}

static void gate_wait_for_one(void)
{
    g_mutex_lock(&gate.lock);
    while (gate.n_waiting == 0)
        g_cond_wait(&gate.changed, &gate.lock);
    g_mutex_unlock(&gate.lock);
}

/* A log of n frames, and what its text is. */
static void set_up(Fixture *f, Model *m, unsigned n_frames)
{
    static NrdIo io;

    fixture_set_up(f);
    model_init(m);
    fixture_open(f);
    io = *nrd_io;
    pread_behind = io.pread;
    io.pread = gated_pread;
    tester = g_thread_self();
    nrd_io = &io;
    for (unsigned i = 0; i < n_frames; i++)
        model_commit(f, m, FRAME_RECORDS, 2000);
}

static void tear_down(Fixture *f, Model *m)
{
    model_clear(m);
    fixture_tear_down(f);
}

typedef struct Reader {
    NrdText *text;
    const GString *all;
    size_t pos;
} Reader;

static Reader reader_new(Fixture *f, const Model *m)
{
    Reader reader = { .all = m->text };
    g_assert_cmpint(nrd_text_open(f->log, &reader.text), ==, 0);
    return reader;
}

/* One read in order; false at the end. */
static bool read_one(Reader *reader)
{
    char *buf = g_malloc(READ_BYTES);
    size_t n = 0;
    g_assert_cmpint(nrd_text_read(reader->text, reader->pos, buf, READ_BYTES, &n), ==, 0);
    g_assert_cmpmem(buf, n, reader->all->str + reader->pos, MIN(READ_BYTES, reader->all->len - reader->pos));
    reader->pos += n;
    g_free(buf);
    return n == READ_BYTES;
}

static void read_to_end(Reader *reader)
{
    while (read_one(reader))
        ;
    g_assert_cmpuint(reader->pos, ==, reader->all->len);
}

/* Until something lies ready behind the window. */
static void read_until_ready(Reader *reader)
{
    do
        g_assert_true(read_one(reader));
    while (!nrd_frame_ahead_settle(reader->text->frames));
}

static uint64_t window_pos(const Reader *reader)
{
    return reader->text->reader.window_pos;
}

/* What lies ready is read without the disk, and through all segments, to an end that moves, the text is what it is. */
static void test_taken(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 8);
    settings(&f, (uint64_t)2 * NRD_MIB, NRD_CODEC_NONE);
    Reader reader = reader_new(&f, &m);
    read_until_ready(&reader);
    uint64_t before = window_pos(&reader);
    fault_set(FAULT_PREAD, 1, -EIO, true);
    while (window_pos(&reader) == before)
        g_assert_true(read_one(&reader));
    g_assert_true(read_one(&reader));
    nrd_frame_ahead_settle(reader.text->frames);
    fault_clear();
    read_to_end(&reader);
    g_assert_cmpuint(nrd_frame_ahead_n_holders(), ==, 0); /* a tail that waits keeps nothing */
    for (int i = 0; i < 4; i++) {
        model_commit(&f, &m, FRAME_RECORDS, 2000);
        settings(&f, (uint64_t)2 * NRD_MIB, i % 2 == 0 ? NRD_CODEC_ZSTD : NRD_CODEC_NONE);
        read_to_end(&reader);
    }
    nrd_text_close(reader.text);
    tear_down(&f, &m);
}

/* Short frames come in windows of many. */
static void test_short_frames(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 0);
    for (int i = 0; i < 300; i++)
        model_commit(&f, &m, 8, 2000);
    Reader reader = reader_new(&f, &m);
    read_until_ready(&reader);
    uint64_t ready_pos = reader.text->reader.window_pos + reader.text->reader.window_size;
    fault_set(FAULT_PREAD, 1, -EIO, true);
    while (reader.text->reader.end_pos < ready_pos)
        g_assert_true(read_one(&reader));
    nrd_frame_ahead_settle(reader.text->frames);
    fault_clear();
    read_to_end(&reader);
    nrd_text_close(reader.text);
    tear_down(&f, &m);
}

/* Only what is asked for is given: of that segment, that index, that place and that record. */
static void test_not_another(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 6);
    Reader reader = reader_new(&f, &m);
    NrdText *text = reader.text;
    read_until_ready(&reader);
    NrdFrameSource source = { f.log, text->segment, text->segment_version };
    NrdFrameSource newer = { f.log, text->segment, text->segment_version + 1 };
    NrdFrameSource other = { f.log, (NrdSegment *)&f, text->segment_version };
    NrdFrameReader *loaded = &text->reader;
    NrdFrameWant want = { .pos = loaded->end_pos, .offset = loaded->header.offset + loaded->header.n_records };
    NrdFrameWant further = { .pos = want.pos + 1, .offset = want.offset };
    NrdFrameWant later = { .pos = want.pos, .offset = want.offset + 1 };
    g_assert_false(nrd_frame_ahead_take(NULL, &source, &want, loaded));
    g_assert_false(nrd_frame_ahead_take(text->frames, &newer, &want, loaded));
    g_assert_false(nrd_frame_ahead_take(text->frames, &other, &want, loaded));
    g_assert_false(nrd_frame_ahead_take(text->frames, &source, &further, loaded));
    g_assert_false(nrd_frame_ahead_take(text->frames, &source, &later, loaded));
    g_assert_true(nrd_frame_ahead_take(text->frames, &source, &want, loaded));
    g_assert_cmpuint(loaded->header.offset, ==, want.offset);
    g_assert_false(nrd_frame_ahead_take(text->frames, &source, &want, loaded)); /* once */
    nrd_text_close(text);
    tear_down(&f, &m);
}

/* A frame that could not be read ahead, or is damaged by now, is met by the read itself. */
static void test_failures(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 6);
    Reader reader = reader_new(&f, &m);
    gate_set(true);
    do
        g_assert_true(read_one(&reader));
    while (reader.text->frames == NULL);
    gate_wait_for_one();
    fault_set(FAULT_PREAD, 1, -EIO, true);
    gate_set(false);
    g_assert_false(nrd_frame_ahead_settle(reader.text->frames));
    fault_clear();
    read_until_ready(&reader);
    /* the text moves: the frame that lies ready is a gap now */
    uint64_t first = reader.text->reader.header.offset + reader.text->reader.header.n_records, next;
    fixture_flip(&f, SEGMENT_0, reader.text->reader.end_pos + 2000);
    g_assert_cmpint(fixture_read(&f, first, NULL, &next), ==, -EBADMSG);
    g_assert_cmpuint(next, ==, first + FRAME_RECORDS);
    size_t gap_pos = model_start(&m, first);
    g_string_erase(m.text, (gssize)gap_pos, (gssize)(model_start(&m, next) - gap_pos));
    read_to_end(&reader);
    nrd_text_close(reader.text);
    tear_down(&f, &m);
}

/* The read does not wait for a thread that hangs, nor do others, whose frames are in line behind it. */
static void test_hangs(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 8);
    Reader hanging = reader_new(&f, &m), other = reader_new(&f, &m);
    gate_set(true);
    do
        g_assert_true(read_one(&hanging));
    while (hanging.text->frames == NULL);
    gate_wait_for_one();
    read_to_end(&other);
    uint64_t before = window_pos(&hanging);
    while (window_pos(&hanging) == before)
        g_assert_true(read_one(&hanging));
    gate_set(false);
    read_to_end(&hanging);
    nrd_text_close(hanging.text);
    nrd_text_close(other.text);
    tear_down(&f, &m);
}

/* A reader that jumps about has nothing read ahead for it, and one that has jumped away gets what it asks for. */
static void test_jumps(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 8);
    Reader reader = reader_new(&f, &m);
    for (int i = 0; i < 200; i++) {
        reader.pos = (size_t)g_test_rand_int_range(0, (gint32)(m.text->len - 3 * READ_BYTES));
        for (int j = 0; j < 2; j++)
            g_assert_true(read_one(&reader));
        reader.pos++; /* or the next place might be the one that follows */
        g_assert_true(read_one(&reader));
    }
    g_assert_null(reader.text->frames);
    for (int i = 0; i < 50; i++) {
        reader.pos = (size_t)g_test_rand_int_range(0, (gint32)(m.text->len - 20 * READ_BYTES));
        for (int j = g_test_rand_int_range(1, 20); j > 0; j--)
            g_assert_true(read_one(&reader));
    }
    nrd_text_close(reader.text);
    tear_down(&f, &m);
}

static void *close_text(void *data)
{
    nrd_text_close(data);
    return NULL;
}

/* A close waits for the load that is under way, since that reads the text's log; not for one in line. */
static void test_close(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 6);
    Reader loading = reader_new(&f, &m), in_line = reader_new(&f, &m);
    gate_set(true);
    do
        g_assert_true(read_one(&loading));
    while (loading.text->frames == NULL);
    gate_wait_for_one();
    do
        g_assert_true(read_one(&in_line));
    while (in_line.text->frames == NULL);
    nrd_text_close(in_line.text);
    GThread *closing = g_thread_new("close", close_text, loading.text);
    g_assert_cmpint(nrd_log_close(f.log), ==, 0);
    gate_set(false);
    g_thread_join(closing);
    tear_down(&f, &m);
}

/* A log of two segments, six frames each. */
static void set_up_two(Fixture *f, Model *m)
{
    set_up(f, m, 0);
    settings(f, (uint64_t)64 * NRD_MIB, NRD_CODEC_NONE);
    for (unsigned i = 0; i < 12; i++) {
        if (i == 6)
            g_assert_cmpint(nrd_log_roll(f->log), ==, 0);
        model_commit(f, m, FRAME_RECORDS, 2000);
    }
}

/* Of a segment that is in line the file stays, however far the reader has gone and retention would take it: it must not
 * look like one that others have taken away. */
static void test_held(void)
{
    Fixture f;
    Model m;
    uint64_t n_trimmed, n_left;
    set_up_two(&f, &m);
    Reader loading = reader_new(&f, &m), in_line = reader_new(&f, &m);
    gate_set(true);
    loading.pos = model_start(&m, 10 * FRAME_RECORDS); /* in the second segment */
    do
        g_assert_true(read_one(&loading));
    while (loading.text->frames == NULL);
    gate_wait_for_one();
    do
        g_assert_true(read_one(&in_line));
    while (in_line.text->frames == NULL);
    g_assert_cmpint(nrd_log_trim(f.log, 6 * FRAME_RECORDS, &n_trimmed), ==, 0);
    in_line.pos = model_start(&m, 10 * FRAME_RECORDS);
    g_assert_true(read_one(&in_line));
    g_assert_true(read_one(&loading)); /* both have gone by the first segment */
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n_left), ==, 0);
    g_assert_true(fixture_exists(&f, SEGMENT_0));
    gate_set(false);
    nrd_frame_ahead_settle(in_line.text->frames);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n_left), ==, 0);
    g_assert_false(fixture_exists(&f, SEGMENT_0));
    read_to_end(&in_line);
    nrd_text_close(in_line.text);
    nrd_text_close(loading.text);
    tear_down(&f, &m);
}

/* The log is poisoned, and reopened, while a frame lies ready: what is committed is read, and what was not is not. */
static void test_poisoned(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 6);
    Reader reader = reader_new(&f, &m), other = reader_new(&f, &m);
    read_until_ready(&reader);
    read_until_ready(&other);
    fault_set(FAULT_FDATASYNC, 1, -EIO, false);
    g_assert_cmpint(fixture_try_commit(&f, "not this", NULL), ==, -EIO);
    fault_clear();
    g_assert_true(nrd_log_is_poisoned(f.log));
    read_to_end(&other);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
    model_commit(&f, &m, FRAME_RECORDS, 2000);
    read_to_end(&reader);
    read_to_end(&other);
    nrd_text_close(reader.text);
    nrd_text_close(other.text);
    tear_down(&f, &m);
}

/* Others have removed the file of a segment, and a reopen has found that, while a frame of it lies ready. */
static void test_removed(void)
{
    Fixture f;
    Model m;
    set_up_two(&f, &m);
    Reader reader = reader_new(&f, &m);
    read_until_ready(&reader);
    size_t gap_size = model_start(&m, 6 * FRAME_RECORDS);
    fixture_remove(&f, SEGMENT_0);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
    g_string_erase(m.text, 0, (gssize)gap_size); /* what follows has moved up */
    read_to_end(&reader);
    nrd_text_close(reader.text);
    tear_down(&f, &m);
}

/* A frame that is longer than 8 MiB, as it is stored or unpacked, is left to the read. */
static void test_long_frames(void)
{
    Fixture f;
    Model m;
    for (int i = 0; i < 2; i++) {
        set_up(&f, &m, 1);
        settings(&f, (uint64_t)64 * NRD_MIB, i == 0 ? NRD_CODEC_NONE : NRD_CODEC_ZSTD);
        model_commit(&f, &m, 12000, 2000);
        model_commit(&f, &m, FRAME_RECORDS, 2000);
        Reader reader = reader_new(&f, &m);
        while (reader.text->frames == NULL)
            g_assert_true(read_one(&reader));
        g_assert_cmpuint(reader.text->reader.header.n_records, ==, FRAME_RECORDS);
        g_assert_false(nrd_frame_ahead_settle(reader.text->frames));
        read_to_end(&reader);
        nrd_text_close(reader.text);
        tear_down(&f, &m);
    }
}

/* Who does not go on keeps nothing for long. */
static void test_rest(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 6);
    Reader reader = reader_new(&f, &m);
    read_until_ready(&reader);
    g_assert_cmpuint(nrd_frame_ahead_n_holders(), ==, 1);
    nrd_frame_ahead_set_keep_ms(1);
    while (nrd_frame_ahead_n_holders() > 0)
        g_usleep(1000);
    g_assert_false(nrd_frame_ahead_settle(reader.text->frames));
    nrd_frame_ahead_set_keep_ms(0);
    read_to_end(&reader);
    nrd_text_close(reader.text);
    tear_down(&f, &m);
}

/* Without a thread everything is read when it is wanted; with the next window one is asked for again. */
static void test_no_thread(void)
{
    Fixture f;
    Model m;
    set_up(&f, &m, 6);
    Reader reader = reader_new(&f, &m);
    no_threads = true;
    for (uint64_t before = window_pos(&reader); window_pos(&reader) <= before;)
        g_assert_true(read_one(&reader));
    g_assert_null(reader.text->frames);
    no_threads = false;
    read_until_ready(&reader);
    read_to_end(&reader);
    nrd_text_close(reader.text);
    tear_down(&f, &m);
}

/* The log is recovered in place, loses its oldest segments, or is closed, while a frame lies ready. */
static void test_log_changes(void)
{
    Fixture f;
    Model m;
    uint64_t n_trimmed, n_left;
    char *buf = g_malloc(READ_BYTES);
    size_t n;
    set_up(&f, &m, 6);
    Reader reader = reader_new(&f, &m);
    read_until_ready(&reader);
    g_assert_cmpint(nrd_log_reopen(f.log), ==, 0);
    read_until_ready(&reader);
    g_assert_cmpint(nrd_log_roll(f.log), ==, 0);
    model_commit(&f, &m, FRAME_RECORDS, 2000);
    g_assert_cmpint(nrd_log_trim(f.log, nrd_log_hwm(f.log) - 1, &n_trimmed), ==, 0);
    g_assert_cmpint(nrd_log_remove_detached(f.log, &n_left), ==, 0);
    read_to_end(&reader);
    nrd_text_close(reader.text);

    for (int i = 0; i < 5; i++)
        model_commit(&f, &m, FRAME_RECORDS, 2000);
    g_string_erase(m.text, 0, (gssize)model_start(&m, nrd_log_oldest(f.log)));
    reader = reader_new(&f, &m);
    read_until_ready(&reader);
    g_assert_cmpint(nrd_log_close(f.log), ==, 0);
    g_assert_cmpint(nrd_text_read(reader.text, reader.pos, buf, READ_BYTES, &n), ==, -ESHUTDOWN);
    nrd_text_close(reader.text);
    g_free(buf);
    tear_down(&f, &m);
}

static void *read_whole(void *data)
{
    Reader *reader = data;
    read_to_end(reader);
    nrd_text_close(reader->text);
    return NULL;
}

/* Many at once, more than have one read ahead, which come and go. */
static void test_many(void)
{
    enum { N = 20 };
    Fixture f;
    Model m;
    Reader readers[N];
    GThread *threads[N];
    set_up(&f, &m, 6);
    for (int i = 0; i < N; i++) {
        readers[i] = reader_new(&f, &m);
        threads[i] = g_thread_new("reader", read_whole, &readers[i]);
    }
    for (int i = 0; i < N; i++)
        g_thread_join(threads[i]);
    Reader all[N];
    unsigned n_ahead = 0;
    for (int i = 0; i < N; i++) {
        all[i] = reader_new(&f, &m);
        for (int j = 0; j < 5; j++)
            g_assert_true(read_one(&all[i]));
        n_ahead += nrd_frame_ahead_settle(all[i].text->frames);
    }
    g_assert_cmpuint(n_ahead, ==, 16);
    g_assert_cmpuint(nrd_frame_ahead_n_holders(), ==, 16);
    for (int i = N; i-- > 0;) {
        read_to_end(&all[i]);
        nrd_text_close(all[i].text);
    }
    tear_down(&f, &m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/log/frame-ahead/taken", test_taken);
    g_test_add_func("/log/frame-ahead/short-frames", test_short_frames);
    g_test_add_func("/log/frame-ahead/not-another", test_not_another);
    g_test_add_func("/log/frame-ahead/failures", test_failures);
    g_test_add_func("/log/frame-ahead/hangs", test_hangs);
    g_test_add_func("/log/frame-ahead/jumps", test_jumps);
    g_test_add_func("/log/frame-ahead/close", test_close);
    g_test_add_func("/log/frame-ahead/held", test_held);
    g_test_add_func("/log/frame-ahead/poisoned", test_poisoned);
    g_test_add_func("/log/frame-ahead/removed", test_removed);
    g_test_add_func("/log/frame-ahead/long-frames", test_long_frames);
    g_test_add_func("/log/frame-ahead/rest", test_rest);
    g_test_add_func("/log/frame-ahead/no-thread", test_no_thread);
    g_test_add_func("/log/frame-ahead/log-changes", test_log_changes);
    g_test_add_func("/log/frame-ahead/many", test_many);
    return g_test_run();
}
