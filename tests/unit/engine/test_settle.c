/* Settling durably: all of it or nothing, whatever the disk does and whoever does something else meanwhile. */
#include "fixture.h"

#include "engine/io/io.h"
#include "engine/offsets.h"
#include "engine/queue/offset_store.h"

#include <errno.h>
#include <stdio.h>

/* Calls of the thread that arms this: the nth one fails with EIO, and with `for_good` all that follow. 0: none. */
static _Thread_local int fail_nth;
static _Thread_local bool for_good;
static _Thread_local int n_calls;
static void (*during_sync)(void *user_data); /* once, in the fdatasync of the thread that sets it */
static void *during_data;
static _Thread_local bool hooked;
static bool next_fails; /* after that fdatasync the next one of any thread fails */
static NrdIo table;
static const NrdIo *below;

static bool fails_now(void)
{
    n_calls++;
    return fail_nth > 0 && (n_calls == fail_nth || (for_good && n_calls > fail_nth));
}

static int some_open(int dirfd, const char *path, int flags, mode_t mode)
{
    return fails_now() ? -EIO : below->open(dirfd, path, flags, mode);
}

static ssize_t some_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    return fails_now() ? -EIO : below->pwritev(fd, iov, n_iov, pos);
}

static int some_fdatasync(int fd)
{
    if (hooked) {
        hooked = false;
        during_sync(during_data);
        int rc = below->fdatasync(fd);
        if (next_fails)
            atomic_store(&fail_fdatasync, 1);
        return fails_now() ? -EIO : rc;
    }
    return fails_now() ? -EIO : below->fdatasync(fd);
}

static int some_fsync(int fd)
{
    return fails_now() ? -EIO : below->fsync(fd);
}

static int some_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    return fails_now() ? -EIO : below->rename(from_dirfd, from, to_dirfd, to, replace);
}

static void set_up(Fixture *f, gconstpointer data)
{
    fixture_set_up(f, data);
    below = nrd_io;
    table = *nrd_io;
    table.open = some_open;
    table.pwritev = some_pwritev;
    table.fdatasync = some_fdatasync;
    table.fsync = some_fsync;
    table.rename = some_rename;
    fixture_stop(f);
    nrd_io = &table;
    fixture_start(f);
}

static void arm(int nth, bool all)
{
    n_calls = 0;
    fail_nth = nth;
    for_good = all;
}

static void hook(void (*function)(void *user_data), void *user_data)
{
    during_sync = function;
    during_data = user_data;
    hooked = true;
}

static NrdHold take_one(NrdPartition *partition)
{
    Got got;
    take(partition, &got, 0);
    g_assert_cmpint(got.error, ==, 0);
    return (NrdHold){ .partition = nrd_partition_number(partition), .offset = got.offset, .nonce = got.nonce };
}

static void produce_and_take(NrdPartition *partition, NrdHold *holds, int n)
{
    for (int i = 0; i < n; i++)
        produce(partition, "x");
    for (int i = 0; i < n; i++)
        holds[i] = take_one(partition);
}

static void assert_memory(NrdPartition *partition, uint64_t frontier, uint64_t n_ahead, uint64_t in_flight)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    g_assert_cmpuint(info.frontier, ==, frontier);
    g_assert_cmpuint(info.acked_ahead, ==, n_ahead);
    g_assert_cmpuint(info.in_flight, ==, in_flight);
    nrd_partition_info_clear(&info);
}

/* What the next daemon would find, were this one killed now. */
static void assert_disk(Fixture *f, const char *dir, uint64_t frontier, guint n_ahead)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { 0, ahead };
    NrdOffsetStore *store = NULL;
    int root_fd = -1;
    g_assert_cmpint(nrd_io_open_root(f->path, &root_fd), ==, 0);
    g_assert_cmpint(nrd_offset_store_open(root_fd, dir, "t", 0, 1000, &state, &store), ==, 0);
    nrd_offset_store_free(store);
    nrd_io_close(&root_fd);
    g_assert_cmpuint(state.frontier, ==, frontier);
    g_assert_cmpuint(ahead->len, ==, n_ahead);
}

#define P0 "topics/t/p00000"

