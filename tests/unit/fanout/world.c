/* See world.h. */
#include "world.h"

#include "engine/base/clock.h"
#include "engine/fanout/cursor_store.h"
#include "engine/io/io.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

pthread_mutex_t world = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
int n_looks; /* at bounds, by passes */
int n_hanging;

static void rec_free(gpointer data)
{
    Rec *rec = data;
    g_free(rec->key);
    g_free(rec->payload);
    g_free(rec);
}

Topic *topic_new(const char *name, uint32_t n_parts)
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

void topic_free(Topic *topic)
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

const NrdFanoutOps ops = {
    op_release, op_n_partitions, op_identity,      op_bounds,    op_open,    op_close,
    op_read,    op_find_time,    op_key_partition, op_well,      op_sibling, op_claim,
    op_unclaim, op_batch_new,    op_batch_free,    op_batch_add, op_commit,
};

void start(Fixture *f)
{
    f->fanout = nrd_fanout_new(&(NrdFanoutOptions){ .root_fd = f->root_fd, .ops = ops });
    nrd_fanout_start(f->fanout);
}

void stop(Fixture *f)
{
    nrd_fanout_close(f->fanout);
    nrd_fanout_notify(f->fanout, f->parent, 0, 5); /* too late, and harmless */
    nrd_fanout_free(g_steal_pointer(&f->fanout));
}

void set_up(Fixture *f, gconstpointer data)
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

void tear_down(Fixture *f, gconstpointer data)
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

const NrdCursorOwner owner = { 77, 88 };

void add_link(Fixture *f, Topic *child, int64_t attached_ms, int64_t delay_ms)
{
    pthread_mutex_lock(&world);
    f->parent->n_refs++;
    child->n_refs++;
    pthread_mutex_unlock(&world);
    nrd_fanout_add(f->fanout,
                   &(NrdFanoutLink){ f->parent, child, "parent", child->name, owner, attached_ms, delay_ms });
}

void put_rec(Fixture *f, uint32_t partition, const char *key, const char *payload, size_t size)
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

void notify(Fixture *f, uint32_t partition)
{
    nrd_fanout_notify(f->fanout, f->parent, partition, f->parent->parts[partition].hwm);
}

void put(Fixture *f, uint32_t partition, const char *key, const char *payload)
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

void assert_becomes(Topic *topic, uint32_t partition, const char *expected)
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

uint64_t hwm_of(Topic *topic, uint32_t partition)
{
    pthread_mutex_lock(&world);
    uint64_t hwm = topic->parts[partition].hwm;
    pthread_mutex_unlock(&world);
    return hwm;
}

void wait_hwm(Topic *topic, uint32_t partition, uint64_t hwm)
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

NrdFanoutInfo info_of(Fixture *f, const Topic *child)
{
    NrdFanoutInfo info;
    g_assert_true(nrd_fanout_info(f->fanout, f->parent, child->name, &info));
    return info;
}

void wait_cursor(Fixture *f, const Topic *child, uint32_t number, uint64_t offset)
{
    WAIT_FOR(f, child, number, row, row->cursor == offset);
}
