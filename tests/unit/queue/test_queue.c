/* The delivery state of a partition, rule by rule. */
#include "engine/queue/ahead.h"
#include "engine/queue/queue.h"

#include <errno.h>

#define HWM 100000000

static const NrdQueueLimits usual = { .visibility_timeout_ms = 1000, .max_in_flight = 100, .max_acked_ahead = 50 };

static NrdQueue *new_queue(uint32_t max_in_flight, uint32_t max_acked_ahead)
{
    NrdQueueLimits limits = usual;
    limits.max_in_flight = max_in_flight;
    limits.max_acked_ahead = max_acked_ahead;
    return nrd_queue_new(&limits);
}

/* Takes at time now_ms with a nonce of its own and checks which offset came. */
static NrdLease take_at(NrdQueue *queue, uint64_t oldest, uint64_t hwm, int64_t now_ms, uint64_t expected)
{
    static uint64_t nonce = 1000;
    NrdLease lease = { 0 };
    bool found = false;
    g_assert_true(nrd_queue_deliverable(queue, oldest, hwm));
    nrd_queue_take(queue, oldest, hwm, now_ms, ++nonce, &lease, &found);
    g_assert_true(found);
    g_assert_cmpuint(lease.offset, ==, expected);
    g_assert_cmpuint(lease.nonce, ==, nonce);
    return lease;
}

static NrdLease take(NrdQueue *queue, uint64_t expected)
{
    return take_at(queue, 0, HWM, 0, expected);
}

static void take_nothing(NrdQueue *queue, uint64_t oldest, uint64_t hwm)
{
    NrdLease lease = { 4711, 4712 };
    bool found = true;
    g_assert_false(nrd_queue_deliverable(queue, oldest, hwm));
    nrd_queue_take(queue, oldest, hwm, 0, 1, &lease, &found);
    g_assert_false(found);
    g_assert_cmpuint(lease.offset, ==, 4711);
    g_assert_cmpuint(lease.nonce, ==, 4712);
}

static int ack(NrdQueue *queue, NrdLease lease, int64_t now_ms)
{
    return nrd_queue_ack(queue, lease.offset, lease.nonce, now_ms);
}

static void assert_state(const NrdQueue *queue, uint64_t frontier, uint32_t n_ahead, uint32_t in_flight)
{
    g_assert_cmpuint(nrd_queue_frontier(queue), ==, frontier);
    g_assert_cmpuint(nrd_queue_acked_ahead(queue), ==, n_ahead);
    g_assert_cmpuint(nrd_queue_in_flight(queue), ==, in_flight);
}

static void test_order(void)
{
    NrdQueue *queue = new_queue(10, 10);
    take_nothing(queue, 0, 0);
    NrdLease a = take_at(queue, 0, 3, 0, 0), b = take_at(queue, 0, 3, 0, 1), c = take_at(queue, 0, 3, 0, 2);
    take_nothing(queue, 0, 3);
    assert_state(queue, 0, 0, 3);
    g_assert_cmpint(ack(queue, b, 0), ==, 0);
    g_assert_cmpint(ack(queue, c, 0), ==, 0);
    assert_state(queue, 0, 2, 1);
    g_assert_cmpint(ack(queue, a, 0), ==, 0);
    assert_state(queue, 3, 0, 0);
    take_nothing(queue, 0, 3);
    take_at(queue, 0, 4, 0, 3);
    nrd_queue_free(queue);
}

static void test_returned_first(void)
{
    NrdQueue *queue = new_queue(10, 10);
    NrdLease leases[5];
    for (uint64_t i = 0; i < 5; i++)
        leases[i] = take(queue, i);
    g_assert_cmpint(nrd_queue_nack(queue, 3, leases[3].nonce, 0), ==, 0);
    g_assert_cmpint(nrd_queue_nack(queue, 1, leases[1].nonce, 0), ==, 0);
    take(queue, 1);
    take(queue, 3);
    take(queue, 5);
    nrd_queue_free(queue);
}

static void test_max_in_flight(void)
{
    NrdQueue *queue = new_queue(2, 10);
    NrdLease a = take(queue, 0);
    take(queue, 1);
    take_nothing(queue, 0, HWM);
    g_assert_cmpint(ack(queue, a, 0), ==, 0);
    take(queue, 2);
    take_nothing(queue, 0, HWM);
    NrdQueueLimits limits = usual;
    limits.max_in_flight = 3;
    nrd_queue_configure(queue, &limits);
    take(queue, 3);
    take_nothing(queue, 0, HWM);
    nrd_queue_free(queue);
}