static int settle(NrdPartition *partition, const NrdHold *holds, size_t n, int expected_error)
{
    int errors[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    int rc = nrd_partition_settle_durably(partition, holds, n, errors);
    for (size_t i = 0; i < n; i++)
        g_assert_cmpint(errors[i], ==, expected_error);
    return rc;
}

static void keep(void *user_data, int error)
{
    *(int *)user_data = error;
}

static void sync_frontier(NrdPartition *partition)
{
    int error = 1;
    nrd_partition_sync_frontier(partition, keep, &error);
    g_assert_cmpint(error, ==, 0);
}

/* Durable when it returns, at the price of one sync, which a sync of the frontier behind it does not pay again; and
 * consumer.offset is due to follow. */
static void test_success(Fixture *f, gconstpointer data)
{
    NrdHold holds[4];
    produce_and_take(f->partition, holds, 4);
    g_assert_cmpint(settle(f->partition, holds, 1, 0), ==, 0);
    assert_disk(f, P0, 1, 0);
    g_assert_cmpuint(f->partition->level_timer.heap_index, !=, 0);
    int before = atomic_load(&n_fdatasync);
    g_assert_cmpint(settle(f->partition, holds + 1, 1, 0), ==, 0);
    g_assert_cmpint(settle(f->partition, holds + 3, 1, 0), ==, 0);
    g_assert_cmpint(atomic_load(&n_fdatasync), ==, before + 2);
    assert_disk(f, P0, 2, 1);
    assert_memory(f->partition, 2, 1, 1);
    sync_frontier(f->partition);
    g_assert_cmpint(atomic_load(&n_fdatasync), ==, before + 2);
    g_assert_cmpint(settle(f->partition, holds + 3, 1, -ESTALE), ==, 0);
}

static void give_back_and_take(NrdPartition *partition, NrdHold *holds, int n)
{
    uint64_t first = holds[0].offset;
    for (int i = 0; i < n; i++)
        g_assert_cmpint(nrd_partition_settle(partition, NRD_VERB_NACK, holds[i].offset, holds[i].nonce), ==, 0);
    for (int i = 0; i < n; i++) {
        holds[i] = take_one(partition);
        g_assert_cmpuint(holds[i].offset, ==, first + (uint64_t)i);
    }
}

/* Settles two records, while the nth call fails; false: there were not as many. */
static bool fail_at(Fixture *f, int nth, bool retry)
{
    NrdHold holds[2];
    produce_and_take(f->partition, holds, 2);
    uint64_t frontier = holds[0].offset;
    arm(nth, false);
    int errors[2] = { 1, 1 };
    int rc = nrd_partition_settle_durably(f->partition, holds, 2, errors);
    bool fired = n_calls >= nth;
    arm(0, false);
    g_assert_cmpint(rc, ==, fired ? -EIO : 0);
    g_assert_true(errors[0] == rc && errors[1] == rc);
    if (fired) {
        assert_memory(f->partition, frontier, 0, 2);
        assert_disk(f, P0, frontier, 0);
        sync_frontier(f->partition);
        assert_disk(f, P0, frontier, 0);
        if (!retry)
            give_back_and_take(f->partition, holds, 2);
        g_assert_cmpint(settle(f->partition, holds, 2, 0), ==, 0);
    }
    assert_memory(f->partition, frontier + 2, 0, 0);
    assert_disk(f, P0, frontier + 2, 0);
    return fired;
}

/* One call of a settle after another fails: with everything proven; and, the first after a start, which proves the anchor.
 * Nothing is settled then, in memory or for the next daemon; the same leases can be settled, or given back in order. */
static void fail_each(Fixture *f, bool retry)
{
    int nth = 1;
    while (fail_at(f, nth, retry))
        nth++;
    g_assert_cmpint(nth, >, 3); /* open, write and sync were among them */
    for (nth = 1, fixture_stop(f), fixture_start(f); fail_at(f, nth, retry); nth++) {
        fixture_stop(f);
        fixture_start(f);
    }
    g_assert_cmpint(nth, >, 5);
}

static void test_fails_anywhere_then_retried(Fixture *f, gconstpointer data)
{
    fail_each(f, true);
}

static void test_fails_anywhere_then_given_back(Fixture *f, gconstpointer data)
{
    fail_each(f, false);
}

/* The very first settle of a partition makes its consumer.ahead: each of its calls fails once. */
static void test_first_fails(Fixture *f, gconstpointer data)
{
    NrdHold holds[2];
    produce_and_take(f->partition, holds, 2);
    int nth = 0, rc = -EIO;
    while (rc < 0) {
        arm(++nth, false);
        int errors[2];
        rc = nrd_partition_settle_durably(f->partition, holds, 2, errors);
        arm(0, false);
        assert_memory(f->partition, rc < 0 ? 0 : 2, 0, rc < 0 ? 2 : 0);
        assert_disk(f, P0, rc < 0 ? 0 : 2, 0);
        if (rc == 0)
            break;
        g_autofree char *path = g_strconcat(f->path, "/" P0 "/consumer.ahead", NULL); /* ... and again from nothing */
        fixture_stop(f);
        g_assert_true(remove(path) == 0 || errno == ENOENT);
        fixture_start(f);
        for (uint64_t i = 0; i < 2; i++) {
            holds[i] = take_one(f->partition);
            g_assert_cmpuint(holds[i].offset, ==, i);
        }
    }
    g_assert_cmpint(nth, >, 4);
}

/* A disk that is gone for a while: what it may have kept of the failed write does not count any more once the next write
 * has gone through, even if that says nothing new, and never goes to the disk again. */
static void test_dead_disk(Fixture *f, gconstpointer data)
{
    for (int nth = 1; nth <= 3; nth++) {
        NrdHold holds[3];
        produce_and_take(f->partition, holds, 3);
        g_assert_cmpint(settle(f->partition, holds, 1, 0), ==, 0);
        arm(nth, true);
        g_assert_cmpint(settle(f->partition, holds + 1, 2, -EIO), ==, -EIO);
        g_assert_cmpint(settle(f->partition, holds + 1, 2, -EIO), ==, -EIO);
        arm(0, false);
        sync_frontier(f->partition);
        assert_disk(f, P0, holds[1].offset, 0);
        g_assert_cmpint(settle(f->partition, holds + 1, 2, 0), ==, 0);
        assert_disk(f, P0, holds[2].offset + 1, 0);
    }
}

typedef struct Meanwhile {
    Fixture *f;
    NrdHold *holds;
    GThread *threads[4];
} Meanwhile;

/* 0 and 1 are on their way to the disk. */
static void act_meanwhile(void *user_data)
{
    Meanwhile *meanwhile = user_data;
    NrdPartition *partition = meanwhile->f->partition;
    const NrdHold *holds = meanwhile->holds;
    assert_memory(partition, 0, 0, 4);
    g_assert_cmpint(nrd_partition_settle(partition, NRD_VERB_LOOK, 0, holds[0].nonce), ==, 0);
    g_assert_cmpint(nrd_partition_settle(partition, NRD_VERB_ACK, 0, holds[0].nonce), ==, -EAGAIN);
    g_assert_cmpint(nrd_partition_settle(partition, NRD_VERB_NACK, 1, holds[1].nonce), ==, -EAGAIN);
    g_assert_cmpint(nrd_partition_settle(partition, NRD_VERB_EXTEND, 1, holds[1].nonce), ==, -EAGAIN);
    g_assert_cmpint(nrd_partition_settle(partition, NRD_VERB_ACK, 2, holds[2].nonce), ==, 0);
    g_assert_cmpint(nrd_partition_settle(partition, NRD_VERB_NACK, 3, holds[3].nonce), ==, 0);
}

static void others_meanwhile(Fixture *f, bool fail)
{
    NrdHold holds[4];
    produce_and_take(f->partition, holds, 4);
    Meanwhile meanwhile = { f, holds, { NULL } };
    NrdHold extra;
    produce_and_take(f->partition, &extra, 1); /* so that there is a consumer.ahead, with nothing settled */
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, 4, extra.nonce), ==, 0);
    sync_frontier(f->partition);
    uint64_t frontier = fail ? 0 : 3;
    g_assert_cmpint(nrd_partition_seek(f->partition, NRD_SEEK_START, 0), ==, 0);
    for (int i = 0; i < 4; i++)
        holds[i] = take_one(f->partition);
    hook(act_meanwhile, &meanwhile);
    arm(fail ? 3 : 0, false); /* open, write, sync */
    g_assert_cmpint(settle(f->partition, holds, 2, fail ? -EIO : 0), ==, fail ? -EIO : 0);
    arm(0, false);
    g_assert_false(hooked);
    assert_memory(f->partition, frontier, fail ? 1 : 0, fail ? 2 : 0);
    sync_frontier(f->partition); /* what was acked meanwhile is not lost on the way */
    assert_disk(f, P0, frontier, fail ? 1 : 0);
    if (fail)
        g_assert_cmpint(settle(f->partition, holds, 2, 0), ==, 0);
    assert_memory(f->partition, 3, 0, 0);
    g_assert_cmpuint(take_one(f->partition).offset, ==, 3); /* given back meanwhile */
}

