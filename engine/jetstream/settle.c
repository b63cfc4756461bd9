/* Settling so that the caller knows that the servers have it, and settling for a topic as a whole. Leases are in lease.c. */
#include "engine/jetstream/gather.h"
#include "engine/jetstream/js_private.h"

#include "engine/base/clock.h"

#define ANSWER_MS 2000
#define RETRY_MS 250

/* ---- settling durably ---- */

/* An ack that one thread waits for, with others. */
typedef struct Member {
    NrdJsCountdown *countdown;
    int error; /* -EIO: there is no answer yet */
} Member;

static void on_member_answer(void *user_data, int error, natsMsg *msg)
{
    Member *member = user_data;
    natsMsg_Destroy(msg);
    member->error = error < 0 ? -EIO : 0;
    nrd_js_countdown_one(member->countdown);
}

static void ask_member(NrdPartition *partition, const NrdHold *hold, Member *member)
{
    g_autofree char *reply = nrd_js_lease_subject(partition, hold->offset, hold->nonce);
    if (reply) {
        nrd_js_request(partition->topic->engine->conn, reply, NULL, "+ACK", 4, ANSWER_MS, on_member_answer, member);
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
int nrd_js_partition_settle_durably(NrdPartition *partition, const NrdHold *holds, size_t n, int *ret_errors)
{
    if (atomic_load(&partition->topic->deleted)) {
        for (size_t i = 0; i < n; i++)
            ret_errors[i] = -EIDRM;
        return -EIDRM;
    }
    g_autofree Member *members = g_new(Member, n);
    int64_t until_ms = nrd_clock_mono_ms() + NRD_JS_PATIENCE_MS;
    for (size_t i = 0; i < n; i++)
        members[i] = (Member){ NULL, -EIO };
    ask_all(partition, holds, n, members);
    while (count_unanswered(members, n) > 0 && nrd_clock_mono_ms() < until_ms &&
           !atomic_load(&partition->topic->engine->stopping)) {
        g_usleep(RETRY_MS * 1000);
        ask_all(partition, holds, n, members);
    }
    for (size_t i = 0; i < n; i++)
        if (members[i].error == 0)
            nrd_js_lease_drop(partition, holds[i].nonce);
    nrd_counter_add(NRD_COUNTER_SETTLED, n - count_failed(members, n));
    nrd_js_partition_changed(partition);
    for (size_t i = 0; i < n; i++)
        ret_errors[i] = members[i].error;
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

/* holds are in order of partition; up to the first partition that fails. */
int nrd_js_topic_settle_durably(NrdTopic *topic, const NrdHold *holds, size_t n, int *ret_errors)
{
    int rc = 0;
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && holds[end].partition == holds[i].partition)
            end++;
        NrdPartition *partition = nrd_js_topic_partition(topic, holds[i].partition);
        if (rc == 0 && partition)
            rc = nrd_js_partition_settle_durably(partition, holds + i, end - i, ret_errors + i);
        else
            for (size_t k = i; k < end; k++)
                ret_errors[k] = rc < 0 ? rc : -EINVAL;
        i = end;
    }
    return rc;
}
