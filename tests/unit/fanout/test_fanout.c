/* Links, passes and workers over topics that are arrays in memory: what is copied, when, how often, and what happens when
 * something fails. The cursors are real files. */
#include "engine/fanout/fanout.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"
#include "engine/fanout/cursor_store.h"
#include "engine/io/io.h"
#include "tests/unit/few_threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 20000
#define MAX_PARTS 8

/* ---- a small world ---- */

typedef struct Rec {
    char *key; /* or NULL */
    char *payload;
    size_t payload_size;
    int64_t commit_ms;
    bool damaged;
} Rec;

typedef struct Part {
    GPtrArray *records; /* of Rec; the index is the offset */
    uint64_t oldest;
    uint64_t hwm;
    int generation;
    int fail_commits; /* so many fail; -1: all */
    int fail_reads;
    bool poisoned;
    bool poisons; /* the next commit does */
    bool hang;    /* commits do not return */
    int n_claims;
    int n_open;
    GArray *commits; /* of uint32_t: records in each commit */
} Part;

typedef struct Topic {
    const char *name;
    uint32_t n_parts;
    Part parts[MAX_PARTS];
    int n_refs;
} Topic;

static pthread_mutex_t world = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static int n_looks; /* at bounds, by passes */
static int n_hanging;

static void rec_free(gpointer data)
{
    Rec *rec = data;
    g_free(rec->key);
    g_free(rec->payload);
    g_free(rec);
}

static Topic *topic_new(const char *name, uint32_t n_parts)
{
    Topic *topic = g_new0(Topic, 1);
    topic->name = name;
    topic->n_parts = n_parts;
    for (unsigned i = 0; i < MAX_PARTS; i++) {
        topic->parts[i].records = g_ptr_array_new_with_free_func(rec_free);
        topic->parts[i].commits = g_array_new(FALSE, FALSE, sizeof(uint32_t));
    }
    return topic;
}

static void topic_free(Topic *topic)
{
    g_assert_cmpint(topic->n_refs, ==, 0);
    for (unsigned i = 0; i < MAX_PARTS; i++) {
        g_assert_cmpint(topic->parts[i].n_claims, ==, 0);
        g_assert_cmpint(topic->parts[i].n_open, ==, 0);
        g_ptr_array_unref(topic->parts[i].records);
        g_array_unref(topic->parts[i].commits);
    }
    g_free(topic);
}

static void op_release(void *data)
{
    pthread_mutex_lock(&world);
    ((Topic *)data)->n_refs--;
    pthread_mutex_unlock(&world);
}

static uint32_t op_n_partitions(void *data)
{
    pthread_mutex_lock(&world);
    uint32_t n = ((Topic *)data)->n_parts;
    pthread_mutex_unlock(&world);
    return n;
}

static uintptr_t op_identity(void *data, uint32_t partition)
{
    pthread_mutex_lock(&world);
    uintptr_t identity = (uintptr_t)((Topic *)data)->parts[partition].generation + 1;
    pthread_mutex_unlock(&world);
    return identity;
}

static int op_bounds(void *data, uint32_t partition, bool may_block, uint64_t *ret_oldest, uint64_t *ret_hwm)
{
    pthread_mutex_lock(&world);
    const Part *part = &((Topic *)data)->parts[partition];
    *ret_oldest = part->oldest;
    *ret_hwm = part->hwm;
    n_looks += may_block;
    pthread_mutex_unlock(&world);
    return 0;
}

static int op_open(void *data, uint32_t partition, void **ret_source)
{
    pthread_mutex_lock(&world);
    Part *part = &((Topic *)data)->parts[partition];
    part->n_open++;
    *ret_source = part;
    pthread_mutex_unlock(&world);
    return 0;
}

static void op_close(void *source)
{
    pthread_mutex_lock(&world);
    ((Part *)source)->n_open--;
    pthread_mutex_unlock(&world);
}

static int read_locked(Part *part, uint64_t offset, NrdFanoutRecord *ret_record, uint64_t *ret_next)
{
    if (part->fail_reads > 0) {
        part->fail_reads--;
        return -EIO;
    }
    if (offset < part->oldest || offset >= part->hwm)
        return -ENOENT;
    const Rec *rec = part->records->pdata[offset];
    *ret_next = offset + 1;
    if (rec->damaged)
        return -EBADMSG;
    *ret_record = (NrdFanoutRecord){ rec->commit_ms, (const uint8_t *)rec->key, rec->key ? strlen(rec->key) : 0,
                                     (const uint8_t *)rec->payload, rec->payload_size };
    return 0;
}

static int op_read(void *source, uint64_t offset, NrdFanoutRecord *ret_record, uint64_t *ret_next)
{
    pthread_mutex_lock(&world);
    int rc = read_locked(source, offset, ret_record, ret_next);
    pthread_mutex_unlock(&world);
    return rc;
}

static int op_find_time(void *source, int64_t time_ms, uint64_t *ret_offset)
{
    pthread_mutex_lock(&world);
    const Part *part = source;
    uint64_t offset = part->oldest;
    while (offset < part->hwm && ((const Rec *)part->records->pdata[offset])->commit_ms < time_ms)
        offset++;
    *ret_offset = offset;
    pthread_mutex_unlock(&world);
    return 0;
}

/* "2x" goes to partition 2. */
static uint32_t op_key_partition(const void *key, size_t key_size, uint32_t n_partitions)
{
    g_assert_cmpuint(key_size, >, 0);
    return (uint32_t)(*(const char *)key - '0') % n_partitions;
}

