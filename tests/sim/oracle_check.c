/* See oracle.h: the look at a store. It is opened three times and shall be the same each time, then it gets one record
 * more for each partition and is looked at again. */
#include "tests/sim/oracle_private.h"

#include "engine/base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define REST_MS 20000
#define OPEN_MS 10000 /* I3 */
#define DELAYED_MS 50
#define DELAY_STEP_MS 61000 /* a little over the delay of the workloads' children */

typedef struct Seen {
    bool there;
    uint64_t oldest, hwm, next, frontier;
    uint64_t digest;
} Seen;

typedef struct Look {
    const Oracle *oracle;
    NrdEngine *engine;
    NrdTopic *topics[ORACLE_MAX_TOPICS];
    NrdPartition *pinned[ORACLE_MAX_TOPICS][ORACLE_MAX_PARTITIONS];
    Seen seen[ORACLE_MAX_TOPICS][ORACLE_MAX_PARTITIONS];
    uint8_t n_found[ORACLE_MAX_TOPICS][ORACLE_MAX_RECORDS]; /* copies in each topic */
    bool refused;                                           /* the folder does not count as a data directory */
    char *why;                                              /* the first violation */
} Look;

static void G_GNUC_PRINTF(2, 3) violation(Look *look, const char *format, ...)
{
    va_list args;
    if (look->why)
        return;
    va_start(args, format);
    look->why = g_strdup_vprintf(format, args);
    va_end(args);
}

/* ---- topics ---- */

static int topic_of(const Look *look, const char *name, const char *id)
{
    const Oracle *oracle = look->oracle;
    int creating = -1;
    for (int i = 0; i < oracle->n_topics; i++) {
        const OracleTopic *t = &oracle->topics[i];
        if (strcmp(t->name, name) != 0)
            continue;
        if (strcmp(t->id, id) == 0)
            return i;
        if (t->id[0] == '\0' && t->state == ORACLE_CREATING)
            creating = i;
    }
    return creating;
}

static void find_topic(Look *look, const char *name)
{
    NrdTopic *topic = NULL;
    if (nrd_topic_find(look->engine, name, &topic) < 0) {
        violation(look, "I1: topic %s is listed and cannot be found", name);
        return;
    }
    g_autofree char *fault = nrd_topic_fault(topic);
    int i = topic_of(look, name, nrd_topic_incarnation(topic));
    bool usable = fault == NULL;
    if (fault && !look->oracle->lied)
        violation(look, "I3: topic %s is out of service: %s", name, fault);
    else if (usable && i < 0)
        violation(look, "I2: topic %s with incarnation %s was never created", name, nrd_topic_incarnation(topic));
    else if (usable && look->oracle->topics[i].state == ORACLE_GONE)
        violation(look, "I6: topic %s was deleted and is back", name);
    if (i >= 0 && usable && !look->why)
        look->topics[i] = topic;
    else
        nrd_topic_unref(topic);
}

static void find_topics(Look *look)
{
    g_autoptr(GPtrArray) names = nrd_engine_topic_names(look->engine);
    for (guint i = 0; i < names->len; i++)
        find_topic(look, names->pdata[i]);
    for (int i = 0; i < look->oracle->n_topics; i++) {
        const OracleTopic *t = &look->oracle->topics[i];
        if (t->state == ORACLE_THERE && !t->unsure && !look->topics[i])
            violation(look, "I1: topic %s was created and is lost", t->name);
    }
}

/* ---- records ---- */

static bool routed_here(const Oracle *oracle, const OracleRecord *record, int topic, unsigned partition)
{
    unsigned n_now = oracle->topics[topic].n_partitions;
    if (record->topic == topic && record->partition != ORACLE_TOPIC_LEVEL)
        return (unsigned)record->partition == partition;
    if (record->key == 0 || oracle->rerouted)
        return true;
    uint32_t hash = oracle_key_hash(record->key);
    return hash % n_now == partition || (record->topic == topic && hash % record->n_partitions == partition);
}

static const char *misplaced(const Oracle *oracle, const OracleRecord *record, int topic, unsigned partition)
{
    const OracleTopic *t = &oracle->topics[topic];
    if (record->topic != topic && t->parent != record->topic)
        return "I2: it belongs to another topic";
    if (!routed_here(oracle, record, topic, partition))
        return "I2: it belongs to another partition";
    return NULL;
}

