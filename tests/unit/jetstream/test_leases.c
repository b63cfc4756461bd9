/* When leases end, and acks that the servers confirm after that. */
#include "engine/base/clock.h"
#include "engine/jetstream/conn_private.h"
#include "engine/jetstream/lease.h"
#include "engine/jetstream/lease_private.h"
#include "engine/jetstream/topic.h"

#define WAIT_MS 60000
#define MARGIN_MS 500 /* of that */

typedef struct Bed {
    NrdEngine engine;
    NrdTopic *topic;
    NrdPartition *partition;
} Bed;

static void begin(Bed *bed)
{
    bed->engine = (NrdEngine){ .timers = nrd_timers_new() };
    bed->topic = nrd_js_topic_new(&bed->engine, "t", nrd_topic_record_new("t"), 1, NULL);
    bed->partition = nrd_js_topic_partition(bed->topic, 0);
    nrd_js_leases_know_wait(bed->partition, WAIT_MS);
}

static void end(Bed *bed)
{
    nrd_js_topic_unref(bed->topic);
    nrd_timers_free(bed->engine.timers);
}

/* ---- when they end ---- */

static uint64_t lease(Bed *bed, uint64_t offset, int64_t came_ms)
{
    NrdJsAckSubject delivered = { .sequence = offset + 1 };
    return nrd_js_lease_add(bed->partition, &delivered, "reply", came_ms);
}

static bool lives(Bed *bed, uint64_t offset, uint64_t nonce)
{
    NrdJsLeaseEnd until;
    g_autofree char *reply = nrd_js_lease_subject(bed->partition, offset, nonce, &until);
    g_assert_cmpstr(reply, ==, reply ? "reply" : NULL);
    return reply != NULL;
}

static void check_end(Bed *bed, int64_t wait_ms, int64_t margin_ms)
{
    nrd_js_leases_know_wait(bed->partition, wait_ms);
    NrdJsLeaseEnd until = nrd_js_delivery_end(bed->partition, 1000);
    g_assert_cmpstr(until.stream, ==, bed->partition->stream);
    g_assert_cmpint(until.there_ms, ==, 1000 + wait_ms);
    g_assert_cmpint(until.here_ms, ==, until.there_ms - margin_ms);
}

/* Here before there, by a tenth, from one millisecond to half a second. */
static void test_margin(void)
{
    Bed bed;
    begin(&bed);
    check_end(&bed, WAIT_MS, MARGIN_MS);
    check_end(&bed, 100, 10);
    check_end(&bed, 5, 1);
    end(&bed);
}

static void test_a_receipt(void)
{
    Bed bed;
    begin(&bed);
    int64_t now_ms = nrd_clock_mono_ms();
    uint64_t nonce = lease(&bed, 7, now_ms);
    g_assert_true(lives(&bed, 7, nonce));
    g_assert_false(lives(&bed, 8, nonce));
    g_assert_false(lives(&bed, 7, nonce + 1));
    uint64_t over = lease(&bed, 8, now_ms - WAIT_MS + MARGIN_MS); /* not yet for the servers */
    g_assert_false(lives(&bed, 8, over));
    uint64_t again = lease(&bed, 7, now_ms); /* the record has come again: whoever had it is too late */
    g_assert_true(!lives(&bed, 7, nonce) && lives(&bed, 7, again));
    g_assert_true(nrd_js_leases_adopt(bed.partition, 1)); /* another consumer */
    g_assert_false(lives(&bed, 7, again));
    g_assert_false(lives(&bed, 9, lease(&bed, 9, now_ms))); /* a delivery of the one before */
    end(&bed);
}

/* A shorter time ends what it ends; a longer one revives nothing that had ended. */
static void test_another_time(void)
{
    Bed bed;
    begin(&bed);
    int64_t now_ms = nrd_clock_mono_ms();
    uint64_t old = lease(&bed, 1, now_ms - WAIT_MS / 2), young = lease(&bed, 2, now_ms);
    nrd_js_leases_limit_wait(bed.partition, 2 * WAIT_MS); /* that is no limit */
    g_assert_cmpint(nrd_js_leases_wait_ms(bed.partition), ==, WAIT_MS);
    nrd_js_leases_limit_wait(bed.partition, WAIT_MS / 2);
    g_assert_true(!lives(&bed, 1, old) && lives(&bed, 2, young));
    nrd_js_leases_know_wait(bed.partition, 4 * WAIT_MS);
    g_assert_true(!lives(&bed, 1, old) && lives(&bed, 2, young));
    end(&bed);
}

