/* See workload_private.h: producing, consuming and changing topics. */
#include "tests/sim/workload_private.h"

#include "engine/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SOON_MS 500 /* well below the pause before a failed commit is tried again by itself */
#define RANGES_BYTES 4096
#define RETENTION_WAIT_MS 20000
#define SICK_WAIT_MS 40

/* ---- topics ---- */

static void set_state(World *world, int topic, OracleTopicState state)
{
    oracle_lock();
    world->oracle->topics[topic].state = state;
    oracle_unlock();
}

static void topic_is_there(World *world, int topic, NrdTopic *handle)
{
    oracle_lock();
    OracleTopic *t = &world->oracle->topics[topic];
    g_strlcpy(t->id, nrd_topic_incarnation(handle), sizeof t->id);
    t->state = ORACLE_THERE;
    t->unsure = t->unsure || world->oracle->lied;
    oracle_unlock();
    world->topics[topic] = handle;
}

static void pin(World *world, int topic)
{
    for (unsigned number = 0; world->topics[topic] && number < nrd_topic_n_partitions(world->topics[topic]); number++) {
        PartitionWorld *p = &world->partitions[topic][number];
        int n = 0, rc = 0;
        while (!p->pinned) {
            NrdPartition *partition = nrd_topic_partition(world->topics[topic], number);
            rc = nrd_partition_pin(partition);
            if (rc == 0)
                p->pinned = partition;
            else if (!world_again(world, &n, rc, "opening a partition"))
                return;
        }
    }
}

/* A topic that an earlier try has made all the same. */
static int create_or_find(World *world, const char *name, int n, NrdTopic **ret_topic)
{
    int rc = nrd_topic_create(world->engine, name, &(NrdAttr){ 0, 0, 0755 }, 022, ret_topic);
    return rc == -EEXIST && n > 0 ? nrd_topic_find(world->engine, name, ret_topic) : rc;
}

int world_create(World *world, const char *name, unsigned n_partitions, const char *config)
{
    int topic = oracle_add_topic(world->oracle, name, 1);
    g_autofree char *text = g_strdup_printf("partitions=%u\n%s", n_partitions, config);
    NrdTopic *handle = NULL;
    int n = 0, rc;
    while ((rc = create_or_find(world, name, n, &handle)) < 0) {
        if (world_again(world, &n, rc, "creating a topic"))
            continue;
        if (world->topics[topic])
            break; /* the restart has found it */
        topic = oracle_add_topic(world->oracle, name, 1);
    }
    if (!world->topics[topic])
        topic_is_there(world, topic, handle);
    world_config(world, topic, text);
    oracle_lock();
    world->oracle->topics[topic].n_partitions = (uint8_t)n_partitions;
    oracle_unlock();
    pin(world, topic);
    return topic;
}

void world_config(World *world, int topic, const char *text)
{
    int n = 0, rc;
    while ((rc = nrd_topic_config_write(world->topics[topic], text, strlen(text))) < 0)
        (void)!world_again(world, &n, rc, "changing settings");
    unsigned n_partitions = nrd_topic_n_partitions(world->topics[topic]);
    oracle_lock();
    world->oracle->topics[topic].unsure |= world->oracle->lied;
    world->oracle->topics[topic].n_partitions = (uint8_t)n_partitions;
    oracle_unlock();
    pin(world, topic);
}

void world_delete(World *world, int topic)
{
    int n = 0, rc;
    g_autofree char *id = g_strdup(world->oracle->topics[topic].id);
    set_state(world, topic, ORACLE_DELETING);
    while (world->topics[topic] && (rc = nrd_topic_delete(world->topics[topic], id)) < 0) {
        if (nrd_topic_deleted(world->topics[topic]))
            break;
        (void)!world_again(world, &n, rc, "deleting a topic");
        if (world->oracle->topics[topic].state == ORACLE_GONE)
            return;
        set_state(world, topic, ORACLE_DELETING);
    }
    if (world->topics[topic]) {
        world_close_handles(world, topic);
        nrd_topic_unref(world->topics[topic]);
        world->topics[topic] = NULL;
    }
    if (!world->oracle->lied)
        set_state(world, topic, ORACLE_GONE);
}

