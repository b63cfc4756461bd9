/* Settling: one lease, several, so that the caller knows that the servers have it, and for a topic as a whole. Leases are in
 * lease.c, acks on their way in acks.c.
 *
 * Nothing is left to be sent later: what settles somebody's lease then would settle another's. A nack that cannot be sent now is
 * forgotten here, and its record comes by time. An extension is made when the servers have confirmed it. */
#include "engine/jetstream/consumer.h"
#include "engine/jetstream/gather.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/lease_private.h"
#include "engine/jetstream/partition.h"

#include "engine/base/clock.h"

/* ---- extending ---- */

/* An extension on its way. */
typedef struct Extension {
    NrdPartition *partition;
    uint64_t nonce;
    int64_t sent_ms;
    NrdJsCountdown *countdown; /* NULL: nobody waits; then it holds a reference to the topic, and is freed */
    int error;
} Extension;

static void free_extension(void *user_data)
{
    Extension *extension = user_data;
    NrdTopic *topic = extension->partition->topic;
    g_free(extension);
    nrd_js_topic_unref(topic);
}

static void on_extended(void *user_data, int error, natsMsg *msg)
{
    Extension *extension = user_data;
    natsMsg_Destroy(msg);
    bool in_time =
        error == 0 && nrd_js_lease_restarted(extension->partition->leases, extension->nonce, extension->sent_ms);
    extension->error = in_time ? 0 : error == 0 ? -ESTALE : -EIO;
    if (extension->countdown)
        nrd_js_countdown_one(extension->countdown);
    else
        nrd_js_later(extension->partition->topic->engine->conn, free_extension, extension);
}

/* Sends nothing and returns false for a lease that has lapsed. What is sent late would extend another's. */
static bool send_extension(Extension *extension, uint64_t offset)
{
    NrdJsLeaseEnd end;
    g_autofree char *reply = nrd_js_lease_subject(extension->partition, offset, extension->nonce, &end);
    if (!reply)
        return false;
    extension->sent_ms = nrd_clock_mono_ms();
    nrd_js_request_before(extension->partition->topic->engine->conn, reply, "+WPI", NRD_JS_ANSWER_MS, &end, on_extended,
                          extension);
    return true;
}

void nrd_js_lease_extend_later(NrdPartition *partition, uint64_t offset, uint64_t nonce)
{
    Extension *extension = g_new(Extension, 1);
    *extension = (Extension){ .partition = partition, .nonce = nonce };
    nrd_js_topic_ref(partition->topic);
    if (!send_extension(extension, offset))
        free_extension(extension);
}

static size_t count_done(NrdPartition *partition, const Extension *extensions, size_t n, int *ret_error)
{
    size_t done = 0;
    while (done < n && extensions[done].error == 0)
        done++;
    *ret_error = done < n ? extensions[done].error : 0;
    if (*ret_error == -EIO)
        nrd_diag(NRD_LEVEL_WARNING, nrd_js_partition_place(partition),
                 "a lease could not be extended: the NATS servers did not confirm it; it ends when it would have");
    return done;
}

/* All at once. With other settings than the consumer has it is set to them first. */
static size_t extend(NrdPartition *partition, const NrdHold *holds, size_t n, int *ret_error)
{
    g_autofree Extension *extensions = g_new(Extension, n);
    NrdJsCountdown countdown;
    if (nrd_js_conn_is_up(partition->topic->engine->conn))
        (void)!nrd_js_partition_need_consumer(partition); /* without it the lease is extended by what was known */
    nrd_js_countdown_init(&countdown, n);
    for (size_t i = 0; i < n; i++) {
        extensions[i] = (Extension){ partition, holds[i].nonce, 0, &countdown, -ESTALE };
        if (!send_extension(&extensions[i], holds[i].offset))
            nrd_js_countdown_one(&countdown);
    }
    if (n > 0)
        nrd_js_countdown_wait(&countdown);
    nrd_js_partition_changed(partition);
    return count_done(partition, extensions, n, ret_error);
}

/* ---- one lease ---- */

static int acknowledge(NrdPartition *partition, uint64_t offset, uint64_t nonce)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    NrdJsLease *lease = nrd_js_lease_find_locked(leases, offset, nonce);
    NrdJsAck *ack = lease ? nrd_js_ack_new_locked(leases, lease) : NULL;
    if (ack)
        g_hash_table_remove(leases->leases, &nonce);
    g_mutex_unlock(&leases->lock);
    if (!ack)
        return -ESTALE;
    nrd_counter_add(NRD_COUNTER_SETTLED, 1);
    nrd_js_ack_send(ack);
    return 0;
}