static void check_record(Look *look, int topic, unsigned partition, const NrdRecord *record)
{
    const Oracle *oracle = look->oracle;
    int id = oracle_identify(oracle, record->payload, record->payload_size);
    const char *name = oracle->topics[topic].name;
    if (id < 0) {
        violation(look, "I2: offset %" G_GUINT64_FORMAT " of %s/p%05u was never submitted (%zu bytes)", record->offset,
                  name, partition, record->payload_size);
        return;
    }
    const OracleRecord *r = &oracle->records[id];
    const char *key = oracle_key(r->key);
    if (r->quarantined)
        violation(look, "I2: record %d of another incarnation is served", id);
    const char *where = misplaced(oracle, r, topic, partition);
    if (where)
        violation(look, "%s: record %d, at offset %" G_GUINT64_FORMAT " of %s/p%05u", where, id, record->offset, name,
                  partition);
    if (record->key_size != strlen(key) || (record->key_size > 0 && memcmp(record->key, key, record->key_size) != 0))
        violation(look, "I2: record %d has another key", id);
    bool second = r->partition == ORACLE_TOPIC_LEVEL && oracle->twice && oracle->n_crashes > 0;
    if (r->topic == topic && r->offset != ORACLE_UNKNOWN && !r->unsure && !second &&
        ((uint64_t)r->offset != record->offset || (unsigned)r->at != partition) && !oracle->lied)
        violation(look, "I6: record %d was told p%05d %" G_GINT64_FORMAT " and stands at p%05u %" G_GUINT64_FORMAT, id,
                  r->at, r->offset, partition, record->offset);
    if (look->n_found[topic][id] < UINT8_MAX)
        look->n_found[topic][id]++;
}

static uint64_t mix(uint64_t digest, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        digest = (digest ^ ((const uint8_t *)data)[i]) * UINT64_C(1099511628211);
    return digest;
}

static void read_records(Look *look, int topic, unsigned number, NrdPartition *partition, Seen *seen)
{
    const OraclePartition *p = &look->oracle->topics[topic].partitions[number];
    int64_t newest_ms = 0;
    for (uint64_t offset = seen->oldest; offset < seen->hwm && !look->why; offset++) {
        NrdRecord record = { 0 };
        int rc = nrd_partition_record(partition, offset, &record);
        if (offset < p->gone_below && (rc == -ENOENT || (rc == -EBADMSG && look->oracle->unordered)))
            continue; /* deleted meanwhile, or half deleted where no journal keeps the order of removals */
        if (offset >= p->gone_below)
            seen->digest = mix(mix(seen->digest, &offset, sizeof offset), &rc, sizeof rc);
        if (rc < 0 && !look->oracle->lied)
            violation(look, "I1: offset %" G_GUINT64_FORMAT " of %s/p%05u cannot be read: %s", offset,
                      look->oracle->topics[topic].name, number, g_strerror(-rc));
        if (rc < 0)
            continue;
        if (offset >= p->gone_below)
            seen->digest = mix(seen->digest, record.payload, record.payload_size);
        check_record(look, topic, number, &record);
        if (record.timestamp_ms < newest_ms)
            violation(look, "clock: commit times decrease at offset %" G_GUINT64_FORMAT, offset);
        newest_ms = record.timestamp_ms;
        nrd_record_clear(&record);
    }
}

static void check_bounds(Look *look, const OracleTopic *t, unsigned number, const Seen *seen)
{
    const OraclePartition *p = &t->partitions[number];
    if (seen->oldest > seen->hwm || seen->hwm > seen->next)
        violation(look,
                  "I6: %s/p%05u has oldest %" G_GUINT64_FORMAT ", hwm %" G_GUINT64_FORMAT ", next %" G_GUINT64_FORMAT,
                  t->name, number, seen->oldest, seen->hwm, seen->next);
    if (seen->frontier > seen->hwm)
        violation(look, "I8: the frontier %" G_GUINT64_FORMAT " of %s/p%05u is above the hwm", seen->frontier, t->name,
                  number);
    if (look->oracle->lied)
        return;
    if (seen->hwm < p->hwm || seen->next < p->next)
        violation(look,
                  "I7: %s/p%05u had hwm %" G_GUINT64_FORMAT " and offsets up to %" G_GUINT64_FORMAT
                  ", and has %" G_GUINT64_FORMAT " and %" G_GUINT64_FORMAT,
                  t->name, number, p->hwm, p->next, seen->hwm, seen->next);
    if (seen->oldest < p->trimmed)
        violation(look,
                  "I7: a trim of %s/p%05u up to %" G_GUINT64_FORMAT " has succeeded, and offset %" G_GUINT64_FORMAT
                  " is back",
                  t->name, number, p->trimmed, seen->oldest);
    if (seen->oldest > p->gone_below)
        violation(look,
                  "I7: records of %s/p%05u are deleted up to %" G_GUINT64_FORMAT
                  ", and might be up to %" G_GUINT64_FORMAT,
                  t->name, number, seen->oldest, p->gone_below);
}