void world_attach(World *world, int parent, int child)
{
    Oracle *oracle = world->oracle;
    OracleTopic *t = &oracle->topics[child];
    int n = 0, rc;
    oracle_lock();
    t->parent = (int8_t)parent;
    t->maybe_first_id = oracle->n_records;
    t->end_id = INT32_MAX;
    oracle_unlock();
    while ((rc = nrd_topic_attach(world->topics[parent], t->name)) < 0 && !(rc == -EEXIST && n > 0))
        (void)!world_again(world, &n, rc, "attaching a child");
    oracle_lock();
    oracle->topics[parent].unsure |= oracle->lied;
    t->unsure |= oracle->lied;
    t->first_id = oracle->n_records;
    t->attached = !oracle->lied;
    oracle_unlock();
    world->mixed[child] = true;
}

void world_detach(World *world, int parent, int child)
{
    OracleTopic *t = &world->oracle->topics[child];
    int n = 0, rc;
    oracle_lock();
    t->attached = false;
    oracle_unlock();
    while ((rc = nrd_topic_detach(world->topics[parent], t->name)) < 0 && !(rc == -ENOENT && n > 0))
        (void)!world_again(world, &n, rc, "detaching a child");
}

/* ---- waiting for a callback ---- */

typedef struct Waiting {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int error; /* 1: not yet */
} Waiting;

#define WAITING                                                                                                        \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1                                                         \
    }

static void on_done(void *user_data, int error)
{
    Waiting *waiting = user_data;
    pthread_mutex_lock(&waiting->lock);
    waiting->error = error;
    pthread_cond_signal(&waiting->change);
    pthread_mutex_unlock(&waiting->lock);
}

static int wait_for(Waiting *waiting)
{
    pthread_mutex_lock(&waiting->lock);
    while (waiting->error == 1)
        pthread_cond_wait(&waiting->change, &waiting->lock);
    pthread_mutex_unlock(&waiting->lock);
    return waiting->error;
}

int world_sync(NrdProducer *producer)
{
    Waiting waiting = WAITING;
    nrd_producer_sync(producer, NRD_SYNC_OWN, on_done, &waiting);
    return wait_for(&waiting);
}

/* ---- producing to a partition ---- */

static NrdPartition *partition_of(World *world, int topic, unsigned partition)
{
    return nrd_topic_partition(world->topics[topic], partition);
}

uint64_t world_hwm(World *world, int topic, unsigned partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition_of(world, topic, partition), &info);
    uint64_t hwm = info.hwm;
    nrd_partition_info_clear(&info);
    return hwm;
}

static bool open_producer(World *world, int topic, unsigned partition, Handle *handle)
{
    int n = 0, rc;
    while (!handle->producer &&
           (rc = nrd_producer_open(partition_of(world, topic, partition), true, &handle->producer)) < 0) {
        handle->producer = NULL;
        (void)!world_again(world, &n, rc, "opening a partition to produce");
    }
    return true;
}

static uint8_t key_for(World *world, unsigned i, bool keyed)
{
    return keyed && i % 2 == 0 ? (uint8_t)(1 + (unsigned)world->oracle->n_records % 7) : 0;
}

/* Sizes differ, so that frames do not all end at the same places. */
static int submit(World *world, int topic, int partition, size_t size, uint8_t key, uint8_t **ret_payload,
                  size_t *ret_size)
{
    *ret_size = size + (size_t)world->oracle->n_records % 7;
    int id = oracle_submit(world->oracle, topic, partition, key, *ret_size);
    *ret_payload = oracle_payload(world->oracle->seed, id, *ret_size);
    return id;
}

void world_add(World *world, int topic, unsigned partition, unsigned handle, unsigned n, size_t size, bool keyed)
{
    Handle *h = &world->partitions[topic][partition].handles[handle];
    open_producer(world, topic, partition, h);
    for (unsigned i = 0; i < n; i++) {
        uint8_t *payload = NULL;
        size_t payload_size = 0;
        uint8_t key = key_for(world, i, keyed);
        h->pending.ids[h->pending.n++] = submit(world, topic, (int)partition, size, key, &payload, &payload_size);
        nrd_producer_add(h->producer, oracle_key(key), strlen(oracle_key(key)), payload, payload_size);
        g_free(payload);
    }
}