static bool op_well(void *data, uint32_t partition)
{
    pthread_mutex_lock(&world);
    bool well = !((Topic *)data)->parts[partition].poisoned;
    pthread_mutex_unlock(&world);
    return well;
}

static bool op_sibling(void *data, uint32_t partition, uint32_t *ret_sibling)
{
    uint32_t n = op_n_partitions(data);
    for (uint32_t i = 1; i < n; i++) {
        if (!op_well(data, (partition + i) % n))
            continue;
        *ret_sibling = (partition + i) % n;
        return true;
    }
    return false;
}

static int op_claim(void *data, uint32_t partition)
{
    pthread_mutex_lock(&world);
    ((Topic *)data)->parts[partition].n_claims++;
    pthread_mutex_unlock(&world);
    return 0;
}

static void op_unclaim(void *data, uint32_t partition)
{
    pthread_mutex_lock(&world);
    ((Topic *)data)->parts[partition].n_claims--;
    pthread_mutex_unlock(&world);
}

static void *op_batch_new(void)
{
    return g_ptr_array_new_with_free_func(rec_free);
}

static void op_batch_free(void *batch)
{
    g_ptr_array_unref(batch);
}

static void op_batch_add(void *batch, const NrdFanoutRecord *record)
{
    Rec *rec = g_new0(Rec, 1);
    rec->key = record->key_size > 0 ? g_strndup((const char *)record->key, record->key_size) : NULL;
    rec->payload = g_memdup2(record->payload, record->payload_size + 1);
    rec->payload_size = record->payload_size;
    g_ptr_array_add(batch, rec);
}

static int commit_locked(Part *part, GPtrArray *batch)
{
    g_assert_cmpint(part->n_claims, >, 0);
    n_hanging += part->hang;
    pthread_cond_broadcast(&moved);
    while (part->hang)
        pthread_cond_wait(&moved, &world);
    part->poisoned |= part->poisons;
    if (part->fail_commits != 0 || part->poisoned) {
        part->fail_commits -= part->fail_commits > 0;
        return -ENOSPC;
    }
    for (guint i = 0; i < batch->len; i++) {
        ((Rec *)batch->pdata[i])->commit_ms = nrd_clock_wall_ms();
        g_ptr_array_add(part->records, batch->pdata[i]);
    }
    const uint32_t n = batch->len;
    g_array_append_val(part->commits, n);
    part->hwm += n;
    g_ptr_array_set_free_func(batch, NULL);
    return 0;
}

static int op_commit(void *data, uint32_t partition, void *batch)
{
    pthread_mutex_lock(&world);
    int rc = commit_locked(&((Topic *)data)->parts[partition], batch);
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&world);
    g_ptr_array_unref(batch);
    return rc;
}

static const NrdFanoutOps ops = {
    op_release, op_n_partitions, op_identity,      op_bounds,    op_open,    op_close,
    op_read,    op_find_time,    op_key_partition, op_well,      op_sibling, op_claim,
    op_unclaim, op_batch_new,    op_batch_free,    op_batch_add, op_commit,
};

/* ---- the fixture ---- */

typedef struct Fixture {
    char *path;
    int root_fd;
    NrdFanout *fanout;
    Topic *parent;
    Topic *child;
} Fixture;

static void start(Fixture *f)
{
    f->fanout = nrd_fanout_new(&(NrdFanoutOptions){ .root_fd = f->root_fd, .ops = ops });
    nrd_fanout_start(f->fanout);
}

static void stop(Fixture *f)
{
    nrd_fanout_close(f->fanout);
    nrd_fanout_notify(f->fanout, f->parent, 0, 5); /* too late, and harmless */
    nrd_fanout_free(g_steal_pointer(&f->fanout));
}

static void set_up(Fixture *f, gconstpointer data)
{
    (void)data;
    f->path = g_dir_make_tmp("naradfs-fanout-XXXXXX", NULL);
    g_assert_cmpint(nrd_io_open_root(f->path, &f->root_fd), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(f->root_fd, "topics"), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(f->root_fd, "topics/parent"), ==, 0);
    for (unsigned i = 0; i < MAX_PARTS; i++) {
        g_autofree char *dir = g_strdup_printf("topics/parent/p%05u", i);
        g_assert_cmpint(nrd_io_make_dir(f->root_fd, dir), ==, 0);
    }
    f->parent = topic_new("parent", 1);
    f->child = topic_new("child", 1);
    n_hanging = 0;
    start(f);
}

static void tear_down(Fixture *f, gconstpointer data)
{
    (void)data;
    if (f->fanout)
        stop(f);
    topic_free(f->parent);
    topic_free(f->child);
    nrd_io_close(&f->root_fd);
    g_autofree char *parent = g_path_get_dirname(f->path);
    g_autofree char *name = g_path_get_basename(f->path);
    int fd;
    g_assert_cmpint(nrd_io_open_root(parent, &fd), ==, 0);
    g_assert_cmpint(nrd_io_remove_tree(fd, name), ==, 0);
    nrd_io_close(&fd);
    g_free(f->path);
}

static const NrdCursorOwner owner = { 77, 88 };

static void add_link(Fixture *f, Topic *child, int64_t attached_ms, int64_t delay_ms)
{
    pthread_mutex_lock(&world);
    f->parent->n_refs++;
    child->n_refs++;
    pthread_mutex_unlock(&world);
    nrd_fanout_add(f->fanout,
                   &(NrdFanoutLink){ f->parent, child, "parent", child->name, owner, attached_ms, delay_ms });
}