/* ---- deliveries ---- */

typedef struct Taken {
    int error;
    uint64_t offset, nonce;
} Taken;

static void on_taken(void *user_data, int error, const NrdDelivery *delivery)
{
    Taken *taken = user_data;
    taken->error = error;
    if (error == 0) {
        taken->offset = delivery->offset;
        taken->nonce = delivery->nonce;
    }
}

static void check_deliveries(Look *look, int topic, unsigned number, NrdPartition *partition, const Seen *seen)
{
    const OracleTopic *t = &look->oracle->topics[topic];
    const OraclePartition *p = &t->partitions[number];
    bool came[ORACLE_MAX_OFFSETS] = { false };
    Taken taken;
    for (;;) {
        NrdWaiter waiter;
        taken = (Taken){ .error = 1 };
        nrd_waiter_init(&waiter);
        nrd_partition_take(partition, &waiter, 0, on_taken, &taken);
        if (taken.error != 0)
            break;
        if (taken.offset >= seen->hwm || taken.offset < seen->oldest)
            violation(look, "I6: offset %" G_GUINT64_FORMAT " of %s/p%05u is delivered outside the log", taken.offset,
                      t->name, number);
        if (taken.offset < ORACLE_MAX_OFFSETS) {
            if (came[taken.offset])
                violation(look, "I8: offset %" G_GUINT64_FORMAT " was delivered twice under one lease", taken.offset);
            came[taken.offset] = true;
        }
    }
    if (taken.error != -EAGAIN)
        violation(look, "I8: a take from %s/p%05u failed: %s", t->name, number, g_strerror(-taken.error));
    for (uint64_t o = seen->oldest; o < MIN(seen->hwm, ORACLE_MAX_OFFSETS) && !look->oracle->lied; o++) {
        if (p->settled[o] == ORACLE_OPEN && !came[o] && o >= p->gone_below)
            violation(look, "I8: offset %" G_GUINT64_FORMAT " of %s/p%05u is not settled and was skipped", o, t->name,
                      number);
        if (p->settled[o] == ORACLE_DURABLE && came[o])
            violation(look, "I8: offset %" G_GUINT64_FORMAT " of %s/p%05u was settled durably and came again", o,
                      t->name, number);
    }
}

/* ---- one open ---- */

/* Stays open, so that what is on its way to it, or from it, is known to be. */
static void pin_partition(Look *look, int topic, unsigned number)
{
    const OracleTopic *t = &look->oracle->topics[topic];
    NrdPartition *partition = nrd_topic_partition(look->topics[topic], number);
    if (!partition) {
        if (number < t->n_partitions && !t->unsure)
            violation(look, "I1: partition %u of %s is lost", number, t->name);
        return;
    }
    int rc = nrd_partition_pin(partition);
    if (rc == 0)
        look->pinned[topic][number] = partition;
    else if (!look->oracle->lied)
        violation(look, "I3: %s/p%05u cannot be opened: %s", t->name, number, g_strerror(-rc));
}

static void pin_all(Look *look)
{
    for (int i = 0; i < look->oracle->n_topics; i++) {
        for (unsigned number = 0; look->topics[i] && number < ORACLE_MAX_PARTITIONS && !look->why; number++)
            pin_partition(look, i, number);
    }
}