/* The first n of what is pending was told to stand at first. */
static void told(World *world, int topic, Pending *pending, unsigned partition, uint64_t first, uint64_t n)
{
    if (n > (uint64_t)pending->n)
        world_fail(world, "I4: %" G_GUINT64_FORMAT " records were told as committed of %d that were submitted", n,
                   pending->n);
    for (uint64_t i = 0; i < n; i++) {
        char *why = oracle_told(world->oracle, pending->ids[i], partition, first + i);
        if (why)
            world_fail(world, "%s", why);
        oracle_acked(world->oracle, pending->ids[i]);
    }
    pending->n -= (int)n;
    memmove(pending->ids, pending->ids + n, (size_t)pending->n * sizeof pending->ids[0]);
    (void)topic;
}

/* Reads the lines that have come; the offsets follow each other from *next on, which is moved. */
static void collect(World *world, int topic, unsigned partition, Handle *handle, uint64_t *next)
{
    char text[RANGES_BYTES];
    size_t size = nrd_producer_read_ranges(handle->producer, text, sizeof text - 1);
    text[size] = '\0';
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line && **line; line++) {
        unsigned number;
        uint64_t first, last;
        if (sscanf(*line, "p%u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT, &number, &first, &last) != 3 ||
            number != partition || last < first)
            world_fail(world, "I4: a range that makes no sense: %s", *line);
        if (next && first != *next && !world->mixed[topic] && !world->oracle->lied)
            world_fail(world,
                       "I4: a batch was to land at offset %" G_GUINT64_FORMAT " and landed at %" G_GUINT64_FORMAT,
                       *next, first);
        if (next)
            *next = last + 1;
        told(world, topic, &handle->pending, partition, first, last - first + 1);
    }
}

static bool is_poisoned(NrdPartition *partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    bool poisoned = info.poisoned;
    nrd_partition_info_clear(&info);
    return poisoned;
}

static unsigned n_syncs_failed(World *world)
{
    return world->hooks->n_syncs_failed ? world->hooks->n_syncs_failed(world->hooks->user_data) : 0;
}

/* Whether a commit to another partition, by a thread of the engine's own, may be under way. */
static bool others_commit(const World *world)
{
    for (int i = 0; i < world->oracle->n_topics; i++) {
        if (world->mixed[i])
            return true;
    }
    return false;
}

static int sync_once(World *world, int topic, unsigned partition, Handle *handle)
{
    uint64_t before = world_hwm(world, topic, partition);
    unsigned n_failed = n_syncs_failed(world);
    int64_t start_ms = nrd_clock_mono_ms();
    int rc = world_sync(handle->producer);
    uint64_t after = world_hwm(world, topic, partition);
    if (world->mixed[topic] || nrd_clock_mono_ms() - start_ms >= SOON_MS)
        return rc;
    if (rc < 0 && after != before)
        world_fail(world,
                   "I6: a commit has failed (%s), and the hwm went from %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT,
                   g_strerror(-rc), before, after);
    if (others_commit(world))
        return rc;
    if (n_syncs_failed(world) > n_failed && rc == 0)
        world_fail(world, "I5: the sync of a segment has failed, and its commit was acknowledged");
    if (n_syncs_failed(world) > n_failed && !is_poisoned(partition_of(world, topic, partition)))
        world_fail(world, "I5: the sync of a segment has failed, and the partition goes on");
    return rc;
}