static void put_rec(Fixture *f, uint32_t partition, const char *key, const char *payload, size_t size)
{
    Rec *rec = g_new0(Rec, 1);
    rec->key = g_strdup(key);
    rec->payload = g_malloc0(size + 1);
    memcpy(rec->payload, payload, strlen(payload));
    rec->payload_size = size;
    rec->commit_ms = nrd_clock_wall_ms();
    pthread_mutex_lock(&world);
    g_ptr_array_add(f->parent->parts[partition].records, rec);
    f->parent->parts[partition].hwm++;
    pthread_mutex_unlock(&world);
}

static void notify(Fixture *f, uint32_t partition)
{
    nrd_fanout_notify(f->fanout, f->parent, partition, f->parent->parts[partition].hwm);
}

static void put(Fixture *f, uint32_t partition, const char *key, const char *payload)
{
    put_rec(f, partition, key, payload, strlen(payload));
    notify(f, partition);
}

/* What a partition holds, " " between. */
static char *text_of(Topic *topic, uint32_t partition)
{
    GString *text = g_string_new(NULL);
    pthread_mutex_lock(&world);
    const Part *part = &topic->parts[partition];
    for (uint64_t i = 0; i < part->hwm; i++)
        g_string_append_printf(text, "%s%s", i > 0 ? " " : "", ((const Rec *)part->records->pdata[i])->payload);
    pthread_mutex_unlock(&world);
    return g_string_free(text, FALSE);
}

static void assert_becomes(Topic *topic, uint32_t partition, const char *expected)
{
    g_autofree char *text = NULL;
    for (int i = 0; i < WAIT_MS; i++) {
        g_free(text);
        text = text_of(topic, partition);
        if (strcmp(text, expected) == 0)
            return;
        g_usleep(1000);
    }
    g_assert_cmpstr(text, ==, expected);
}

static uint64_t hwm_of(Topic *topic, uint32_t partition)
{
    pthread_mutex_lock(&world);
    uint64_t hwm = topic->parts[partition].hwm;
    pthread_mutex_unlock(&world);
    return hwm;
}

static void wait_hwm(Topic *topic, uint32_t partition, uint64_t hwm)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_MS / 1000;
    int rc = 0;
    pthread_mutex_lock(&world);
    while (topic->parts[partition].hwm < hwm && rc == 0)
        rc = pthread_cond_timedwait(&moved, &world, &until);
    g_assert_cmpuint(topic->parts[partition].hwm, ==, hwm);
    pthread_mutex_unlock(&world);
}

static NrdFanoutInfo info_of(Fixture *f, const Topic *child)
{
    NrdFanoutInfo info;
    g_assert_true(nrd_fanout_info(f->fanout, f->parent, child->name, &info));
    return info;
}

/* The row of a partition once it says what is waited for. */
#define WAIT_FOR(f, child, number, row, condition)                                                                     \
    do {                                                                                                               \
        bool there = false;                                                                                            \
        for (int ms = 0; !there && ms < WAIT_MS; ms++) {                                                               \
            NrdFanoutInfo info = info_of(f, child);                                                                    \
            const NrdFanoutRow *row = &g_array_index(info.rows, NrdFanoutRow, number);                                 \
            there = condition;                                                                                         \
            g_array_unref(info.rows);                                                                                  \
            if (!there)                                                                                                \
                g_usleep(1000);                                                                                        \
        }                                                                                                              \
        g_assert_true(there);                                                                                          \
    } while (0)

static void wait_cursor(Fixture *f, const Topic *child, uint32_t number, uint64_t offset)
{
    WAIT_FOR(f, child, number, row, row->cursor == offset);
}

/* ---- copying ---- */

static void test_copies(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 3;
    add_link(f, f->child, 0, 0);
    put(f, 0, "1k", "a");
    put(f, 0, "2k", "b");
    put(f, 0, "1k", "c");
    assert_becomes(f->child, 1, "a c");
    assert_becomes(f->child, 2, "b");
    for (int i = 0; i < 6; i++)
        put(f, 0, NULL, "u");
    assert_becomes(f->child, 0, "u u");
    assert_becomes(f->child, 1, "a c u u");
    assert_becomes(f->child, 2, "b u u");
    wait_cursor(f, f->child, 0, 9);
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.lag, ==, 0);
    g_assert_cmpuint(info.n_copied, ==, 9);
    g_assert_cmpuint(info.n_dropped, ==, 0);
    g_array_unref(info.rows);
}

static void test_batch_records(Fixture *f, gconstpointer data)
{
    (void)data;
    for (unsigned i = 0; i < NRD_FANOUT_BATCH_RECORDS + 1; i++)
        put_rec(f, 0, NULL, "x", 1);
    add_link(f, f->child, 0, 0);
    wait_hwm(f->child, 0, NRD_FANOUT_BATCH_RECORDS + 1);
    g_assert_cmpuint(f->child->parts[0].commits->len, ==, 2);
    g_assert_cmpuint(g_array_index(f->child->parts[0].commits, uint32_t, 0), ==, NRD_FANOUT_BATCH_RECORDS);
}

static void test_batch_bytes(Fixture *f, gconstpointer data)
{
    (void)data;
    size_t half = NRD_FANOUT_BATCH_BYTES / 2;
    put_rec(f, 0, NULL, "a", half);
    put_rec(f, 0, NULL, "b", half);
    put_rec(f, 0, NULL, "c", 1);
    put_rec(f, 0, NULL, "d", 2 * NRD_FANOUT_BATCH_BYTES); /* alone, since it has to go */
    put_rec(f, 0, NULL, "e", 1);
    add_link(f, f->child, 0, 0);
    wait_hwm(f->child, 0, 5);
    static const uint32_t expected[] = { 2, 1, 1, 1 };
    g_assert_cmpmem(f->child->parts[0].commits->data, f->child->parts[0].commits->len * sizeof(uint32_t), expected,
                    sizeof expected);
}