static void test_stale(void)
{
    NrdQueue *queue = new_queue(10, 10);
    NrdLease a = take(queue, 0);
    g_assert_cmpint(nrd_queue_ack(queue, 0, a.nonce ^ 1, 0), ==, -ESTALE);
    g_assert_cmpint(nrd_queue_ack(queue, 0, a.nonce ^ (UINT64_C(1) << 62), 0), ==, -ESTALE);
    g_assert_cmpint(nrd_queue_ack(queue, 0, a.nonce | (UINT64_C(1) << 63), 0), ==, -ESTALE);
    g_assert_cmpint(nrd_queue_ack(queue, 1, a.nonce, 0), ==, -ESTALE);
    g_assert_cmpint(nrd_queue_nack(queue, UINT64_MAX, a.nonce, 0), ==, -ESTALE);
    g_assert_cmpint(nrd_queue_extend(queue, 0, 0, 0), ==, -ESTALE);
    g_assert_true(nrd_queue_leased(queue, 0, a.nonce, 0));
    g_assert_false(nrd_queue_leased(queue, 0, a.nonce ^ 1, 0));
    g_assert_false(nrd_queue_leased(queue, 1, a.nonce, 0));
    g_assert_false(nrd_queue_leased(queue, 0, a.nonce, INT64_MAX)); /* its time is over */
    g_assert_cmpint(ack(queue, a, 0), ==, 0);
    g_assert_false(nrd_queue_leased(queue, 0, a.nonce, 0));
    g_assert_cmpint(ack(queue, a, 0), ==, -ESTALE); /* doubled */
    NrdLease b = take(queue, 1);
    g_assert_cmpint(nrd_queue_nack(queue, 1, b.nonce, 0), ==, 0);
    NrdLease again = take(queue, 1);
    g_assert_cmpint(ack(queue, b, 0), ==, -ESTALE); /* superseded */
    g_assert_cmpint(ack(queue, again, 0), ==, 0);
    nrd_queue_free(queue);
}

static void test_nonce_bits(void)
{
    NrdQueue *queue = new_queue(10, 10);
    NrdLease lease;
    bool found;
    nrd_queue_take(queue, 0, HWM, 0, UINT64_MAX, &lease, &found);
    g_assert_true(found);
    g_assert_cmpuint(lease.nonce, ==, (uint64_t)INT64_MAX);
    g_assert_cmpint(ack(queue, lease, 0), ==, 0);
    nrd_queue_free(queue);
}

static void test_expiry(void)
{
    NrdQueue *queue = new_queue(10, 10);
    g_assert_cmpint(nrd_queue_next_expiry_ms(queue), ==, INT64_MAX);
    NrdLease a = take_at(queue, 0, HWM, 100, 0);
    NrdLease b = take_at(queue, 0, HWM, 200, 1);
    g_assert_cmpint(nrd_queue_next_expiry_ms(queue), ==, 1100);
    g_assert_cmpuint(nrd_queue_expire(queue, 1099), ==, 0);
    g_assert_cmpint(nrd_queue_extend(queue, 0, a.nonce, 1099), ==, 0);
    g_assert_cmpint(nrd_queue_next_expiry_ms(queue), ==, 1200);
    /* over at that very time, though expire has not run */
    g_assert_cmpint(ack(queue, b, 1200), ==, -ESTALE);
    g_assert_cmpint(nrd_queue_extend(queue, 1, b.nonce, 1200), ==, -ESTALE);
    g_assert_cmpint(nrd_queue_nack(queue, 1, b.nonce, 1200), ==, -ESTALE);
    g_assert_cmpuint(nrd_queue_in_flight(queue), ==, 2);
    g_assert_cmpuint(nrd_queue_expire(queue, 1200), ==, 1);
    g_assert_cmpuint(nrd_queue_in_flight(queue), ==, 1);
    take_at(queue, 0, HWM, 1200, 1);
    g_assert_cmpint(ack(queue, a, 2098), ==, 0);
    g_assert_cmpuint(nrd_queue_expire(queue, INT64_MAX), ==, 1);
    nrd_queue_free(queue);
}

static void test_expiry_overflow(void)
{
    NrdQueue *queue = new_queue(10, 10);
    NrdLease a = take_at(queue, 0, HWM, INT64_MAX - 10, 0);
    g_assert_cmpint(nrd_queue_next_expiry_ms(queue), ==, INT64_MAX);
    g_assert_cmpint(ack(queue, a, INT64_MAX - 1), ==, 0);
    nrd_queue_free(queue);
}