void world_produce(World *world, int topic, unsigned partition, unsigned handle, unsigned n, size_t size, bool keyed)
{
    PartitionWorld *p = &world->partitions[topic][partition];
    int tries = 0, rc;
    world_add(world, topic, partition, handle, n, size, keyed);
    uint64_t next = world_hwm(world, topic, partition);
    while ((rc = sync_once(world, topic, partition, &p->handles[handle])) < 0) {
        if (!world_again(world, &tries, rc, "producing"))
            return;
    }
    for (unsigned i = 0; i < WORLD_HANDLES; i++) {
        if (p->handles[i].producer)
            collect(world, topic, partition, &p->handles[i],
                    WORLD_HANDLES == 1 || !p->handles[1].producer ? &next : NULL);
    }
    if (p->handles[handle].pending.n > 0)
        world_fail(world, "I4: a sync has succeeded, and %d records of it were told no offset",
                   p->handles[handle].pending.n);
    oracle_lock();
    OraclePartition *seen = &world->oracle->topics[topic].partitions[partition];
    if (!world->oracle->lied)
        seen->floor = seen->hwm = MAX(seen->hwm, seen->next);
    oracle_unlock();
}

/* ---- producing to a topic ---- */

/* Each record that was told is read, which tells which one it is. */
static void told_by_dispatcher(World *world, int topic, Pending *pending, unsigned partition, uint64_t offset)
{
    NrdRecord record = { 0 };
    int n = 0, rc;
    while ((rc = nrd_partition_record(partition_of(world, topic, partition), offset, &record)) < 0) {
        if (world->oracle->lied || !world_again(world, &n, rc, "reading a record"))
            return;
    }
    for (int i = 0; i < pending->n; i++) {
        int id = pending->ids[i];
        const OracleRecord *r = &world->oracle->records[id];
        g_autofree uint8_t *expected = oracle_payload(world->oracle->seed, id, r->size);
        if (r->size != record.payload_size || memcmp(expected, record.payload, r->size) != 0)
            continue;
        char *why = oracle_told(world->oracle, id, partition, offset);
        if (why)
            world_fail(world, "%s", why);
        memmove(&pending->ids[i], &pending->ids[i + 1], (size_t)(--pending->n - i) * sizeof pending->ids[0]);
        nrd_record_clear(&record);
        return;
    }
    nrd_record_clear(&record);
    world_fail(world,
               "I2: offset %" G_GUINT64_FORMAT " of partition %u was told to a producer and is none of its records",
               offset, partition);
}

static void collect_topic(World *world, int topic, Handle *handle)
{
    char text[RANGES_BYTES];
    size_t size = nrd_topic_producer_read_ranges(handle->topic_producer, text, sizeof text - 1);
    text[size] = '\0';
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line && **line; line++) {
        unsigned number;
        uint64_t first, last;
        if (sscanf(*line, "p%u %" G_GUINT64_FORMAT " %" G_GUINT64_FORMAT, &number, &first, &last) != 3 || last < first)
            world_fail(world, "I4: a range that makes no sense: %s", *line);
        /* a restart on the way ends it */
        for (uint64_t offset = first; offset <= last && handle->topic_producer; offset++)
            told_by_dispatcher(world, topic, &handle->pending, number, offset);
    }
}

void world_produce_to_topic(World *world, int topic, unsigned handle, unsigned n, size_t size, bool keyed)
{
    Handle *h = &world->topic_handles[topic][handle];
    int tries = 0, rc;
    world->mixed[topic] = true;
    while (!h->topic_producer && (rc = nrd_topic_producer_open(world->topics[topic], true, &h->topic_producer)) < 0) {
        h->topic_producer = NULL;
        (void)!world_again(world, &tries, rc, "opening a topic to produce");
    }
    int first_id = world->oracle->n_records;
    for (unsigned i = 0; i < n; i++) {
        uint8_t *payload = NULL;
        size_t payload_size = 0;
        uint8_t key = key_for(world, i, keyed);
        h->pending.ids[h->pending.n++] = submit(world, topic, ORACLE_TOPIC_LEVEL, size, key, &payload, &payload_size);
        nrd_topic_producer_add(h->topic_producer, oracle_key(key), strlen(oracle_key(key)), payload, payload_size);
        g_free(payload);
    }
    for (tries = 0;;) {
        Waiting waiting = WAITING;
        nrd_topic_producer_sync(h->topic_producer, NRD_SYNC_OWN, on_done, &waiting);
        rc = wait_for(&waiting);
        if (rc == 0)
            break;
        if (!world_again(world, &tries, rc, "producing to a topic"))
            return;
    }
    for (int id = first_id; id < world->oracle->n_records; id++)
        oracle_acked(world->oracle, id);
    world_rest(world);
    collect_topic(world, topic, h);
    if (h->topic_producer && h->pending.n > 0)
        world_fail(world, "I4: everything is dispatched, and %d records were told no offset", h->pending.n);
}

