/* The leases of a consuming file against a plain array. */
#include "fs/held.h"

#define N_PARTITIONS 3
#define N_OFFSETS 60

typedef struct Model {
    uint64_t nonce[N_PARTITIONS][N_OFFSETS]; /* 0: not held */
} Model;

static void assert_listed(GArray *holds, const Model *model)
{
    guint n = 0;
    for (uint32_t partition = 0; partition < N_PARTITIONS; partition++) {
        for (uint64_t offset = 0; offset < N_OFFSETS; offset++) {
            if (model->nonce[partition][offset] == 0)
                continue;
            g_assert_cmpuint(n, <, holds->len);
            NrdHold hold = g_array_index(holds, NrdHold, n++);
            g_assert_cmpuint(hold.partition, ==, partition);
            g_assert_cmpuint(hold.offset, ==, offset);
            g_assert_cmpuint(hold.nonce, ==, model->nonce[partition][offset]);
            g_assert_cmpuint(hold.note, ==, (uint32_t)hold.nonce % 7);
        }
    }
    g_assert_cmpuint(n, ==, holds->len);
    g_array_unref(holds);
}

static void assert_same(NrdHeld *held, const Model *model)
{
    for (uint32_t partition = 0; partition < N_PARTITIONS; partition++) {
        for (uint64_t offset = 0; offset < N_OFFSETS; offset++) {
            const NrdHold *hold = nrd_held_find(held, partition, offset);
            g_assert_cmpuint(hold ? hold->nonce : 0, ==, model->nonce[partition][offset]);
        }
    }
    for (uint64_t offset = 0; offset < N_OFFSETS; offset++) {
        NrdHold one = { .nonce = 0 };
        guint n = 0;
        for (uint32_t partition = 0; partition < N_PARTITIONS; partition++)
            n += model->nonce[partition][offset] != 0;
        g_assert_cmpuint(nrd_held_find_offset(held, offset, &one), ==, n);
        g_assert_true(n == 0 || model->nonce[one.partition][offset] == one.nonce);
    }
    GArray *holds = nrd_held_list(held);
    g_assert_cmpuint(nrd_held_count(held), ==, holds->len);
    assert_listed(holds, model);
}

static NrdHold next_hold(Model *model, uint32_t partition, uint64_t offset)
{
    static uint64_t nonce;
    model->nonce[partition][offset] = ++nonce;
    return (NrdHold){ .partition = partition, .note = (uint32_t)nonce % 7, .offset = offset, .nonce = nonce };
}

static void put_some(NrdHeld *held, Model *model, GRand *rand, uint32_t partition, uint64_t offset)
{
    NrdHold holds[10];
    guint n = 0;
    uint64_t step = g_rand_int_range(rand, 0, 4) == 0 ? 0 : 1; /* 0: the same record again and again */
    for (; n < 10 && offset < N_OFFSETS; offset += step)
        holds[n++] = next_hold(model, partition, offset);
    nrd_held_put_all(held, holds, n);
}

static void step(NrdHeld *held, Model *model, GRand *rand, bool in_order)
{
    uint32_t partition = (uint32_t)g_rand_int_range(rand, 0, N_PARTITIONS);
    uint64_t offset = (uint64_t)g_rand_int_range(rand, 0, N_OFFSETS);
    int what = g_rand_int_range(rand, 0, 100);
    if (in_order && nrd_held_count(held) > 0) { /* the first one, or behind the last one */
        GArray *holds = nrd_held_list(held);
        NrdHold end = g_array_index(holds, NrdHold, what < 50 ? 0 : holds->len - 1);
        partition = end.partition;
        offset = what < 50 ? end.offset : MIN(end.offset + 1, N_OFFSETS - 1);
        g_array_unref(holds);
    }
    if (what < 50) {
        nrd_held_remove(held, partition, offset);
        model->nonce[partition][offset] = 0;
    } else if (what < 90) {
        nrd_held_put(held, next_hold(model, partition, offset));
    } else if (what < 98) {
        put_some(held, model, rand, partition, offset);
    } else {
        assert_listed(nrd_held_take(held), model);
        memset(model, 0, sizeof *model);
    }
}

static void test_model(void)
{
    g_autoptr(GRand) rand = g_rand_new_with_seed(4096);
    NrdHeld *held = nrd_held_new();
    Model model = { 0 };
    for (int i = 0; i < 20000; i++) {
        step(held, &model, rand, i / 50 % 2 == 0);
        assert_same(held, &model);
    }
    nrd_held_free(held);
}

/* With what the engine keeps of a lease (see /leases/memory) less than 128 bytes for each of many. */
static void test_size(void)
{
    g_assert_cmpuint(sizeof(NrdHold), ==, 24);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/held/model", test_model);
    g_test_add_func("/held/size", test_size);
    return g_test_run();
}