static void test_others_meanwhile(Fixture *f, gconstpointer data)
{
    others_meanwhile(f, false);
}

static void test_others_while_it_fails(Fixture *f, gconstpointer data)
{
    others_meanwhile(f, true);
}

static void *seek_to_end(void *user_data)
{
    Meanwhile *meanwhile = user_data;
    g_assert_cmpint(nrd_partition_seek(meanwhile->f->partition, NRD_SEEK_END, 0), ==, 0);
    return NULL;
}

/* It has its effect in memory, and waits for the disk. */
static void seek_meanwhile(void *user_data)
{
    Meanwhile *meanwhile = user_data;
    uint64_t frontier = 0;
    meanwhile->threads[0] = g_thread_new("seek", seek_to_end, meanwhile);
    while (frontier != 4) {
        NrdPartitionInfo info;
        nrd_partition_info(meanwhile->f->partition, &info);
        frontier = info.frontier;
        nrd_partition_info_clear(&info);
        g_thread_yield();
    }
}

static void test_seek_meanwhile(Fixture *f, gconstpointer data)
{
    NrdHold holds[4];
    produce_and_take(f->partition, holds, 4);
    Meanwhile meanwhile = { f, holds, { NULL } };
    g_assert_cmpint(settle(f->partition, holds, 1, 0), ==, 0);
    hook(seek_meanwhile, &meanwhile);
    g_assert_cmpint(settle(f->partition, holds + 1, 2, -ESTALE), ==, 0);
    g_thread_join(meanwhile.threads[0]);
    assert_memory(f->partition, 4, 0, 0);
    assert_disk(f, P0, 4, 0);
}