/* ---- verbs ---- */

void world_roll(World *world, int topic, unsigned partition)
{
    int n = 0, rc;
    while ((rc = nrd_partition_roll(partition_of(world, topic, partition))) < 0) {
        if (!world_again(world, &n, rc, "rolling"))
            return;
    }
}

static void may_go_below(World *world, int topic, unsigned partition, uint64_t offset)
{
    oracle_lock();
    OraclePartition *p = &world->oracle->topics[topic].partitions[partition];
    p->gone_below = MAX(p->gone_below, offset);
    oracle_unlock();
}

static uint64_t oldest_of(World *world, int topic, unsigned partition)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition_of(world, topic, partition), &info);
    uint64_t oldest = info.oldest_offset;
    nrd_partition_info_clear(&info);
    return oldest;
}

void world_trim(World *world, int topic, unsigned partition, uint64_t offset)
{
    int n = 0, rc;
    may_go_below(world, topic, partition, offset);
    while ((rc = nrd_partition_trim(partition_of(world, topic, partition), offset)) < 0) {
        if (!world_again(world, &n, rc, "trimming"))
            return;
    }
    uint64_t trimmed = oldest_of(world, topic, partition);
    oracle_lock();
    OraclePartition *p = &world->oracle->topics[topic].partitions[partition];
    p->trimmed = MAX(p->trimmed, trimmed);
    oracle_unlock();
}

void world_bound(World *world, int topic, unsigned partition, uint64_t n_bytes)
{
    uint64_t size = 0, offset = world_hwm(world, topic, partition);
    for (int id = world->oracle->n_records; id-- > 0 && size < n_bytes;) {
        const OracleRecord *r = &world->oracle->records[id];
        if (r->topic != topic || r->at != (int)partition || r->offset == ORACLE_UNKNOWN)
            continue;
        size += r->size;
        offset = MIN(offset, (uint64_t)r->offset);
    }
    if (size >= n_bytes)
        may_go_below(world, topic, partition, offset);
}

void world_wait_retention(World *world, int topic, unsigned partition, uint64_t oldest)
{
    int64_t start_ms = nrd_clock_mono_ms();
    while (oldest_of(world, topic, partition) < oldest) {
        bool failed = world->hooks->failed && world->hooks->failed(world->hooks->user_data);
        int64_t waited_ms = nrd_clock_mono_ms() - start_ms;
        if (failed && waited_ms > SICK_WAIT_MS)
            break; /* it is tried again, later than a workload can wait */
        if (waited_ms > RETENTION_WAIT_MS)
            world_fail(world, "retention: the disk is well, and offsets below %" G_GUINT64_FORMAT " do not go", oldest);
        g_usleep(300);
    }
    g_usleep(2000); /* the files go after the list */
}

static void settle_all(World *world, int topic, unsigned partition, uint64_t below, OracleSettled lower,
                       OracleSettled upper)
{
    oracle_lock();
    OraclePartition *p = &world->oracle->topics[topic].partitions[partition];
    for (uint64_t o = 0; o < ORACLE_MAX_OFFSETS; o++)
        p->settled[o] = (uint8_t)(o < below ? lower : upper);
    oracle_unlock();
}

void world_seek(World *world, int topic, unsigned partition, uint64_t offset)
{
    int n = 0, rc;
    settle_all(world, topic, partition, 0, ORACLE_EITHER, ORACLE_EITHER);
    while ((rc = nrd_partition_seek(partition_of(world, topic, partition), NRD_SEEK_OFFSET, offset)) < 0) {
        if (!world_again(world, &n, rc, "seeking"))
            return;
    }
    settle_all(world, topic, partition, offset, world->oracle->lied ? ORACLE_EITHER : ORACLE_DURABLE,
               world->oracle->lied ? ORACLE_EITHER : ORACLE_OPEN);
    g_clear_pointer(&world->partitions[topic][partition].leases, g_array_unref);
}

