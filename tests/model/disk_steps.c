/* Steps in which the disk below one partition fails: a commit there fails or succeeds, and nobody else notices.
 *
 * While calls on that partition's files fail, all other partitions have to answer as the model does. What was not
 * acknowledged may be there after a restart, whole, or not at all; a retry in the same process leaves one copy, at the
 * offsets that the failed attempt had. */
#include "world.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef enum Call { CALL_PWRITEV, CALL_FDATASYNC, CALL_FTRUNCATE, CALL_PREAD, CALL_OPEN, CALL_FSYNC, N_CALLS } Call;

static NrdIo below;
/* What fails: the first so many calls pass, then one, or all, with this errno. Written while no call of it is under way. */
static atomic_bool armed;
static atomic_uint n_fired;
static char folder[256]; /* below the data directory */
static Call failing;
static atomic_int n_left;
static bool stays;
static int error_of_it;

/* Whether an armed call is to fail now. */
static bool fails(Call call, const char *path)
{
    bool also = failing == CALL_FTRUNCATE && call == CALL_FDATASYNC; /* else nothing is ever cut */
    if ((call != failing && !also) || strstr(path, folder) == NULL)
        return false;
    int left = atomic_fetch_sub(&n_left, 1);
    bool now = left == 0 || (left < 0 && stays);
    atomic_fetch_add(&n_fired, now);
    return now;
}

static bool fd_fails(Call call, int fd)
{
    char link[64], path[512];
    if (!atomic_load(&armed))
        return false;
    g_snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 2);
    if (n < 0)
        return false;
    path[n] = '/'; /* the folder itself counts */
    path[n + 1] = '\0';
    return fails(call, path);
}

static ssize_t sick_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    return fd_fails(CALL_PWRITEV, fd) ? -error_of_it : below.pwritev(fd, iov, n_iov, pos);
}

static ssize_t sick_pread(int fd, void *buf, size_t size, int64_t pos)
{
    return fd_fails(CALL_PREAD, fd) ? -error_of_it : below.pread(fd, buf, size, pos);
}

static int sick_fdatasync(int fd)
{
    return fd_fails(CALL_FDATASYNC, fd) ? -error_of_it : below.fdatasync(fd);
}

static int sick_fsync(int fd)
{
    return fd_fails(CALL_FSYNC, fd) ? -error_of_it : below.fsync(fd);
}

static int sick_ftruncate(int fd, int64_t size_bytes)
{
    return fd_fails(CALL_FTRUNCATE, fd) ? -error_of_it : below.ftruncate(fd, size_bytes);
}

static int sick_open(int dirfd, const char *path, int flags, mode_t mode)
{
    if (atomic_load(&armed)) {
        g_autofree char *slashed = g_strconcat(path, "/", NULL);
        if (fails(CALL_OPEN, slashed))
            return -error_of_it;
    }
    return below.open(dirfd, path, flags, mode);
}

void disk_start(NrdIo *table)
{
    below = *table;
    table->pwritev = sick_pwritev;
    table->pread = sick_pread;
    table->fdatasync = sick_fdatasync;
    table->fsync = sick_fsync;
    table->ftruncate = sick_ftruncate;
    table->open = sick_open;
}

static void fall_ill(World *w, int topic, uint32_t number)
{
    uint32_t n = w->step.n;
    g_snprintf(folder, sizeof folder, "topics/%s/p%05u/", world_topic_name(topic), number);
    failing = (Call)(n % N_CALLS);
    error_of_it = failing == CALL_PWRITEV && n % 2 ? ENOSPC : failing == CALL_OPEN && n % 2 ? EMFILE : EIO;
    stays = n / N_CALLS % 2;
    atomic_store(&n_fired, 0);
    atomic_store(&n_left, n / N_CALLS % 8 == 7 ? 1 : 0);
    atomic_store(&armed, true);
}

static void get_well(void)
{
    atomic_store(&armed, false);
}

/* ---- a commit meanwhile ---- */

