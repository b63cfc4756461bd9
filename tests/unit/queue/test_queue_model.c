/* The queue against a model that keeps one cell for every offset and computes everything by walking over them.
 * 200,000 random steps, seeded; after each the two agree on every answer, and on the whole state now and then. */
#include "engine/queue/queue.h"

#include <errno.h>

#define N_CELLS 600

typedef enum CellState { FREE, LEASED, SETTLED } CellState;

typedef struct Cell {
    CellState state;
    uint64_t nonce;
    int64_t expiry_ms;
    bool prepared; /* with the world's: will be settled */
} Cell;

typedef struct World {
    NrdQueue *queue;
    NrdQueueLimits limits;
    GRand *rand;
    Cell cells[N_CELLS];
    uint64_t oldest;
    uint64_t hwm;
    int64_t now_ms;
    NrdLease seen[64]; /* leases of all ages, to be tried again */
    bool preparing;
    NrdLease leases[16]; /* those that were to be prepared */
    int errors[16];
    NrdSettling settling;
    int n_prepared, n_refused, n_ended[2];
    int n_found, n_acked, n_again, n_stale, n_skipped, n_in_runs, n_acked_in_runs;
} World;

/* ---- the model ---- */

/* What is prepared counts as settled in a world of its own. */
static bool will_be_settled(const World *world, uint64_t offset)
{
    const Cell *cell = &world->cells[offset];
    return cell->state == SETTLED || (cell->state == LEASED && world->preparing && cell->prepared);
}

static uint64_t frontier(const World *world)
{
    uint64_t offset = 0;
    while (offset < N_CELLS && world->cells[offset].state == SETTLED)
        offset++;
    return offset;
}

static uint32_t count(const World *world, CellState state)
{
    uint32_t n = 0;
    for (uint64_t offset = frontier(world); offset < N_CELLS; offset++)
        n += world->cells[offset].state == state;
    return n;
}

static void settle_below(World *world, uint64_t below)
{
    for (uint64_t offset = 0; offset < below; offset++)
        world->cells[offset].state = SETTLED;
}

/* All offsets lie within the reach of the bitmap, so that the count alone limits the set. */
static bool has_room_prepared(const World *world, uint64_t offset)
{
    uint64_t first = 0;
    uint32_t n = 0;
    while (first < N_CELLS && will_be_settled(world, first))
        first++;
    for (uint64_t other = first; other < N_CELLS; other++)
        n += will_be_settled(world, other);
    return offset == first || n < world->limits.max_acked_ahead || will_be_settled(world, offset);
}

static bool has_room(const World *world, uint64_t offset)
{
    return (offset == frontier(world) || count(world, SETTLED) < world->limits.max_acked_ahead) &&
           has_room_prepared(world, offset);
}

static bool is_prepared(const World *world, uint64_t offset)
{
    return world->cells[offset].state == LEASED && will_be_settled(world, offset);
}

static bool model_deliverable(World *world, uint64_t *ret_offset)
{
    settle_below(world, world->oldest);
    if (count(world, LEASED) >= world->limits.max_in_flight)
        return false;
    uint64_t offset = 0;
    while (offset < world->hwm && world->cells[offset].state != FREE)
        offset++;
    *ret_offset = offset;
    return offset < world->hwm && has_room(world, offset);
}

static bool model_live(const World *world, NrdLease lease)
{
    const Cell *cell = &world->cells[lease.offset];
    return cell->state == LEASED && cell->nonce == lease.nonce && world->now_ms < cell->expiry_ms;
}

static int model_ack_error(const World *world, NrdLease lease)
{
    if (!model_live(world, lease))
        return -ESTALE;
    return is_prepared(world, lease.offset) || !has_room(world, lease.offset) ? -EAGAIN : 0;
}

/* ---- steps ---- */

static NrdLease *any_seen(World *world)
{
    return &world->seen[g_rand_int_range(world->rand, 0, G_N_ELEMENTS(world->seen))];
}