/* The servers' word that they have begun its time anew counts until they may have given the record to somebody else. */
static void test_begun_anew(void)
{
    Bed bed;
    int64_t now_ms;
    bool in_time;
    uint64_t nonce;
    begin(&bed);
    do { /* half a second is between the two ends; a machine may sleep for that */
        now_ms = nrd_clock_mono_ms();
        nonce = lease(&bed, 1, now_ms - WAIT_MS + MARGIN_MS);
        g_assert_false(lives(&bed, 1, nonce));
        in_time = nrd_js_lease_restarted(bed.partition->leases, nonce, now_ms);
    } while (nrd_clock_mono_ms() >= now_ms + MARGIN_MS);
    g_assert_true(in_time && lives(&bed, 1, nonce));
    g_assert_true(nrd_js_lease_restarted(bed.partition->leases, nonce, now_ms - WAIT_MS));
    g_assert_true(lives(&bed, 1, nonce)); /* an answer that was overtaken sets nothing back */
    uint64_t over = lease(&bed, 2, now_ms - WAIT_MS);
    g_assert_false(nrd_js_lease_restarted(bed.partition->leases, over, now_ms));
    g_assert_false(lives(&bed, 2, over));
    g_assert_false(nrd_js_lease_restarted(bed.partition->leases, over + 1, now_ms)); /* settled meanwhile */
    end(&bed);
}

/* ---- answers that come too late ---- */

static void ignore(void *user_data)
{
}

/* A connection of which nothing is sent: what is asked for stays in its queue. */
static void connect_to_nobody(NrdJsConn *conn, NrdTimers *timers)
{
    *conn = (NrdJsConn){ .timers = timers, .inbox = (char *)"_INBOX.here.", .inbox_size = strlen("_INBOX.here.") };
    conn->calls = g_hash_table_new(g_int64_hash, g_int64_equal);
    atomic_store(&conn->up, true);
    g_mutex_init(&conn->lock);
    g_cond_init(&conn->idle);
    g_cond_init(&conn->work);
    g_queue_init(&conn->queue);
    nrd_timer_init(&conn->look, ignore, NULL, false);
}

static void leave(NrdJsConn *conn)
{
    g_assert_true(conn->n_busy == 0 && g_queue_is_empty(&conn->queue));
    nrd_timer_drain(conn->timers, &conn->look);
    g_hash_table_unref(conn->calls);
    g_free(conn->late_stream);
    g_mutex_clear(&conn->lock);
    g_cond_clear(&conn->idle);
    g_cond_clear(&conn->work);
}

/* Answers what was asked for first, as a server does: to the subject that stands in it. status NULL: with a word. */
static void answer_one(NrdJsConn *conn, const char *status)
{
    natsMsg *msg = NULL;
    NrdJsSending *sending = g_queue_pop_head_link(&conn->queue)->data;
    g_assert_cmpint(natsMsg_Create(&msg, natsMsg_GetReply(sending->msg), NULL, NULL, 0), ==, NATS_OK);
    if (status)
        g_assert_cmpint(natsMsgHeader_Set(msg, "Status", status), ==, NATS_OK);
    nrd_js_on_reply(NULL, NULL, msg, conn);
    natsMsg_Destroy(sending->msg);
    g_free(sending);
}

static void on_answer(void *user_data, int error, natsMsg *msg)
{
    *(int *)user_data = error;
    natsMsg_Destroy(msg);
}

static NrdJsLeaseEnd end_at(int64_t there_ms)
{
    return (NrdJsLeaseEnd){ .stream = "the-stream", .here_ms = INT64_MAX, .there_ms = there_ms };
}