static void on_done(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

static int await(World *w, atomic_int *error)
{
    for (int i = 0; atomic_load(error) == 1 && i < PATIENCE_MS * 10; i++)
        g_usleep(100);
    WORLD_CHECK(w, atomic_load(error) <= 0);
    return atomic_load(error);
}

static int sync_now(World *w, NrdProducer *producer)
{
    atomic_int error = 1;
    nrd_producer_sync(producer, NRD_SYNC_OWN, on_done, &error);
    return await(w, &error);
}

/* What is left is tried once more, and given up. */
static void close_producer(World *w, NrdProducer *producer)
{
    atomic_int error = 1;
    nrd_producer_close(producer, on_done, &error);
    (void)await(w, &error);
}

static void expect_range(World *w, NrdProducer *producer, uint32_t number, uint64_t first, uint64_t end)
{
    char want[64], got[64];
    int n =
        g_snprintf(want, sizeof want, "p%05u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT "\n", number, first, end - 1);
    size_t n_got = nrd_producer_read_ranges(producer, got, sizeof got);
    WORLD_CHECK(w, n_got == (size_t)n && memcmp(got, want, n_got) == 0);
}

static void produce_one(World *w, int topic, uint32_t number)
{
    Partition *p = w->broker.topics[topic].partitions->pdata[number];
    NrdProducer *producer = NULL;
    g_autofree char *payload = world_payload(w);
    uint64_t first = partition_hwm(p);
    WORLD_SAME(w, nrd_producer_open(nrd_topic_partition(w->topics[topic], number), true, &producer), 0);
    nrd_producer_add(producer, "", 0, payload, strlen(payload));
    WORLD_SAME(w, sync_now(w, producer), 0);
    expect_range(w, producer, number, first, first + 1);
    partition_append(p, "", payload, w->broker.now_ms);
    close_producer(w, producer);
}

/* The others do meanwhile what they do at any time: take a record, and answer whatever can be asked. Children get copies
 * of that, and are compared when these have come. */
static void others_are_well(World *w, int sick_topic, uint32_t sick_number)
{
    for (int topic = 0; topic < N_TOPICS; topic++) {
        const Topic *model = &w->broker.topics[topic];
        for (uint32_t i = 0; model->exists && model->parent == NO_TOPIC && i < model->partitions->len; i++) {
            if (topic == sick_topic && i == sick_number)
                continue;
            produce_one(w, topic, i);
            compare_partition(w, topic, i);
        }
    }
}

/* The disk is well again: poison stays until it is reopened, everything else is over. */
static void retry(World *w, NrdPartition *partition, NrdProducer *producer, uint64_t first, unsigned n_records)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    WORLD_SAME(w, info.hwm, first);
    bool poisoned = info.poisoned;
    w->n_poisoned += poisoned;
    nrd_partition_info_clear(&info);
    if (poisoned) {
        WORLD_CHECK(w, sync_now(w, producer) == -EIO);
        WORLD_SAME(w, nrd_partition_reopen(partition), 0);
    }
    WORLD_SAME(w, sync_now(w, producer), 0);
    expect_range(w, producer, nrd_partition_number(partition), first, first + n_records);
}

/* Nobody was promised the records: after a restart all of them are there, or none; or they come with the next commit. */
static bool are_there_after_restart(World *w, int topic, uint32_t number, uint64_t first, unsigned n_records,
                                    bool *ret_hidden)
{
    NrdPartitionInfo info;
    world_restart(w);
    nrd_partition_info(nrd_topic_partition(w->topics[topic], number), &info);
    uint64_t hwm = info.hwm, next = info.next_offset;
    nrd_partition_info_clear(&info);
    WORLD_CHECK(w, hwm == first || hwm == next);
    WORLD_CHECK(w, next == first || next == first + n_records);
    *ret_hidden = hwm < next;
    return next > first;
}

void produce_on_a_sick_disk(World *w, int topic)
{
    NrdPartition *partition;
    Partition *model = world_partition(w, topic, w->step.partition, &partition);
    uint32_t number = nrd_partition_number(partition);
    unsigned n_records = 1 + w->step.n % 3;
    uint64_t first = partition_hwm(model);
    g_autoptr(GPtrArray) payloads = g_ptr_array_new_with_free_func(g_free);
    NrdProducer *producer = NULL;
    bool there = true, hidden = false;
    WORLD_SAME(w, nrd_producer_open(partition, true, &producer), 0);
    for (unsigned i = 0; i < n_records; i++)
        g_ptr_array_add(payloads, world_payload(w));
    fall_ill(w, topic, number);
    world_add(producer, NULL, payloads);
    int rc = sync_now(w, producer);
    WORLD_CHECK(w, rc == 0 || atomic_load(&n_fired) > 0);
    others_are_well(w, topic, number);
    w->n_sick += rc < 0;
    bool restart = rc < 0 && w->step.n % 5 == 0;
    if (!restart)
        get_well();
    if (rc < 0 && !restart)
        retry(w, partition, producer, first, n_records);
    else if (rc == 0)
        expect_range(w, producer, number, first, first + n_records);
    close_producer(w, producer);
    get_well();
    if (restart)
        there = are_there_after_restart(w, topic, number, first, n_records, &hidden);
    for (unsigned i = 0; there && i < n_records; i++)
        partition_append(model, "", payloads->pdata[i], w->broker.now_ms);
    if (hidden)
        produce_one(w, topic, number);
    if (there)
        compare_log(w, topic, number);
}