static void check_partition(Look *look, int topic, unsigned number, bool deliveries)
{
    NrdPartition *partition = look->pinned[topic][number];
    NrdPartitionInfo info;
    Seen *seen = &look->seen[topic][number];
    *seen = (Seen){ .digest = UINT64_C(14695981039346656037) };
    if (!partition)
        return;
    nrd_partition_info(partition, &info);
    *seen = (Seen){ true, info.oldest_offset, info.hwm, info.next_offset, info.frontier, seen->digest };
    nrd_partition_info_clear(&info);
    check_bounds(look, &look->oracle->topics[topic], number, seen);
    if (!look->why)
        read_records(look, topic, number, partition, seen);
    if (!look->why && deliveries)
        check_deliveries(look, topic, number, partition, seen);
}

static void check_own_copies(Look *look, int id)
{
    const Oracle *oracle = look->oracle;
    const OracleRecord *r = &oracle->records[id];
    const OracleTopic *t = &oracle->topics[r->topic];
    unsigned n = look->n_found[r->topic][id];
    bool from_topic = r->partition == ORACLE_TOPIC_LEVEL;
    if (n > 1 && !(from_topic && oracle->twice && oracle->n_crashes > 0))
        violation(look, "I4: record %d of %s stands there %u times", id, t->name, n);
    if (n > 0 || !r->acked || r->unsure)
        return;
    for (unsigned p = 0; p < ORACLE_MAX_PARTITIONS; p++) {
        if (r->offset != ORACLE_UNKNOWN && (int)p != r->at)
            continue;
        if (r->offset == ORACLE_UNKNOWN ? t->partitions[p].gone_below > 0
                                        : (uint64_t)r->offset < t->partitions[p].gone_below)
            return;
    }
    violation(look, "I1: record %d of %s was acknowledged (p%05d %" G_GINT64_FORMAT ") and is lost", id, t->name, r->at,
              r->offset);
}

static void check_copies(Look *look, int id, int child)
{
    const Oracle *oracle = look->oracle;
    const OracleRecord *r = &oracle->records[id];
    const OracleTopic *t = &oracle->topics[child];
    int n = look->n_found[child][id];
    bool in_parent = look->topics[r->topic] && look->n_found[r->topic][id] > 0;
    if (n > 1 + oracle->n_crashes)
        violation(look, "I4: record %d was copied to %s %d times", id, t->name, n);
    if (n > 0 && id < t->maybe_first_id && !oracle->lied)
        violation(look, "I2: record %d is from before %s was attached", id, t->name);
    if (n == 0 && in_parent && id >= t->first_id && id < t->end_id && t->attached && !t->unsure && !oracle->lied)
        violation(look, "I1: record %d stands in its topic and not in the child %s", id, t->name);
}

static void check_all_copies(Look *look)
{
    for (int id = 0; id < look->oracle->n_records && !look->why; id++) {
        int topic = look->oracle->records[id].topic;
        if (look->topics[topic])
            check_own_copies(look, id);
        for (int child = 0; child < look->oracle->n_topics; child++) {
            if (look->topics[child] && look->oracle->topics[child].parent == topic)
                check_copies(look, id, child);
        }
    }
}

/* What was acknowledged by the WAL is in its partition, and everything in the children; delayed: in those with a delay, too. */
static void wait_for_rest(Look *look, bool delayed)
{
    int64_t until_ms = nrd_clock_mono_ms() + REST_MS;
    bool shifted = false;
    for (;;) {
        NrdSummary summary;
        nrd_engine_summary(look->engine, &summary);
        bool rests = summary.ingress_parts == 0 && summary.fan_lag == 0 && (!delayed || summary.fan_lag_delayed == 0);
        nrd_summary_clear(&summary);
        if (rests)
            return;
        if (delayed && !shifted &&
            nrd_clock_mono_ms() > until_ms - REST_MS + DELAYED_MS) { /* what is not due becomes so */
            nrd_clock_shift_wall_ms(DELAY_STEP_MS);
            nrd_clock_shift_mono_ms(DELAY_STEP_MS);
            until_ms += DELAY_STEP_MS;
            shifted = true;
        }
        if (nrd_clock_mono_ms() > until_ms) {
            if (!look->oracle->lied)
                violation(look, "I1: acknowledged records never reach their partitions, or the children");
            return;
        }
        g_usleep(300);
    }
}