static void step_take(World *world)
{
    uint64_t offset = 0, nonce = (uint64_t)g_rand_int(world->rand) << 32 | g_rand_int(world->rand);
    NrdLease lease = { 0 };
    bool found;
    bool expected = model_deliverable(world, &offset);
    if (g_rand_boolean(world->rand)) {
        bool sure = expected && (offset == frontier(world) ||
                                 count(world, SETTLED) + count(world, LEASED) < world->limits.max_acked_ahead);
        g_assert_true(nrd_queue_deliverable(world->queue, world->oldest, world->hwm) == expected);
        g_assert_true(nrd_queue_sure(world->queue, world->oldest, world->hwm) == sure);
    }
    nrd_queue_take(world->queue, world->oldest, world->hwm, world->now_ms, nonce, &lease, &found);
    g_assert_true(found == expected);
    if (!found)
        return;
    g_assert_cmpuint(lease.offset, ==, offset);
    g_assert_cmpuint(lease.nonce, ==, nonce & INT64_MAX);
    world->cells[offset] = (Cell){ LEASED, lease.nonce, world->now_ms + world->limits.visibility_timeout_ms, false };
    *any_seen(world) = lease;
    world->n_found++;
}

static uint32_t model_run(World *world, bool sure, uint32_t max, uint64_t *ret_first)
{
    uint32_t n = 0, n_leased = count(world, LEASED), n_settled = count(world, SETTLED);
    if (!model_deliverable(world, ret_first))
        return 0;
    for (uint64_t offset = *ret_first; n < max && offset < world->hwm; offset++, n++) {
        if (world->cells[offset].state != FREE || !has_room(world, offset) ||
            n_leased + n >= world->limits.max_in_flight)
            break;
        if (sure && offset != frontier(world) && n_settled + n_leased + n >= world->limits.max_acked_ahead)
            break;
    }
    return n;
}

/* Many at a time, and what a batch does when another one was faster. */
static void step_take_run(World *world)
{
    uint64_t nonces[8], first = 0, peeked = 4711;
    uint32_t max = (uint32_t)g_rand_int_range(world->rand, 1, 9);
    bool sure = g_rand_boolean(world->rand);
    settle_below(world, world->oldest);
    uint32_t expected = model_run(world, sure, max, &first);
    for (uint32_t i = 0; i < max; i++)
        nonces[i] = (uint64_t)g_rand_int(world->rand) << 32 | g_rand_int(world->rand);
    g_assert_cmpuint(nrd_queue_peek(world->queue, world->oldest, world->hwm, sure, max, &peeked), ==, expected);
    g_assert_cmpuint(peeked, ==, expected > 0 ? first : 4711);
    g_assert_cmpuint(
        nrd_queue_take_run(world->queue, world->oldest, world->hwm, sure, world->now_ms, first + 1, nonces, max), ==,
        0);
    g_assert_cmpuint(
        nrd_queue_take_run(world->queue, world->oldest, world->hwm, sure, world->now_ms, first, nonces, max), ==,
        expected);
    for (uint32_t i = 0; i < expected; i++) {
        g_assert_cmpuint(nonces[i] >> 63, ==, 0);
        world->cells[first + i] =
            (Cell){ LEASED, nonces[i], world->now_ms + world->limits.visibility_timeout_ms, false };
        *any_seen(world) = (NrdLease){ first + i, nonces[i] };
    }
    world->n_in_runs += (int)expected;
}