/* Several children, and several partitions on both sides. */
static void test_many(Fixture *f, gconstpointer data)
{
    (void)data;
    Topic *children[5];
    f->parent->n_parts = 4;
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++) {
        static const char *const names[] = { "c0", "c1", "c2", "c3", "c4" };
        children[i] = topic_new(names[i], 1);
        add_link(f, children[i], 0, 0);
    }
    for (unsigned i = 0; i < 400; i++)
        put(f, i % 4, NULL, "x");
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++)
        wait_hwm(children[i], 0, 400);
    stop(f);
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++)
        topic_free(children[i]);
}

/* ---- failures of the child ---- */

/* The part that was committed is not committed again when the other one is. */
static void test_part_fails(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 2;
    f->child->parts[1].fail_commits = 2;
    put_rec(f, 0, "0", "a", 1);
    put_rec(f, 0, "1", "b", 1);
    put_rec(f, 0, "0", "c", 1);
    put_rec(f, 0, "1", "d", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 1, "b d");
    assert_becomes(f->child, 0, "a c");
    put(f, 0, "0", "e");
    assert_becomes(f->child, 0, "a c e");
    wait_cursor(f, f->child, 0, 5);
}

static void test_moves_after_three(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 2;
    f->child->parts[1].fail_commits = 3;
    put_rec(f, 0, "1", "a", 1);
    put_rec(f, 0, "0", "b", 1);
    put_rec(f, 0, "1", "c", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "b a c");
    put(f, 0, "1", "d"); /* home again */
    assert_becomes(f->child, 1, "d");
    assert_becomes(f->child, 0, "b a c");
}

/* Records that move to a partition whose own part is committed in the same pass are not taken for committed. */
static void test_moves_beside_a_commit(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 2;
    f->child->parts[0].poisons = true;
    put_rec(f, 0, "0", "a", 1);
    put_rec(f, 0, "1", "b", 1);
    add_link(f, f->child, 0, 0); /* after both: one pass sees them */
    assert_becomes(f->child, 1, "b a");
    wait_cursor(f, f->child, 0, 2);
}

static void test_poisoned(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 3;
    f->child->parts[1].poisoned = true;
    add_link(f, f->child, 0, 0);
    put(f, 0, "1", "a");
    put(f, 0, "1", "b");
    assert_becomes(f->child, 2, "a b");
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(g_array_index(info.rows, NrdFanoutRow, 0).n_failed, ==, 0);
    g_array_unref(info.rows);
    pthread_mutex_lock(&world);
    f->child->parts[1].poisoned = false;
    pthread_mutex_unlock(&world);
    put(f, 0, "1", "c");
    assert_becomes(f->child, 1, "c");
}

/* Nowhere to go: tried again until it is well, told in the row, at once when somebody says that it may be. */
static void test_waits_for_the_child(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->parts[0].fail_commits = -1;
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    WAIT_FOR(f, f->child, 0, row, row->n_failed >= 4 && row->error == -ENOSPC && row->cursor == 0);
    pthread_mutex_lock(&world);
    f->child->parts[0].fail_commits = 0;
    pthread_mutex_unlock(&world);
    nrd_fanout_kick(f->fanout, f->child);
    assert_becomes(f->child, 0, "a");
    WAIT_FOR(f, f->child, 0, row, row->n_failed == 0 && row->error == 0);
}

/* A child whose commits do not return holds up nobody but itself, with all its cursors. */
static void test_hanging_child(Fixture *f, gconstpointer data)
{
    (void)data;
    f->parent->n_parts = MAX_PARTS;
    f->child->parts[0].hang = true;
    for (uint32_t i = 0; i < MAX_PARTS; i++)
        put_rec(f, i, NULL, "x", 1);
    add_link(f, f->child, 0, 0);
    pthread_mutex_lock(&world);
    while (n_hanging < 2)
        pthread_cond_wait(&moved, &world);
    pthread_mutex_unlock(&world);
    Topic *other = topic_new("other", 1);
    add_link(f, other, 0, 0);
    wait_hwm(other, 0, MAX_PARTS);
    pthread_mutex_lock(&world);
    g_assert_cmpint(n_hanging, ==, 2);
    f->child->parts[0].hang = false;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&world);
    wait_hwm(f->child, 0, MAX_PARTS);
    stop(f);
    topic_free(other);
}

/* ---- failures of the parent ---- */

static void test_read_fails(Fixture *f, gconstpointer data)
{
    (void)data;
    f->parent->parts[0].fail_reads = 3;
    put_rec(f, 0, NULL, "a", 1);
    put_rec(f, 0, NULL, "b", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "a b");
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.n_dropped, ==, 0); /* an error of the disk is no loss */
    g_array_unref(info.rows);
}

static void test_lost_records(Fixture *f, gconstpointer data)
{
    (void)data;
    uint64_t before = nrd_counter_get(NRD_COUNTER_FANOUT_DROPPED);
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 0), ==, 0);
    for (char c = 'a'; c <= 'h'; c++)
        put_rec(f, 0, NULL, (char[]){ c, '\0' }, 1);
    f->parent->parts[0].oldest = 3;                                 /* retention was faster */
    ((Rec *)f->parent->parts[0].records->pdata[5])->damaged = true; /* f */
    ((Rec *)f->parent->parts[0].records->pdata[7])->damaged = true; /* h, the last one */
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "d e g");
    wait_cursor(f, f->child, 0, 8);
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.n_dropped, ==, 5);
    g_assert_cmpuint(info.n_copied, ==, 3);
    g_array_unref(info.rows);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_FANOUT_DROPPED) - before, ==, 5);
}