static void open_store(Look *look)
{
    g_autofree char *why = NULL;
    NrdEngineOptions options = { .data_path = "/data", .cold_retention_ms = -1 };
    memset(look->topics, 0, sizeof look->topics);
    memset(look->n_found, 0, sizeof look->n_found);
    int64_t start_us = g_get_monotonic_time();
    int rc = nrd_engine_open(&options, &look->engine, &why);
    if (rc < 0) {
        look->engine = NULL;
        look->refused = true;
        if (!look->oracle->layout_lied)
            violation(look, "I3: the store cannot be opened: %s", why);
        return;
    }
    find_topics(look);
    if (!look->why)
        pin_all(look);
    if (!look->why)
        wait_for_rest(look, true);
    int64_t ms = (g_get_monotonic_time() - start_us) / 1000;
    if (ms > OPEN_MS)
        violation(look, "I3: an open takes %" G_GINT64_FORMAT " ms", ms);
}

static void close_store(Look *look)
{
    for (int i = 0; i < look->oracle->n_topics; i++) {
        for (unsigned number = 0; number < ORACLE_MAX_PARTITIONS; number++) {
            if (look->pinned[i][number])
                nrd_partition_unpin(look->pinned[i][number]);
        }
        nrd_topic_unref(look->topics[i]);
    }
    memset(look->pinned, 0, sizeof look->pinned);
    if (!look->engine)
        return;
    nrd_engine_stop(look->engine);
    int rc = nrd_engine_close(look->engine);
    if (rc < 0)
        violation(look, "I3: the store cannot be closed: %s", g_strerror(-rc));
    look->engine = NULL;
}

static void look_at_all(Look *look, bool deliveries)
{
    memset(look->n_found, 0, sizeof look->n_found);
    for (int i = 0; i < look->oracle->n_topics; i++) {
        for (unsigned number = 0; look->topics[i] && number < ORACLE_MAX_PARTITIONS && !look->why; number++)
            check_partition(look, i, number, deliveries);
    }
    if (!look->why)
        check_all_copies(look);
}

static void compare(Look *look, Look *last, int nth)
{
    for (int i = 0; i < look->oracle->n_topics && nth > 1; i++) {
        for (unsigned number = 0; number < ORACLE_MAX_PARTITIONS; number++) {
            const Seen *a = &last->seen[i][number], *b = &look->seen[i][number];
            const OraclePartition *p = &look->oracle->topics[i].partitions[number];
            bool deleted = p->gone_below > 0 && b->oldest >= a->oldest && b->oldest <= p->gone_below;
            if (a->there != b->there || (a->oldest != b->oldest && !deleted) || a->hwm != b->hwm ||
                a->next != b->next || (a->frontier != b->frontier && !look->oracle->lied && !deleted) ||
                a->digest != b->digest)
                violation(look,
                          "I3: %s/p%05u differs at open %d: oldest %" G_GUINT64_FORMAT "/%" G_GUINT64_FORMAT
                          ", hwm %" G_GUINT64_FORMAT "/%" G_GUINT64_FORMAT ", next %" G_GUINT64_FORMAT
                          "/%" G_GUINT64_FORMAT ", frontier %" G_GUINT64_FORMAT "/%" G_GUINT64_FORMAT,
                          look->oracle->topics[i].name, number, nth, a->oldest, b->oldest, a->hwm, b->hwm, a->next,
                          b->next, a->frontier, b->frontier);
        }
    }
    memcpy(last->seen, look->seen, sizeof look->seen);
}

/* ---- one record more ---- */

typedef struct Waiting {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int error; /* 1: not yet */
} Waiting;

static void on_done(void *user_data, int error)
{
    Waiting *waiting = user_data;
    pthread_mutex_lock(&waiting->lock);
    waiting->error = error;
    pthread_cond_signal(&waiting->change);
    pthread_mutex_unlock(&waiting->lock);
}

static int sync_and_wait(NrdProducer *producer)
{
    Waiting waiting = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 1 };
    nrd_producer_sync(producer, NRD_SYNC_OWN, on_done, &waiting);
    pthread_mutex_lock(&waiting.lock);
    while (waiting.error == 1)
        pthread_cond_wait(&waiting.change, &waiting.lock);
    pthread_mutex_unlock(&waiting.lock);
    return waiting.error;
}

