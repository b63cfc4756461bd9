/* See random.h. SipHash-2-4 of a counter, under a key from getrandom(2): each thread has a key of its own and takes a new
 * one every few thousand numbers. Whoever sees some of the numbers learns nothing of the others. */
#include "engine/base/random.h"

#include "engine/base/siphash.h"

#include <glib.h>
#include <string.h>
#include <sys/random.h>

#define NUMBERS_PER_KEY 4096
#define STOCK 1024 /* as many leases as a partition has by default */

typedef struct Generator {
    uint64_t key[2];
    uint64_t counter;
    size_t n_left; /* numbers that the key is good for */
    size_t n_stock;
    uint64_t stock[STOCK];
} Generator;

static _Thread_local Generator generator;

static void take_key(void)
{
    /* Requests of up to 256 bytes are never cut short and fail only before the pool is initialised when asked not to
     * wait, which is not asked here. */
    ssize_t n = getrandom(generator.key, sizeof generator.key, 0);
    g_assert(n == sizeof generator.key);
    generator.n_left = NUMBERS_PER_KEY;
}

static uint64_t make_number(void)
{
    if (generator.n_left == 0)
        take_key();
    generator.n_left--;
    return nrd_siphash(generator.key, generator.counter++);
}

void nrd_random_stock(void)
{
    while (generator.n_stock < STOCK)
        generator.stock[generator.n_stock++] = make_number();
}

void nrd_random_fill(uint64_t *numbers, size_t n)
{
    size_t n_stocked = MIN(n, generator.n_stock);
    generator.n_stock -= n_stocked;
    memcpy(numbers, generator.stock + generator.n_stock, n_stocked * sizeof *numbers);
    for (size_t i = n_stocked; i < n; i++)
        numbers[i] = make_number();
}

uint64_t nrd_random_u64(void)
{
    uint64_t number;
    nrd_random_fill(&number, 1);
    return number;
}