/* While a batch waits to be tried again its records may be lost too. */
static void test_lost_while_it_waits(Fixture *f, gconstpointer data)
{
    (void)data;
    f->child->n_parts = 2;
    f->child->parts[0].poisoned = f->child->parts[1].poisoned = true;
    add_link(f, f->child, 0, 0);
    put_rec(f, 0, "0", "a", 1);
    put_rec(f, 0, "1", "b", 1);
    put_rec(f, 0, "0", "c", 1);
    notify(f, 0);
    WAIT_FOR(f, f->child, 0, row, row->n_failed > 0);
    pthread_mutex_lock(&world);
    f->parent->parts[0].oldest = 1;
    f->child->parts[0].poisoned = f->child->parts[1].poisoned = false;
    pthread_mutex_unlock(&world);
    nrd_fanout_kick(f->fanout, f->child);
    assert_becomes(f->child, 0, "c");
    assert_becomes(f->child, 1, "b");
    wait_cursor(f, f->child, 0, 3);
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.n_dropped, ==, 1);
    g_array_unref(info.rows);
}

/* The log has lost its end: what comes there next has offsets that the cursor says are copied. */
static void test_above_the_end(Fixture *f, gconstpointer data)
{
    (void)data;
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 2), ==, 0);
    put_rec(f, 0, NULL, "a", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "a");
    put(f, 0, NULL, "b");
    put(f, 0, NULL, "c");
    assert_becomes(f->child, 0, "a b c");
    wait_cursor(f, f->child, 0, 3);
    pthread_mutex_lock(&world);
    g_ptr_array_set_size(f->parent->parts[0].records, 1);
    f->parent->parts[0].hwm = 1;
    pthread_mutex_unlock(&world);
    put(f, 0, NULL, "x");
    assert_becomes(f->child, 0, "a b c a x");
    WAIT_FOR(f, f->child, 0, row, row->cursor == 2 && row->hwm == 2);
    stop(f);
    start(f);
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "y");
    assert_becomes(f->child, 0, "a b c a x y");
}

/* The partition's folder was another incarnation's: what was known of the old files means nothing for the new ones. */
static void test_other_files(Fixture *f, gconstpointer data)
{
    (void)data;
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    wait_cursor(f, f->child, 0, 2);
    g_assert_cmpint(nrd_cursor_file_remove(f->root_fd, "topics/parent/p00000/fanout-child.offset"), ==, 0);
    pthread_mutex_lock(&world);
    f->parent->parts[0].generation++;
    f->parent->parts[0].hwm = 0;
    g_ptr_array_set_size(f->parent->parts[0].records, 0);
    pthread_mutex_unlock(&world);
    put(f, 0, NULL, "n");
    assert_becomes(f->child, 0, "a b n");
    WAIT_FOR(f, f->child, 0, row, row->cursor == 1 && row->hwm == 1);
}

static atomic_bool disk_full;

static ssize_t fills_up(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    return atomic_load(&disk_full) ? -ENOSPC : nrd_io_real.pwritev(fd, iov, n_iov, pos);
}

/* What could not be written of the old files' cursor is not written beside the new files, neither by the next pass nor at
 * a stop: it would say that records are copied which nobody has read. */
static void other_files_while_behind(Fixture *f, bool stops)
{
    NrdIo io = nrd_io_real;
    uint64_t before = nrd_counter_get(NRD_COUNTER_FANOUT_CURSOR);
    io.pwritev = fills_up;
    atomic_store(&disk_full, true);
    stop(f);
    nrd_io = &io;
    start(f);
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    wait_cursor(f, f->child, 0, 1);
    put(f, 0, NULL, "b");
    wait_cursor(f, f->child, 0, 2);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_FANOUT_CURSOR), >, before);
    pthread_mutex_lock(&world);
    f->parent->parts[0].generation++;
    f->parent->parts[0].hwm = 0;
    g_ptr_array_set_size(f->parent->parts[0].records, 0);
    pthread_mutex_unlock(&world);
    for (int i = 0; i < 3; i++)
        put_rec(f, 0, NULL, "n", 1);
    atomic_store(&disk_full, false);
    if (stops) {
        stop(f);
        start(f);
        add_link(f, f->child, 0, 0);
    }
    assert_becomes(f->child, 0, "a b n n n");
    stop(f);
    nrd_io = &nrd_io_real;
}

static void test_other_files_at_a_stop(Fixture *f, gconstpointer data)
{
    (void)data;
    other_files_while_behind(f, true);
}

static void test_other_files_when_tidied(Fixture *f, gconstpointer data)
{
    (void)data;
    other_files_while_behind(f, false);
}

/* ---- where it starts ---- */

static void test_prepared(Fixture *f, gconstpointer data)
{
    (void)data;
    f->parent->n_parts = 2;
    put_rec(f, 0, NULL, "old", 3);
    put_rec(f, 1, NULL, "old", 3);
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 1), ==, 0);
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 1, "child", &owner, 1), ==, 0);
    put_rec(f, 0, NULL, "a", 1);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "a");
    put(f, 1, NULL, "b");
    assert_becomes(f->child, 0, "a b");
}

static void damage_cursor(Fixture *f)
{
    g_assert_cmpint(nrd_io_replace_file(f->root_fd, "topics/parent/p00000/fanout-child.offset", "xyz", 3), ==, 0);
}