static void append_one(Look *look, Oracle *more, int topic, unsigned number)
{
    const Seen *seen = &look->seen[topic][number];
    NrdProducer *producer = NULL;
    char line[64] = "";
    uint64_t first = 0;
    if (!seen->there || nrd_topic_is_delayed(look->topics[topic]))
        return;
    int rc = nrd_producer_open(nrd_topic_partition(look->topics[topic], number), true, &producer);
    if (rc == 0) {
        int id = oracle_submit(more, topic, (int)number, 0, 40);
        g_autofree uint8_t *payload = oracle_payload(more->seed, id, 40);
        nrd_producer_add(producer, NULL, 0, payload, 40);
        rc = sync_and_wait(producer);
        size_t n = nrd_producer_read_ranges(producer, line, sizeof line - 1);
        line[n] = '\0';
        nrd_producer_close(producer, NULL, NULL);
        if (rc == 0)
            oracle_acked(more, id);
        if (rc == 0 && sscanf(line, "p%*u %" G_GUINT64_FORMAT, &first) == 1 && first < ORACLE_MAX_OFFSETS)
            g_free(oracle_told(more, id, number, first)); /* what it might say is said below */
    }
    if (rc < 0) {
        violation(look, "I3: nothing can be appended to %s/p%05u: %s", look->oracle->topics[topic].name, number,
                  g_strerror(-rc));
        return;
    }
    if (sscanf(line, "p%*u %" G_GUINT64_FORMAT, &first) != 1 || first < seen->next)
        violation(look,
                  "I6: offset %" G_GUINT64_FORMAT " of %s/p%05u is given out again (next was %" G_GUINT64_FORMAT ")",
                  first, look->oracle->topics[topic].name, number, seen->next);
}

/* What the look has found out is known from now on, and what was visible stays so. */
static void learn(const Look *look, Oracle *more)
{
    for (int i = 0; i < more->n_topics; i++) {
        OracleTopic *t = &more->topics[i];
        if (look->topics[i] && nrd_topic_is_delayed(look->topics[i]))
            t->end_id = MIN(t->end_id, more->n_records); /* what comes now is not due */
        if (look->topics[i]) {
            t->state = ORACLE_THERE;
            g_strlcpy(t->id, nrd_topic_incarnation(look->topics[i]), sizeof t->id);
        } else if (t->state != ORACLE_THERE) {
            t->state = ORACLE_GONE;
        }
        for (unsigned number = 0; number < ORACLE_MAX_PARTITIONS; number++)
            t->partitions[number].hwm = MAX(t->partitions[number].hwm, look->seen[i][number].hwm);
    }
    for (int id = 0; id < more->n_records; id++)
        more->records[id].acked |= look->n_found[more->records[id].topic][id] > 0;
}

/* A record more in each partition: what was hidden becomes visible by it, and has to be something that was submitted. */
static void append_and_look(Look *look, OracleMoreFn looked, OracleMoreFn appended, void *user_data)
{
    const Oracle *before = look->oracle;
    Oracle *more = oracle_copy(before);
    if (!more->lied)
        learn(look, more);
    if (looked)
        looked(user_data, more);
    for (int i = 0; i < before->n_topics; i++) {
        for (unsigned number = 0; look->topics[i] && number < ORACLE_MAX_PARTITIONS && !look->why; number++)
            append_one(look, more, i, number);
    }
    look->oracle = more;
    if (!look->why)
        wait_for_rest(look, false);
    if (!look->why)
        look_at_all(look, false);
    if (!look->why && appended)
        appended(user_data, more);
    look->oracle = before;
    oracle_free(more);
}

char *oracle_check_once(const Oracle *oracle, OracleMoreFn looked, OracleMoreFn appended, void *user_data)
{
    Look *look = g_new0(Look, 1);
    look->oracle = oracle;
    open_store(look);
    if (!look->why && !look->refused)
        look_at_all(look, true);
    if (!look->why && !look->refused && appended)
        append_and_look(look, looked, appended, user_data);
    close_store(look);
    char *why = look->why;
    g_free(look);
    return why;
}

char *oracle_check(const Oracle *oracle)
{
    Look *look = g_new0(Look, 1);
    Look *last = g_new0(Look, 1);
    look->oracle = oracle;
    for (int nth = 1; nth <= 3 && !look->why && !look->refused; nth++) {
        open_store(look);
        if (!look->why && !look->refused)
            look_at_all(look, nth == 1);
        if (!look->why && !look->refused)
            compare(look, last, nth);
        if (!look->why && !look->refused && nth == 3)
            append_and_look(look, NULL, NULL, NULL);
        close_store(look);
    }
    char *why = look->why;
    g_free(last);
    g_free(look);
    return why;
}