static void check_late(NrdJsConn *conn, uint64_t n)
{
    g_assert_cmpuint(conn->n_late, ==, n);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_LATE_ACKS), ==, n);
}

/* By what the reply subject says: also of what was told, and of what nobody waits for any more. */
static void test_late_acks(void)
{
    NrdTimers *timers = nrd_timers_new();
    NrdJsConn conn;
    int64_t now_ms = nrd_clock_mono_ms();
    NrdJsLeaseEnd over = end_at(now_ms - 2000), runs = end_at(now_ms + WAIT_MS), unknown = end_at(0);
    int error = 1;
    connect_to_nobody(&conn, timers);
    nrd_js_request_before(&conn, "s", "+ACK", WAIT_MS, &runs, on_answer, &error);
    answer_one(&conn, NULL);
    g_assert_cmpint(error, ==, 0);
    nrd_js_tell_before(&conn, "s", "-NAK", &runs);
    answer_one(&conn, NULL);
    nrd_js_request_before(&conn, "s", "+ACK", WAIT_MS, &unknown, on_answer, &error);
    answer_one(&conn, NULL);
    check_late(&conn, 0);

    error = 1;
    nrd_js_request_before(&conn, "s", "+ACK", WAIT_MS, &over, on_answer, &error);
    answer_one(&conn, NULL);
    g_assert_cmpint(error, ==, 0); /* it is confirmed all the same */
    check_late(&conn, 1);
    nrd_js_tell_before(&conn, "s", "-NAK", &over);
    answer_one(&conn, NULL);
    nrd_js_request_before(&conn, "s", "+ACK", 0, &over, on_answer, &error);
    nrd_js_answer_overdue(&conn, INT64_MAX);
    g_assert_cmpint(error, ==, -ETIMEDOUT);
    answer_one(&conn, NULL);
    check_late(&conn, 3);
    g_assert_cmpint(conn.late_ms, >=, 2000);
    g_assert_cmpstr(conn.late_stream, ==, "the-stream");

    nrd_js_request_before(&conn, "s", "+ACK", WAIT_MS, &over, on_answer, &error);
    answer_one(&conn, "503"); /* nobody has taken it */
    g_assert_cmpint(error, ==, -EAGAIN);
    check_late(&conn, 3);
    leave(&conn);
    nrd_timers_free(timers);
}

/* They are told of once, together. */
static void test_late_acks_are_told(void)
{
    if (g_test_subprocess()) {
        NrdTimers *timers = nrd_timers_new();
        NrdJsConn conn;
        NrdJsLeaseEnd over = end_at(1);
        connect_to_nobody(&conn, timers);
        nrd_js_tell_before(&conn, "s", "-NAK", &over);
        nrd_js_tell_before(&conn, "s", "-NAK", &over);
        answer_one(&conn, NULL);
        answer_one(&conn, NULL);
        nrd_js_say_late(&conn);
        nrd_js_say_late(&conn);
        leave(&conn);
        nrd_timers_free(timers);
        return;
    }
    g_test_trap_subprocess(NULL, 0, 0);
    g_test_trap_assert_passed();
    g_test_trap_assert_stderr("*2 acks were confirmed after the end of the lease, up to * ms (last in the stream "
                              "the-stream): somebody else may have had the records by then\n");
    g_test_trap_assert_stderr_unmatched("*then*then*");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_assert_cmpint(nats_Open(-1), ==, NATS_OK); /* its messages are collected by a thread */
    g_test_add_func("/jetstream/leases/margin", test_margin);
    g_test_add_func("/jetstream/leases/a-receipt", test_a_receipt);
    g_test_add_func("/jetstream/leases/another-time", test_another_time);
    g_test_add_func("/jetstream/leases/begun-anew", test_begun_anew);
    g_test_add_func("/jetstream/leases/late-acks", test_late_acks);
    g_test_add_func("/jetstream/leases/late-acks-are-told", test_late_acks_are_told);
    int failed = g_test_run();
    g_assert_cmpint(nats_CloseAndWait(0), ==, NATS_OK);
    return failed;
}