/* Without a cursor that is whole and of this attachment: from the first record committed since the attach. */
static void test_cursor_lost(Fixture *f, gconstpointer data)
{
    (void)data;
    put_rec(f, 0, NULL, "old", 3);
    ((Rec *)f->parent->parts[0].records->pdata[0])->commit_ms = 999;
    put_rec(f, 0, NULL, "a", 1);
    ((Rec *)f->parent->parts[0].records->pdata[1])->commit_ms = 1000;
    add_link(f, f->child, 1000, 0);
    assert_becomes(f->child, 0, "a");
    stop(f);
    start(f);
    add_link(f, f->child, 1000, 0);
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    stop(f);
    damage_cursor(f);
    start(f);
    add_link(f, f->child, 1000, 0);
    assert_becomes(f->child, 0, "a b a b");
}

/* A crash: the file is what it was before the last batch. */
static void test_crash(Fixture *f, gconstpointer data)
{
    (void)data;
    static const char path[] = "topics/parent/p00000/fanout-child.offset";
    g_autoptr(GBytes) bytes = NULL;
    gsize size;
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    assert_becomes(f->child, 0, "a");
    wait_cursor(f, f->child, 0, 1);
    g_assert_cmpint(nrd_io_read_file(f->root_fd, path, 65536, &bytes), ==, 0);
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    stop(f);
    const void *data_before = g_bytes_get_data(bytes, &size);
    g_assert_cmpint(nrd_io_replace_file(f->root_fd, path, data_before, size), ==, 0);
    start(f);
    add_link(f, f->child, 0, 0);
    assert_becomes(f->child, 0, "a b b");
}

static void test_growth(Fixture *f, gconstpointer data)
{
    (void)data;
    struct stat st;
    add_link(f, f->child, INT64_MAX, 0); /* were it asked for, nothing would have been committed since */
    wait_cursor(f, f->child, 0, 0);
    pthread_mutex_lock(&world);
    f->parent->n_parts = 3;
    f->child->n_parts = 2;
    pthread_mutex_unlock(&world);
    for (uint32_t i = 1; i < 3; i++)
        nrd_fanout_notify(f->fanout, f->parent, i, 0);
    /* its cursor is there before anything is committed */
    for (int ms = 0; ms < WAIT_MS; ms++) {
        if (nrd_io_stat(f->root_fd, "topics/parent/p00002/fanout-child.offset", &st) == 0)
            break;
        g_usleep(1000);
    }
    put(f, 2, "1", "a");
    assert_becomes(f->child, 1, "a");
}

/* ---- delay ---- */

#define HOUR_MS ((int64_t)60 * 60 * 1000)

static void test_delay(Fixture *f, gconstpointer data)
{
    (void)data;
    add_link(f, f->child, 0, HOUR_MS);
    put(f, 0, NULL, "a");
    put(f, 0, NULL, "b");
    int64_t due_ms = ((Rec *)f->parent->parts[0].records->pdata[0])->commit_ms + HOUR_MS;
    WAIT_FOR(f, f->child, 0, row, row->due_ms == due_ms);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 0);
    nrd_clock_shift_wall_ms(HOUR_MS - 60000); /* a minute to go */
    put(f, 0, NULL, "c");
    g_usleep(1300000); /* it has looked at the clock again */
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 0);
    nrd_clock_shift_wall_ms(61000);
    assert_becomes(f->child, 0, "a b");
    g_assert_cmpint(nrd_clock_wall_ms(), >=, due_ms);
    nrd_clock_shift_wall_ms(-2 * HOUR_MS); /* back: c waits */
    g_usleep(1300000);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 2);
    nrd_clock_shift_wall_ms(3 * HOUR_MS);
    assert_becomes(f->child, 0, "a b c");
    nrd_clock_shift_wall_ms(-2 * HOUR_MS - 1000);
}

/* By itself, with nobody touching the clock. */
static void test_short_delay(Fixture *f, gconstpointer data)
{
    (void)data;
    add_link(f, f->child, 0, 300);
    for (int i = 0; i < 5; i++) {
        put(f, 0, NULL, "x");
        wait_hwm(f->child, 0, (uint64_t)i + 1);
        int64_t committed_ms = ((Rec *)f->parent->parts[0].records->pdata[i])->commit_ms;
        g_assert_cmpint(((Rec *)f->child->parts[0].records->pdata[i])->commit_ms, >=, committed_ms + 300);
    }
}

/* Nothing is looked at while nothing is due; and nothing is open. */
static void test_idle_delay(Fixture *f, gconstpointer data)
{
    (void)data;
    f->parent->n_parts = MAX_PARTS;
    for (uint32_t i = 0; i < MAX_PARTS; i++)
        put_rec(f, i, NULL, "x", 1);
    add_link(f, f->child, 0, HOUR_MS);
    for (uint32_t i = 0; i < MAX_PARTS; i++)
        WAIT_FOR(f, f->child, i, row, row->due_ms > 0);
    g_usleep(2500000); /* the files were written; that is synced and put away */
    pthread_mutex_lock(&world);
    int before = n_looks;
    for (uint32_t i = 0; i < MAX_PARTS; i++)
        g_assert_cmpint(f->parent->parts[i].n_open, ==, 0);
    pthread_mutex_unlock(&world);
    g_usleep(2500000);
    pthread_mutex_lock(&world);
    g_assert_cmpint(n_looks, ==, before);
    pthread_mutex_unlock(&world);
    nrd_clock_shift_wall_ms(HOUR_MS); /* with nothing else to wake it */
    wait_hwm(f->child, 0, MAX_PARTS);
    nrd_clock_shift_wall_ms(-HOUR_MS);
}

/* ---- rest and stop ---- */