void world_reopen(World *world, int topic, unsigned partition)
{
    int n = 0, rc;
    while ((rc = nrd_partition_reopen(partition_of(world, topic, partition))) < 0) {
        if (!world_again(world, &n, rc, "reopening"))
            return;
    }
}

/* ---- consuming ---- */

typedef struct Taken {
    World *world;
    int topic;
    int error; /* 1: not called back */
    uint64_t offset, nonce;
    bool known;
} Taken;

static void on_taken(void *user_data, int error, const NrdDelivery *delivery)
{
    Taken *taken = user_data;
    taken->error = error;
    if (error != 0)
        return;
    taken->offset = delivery->offset;
    taken->nonce = delivery->nonce;
    taken->known = false;
    for (int id = 0; id < taken->world->oracle->n_records && !taken->known; id++) {
        const OracleRecord *r = &taken->world->oracle->records[id];
        if (r->size != delivery->payload_size)
            continue;
        g_autofree uint8_t *expected = oracle_payload(taken->world->oracle->seed, id, r->size);
        taken->known = memcmp(expected, delivery->payload, r->size) == 0;
    }
}

static GArray *leases_of(World *world, int topic, unsigned partition)
{
    PartitionWorld *p = &world->partitions[topic][partition];
    if (!p->leases)
        p->leases = g_array_new(FALSE, FALSE, sizeof(Lease));
    return p->leases;
}

/* The lowest offset that has to come now. */
static uint64_t lowest_open(World *world, int topic, unsigned partition)
{
    const OraclePartition *p = &world->oracle->topics[topic].partitions[partition];
    const GArray *leases = leases_of(world, topic, partition);
    NrdPartitionInfo info;
    nrd_partition_info(partition_of(world, topic, partition), &info);
    uint64_t offset = info.oldest_offset, hwm = info.hwm;
    nrd_partition_info_clear(&info);
    for (; offset < hwm; offset++) {
        bool leased = false;
        for (guint i = 0; i < leases->len; i++)
            leased |= g_array_index(leases, Lease, i).live && g_array_index(leases, Lease, i).offset == offset;
        if (!leased && p->settled[offset] == ORACLE_OPEN)
            break;
    }
    return offset;
}

static void check_taken(World *world, int topic, unsigned partition, const Taken *taken)
{
    const OraclePartition *p = &world->oracle->topics[topic].partitions[partition];
    uint64_t lowest = lowest_open(world, topic, partition);
    if (!taken->known)
        world_fail(world, "I2: what was delivered at offset %" G_GUINT64_FORMAT " was never submitted", taken->offset);
    if (taken->offset > lowest)
        world_fail(world, "I8: offset %" G_GUINT64_FORMAT " was delivered, and %" G_GUINT64_FORMAT " was skipped",
                   taken->offset, lowest);
    if (taken->offset < lowest && p->settled[taken->offset] >= ORACLE_SETTLED)
        world_fail(world, "I8: offset %" G_GUINT64_FORMAT " is settled and came again", taken->offset);
}

void world_take(World *world, int topic, unsigned partition, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        Taken taken = { .world = world, .topic = topic };
        for (int tries = 0;;) {
            NrdWaiter waiter;
            nrd_waiter_init(&waiter);
            taken.error = 1;
            nrd_partition_take(partition_of(world, topic, partition), &waiter, 0, on_taken, &taken);
            if (taken.error == 0 || taken.error == -EAGAIN)
                break;
            if (!world_again(world, &tries, taken.error, "consuming"))
                return;
        }
        if (taken.error == 0) {
            check_taken(world, topic, partition, &taken);
            Lease lease = { taken.offset, taken.nonce, true };
            g_array_append_val(leases_of(world, topic, partition), lease);
            continue;
        }
        if (lowest_open(world, topic, partition) < world_hwm(world, topic, partition))
            world_fail(world, "I8: nothing is delivered, and offset %" G_GUINT64_FORMAT " is open",
                       lowest_open(world, topic, partition));
    }
}