static int give_back(NrdPartition *partition, uint64_t offset, uint64_t nonce)
{
    NrdJsLeases *leases = partition->leases;
    g_mutex_lock(&leases->lock);
    NrdJsLease *lease = nrd_js_lease_find_locked(leases, offset, nonce);
    g_autofree char *reply = lease ? g_steal_pointer(&lease->reply) : NULL;
    NrdJsLeaseEnd end = nrd_js_lease_end_locked(leases, lease ? lease->start_ms : 0);
    if (lease)
        g_hash_table_remove(leases->leases, &nonce);
    g_mutex_unlock(&leases->lock);
    if (!reply)
        return -ESTALE;
    nrd_js_leases_note_returned(partition, offset); /* first: it may come again at once */
    nrd_js_give_back(partition, reply, &end);
    return 0;
}

int nrd_js_partition_settle(NrdPartition *partition, NrdVerb verb, uint64_t offset, uint64_t nonce)
{
    NrdHold hold = { .partition = partition->number, .offset = offset, .nonce = nonce };
    int rc = 0;
    if (atomic_load(&partition->topic->deleted))
        return -EIDRM;
    if (verb == NRD_VERB_EXTEND) {
        (void)extend(partition, &hold, 1, &rc);
    } else if (verb == NRD_VERB_LOOK) {
        NrdJsLeaseEnd end;
        g_autofree char *reply = nrd_js_lease_subject(partition, offset, nonce, &end);
        return reply ? 0 : -ESTALE;
    } else {
        rc = verb == NRD_VERB_ACK ? acknowledge(partition, offset, nonce) : give_back(partition, offset, nonce);
    }
    nrd_js_partition_changed(partition);
    return rc;
}

/* ---- several ---- */

static size_t settle_each(NrdPartition *partition, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error)
{
    size_t done = 0;
    int rc = 0;
    while (done < n && rc == 0) {
        rc = nrd_js_partition_settle(partition, verb, holds[done].offset, holds[done].nonce);
        done += rc == 0;
    }
    *ret_error = rc;
    return done;
}

size_t nrd_js_partition_settle_many(NrdPartition *partition, NrdVerb verb, const NrdHold *holds, size_t n,
                                    int *ret_error)
{
    size_t n_here = 0;
    int rc = 0;
    while (n_here < n && holds[n_here].partition == partition->number)
        n_here++;
    bool together = verb == NRD_VERB_EXTEND && !atomic_load(&partition->topic->deleted);
    size_t done = together ? extend(partition, holds, n_here, &rc) : settle_each(partition, verb, holds, n_here, &rc);
    *ret_error = rc == 0 && n_here < n ? -EINVAL : rc;
    return done;
}

/* ---- settling durably ---- */

/* Somebody who waits for a sync. */
typedef struct Synced {
    NrdJsCountdown countdown;
    int error;
} Synced;

static void on_synced(void *user_data, int error)
{
    Synced *synced = user_data;
    synced->error = error;
    nrd_js_countdown_one(&synced->countdown);
}

/* Acks that were made before are there, of a partition or (NULL) of all of the topic. */
static int wait_for_acks(NrdTopic *topic, NrdPartition *partition)
{
    Synced synced = { .error = 0 };
    nrd_js_countdown_init(&synced.countdown, 1);
    if (partition)
        nrd_js_partition_sync_frontier(partition, on_synced, &synced);
    else
        nrd_js_topic_sync_frontiers(topic, on_synced, &synced);
    nrd_js_countdown_wait(&synced.countdown);
    return synced.error;
}

static int fail_all(size_t n, int *ret_errors, int error)
{
    for (size_t i = 0; i < n; i++)
        ret_errors[i] = error;
    return error;
}

/* An ack that one thread waits for, with others. */
typedef struct Member {
    NrdPartition *partition;
    NrdJsCountdown *countdown;
    int error; /* -EIO: there is no answer yet */
} Member;

static void on_member_answer(void *user_data, int error, natsMsg *msg)
{
    Member *member = user_data;
    natsMsg_Destroy(msg);
    member->error = error < 0 ? -EIO : 0;
    if (error == -EAGAIN)
        nrd_js_consumer_suspect(member->partition);
    nrd_js_countdown_one(member->countdown);
}

static void ask_member(NrdPartition *partition, const NrdHold *hold, Member *member)
{
    NrdJsLeaseEnd end;
    g_autofree char *reply = nrd_js_lease_subject(partition, hold->offset, hold->nonce, &end);
    if (reply) {
        nrd_js_request_before(partition->topic->engine->conn, reply, "+ACK", NRD_JS_ANSWER_MS, &end, on_member_answer,
                              member);
        return;
    }
    member->error = -ESTALE;
    nrd_js_countdown_one(member->countdown);
}