/* With the set full only the record that holds the frontier back is served; its ack makes room. */
static void test_ahead_full(void)
{
    NrdQueue *queue = new_queue(10, 2);
    NrdLease a = take(queue, 0), b = take(queue, 1), c = take(queue, 2), d = take(queue, 3);
    g_assert_cmpint(ack(queue, b, 0), ==, 0);
    g_assert_cmpint(ack(queue, d, 0), ==, 0);
    g_assert_cmpint(ack(queue, c, 0), ==, -EAGAIN);
    g_assert_cmpuint(nrd_queue_in_flight(queue), ==, 2); /* the lease stays */
    take_nothing(queue, 0, HWM);
    g_assert_cmpint(nrd_queue_nack(queue, 2, c.nonce, 0), ==, 0);
    take_nothing(queue, 0, HWM);
    g_assert_cmpint(nrd_queue_nack(queue, 0, a.nonce, 0), ==, 0);
    a = take(queue, 0);
    take_nothing(queue, 0, HWM);
    g_assert_cmpint(ack(queue, a, 0), ==, 0);
    assert_state(queue, 2, 1, 0);
    c = take(queue, 2);
    take(queue, 4);
    g_assert_cmpint(ack(queue, c, 0), ==, 0);
    assert_state(queue, 4, 0, 1);
    nrd_queue_free(queue);
}

/* Offsets that the slot of consumer.ahead could not hold are not handed out, nor settled. */
static void test_ahead_does_not_fit(void)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    for (uint64_t i = 0; i < 4060; i++) {
        uint64_t offset = 1 + i;
        g_array_append_val(ahead, offset);
    }
    uint64_t far = 2000000;
    g_array_append_val(ahead, far);
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    NrdQueue *queue = new_queue(10, 4096);
    nrd_queue_restore(queue, &state, HWM);
    assert_state(queue, 0, 4061, 0);
    NrdLease a = take(queue, 0);
    NrdLease b = take(queue, 4061);
    g_assert_cmpint(ack(queue, b, 0), ==, 0); /* one byte more: 4,064 */
    take_nothing(queue, 0, HWM);
    g_assert_cmpint(ack(queue, a, 0), ==, 0);
    assert_state(queue, 4062, 1, 0);
    take(queue, 4062);
    nrd_queue_free(queue);
}

static void test_oldest(void)
{
    NrdQueue *queue = new_queue(3, 10);
    NrdLease a = take(queue, 0), b = take(queue, 1), c = take(queue, 2);
    g_assert_cmpint(ack(queue, c, 0), ==, 0);
    g_assert_cmpint(nrd_queue_nack(queue, 0, a.nonce, 0), ==, 0);
    take_at(queue, 2, HWM, 0, 3); /* retention took 0 and 1; 2 was settled */
    assert_state(queue, 3, 0, 1);
    g_assert_cmpint(ack(queue, b, 0), ==, -ESTALE);
    take_nothing(queue, 50, 50);
    assert_state(queue, 50, 0, 0);
    take_nothing(queue, 90, 60); /* never beyond the watermark */
    assert_state(queue, 60, 0, 0);
    take(queue, 60);
    nrd_queue_free(queue);
}

static void test_skip_at_frontier(void)
{
    NrdQueue *queue = new_queue(10, 10);
    NrdLease a = take(queue, 0), b = take(queue, 1), c = take(queue, 2);
    g_assert_cmpint(ack(queue, b, 0), ==, 0);
    /* a range that no loop over offsets would ever end in */
    g_assert_cmpuint(nrd_queue_skip(queue, a, UINT64_C(1) << 60), ==, (UINT64_C(1) << 60) - 1);
    assert_state(queue, UINT64_C(1) << 60, 0, 0);
    g_assert_cmpint(ack(queue, c, 0), ==, -ESTALE);
    g_assert_cmpuint(nrd_queue_skip(queue, a, UINT64_MAX), ==, 0);
    assert_state(queue, UINT64_C(1) << 60, 0, 0);
    nrd_queue_free(queue);
}