static void note_settled(World *world, int topic, unsigned partition, uint64_t offset, OracleSettled settled)
{
    oracle_lock();
    if (world->oracle->lied && settled == ORACLE_DURABLE)
        settled = ORACLE_EITHER;
    world->oracle->topics[topic].partitions[partition].settled[offset] = (uint8_t)settled;
    oracle_unlock();
}

void world_ack(World *world, int topic, unsigned partition, unsigned every)
{
    GArray *leases = leases_of(world, topic, partition);
    for (guint i = 0; i < leases->len; i++) {
        Lease *lease = &g_array_index(leases, Lease, i);
        if (!lease->live || i % every != 0)
            continue;
        note_settled(world, topic, partition, lease->offset, ORACLE_EITHER);
        int rc = nrd_partition_settle(partition_of(world, topic, partition), NRD_VERB_ACK, lease->offset, lease->nonce);
        if (rc < 0)
            world_fail(world, "I8: a lease that is held could not be acked: %s", g_strerror(-rc));
        note_settled(world, topic, partition, lease->offset, ORACLE_SETTLED);
        lease->live = false;
    }
}

/* Everything that is settled in memory has become durable. */
static void all_durable(World *world, int topic, unsigned partition)
{
    oracle_lock();
    OraclePartition *p = &world->oracle->topics[topic].partitions[partition];
    for (unsigned o = 0; o < ORACLE_MAX_OFFSETS && !world->oracle->lied; o++) {
        if (p->settled[o] == ORACLE_SETTLED)
            p->settled[o] = ORACLE_DURABLE;
    }
    oracle_unlock();
}

void world_ack_durably(World *world, int topic, unsigned partition, unsigned every)
{
    GArray *leases = leases_of(world, topic, partition);
    g_autofree NrdHold *holds = g_new0(NrdHold, leases->len + 1);
    g_autofree int *errors = g_new0(int, leases->len + 1);
    size_t n = 0;
    int tries = 0, rc;
    for (guint i = 0; i < leases->len; i++) {
        Lease *lease = &g_array_index(leases, Lease, i);
        if (!lease->live || i % every != 0)
            continue;
        holds[n++] = (NrdHold){ .partition = partition, .offset = lease->offset, .nonce = lease->nonce };
        note_settled(world, topic, partition, lease->offset, ORACLE_EITHER);
        lease->live = false;
    }
    while ((rc = nrd_partition_settle_durably(partition_of(world, topic, partition), holds, n, errors)) < 0) {
        if (!world_again(world, &tries, rc, "settling durably"))
            return;
    }
    for (size_t i = 0; i < n; i++) {
        if (errors[i] < 0)
            world_fail(world, "I8: a lease that is held could not be settled durably: %s", g_strerror(-errors[i]));
        note_settled(world, topic, partition, holds[i].offset, ORACLE_DURABLE);
    }
    all_durable(world, topic, partition);
}

static void verb_on_all(World *world, int topic, unsigned partition, NrdVerb verb)
{
    GArray *leases = leases_of(world, topic, partition);
    for (guint i = 0; i < leases->len; i++) {
        Lease *lease = &g_array_index(leases, Lease, i);
        if (!lease->live)
            continue;
        int rc = nrd_partition_settle(partition_of(world, topic, partition), verb, lease->offset, lease->nonce);
        if (rc < 0)
            world_fail(world, "I8: a lease that is held could not be given back or extended: %s", g_strerror(-rc));
        lease->live = verb != NRD_VERB_NACK;
    }
}

void world_nack(World *world, int topic, unsigned partition)
{
    verb_on_all(world, topic, partition, NRD_VERB_NACK);
}

void world_extend(World *world, int topic, unsigned partition)
{
    verb_on_all(world, topic, partition, NRD_VERB_EXTEND);
}

void world_sync_frontier(World *world, int topic, unsigned partition)
{
    int n = 0;
    for (;;) {
        Waiting waiting = WAITING;
        nrd_partition_sync_frontier(partition_of(world, topic, partition), on_done, &waiting);
        int rc = wait_for(&waiting);
        if (rc == 0)
            break;
        if (!world_again(world, &n, rc, "writing the frontier"))
            return;
    }
    all_durable(world, topic, partition);
}