static size_t count_unanswered(const Member *members, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += members[i].error == -EIO;
    return count;
}

/* One try at those without an answer. */
static void ask_all(NrdPartition *partition, const NrdHold *holds, size_t n, Member *members)
{
    NrdJsCountdown countdown;
    nrd_js_countdown_init(&countdown, count_unanswered(members, n));
    for (size_t i = 0; i < n; i++) {
        members[i].countdown = &countdown;
        if (members[i].error == -EIO)
            ask_member(partition, &holds[i], &members[i]);
    }
    nrd_js_countdown_wait(&countdown);
}

static size_t count_failed(const Member *members, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += members[i].error < 0;
    return count;
}

/* Again and again while a leader is being elected. Those without an answer keep their lease, as long as it lasts. */
static void settle_now(NrdPartition *partition, const NrdHold *holds, size_t n, int *ret_errors)
{
    g_autofree Member *members = g_new(Member, n);
    int64_t until_ms = nrd_clock_mono_ms() + NRD_JS_PATIENCE_MS;
    for (size_t i = 0; i < n; i++)
        members[i] = (Member){ .partition = partition, .error = -EIO };
    ask_all(partition, holds, n, members);
    while (count_unanswered(members, n) > 0 && nrd_clock_mono_ms() < until_ms &&
           !atomic_load(&partition->topic->engine->stopping)) {
        g_usleep(NRD_JS_RETRY_MS * 1000);
        ask_all(partition, holds, n, members);
    }
    for (size_t i = 0; i < n; i++)
        if (members[i].error == 0)
            nrd_js_lease_drop(partition, holds[i].nonce);
    nrd_counter_add(NRD_COUNTER_SETTLED, n - count_failed(members, n));
    nrd_js_partition_changed(partition);
    for (size_t i = 0; i < n; i++)
        ret_errors[i] = members[i].error;
}

/* First what was acknowledged before: with a failure of that nothing is settled. */
int nrd_js_partition_settle_durably(NrdPartition *partition, const NrdHold *holds, size_t n, int *ret_errors)
{
    int rc = atomic_load(&partition->topic->deleted) ? -EIDRM : wait_for_acks(partition->topic, partition);
    if (rc < 0)
        return fail_all(n, ret_errors, rc);
    settle_now(partition, holds, n, ret_errors);
    return 0;
}

/* ---- of a topic as a whole ---- */

int nrd_js_topic_settle(NrdTopic *topic, uint32_t partition, NrdVerb verb, uint64_t offset, uint64_t nonce)
{
    NrdPartition *of = nrd_js_topic_partition(topic, partition);
    return of ? nrd_js_partition_settle(of, verb, offset, nonce) : -EINVAL;
}

size_t nrd_js_topic_settle_many(NrdTopic *topic, NrdVerb verb, const NrdHold *holds, size_t n, int *ret_error)
{
    size_t done = 0;
    int rc = 0;
    while (done < n && rc == 0) {
        rc = nrd_js_topic_settle(topic, holds[done].partition, verb, holds[done].offset, holds[done].nonce);
        done += rc == 0;
    }
    *ret_error = rc;
    return done;
}

void nrd_js_topic_sync_frontiers(NrdTopic *topic, NrdDoneFn done, void *user_data)
{
    uint32_t n = nrd_js_topic_n_partitions(topic);
    NrdJsGather *gather = nrd_js_gather_new((size_t)n + 1, done, user_data);
    for (uint32_t i = 0; i < n; i++)
        nrd_js_partition_sync_frontier(nrd_js_topic_partition(topic, i), nrd_js_gather_one, gather);
    nrd_js_gather_one(gather, 0);
}

/* holds are in order of partition. */
int nrd_js_topic_settle_durably(NrdTopic *topic, const NrdHold *holds, size_t n, int *ret_errors)
{
    int rc = atomic_load(&topic->deleted) ? -EIDRM : wait_for_acks(topic, NULL);
    if (rc < 0)
        return fail_all(n, ret_errors, rc);
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && holds[end].partition == holds[i].partition)
            end++;
        NrdPartition *partition = nrd_js_topic_partition(topic, holds[i].partition);
        if (partition)
            settle_now(partition, holds + i, end - i, ret_errors + i);
        else
            (void)fail_all(end - i, ret_errors + i, -EINVAL);
        i = end;
    }
    return 0;
}