typedef struct One {
    NrdPartition *partition;
    NrdHold hold;
    int expected;
} One;

static void *settle_one(void *user_data)
{
    One *one = user_data;
    g_assert_cmpint(settle(one->partition, &one->hold, 1, one->expected), ==, one->expected);
    return NULL;
}

static guint n_waiting(NrdPartition *partition)
{
    guint n = 0;
    g_mutex_lock(&partition->queue_lock);
    for (NrdSettler *settler = partition->settlers; settler; settler = settler->next)
        n++;
    g_mutex_unlock(&partition->queue_lock);
    return n;
}

/* All four wait for the disk. */
static void start_others(void *user_data)
{
    Meanwhile *meanwhile = user_data;
    static One ones[4];
    for (int i = 0; i < 4; i++) {
        ones[i] = (One){ meanwhile->f->partition, meanwhile->holds[i + 1], next_fails ? -EIO : 0 };
        meanwhile->threads[i] = g_thread_new("settler", settle_one, &ones[i]);
    }
    while (n_waiting(meanwhile->f->partition) < 4)
        g_thread_yield();
}

/* Who comes while a sync is under way shares the next one, and its failure. */
static void one_sync_for_many(Fixture *f, bool fail)
{
    NrdHold holds[6];
    produce_and_take(f->partition, holds, 6);
    Meanwhile meanwhile = { f, holds, { NULL } };
    g_assert_cmpint(settle(f->partition, holds + 5, 1, 0), ==, 0);
    int before = atomic_load(&n_fdatasync);
    next_fails = fail;
    hook(start_others, &meanwhile);
    g_assert_cmpint(settle(f->partition, holds, 1, 0), ==, 0);
    for (int i = 0; i < 4; i++)
        g_thread_join(meanwhile.threads[i]);
    next_fails = false;
    g_assert_cmpint(atomic_load(&n_fdatasync), ==, before + 2);
    assert_memory(f->partition, fail ? 1 : 6, fail ? 1 : 0, fail ? 4 : 0);
    assert_disk(f, P0, fail ? 1 : 6, fail ? 1 : 0);
}

static void test_one_sync_for_many(Fixture *f, gconstpointer data)
{
    one_sync_for_many(f, false);
}

static void test_one_failure_for_many(Fixture *f, gconstpointer data)
{
    one_sync_for_many(f, true);
}