static int count_claims(Fixture *f)
{
    pthread_mutex_lock(&world);
    int n = f->child->parts[0].n_claims;
    pthread_mutex_unlock(&world);
    return n;
}

/* A claim is made once for many batches, and given back when nothing has been copied for a while. */
static void test_rest(Fixture *f, gconstpointer data)
{
    (void)data;
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    assert_becomes(f->child, 0, "a");
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    g_assert_cmpint(count_claims(f), ==, 1);
    for (int ms = 0; count_claims(f) > 0 && ms < WAIT_MS; ms++)
        g_usleep(1000);
    g_assert_cmpint(count_claims(f), ==, 0);
    g_assert_cmpint(f->parent->parts[0].n_open, ==, 0);
    put(f, 0, NULL, "c");
    assert_becomes(f->child, 0, "a b c");
}

static void *produce_on(void *data)
{
    Fixture *f = data;
    for (int i = 0; i < 3000; i++)
        put(f, (uint32_t)i % 4, NULL, "x");
    return NULL;
}

static void test_stop(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t thread;
    struct stat st;
    f->parent->n_parts = 4;
    add_link(f, f->child, 0, 0);
    pthread_create(&thread, NULL, produce_on, f);
    for (int ms = 0; hwm_of(f->child, 0) == 0 && ms < WAIT_MS; ms++)
        g_usleep(1000);
    g_assert_true(nrd_fanout_stop(f->fanout, f->parent, "child"));
    uint64_t hwm = hwm_of(f->child, 0);
    g_assert_cmpint(f->child->n_refs, ==, 0);
    pthread_join(thread, NULL);
    g_usleep(100000);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, hwm);
    g_assert_cmpint(nrd_io_stat(f->root_fd, "topics/parent/p00000/fanout-child.offset", &st), ==, -ENOENT);
    g_assert_false(nrd_fanout_stop(f->fanout, f->parent, "child"));
    NrdFanoutInfo info;
    g_assert_false(nrd_fanout_info(f->fanout, f->parent, "child", &info));
}

/* It waits for the pass under way, which begins no further part. */
static void *let_go(void *data)
{
    Fixture *f = data;
    g_usleep(200000);
    pthread_mutex_lock(&world);
    f->child->parts[0].hang = false;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&world);
    return NULL;
}

static void test_stop_in_a_pass(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t thread;
    f->child->n_parts = 2;
    f->child->parts[0].hang = true;
    put_rec(f, 0, "0", "a", 1);
    put_rec(f, 0, "1", "b", 1);
    add_link(f, f->child, 0, 0);
    pthread_mutex_lock(&world);
    while (n_hanging == 0)
        pthread_cond_wait(&moved, &world);
    pthread_mutex_unlock(&world);
    pthread_create(&thread, NULL, let_go, f);
    g_assert_true(nrd_fanout_stop(f->fanout, f->parent, "child"));
    pthread_join(thread, NULL);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 1);
    g_assert_cmpuint(hwm_of(f->child, 1), ==, 0);
}

/* What is committed while a pass runs is not forgotten. */
static void test_notified_in_a_pass(Fixture *f, gconstpointer data)
{
    (void)data;
    pthread_t thread;
    f->child->parts[0].hang = true;
    put_rec(f, 0, NULL, "a", 1);
    add_link(f, f->child, 0, 0);
    pthread_mutex_lock(&world);
    while (n_hanging == 0)
        pthread_cond_wait(&moved, &world);
    pthread_mutex_unlock(&world);
    put(f, 0, NULL, "b");
    pthread_create(&thread, NULL, let_go, f);
    assert_becomes(f->child, 0, "a b");
    pthread_join(thread, NULL);
}

static void test_forget(Fixture *f, gconstpointer data)
{
    (void)data;
    static const char path[] = "topics/parent/p00000/fanout-child.offset";
    struct stat st;
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 5), ==, 0);
    g_assert_cmpint(nrd_io_stat(f->root_fd, path, &st), ==, 0);
    nrd_fanout_forget(f->fanout, f->parent, "parent", 1, "child");
    g_assert_cmpint(nrd_io_stat(f->root_fd, path, &st), ==, -ENOENT);
    nrd_fanout_forget(f->fanout, f->parent, "parent", 1, "child");
}

static ssize_t no_space(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    (void)fd, (void)iov, (void)n_iov, (void)pos;
    return -ENOSPC;
}

/* A cursor that cannot be written stops nothing, and is written when it can be. */
static void test_full_disk(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdIo io = nrd_io_real;
    uint64_t before = nrd_counter_get(NRD_COUNTER_FANOUT_CURSOR);
    stop(f);
    io.pwritev = no_space;
    nrd_io = &io;
    start(f);
    add_link(f, f->child, 0, 0);
    for (int i = 0; i < 5; i++) {
        put(f, 0, NULL, "x");
        wait_hwm(f->child, 0, (uint64_t)i + 1);
    }
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_FANOUT_CURSOR), >, before);
    stop(f);
    nrd_io = &nrd_io_real;
    start(f);
    add_link(f, f->child, 0, 0); /* nothing was written: all of it once more */
    assert_becomes(f->child, 0, "x x x x x x x x x x");
    stop(f);
    start(f);
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "y");
    assert_becomes(f->child, 0, "x x x x x x x x x x y");
}

static atomic_int n_files, max_files;

static int counted_open(int dirfd, const char *path, int flags, mode_t mode)
{
    int fd = nrd_io_real.open(dirfd, path, flags, mode);
    int n = fd >= 0 ? atomic_fetch_add(&n_files, 1) + 1 : 0;
    for (int max = atomic_load(&max_files); n > max && !atomic_compare_exchange_weak(&max_files, &max, n);)
        ;
    return fd;
}

