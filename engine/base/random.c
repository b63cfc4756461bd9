/* See random.h. SipHash-1-3 of a counter, under a key from getrandom(2): each thread has a key of its own and takes a new
 * one every few thousand numbers. Whoever sees some of the numbers learns nothing of the others. */
#include "engine/base/random.h"

#include "engine/base/siphash.h"

#include <glib.h>
#include <sys/random.h>

#define NUMBERS_PER_KEY 4096

typedef struct Generator {
    uint64_t key[2];
    uint64_t counter;
    size_t n_left; /* numbers that the key is good for */
} Generator;

static void take_key(Generator *generator)
{
    /* Requests of up to 256 bytes are never cut short and fail only before the pool is initialised when asked not to
     * wait, which is not asked here. */
    ssize_t n = getrandom(generator->key, sizeof generator->key, 0);
    g_assert(n == sizeof generator->key);
    generator->n_left = NUMBERS_PER_KEY;
}

void nrd_random_fill(uint64_t *numbers, size_t n)
{
    static _Thread_local Generator own;
    Generator generator = own; /* in registers */
    for (size_t i = 0; i < n; i++) {
        if (generator.n_left == 0)
            take_key(&generator);
        generator.n_left--;
        numbers[i] = nrd_siphash(1, 3, generator.key, generator.counter++);
    }
    own = generator;
}

uint64_t nrd_random_u64(void)
{
    uint64_t number;
    nrd_random_fill(&number, 1);
    return number;
}