/* Some of what is leased, and one more. */
static void begin_settling(World *world)
{
    size_t n = 0;
    for (uint64_t offset = frontier(world); offset < N_CELLS && n < 15; offset++) {
        if (world->cells[offset].state == LEASED && g_rand_boolean(world->rand))
            world->leases[n++] = (NrdLease){ offset, world->cells[offset].nonce };
    }
    world->leases[n++] = *any_seen(world);
    world->settling = (NrdSettling){ world->leases, n, world->errors };
    for (uint64_t offset = 0; offset < N_CELLS; offset++)
        world->cells[offset].prepared = false;
    world->preparing = true;
    size_t n_prepared = nrd_queue_prepare(world->queue, &world->settling, world->now_ms);
    for (size_t i = 0; i < n; i++) {
        NrdLease lease = world->leases[i];
        int expected = !model_live(world, lease)                                                     ? -ESTALE
                       : is_prepared(world, lease.offset) || !has_room_prepared(world, lease.offset) ? -EAGAIN
                                                                                                     : 0;
        g_assert_cmpint(world->errors[i], ==, expected);
        world->cells[lease.offset].prepared = world->cells[lease.offset].prepared || expected == 0;
        n_prepared -= expected == 0;
        world->n_prepared += expected == 0;
        world->n_refused += expected < 0;
    }
    g_assert_cmpuint(n_prepared, ==, 0);
}

static void assert_prepared_snapshot(World *world)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    nrd_queue_snapshot_prepared(world->queue, &state);
    guint n = 0;
    for (uint64_t offset = 0; offset < N_CELLS; offset++) {
        bool there = offset < state.frontier || (n < ahead->len && g_array_index(ahead, uint64_t, n) == offset);
        n += offset >= state.frontier && there;
        g_assert_true(there == will_be_settled(world, offset));
    }
    g_assert_cmpuint(ahead->len, ==, n);
}

static void end_settling(World *world)
{
    bool durable = g_rand_boolean(world->rand);
    assert_prepared_snapshot(world);
    nrd_queue_conclude(world->queue, &world->settling, durable, world->now_ms);
    nrd_queue_end_prepared(world->queue, durable);
    for (uint64_t offset = 0; offset < N_CELLS; offset++) {
        Cell *cell = &world->cells[offset];
        if (is_prepared(world, offset) && durable)
            cell->state = SETTLED;
        else if (is_prepared(world, offset) && cell->expiry_ms <= world->now_ms)
            cell->expiry_ms = world->now_ms + world->limits.visibility_timeout_ms;
    }
    world->preparing = false;
    world->n_ended[durable]++;
}

static void step_settle(World *world)
{
    if (world->preparing)
        end_settling(world);
    else
        begin_settling(world);
}

/* All that is leased from some offset on, and one more; with holes where leases are not. */
static void step_ack_many(World *world)
{
    NrdLease leases[16];
    size_t n = 0, n_expected = 0;
    int error = 0, expected_error = 0;
    for (uint64_t offset = g_rand_boolean(world->rand) ? frontier(world) : any_seen(world)->offset;
         offset < N_CELLS && n < 15; offset++) {
        if (world->cells[offset].state == LEASED)
            leases[n++] = (NrdLease){ offset, world->cells[offset].nonce };
    }
    leases[n++] = *any_seen(world);
    for (; n_expected < n && expected_error == 0; n_expected += expected_error == 0) {
        NrdLease lease = leases[n_expected];
        expected_error = model_ack_error(world, lease);
        if (expected_error == 0)
            world->cells[lease.offset].state = SETTLED;
    }
    g_assert_cmpuint(nrd_queue_ack_many(world->queue, leases, n, world->now_ms, &error), ==, n_expected);
    g_assert_cmpint(error, ==, expected_error);
    world->n_acked_in_runs += (int)n_expected;
}

static void step_ack(World *world, NrdLease lease)
{
    int expected = model_ack_error(world, lease);
    g_assert_cmpint(nrd_queue_ack(world->queue, lease.offset, lease.nonce, world->now_ms), ==, expected);
    if (expected == 0)
        world->cells[lease.offset].state = SETTLED;
    world->n_acked += expected == 0;
    world->n_again += expected == -EAGAIN;
    world->n_stale += expected == -ESTALE;
}