static int counted_close(int fd)
{
    atomic_fetch_sub(&n_files, 1);
    return nrd_io_real.close(fd);
}

/* However many cursors copy, they keep 256 files open. */
static void test_many_files(Fixture *f, gconstpointer data)
{
    (void)data;
    NrdIo io = nrd_io_real;
    Topic *children[50];
    char names[G_N_ELEMENTS(children)][8];
    io.open = counted_open;
    io.close = counted_close;
    stop(f);
    nrd_io = &io;
    start(f);
    f->parent->n_parts = MAX_PARTS;
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++) {
        g_snprintf(names[i], sizeof names[i], "c%u", i);
        children[i] = topic_new(names[i], 1);
        add_link(f, children[i], 0, 0);
    }
    for (uint64_t round = 1; round < 3; round++) { /* a first write replaces the file, and keeps none */
        for (uint32_t i = 0; i < MAX_PARTS; i++)
            put(f, i, NULL, "x");
        for (unsigned i = 0; i < G_N_ELEMENTS(children); i++)
            wait_hwm(children[i], 0, round * MAX_PARTS);
    }
    stop(f);
    nrd_io = &nrd_io_real;
    g_assert_cmpint(atomic_load(&max_files), <, 256 + 16);
    g_assert_cmpint(atomic_load(&n_files), ==, 0);
    for (unsigned i = 0; i < G_N_ELEMENTS(children); i++)
        topic_free(children[i]);
}

/* Without a thread there is no fan-out. With the one that it begins with everything is copied, also what waits for its time. */
static void test_few_threads(Fixture *f, gconstpointer data)
{
    (void)data;
    stop(f);
    atomic_store(&n_threads_left, 0);
    g_assert_null(nrd_fanout_new(&(NrdFanoutOptions){ .root_fd = f->root_fd, .ops = ops }));
    atomic_store(&n_threads_left, 1);
    start(f);
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    assert_becomes(f->child, 0, "a");
    put(f, 0, NULL, "b");
    assert_becomes(f->child, 0, "a b");
    g_assert_cmpint(atomic_load(&n_threads_left), ==, 0);
    atomic_store(&n_threads_left, -1);
}

/* Who opens it may yet give up: until the start nothing is copied. */
static void test_held(Fixture *f, gconstpointer data)
{
    (void)data;
    stop(f);
    f->fanout = nrd_fanout_new(&(NrdFanoutOptions){ .root_fd = f->root_fd, .ops = ops });
    add_link(f, f->child, 0, 0);
    put(f, 0, NULL, "a");
    g_usleep(100000);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 0);
    nrd_fanout_start(f->fanout);
    assert_becomes(f->child, 0, "a");
}

/* Read-only: the rows are there, and nothing moves. */
static void test_frozen(Fixture *f, gconstpointer data)
{
    (void)data;
    g_assert_cmpint(nrd_fanout_prepare(f->fanout, f->parent, "parent", 0, "child", &owner, 1), ==, 0);
    put_rec(f, 0, NULL, "a", 1);
    put_rec(f, 0, NULL, "b", 1);
    stop(f);
    f->fanout = nrd_fanout_new(&(NrdFanoutOptions){ .root_fd = f->root_fd, .ops = ops, .frozen = true });
    add_link(f, f->child, 5, 7);
    notify(f, 0);
    NrdFanoutInfo info = info_of(f, f->child);
    g_assert_cmpuint(info.lag, ==, 1);
    g_assert_cmpint(info.attached_ms, ==, 5);
    g_assert_cmpint(info.delay_ms, ==, 7);
    g_array_unref(info.rows);
    g_usleep(100000);
    g_assert_cmpuint(hwm_of(f->child, 0), ==, 0);
}

#define ADD(name, test) g_test_add("/fanout/" name, Fixture, NULL, set_up, test, tear_down)

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    nrd_diag_set_level(NRD_LEVEL_ERROR);
    ADD("few-threads", test_few_threads);
    ADD("held", test_held);
    ADD("copies", test_copies);
    ADD("batch-records", test_batch_records);
    ADD("batch-bytes", test_batch_bytes);
    ADD("many", test_many);
    ADD("part-fails", test_part_fails);
    ADD("moves-after-three", test_moves_after_three);
    ADD("moves-beside-a-commit", test_moves_beside_a_commit);
    ADD("poisoned", test_poisoned);
    ADD("waits-for-the-child", test_waits_for_the_child);
    ADD("hanging-child", test_hanging_child);
    ADD("read-fails", test_read_fails);
    ADD("lost-records", test_lost_records);
    ADD("lost-while-it-waits", test_lost_while_it_waits);
    ADD("above-the-end", test_above_the_end);
    ADD("other-files", test_other_files);
    ADD("other-files-at-a-stop", test_other_files_at_a_stop);
    ADD("other-files-when-tidied", test_other_files_when_tidied);
    ADD("prepared", test_prepared);
    ADD("cursor-lost", test_cursor_lost);
    ADD("crash", test_crash);
    ADD("growth", test_growth);
    ADD("delay", test_delay);
    ADD("short-delay", test_short_delay);
    ADD("idle-delay", test_idle_delay);
    ADD("rest", test_rest);
    ADD("stop", test_stop);
    ADD("stop-in-a-pass", test_stop_in_a_pass);
    ADD("notified-in-a-pass", test_notified_in_a_pass);
    ADD("forget", test_forget);
    ADD("full-disk", test_full_disk);
    ADD("many-files", test_many_files);
    ADD("frozen", test_frozen);
    return g_test_run();
}