static void test_skip_ahead(void)
{
    NrdQueue *queue = new_queue(10, 4);
    NrdLease a = take(queue, 0), b = take(queue, 1), c = take(queue, 2), d = take(queue, 3);
    g_assert_cmpint(ack(queue, c, 0), ==, 0);
    g_assert_cmpuint(nrd_queue_skip(queue, (NrdLease){ 1, b.nonce ^ 1 }, 3), ==, 0);
    g_assert_cmpuint(nrd_queue_skip(queue, b, UINT64_C(1) << 60), ==, 3); /* 1, 3 and 4: the set is full */
    assert_state(queue, 0, 4, 1);
    g_assert_cmpint(ack(queue, d, 0), ==, -ESTALE);
    take_nothing(queue, 0, HWM);
    g_assert_cmpint(ack(queue, a, 0), ==, 0);
    assert_state(queue, 5, 0, 0);
    NrdLease e = take(queue, 5);                          /* the rest is met again */
    g_assert_cmpuint(nrd_queue_skip(queue, e, 5), ==, 1); /* an end that is not above it: it alone */
    assert_state(queue, 6, 0, 0);
    nrd_queue_free(queue);
}

static void test_skip_without_room(void)
{
    NrdQueue *queue = new_queue(10, 1);
    take(queue, 0);
    NrdLease b = take(queue, 1), c = take(queue, 2);
    g_assert_cmpint(ack(queue, c, 0), ==, 0);
    g_assert_cmpuint(nrd_queue_skip(queue, b, 10), ==, 0);
    assert_state(queue, 0, 1, 1); /* given back */
    g_assert_cmpint(ack(queue, b, 0), ==, -ESTALE);
    take_nothing(queue, 0, HWM);
    nrd_queue_free(queue);
}

static void test_seek(void)
{
    NrdQueue *queue = new_queue(10, 10);
    NrdLease a = take(queue, 0), b = take(queue, 1), c = take(queue, 2);
    g_assert_cmpint(ack(queue, b, 0), ==, 0);
    g_assert_cmpint(nrd_queue_nack(queue, 0, a.nonce, 0), ==, 0);
    nrd_queue_seek(queue, 20);
    assert_state(queue, 20, 0, 0);
    g_assert_cmpint(ack(queue, c, 0), ==, -ESTALE);
    take(queue, 20);
    nrd_queue_seek(queue, 1);
    assert_state(queue, 1, 0, 0);
    for (uint64_t i = 1; i < 5; i++)
        take(queue, i);
    g_assert_cmpint(ack(queue, c, 0), ==, -ESTALE); /* offset 2 is leased again, to somebody else */
    nrd_queue_free(queue);
}

static void test_restore_and_snapshot(void)
{
    static const uint64_t offsets[] = { 11, 13, 14, 30 };
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    g_array_append_vals(ahead, offsets, G_N_ELEMENTS(offsets));
    NrdFrontier state = { .frontier = 10, .ahead = ahead };
    NrdQueue *queue = new_queue(10, 10);
    NrdLease a = take(queue, 0);
    nrd_queue_restore(queue, &state, 30); /* 30 is not committed: forgotten */
    assert_state(queue, 10, 3, 0);
    g_assert_cmpint(ack(queue, a, 0), ==, -ESTALE);
    NrdLease b = take(queue, 10);
    take(queue, 12);
    take(queue, 15);
    g_assert_cmpint(ack(queue, b, 0), ==, 0);
    nrd_queue_snapshot(queue, &state);
    g_assert_cmpuint(state.frontier, ==, 12);
    g_assert_cmpmem(ahead->data, ahead->len * sizeof(uint64_t), offsets + 1, 2 * sizeof(uint64_t));
    nrd_queue_restore(queue, &state, 5); /* frontier <= watermark */
    assert_state(queue, 5, 0, 0);
    nrd_queue_free(queue);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/queue/order", test_order);
    g_test_add_func("/queue/returned-first", test_returned_first);
    g_test_add_func("/queue/max-in-flight", test_max_in_flight);
    g_test_add_func("/queue/stale", test_stale);
    g_test_add_func("/queue/nonce-bits", test_nonce_bits);
    g_test_add_func("/queue/expiry", test_expiry);
    g_test_add_func("/queue/expiry-overflow", test_expiry_overflow);
    g_test_add_func("/queue/ahead-full", test_ahead_full);
    g_test_add_func("/queue/ahead-does-not-fit", test_ahead_does_not_fit);
    g_test_add_func("/queue/oldest", test_oldest);
    g_test_add_func("/queue/skip-at-frontier", test_skip_at_frontier);
    g_test_add_func("/queue/skip-ahead", test_skip_ahead);
    g_test_add_func("/queue/skip-without-room", test_skip_without_room);
    g_test_add_func("/queue/seek", test_seek);
    g_test_add_func("/queue/restore-and-snapshot", test_restore_and_snapshot);
    return g_test_run();
}