static void step_nack(World *world, NrdLease lease)
{
    int expected = !model_live(world, lease) ? -ESTALE : is_prepared(world, lease.offset) ? -EAGAIN : 0;
    g_assert_cmpint(nrd_queue_nack(world->queue, lease.offset, lease.nonce, world->now_ms), ==, expected);
    if (expected == 0)
        world->cells[lease.offset].state = FREE;
}

static void step_extend(World *world, NrdLease lease)
{
    int expected = !model_live(world, lease) ? -ESTALE : is_prepared(world, lease.offset) ? -EAGAIN : 0;
    g_assert_cmpint(nrd_queue_extend(world->queue, lease.offset, lease.nonce, world->now_ms), ==, expected);
    if (expected == 0)
        world->cells[lease.offset].expiry_ms = world->now_ms + world->limits.visibility_timeout_ms;
}

static uint64_t model_skip(World *world, NrdLease lease, uint64_t end)
{
    Cell *cell = &world->cells[lease.offset];
    uint64_t n_settled = 0;
    if (cell->state != LEASED || cell->nonce != lease.nonce || is_prepared(world, lease.offset))
        return 0;
    bool all = lease.offset == frontier(world);
    for (uint64_t offset = lease.offset; offset < MAX(end, lease.offset + 1); offset++) {
        if (world->cells[offset].state == SETTLED)
            continue;
        if (!all && !has_room(world, offset))
            break;
        world->cells[offset].state = SETTLED;
        n_settled++;
    }
    if (n_settled == 0)
        cell->state = FREE;
    return n_settled;
}

static uint64_t any_below(World *world, int n)
{
    return (uint64_t)g_rand_int_range(world->rand, 0, n);
}

static void raise_to(uint64_t *value, uint64_t by, uint64_t limit)
{
    *value = MIN(*value + by, limit);
}

static void step_skip(World *world, NrdLease lease)
{
    uint64_t end = lease.offset;
    raise_to(&end, any_below(world, 12), world->hwm);
    uint64_t expected = model_skip(world, lease, end);
    g_assert_cmpuint(nrd_queue_skip(world->queue, lease, end), ==, expected);
    world->n_skipped += expected > 0;
}

static void step_time(World *world)
{
    world->now_ms += g_rand_int_range(world->rand, 0, 30);
    if (g_rand_boolean(world->rand))
        return;
    uint32_t n_expired = 0;
    for (uint64_t offset = 0; offset < N_CELLS; offset++) {
        Cell *cell = &world->cells[offset];
        if (is_prepared(world, offset) && cell->expiry_ms <= world->now_ms) {
            cell->expiry_ms = world->now_ms + world->limits.visibility_timeout_ms;
        } else if (cell->state == LEASED && cell->expiry_ms <= world->now_ms) {
            cell->state = FREE;
            n_expired++;
        }
    }
    g_assert_cmpuint(nrd_queue_expire(world->queue, world->now_ms), ==, n_expired);
}

static void assert_same(World *world)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    int64_t next_ms = INT64_MAX;
    guint n = 0;
    nrd_queue_snapshot(world->queue, &state);
    g_assert_cmpuint(state.frontier, ==, frontier(world));
    for (uint64_t offset = state.frontier; offset < N_CELLS; offset++) {
        if (world->cells[offset].state == LEASED)
            next_ms = MIN(next_ms, world->cells[offset].expiry_ms);
        if (world->cells[offset].state != SETTLED)
            continue;
        g_assert_cmpuint(n, <, ahead->len);
        g_assert_cmpuint(g_array_index(ahead, uint64_t, n), ==, offset);
        n++;
    }
    g_assert_cmpuint(ahead->len, ==, n);
    g_assert_cmpuint(nrd_queue_acked_ahead(world->queue), ==, n);
    g_assert_cmpuint(nrd_queue_in_flight(world->queue), ==, count(world, LEASED));
    g_assert_cmpint(nrd_queue_next_expiry_ms(world->queue), ==, next_ms);
}