/* What the set cannot hold stays leased; the rest is settled. */
static void test_cap(Fixture *f, gconstpointer data)
{
    NrdHold holds[5];
    g_assert_cmpint(nrd_topic_config_write(f->topic, "max_acked_ahead=2\n", 18), ==, 0);
    for (int i = 0; i < 5; i++)
        produce(f->partition, "x");
    for (int i = 0; i < 5; i++)
        holds[i] = take_one(f->partition);
    int errors[5];
    holds[4].nonce ^= 1;
    g_assert_cmpint(nrd_partition_settle_durably(f->partition, holds + 1, 4, errors + 1), ==, 0);
    g_assert_cmpint(errors[1], ==, 0);
    g_assert_cmpint(errors[2], ==, 0);
    g_assert_cmpint(errors[3], ==, -EAGAIN);
    g_assert_cmpint(errors[4], ==, -ESTALE);
    assert_memory(f->partition, 0, 2, 3);
    assert_disk(f, P0, 0, 2);
    holds[4].nonce ^= 1;
    g_assert_cmpint(nrd_partition_settle_durably(f->partition, (NrdHold[]){ holds[0], holds[3], holds[4] }, 3, errors),
                    ==, 0);
    assert_memory(f->partition, 5, 0, 0);
}

/* One after the other, up to the first that fails: it and those behind it are as they were. */
static void test_topic(Fixture *f, gconstpointer data)
{
    NrdHold holds[4], bad = { .partition = 7 };
    int errors[4] = { 1, 1, 1, 1 };
    g_assert_cmpint(nrd_topic_config_write(f->topic, "partitions=3\n", 13), ==, 0);
    NrdPartition *last = nrd_topic_partition(f->topic, 2);
    g_assert_cmpint(nrd_partition_pin(last), ==, 0);
    produce_and_take(f->partition, holds, 2);
    produce_and_take(last, holds + 2, 2);
    n_calls = 0;
    g_assert_cmpint(nrd_topic_settle_durably(f->topic, (NrdHold[]){ holds[0], holds[2] }, 2, errors), ==, 0);
    arm(1, false); /* in partition 0 */
    g_assert_cmpint(nrd_topic_settle_durably(f->topic, (NrdHold[]){ holds[1], holds[3] }, 2, errors), ==, -EIO);
    g_assert_true(errors[0] == -EIO && errors[1] == -EIO);
    assert_memory(f->partition, 1, 0, 1);
    assert_memory(last, 1, 0, 1);
    arm(4, false); /* open, write, sync, and then in partition 2 */
    g_assert_cmpint(nrd_topic_settle_durably(f->topic, (NrdHold[]){ holds[1], holds[3] }, 2, errors), ==, -EIO);
    arm(0, false);
    g_assert_true(errors[0] == 0 && errors[1] == -EIO);
    assert_memory(f->partition, 2, 0, 0);
    assert_memory(last, 1, 0, 1);
    assert_disk(f, P0, 2, 0);
    assert_disk(f, "topics/t/p00002", 1, 0);
    NrdHold more; /* something for the sync of partition 0, which fails before anything is settled */
    produce_and_take(f->partition, &more, 1);
    g_assert_cmpint(nrd_partition_settle(f->partition, NRD_VERB_ACK, more.offset, more.nonce), ==, 0);
    arm(1, false);
    g_assert_cmpint(nrd_topic_settle_durably(f->topic, &holds[3], 1, errors), ==, -EIO);
    arm(0, false);
    g_assert_cmpint(errors[0], ==, -EIO);
    assert_memory(last, 1, 0, 1);
    g_assert_cmpint(nrd_topic_settle_durably(f->topic, &holds[3], 1, errors), ==, 0);
    assert_disk(f, "topics/t/p00002", 2, 0);
    g_assert_cmpint(nrd_topic_settle_durably(f->topic, &bad, 1, errors), ==, 0);
    g_assert_cmpint(errors[0], ==, -EINVAL);
    nrd_partition_unpin(last);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, test) g_test_add("/settle/" name, Fixture, NULL, set_up, test, fixture_tear_down)
    ADD("success", test_success);
    ADD("fails-anywhere-then-retried", test_fails_anywhere_then_retried);
    ADD("fails-anywhere-then-given-back", test_fails_anywhere_then_given_back);
    ADD("first-fails", test_first_fails);
    ADD("dead-disk", test_dead_disk);
    ADD("others-meanwhile", test_others_meanwhile);
    ADD("others-while-it-fails", test_others_while_it_fails);
    ADD("seek-meanwhile", test_seek_meanwhile);
    ADD("one-sync-for-many", test_one_sync_for_many);
    ADD("one-failure-for-many", test_one_failure_for_many);
    ADD("cap", test_cap);
    ADD("topic", test_topic);
    return g_test_run();
}
