/* The lease table against a plain array, and its bound on memory. */
#include "engine/queue/lease_table.h"

#define N_OFFSETS 300

typedef struct Model {
    bool live[N_OFFSETS];
    uint64_t nonce[N_OFFSETS];
    int64_t expiry_ms[N_OFFSETS];
} Model;

/* One at a time and as many as lie beside each other: the same, and these end where the next has none or a page does. */
static void assert_run(const NrdLeaseTable *table, const Model *model, uint64_t offset)
{
    uint32_t n;
    const NrdLeaseEntry *entries = nrd_lease_table_find_run(table, offset, &n);
    g_assert_true((n > 0) == model->live[offset] && entries == nrd_lease_table_find(table, offset));
    for (uint32_t i = 0; i < n; i++)
        g_assert_true(entries + i == nrd_lease_table_find(table, offset + i));
    if (n > 0 && offset + n < N_OFFSETS && model->live[offset + n])
        g_assert_true(entries + n != nrd_lease_table_find(table, offset + n));
}

static void assert_same(const NrdLeaseTable *table, const Model *model)
{
    uint32_t n = 0;
    int64_t soonest_ms = INT64_MAX;
    for (uint64_t offset = 0; offset < N_OFFSETS; offset++) {
        const NrdLeaseEntry *entry = nrd_lease_table_find(table, offset);
        g_assert_true((entry != NULL) == model->live[offset]);
        assert_run(table, model, offset);
        if (!entry)
            continue;
        n++;
        g_assert_cmpuint(entry->nonce, ==, model->nonce[offset]);
        g_assert_cmpint(entry->expiry_ms, ==, model->expiry_ms[offset]);
        soonest_ms = MIN(soonest_ms, entry->expiry_ms);
    }
    g_assert_cmpuint(nrd_lease_table_count(table), ==, n);
    uint64_t soonest = nrd_lease_table_soonest(table);
    g_assert_true((soonest != NRD_LEASE_NONE) == (n > 0));
    if (n > 0)
        g_assert_cmpint(model->expiry_ms[soonest], ==, soonest_ms);
}

static void remove_range(NrdLeaseTable *table, Model *model, uint64_t begin, uint64_t end)
{
    nrd_lease_table_remove_range(table, begin, end);
    for (uint64_t offset = begin; offset < MIN(end, N_OFFSETS); offset++)
        model->live[offset] = false;
}

static void step(NrdLeaseTable *table, Model *model, GRand *rand)
{
    uint64_t offset = (uint64_t)g_rand_int_range(rand, 0, N_OFFSETS);
    int64_t expiry_ms = g_rand_int_range(rand, 0, 50);
    int what = g_rand_int_range(rand, 0, 100);
    if (!model->live[offset]) {
        uint32_t n = 0;
        for (uint64_t end = offset; end < N_OFFSETS && n <= (uint32_t)what / 10 && !model->live[end]; end++, n++) {
            model->live[end] = true;
            model->nonce[end] = g_rand_int(rand);
            model->expiry_ms[end] = expiry_ms;
        }
        nrd_lease_table_add_run(table, offset, model->nonce + offset, n, expiry_ms);
    } else if (what < 40) {
        model->expiry_ms[offset] = expiry_ms;
        nrd_lease_table_set_expiry(table, offset, expiry_ms);
    } else if (what < 60) {
        uint32_t n = 0;
        for (uint64_t end = offset; end < N_OFFSETS && n < 20 && model->live[end]; end++, n++)
            model->live[end] = false;
        nrd_lease_table_remove_run(table, offset, n);
    } else if (what < 97) {
        model->live[offset] = false;
        nrd_lease_table_remove(table, offset);
    } else if (what < 99) {
        remove_range(table, model, offset, offset + (uint64_t)g_rand_int_range(rand, 0, 20));
    } else {
        remove_range(table, model, offset, UINT64_MAX);
    }
}

static void test_model(void)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(20240);
    NrdLeaseTable *table = nrd_lease_table_new();
    Model model = { 0 };
    for (int i = 0; i < 20000; i++) {
        step(table, &model, rand);
        if (i % 7 == 0)
            assert_same(table, &model);
    }
    nrd_lease_table_clear(table);
    memset(&model, 0, sizeof model);
    assert_same(table, &model);
    nrd_lease_table_free(table);
}

/* A window that moves up and back, far beyond its first place, with leases at its ends only. */
static void test_window(void)
{
    NrdLeaseTable *table = nrd_lease_table_new();
    const uint64_t far = UINT64_C(1) << 40;
    for (uint64_t i = 0; i < 5000; i++) {
        nrd_lease_table_add(table, far + 100 * i, i, 1);
        nrd_lease_table_add(table, far + 100 * i + 99, i, 1);
        if (i >= 3)
            nrd_lease_table_remove_range(table, 0, far + 100 * (i - 3) + 99);
    }
    nrd_lease_table_add(table, far, 7, 0); /* given back, and taken again */
    g_assert_cmpuint(nrd_lease_table_soonest(table), ==, far);
    g_assert_cmpuint(nrd_lease_table_find(table, far)->nonce, ==, 7);
    g_assert_cmpuint(nrd_lease_table_find(table, far + 499999)->nonce, ==, 4999);
    g_assert_null(nrd_lease_table_find(table, far + 16));
    g_assert_null(nrd_lease_table_find(table, 0));
    g_assert_null(nrd_lease_table_find(table, UINT64_MAX));
    g_assert_cmpuint(nrd_lease_table_count(table), ==, 8);
    nrd_lease_table_remove_range(table, far + 1, UINT64_MAX);
    g_assert_cmpuint(nrd_lease_table_count(table), ==, 1);
    nrd_lease_table_free(table);
}

/* More steps down than there are lists: the order holds all the same. */
static void test_shorter_timeouts(void)
{
    NrdLeaseTable *table = nrd_lease_table_new();
    for (uint64_t i = 0; i < 100; i++)
        nrd_lease_table_add(table, i, i, 1000 - 10 * (int64_t)(i / 2));
    int64_t last_ms = 0;
    while (nrd_lease_table_count(table) > 0) {
        uint64_t offset = nrd_lease_table_soonest(table);
        int64_t expiry_ms = nrd_lease_table_find(table, offset)->expiry_ms;
        g_assert_cmpint(expiry_ms, >=, last_ms);
        g_assert_cmpint(expiry_ms, ==, 1000 - 10 * (int64_t)(offset / 2));
        last_ms = expiry_ms;
        nrd_lease_table_remove(table, offset);
    }
    nrd_lease_table_free(table);
}

static void test_memory(void)
{
    const uint32_t n = 100000;
    NrdLeaseTable *table = nrd_lease_table_new();
    for (uint32_t i = 0; i < n; i++)
        nrd_lease_table_add(table, i, i, i);
    g_assert_cmpuint(nrd_lease_table_size_bytes(table), <=, 36 * (size_t)n);
    for (uint32_t i = 0; i < n; i++) {
        g_assert_cmpuint(nrd_lease_table_soonest(table), ==, i);
        nrd_lease_table_remove(table, i);
    }
    g_assert_cmpuint(nrd_lease_table_size_bytes(table), <, 1024);
    nrd_lease_table_free(table);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/leases/model", test_model);
    g_test_add_func("/leases/window", test_window);
    g_test_add_func("/leases/shorter-timeouts", test_shorter_timeouts);
    g_test_add_func("/leases/memory", test_memory);
    return g_test_run();
}