/* Everything is forgotten but what is durable. */
static void step_restart(World *world)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    nrd_queue_snapshot(world->queue, &state);
    nrd_queue_free(world->queue);
    world->queue = nrd_queue_new(&world->limits);
    nrd_queue_restore(world->queue, &state, world->hwm);
    world->preparing = false;
    for (uint64_t offset = 0; offset < N_CELLS; offset++) {
        if (world->cells[offset].state == LEASED)
            world->cells[offset].state = FREE;
    }
}

static void step_seek(World *world)
{
    uint64_t target =
        world->oldest + (uint64_t)g_rand_int_range(world->rand, 0, (gint32)(world->hwm - world->oldest) + 1);
    nrd_queue_seek(world->queue, target);
    world->preparing = false;
    for (uint64_t offset = 0; offset < N_CELLS; offset++)
        world->cells[offset].state = offset < target ? SETTLED : FREE;
}

static void step_configure(World *world)
{
    world->limits.max_in_flight = (uint32_t)g_rand_int_range(world->rand, 1, 40);
    world->limits.max_acked_ahead = (uint32_t)g_rand_int_range(world->rand, 1, 30);
    world->limits.visibility_timeout_ms = g_rand_int_range(world->rand, 1, 200);
    nrd_queue_configure(world->queue, &world->limits);
}

static void step(World *world)
{
    int what = g_rand_int_range(world->rand, 0, 1000);
    if (what < 300)
        step_take(world);
    else if (what < 400)
        step_take_run(world);
    else if (what < 670)
        step_ack(world, *any_seen(world));
    else if (what < 700)
        step_ack_many(world);
    else if (what < 780)
        step_nack(world, *any_seen(world));
    else if (what < 830)
        step_extend(world, *any_seen(world));
    else if (what < 860)
        step_skip(world, *any_seen(world));
    else if (what < 950)
        step_time(world);
    else if (what < 990)
        raise_to(&world->hwm, any_below(world, 9), N_CELLS - 20);
    else if (what < 994)
        raise_to(&world->oldest, any_below(world, 9), world->hwm);
    else if (what < 996)
        step_restart(world);
    else if (what < 997)
        step_seek(world);
    else
        step_configure(world);
    if (g_rand_int_range(world->rand, 0, 20) == 0)
        step_settle(world);
}

static void test_model(void)
{
    World world = { .rand = g_rand_new_with_seed(31337) };
    for (int round = 0; round < 200; round++) {
        world.limits = (NrdQueueLimits){ .visibility_timeout_ms = 100, .max_in_flight = 20, .max_acked_ahead = 10 };
        world.queue = nrd_queue_new(&world.limits);
        memset(world.cells, 0, sizeof world.cells);
        memset(world.seen, 0, sizeof world.seen);
        world.oldest = world.hwm = 0;
        world.preparing = false;
        for (int i = 0; i < 1000; i++) {
            step(&world);
            if (i % 10 == 0)
                assert_same(&world);
        }
        nrd_queue_free(world.queue);
    }
    g_rand_free(world.rand);
    /* the steps went where they were meant to go */
    g_assert_cmpint(world.n_found, >, 5000);
    g_assert_cmpint(world.n_acked, >, 2000);
    g_assert_cmpint(world.n_again, >, 100);
    g_assert_cmpint(world.n_stale, >, 1000);
    g_assert_cmpint(world.n_skipped, >, 100);
    g_assert_cmpint(world.n_in_runs, >, 2000);
    g_assert_cmpint(world.n_acked_in_runs, >, 1000);
    g_assert_cmpint(world.n_prepared, >, 2000);
    g_assert_cmpint(world.n_refused, >, 1000);
    g_assert_cmpint(MIN(world.n_ended[0], world.n_ended[1]), >, 1000);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/queue-model/agrees", test_model);
    return g_test_run();
}
