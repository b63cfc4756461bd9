/* crc32c against published vectors, endian access and varints, clocks, counters. */
#include "engine/base/clock.h"
#include "engine/base/cond.h"
#include "engine/base/crc32c.h"
#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/base/memory.h"
#include "engine/base/random.h"
#include "engine/base/ranges.h"
#include "engine/base/siphash.h"
#include "engine/base/steady_clock.h"
#include "engine/base/url.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>

static void test_crc_vectors(void)
{
    /* RFC 3720, B.4 */
    uint8_t bytes[32];
    g_assert_cmphex(nrd_crc32c(0, "123456789", 9), ==, 0xE3069283);
    memset(bytes, 0, sizeof bytes);
    g_assert_cmphex(nrd_crc32c(0, bytes, sizeof bytes), ==, 0x8A9136AA);
    memset(bytes, 0xff, sizeof bytes);
    g_assert_cmphex(nrd_crc32c(0, bytes, sizeof bytes), ==, 0x62A8AB43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    g_assert_cmphex(nrd_crc32c(0, bytes, sizeof bytes), ==, 0x46DD794E);
    g_assert_cmphex(nrd_crc32c(0, "", 0), ==, 0);
}

static void test_crc_in_pieces(void)
{
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 131);
    uint32_t whole = nrd_crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++)
        g_assert_cmphex(nrd_crc32c(nrd_crc32c(0, bytes, cut), bytes + cut, sizeof bytes - cut), ==, whole);
}

static void test_endian(void)
{
    uint8_t bytes[9] = { 0 };
    nrd_put_be32(bytes + 1, 0x01020304);
    g_assert_cmpmem(bytes + 1, 4, "\1\2\3\4", 4);
    g_assert_cmphex(nrd_get_be32(bytes + 1), ==, 0x01020304);
    nrd_put_be64(bytes + 1, UINT64_C(0x0102030405060708));
    g_assert_cmpmem(bytes + 1, 8, "\1\2\3\4\5\6\7\10", 8);
    g_assert_cmphex(nrd_get_be64(bytes + 1), ==, UINT64_C(0x0102030405060708));
}

static void test_uvarint(void)
{
    const uint64_t values[] = { 0, 1, 127, 128, 300, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX };
    for (size_t i = 0; i < G_N_ELEMENTS(values); i++) {
        uint8_t bytes[NRD_UVARINT_MAX];
        uint64_t back = ~values[i];
        size_t n = nrd_put_uvarint(bytes, values[i]);
        g_assert_cmpuint(nrd_get_uvarint(bytes, n, &back), ==, n);
        g_assert_cmphex(back, ==, values[i]);
        for (size_t cut = 0; cut < n; cut++)
            g_assert_cmpuint(nrd_get_uvarint(bytes, cut, &back), ==, 0);
    }
    /* one bit more than 64 */
    const uint8_t over[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02 };
    const uint8_t endless[11] = { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00 };
    uint64_t v = 7;
    g_assert_cmpuint(nrd_get_uvarint(over, sizeof over, &v), ==, 0);
    g_assert_cmpuint(nrd_get_uvarint(endless, sizeof endless, &v), ==, 0);
    g_assert_cmpuint(v, ==, 7);
}

static int64_t to_ms(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000 + time->tv_nsec / 1000000;
}

static void test_cond_end(void)
{
    const int64_t after_ms[] = { 0, 1, 999, 1000, 59999, (int64_t)40 * 24 * 3600 * 1000 + 999 };
    for (size_t i = 0; i < G_N_ELEMENTS(after_ms); i++) {
        struct timespec before = nrd_cond_end(0), end = nrd_cond_end(after_ms[i]), after = nrd_cond_end(-5000);
        g_assert_cmpint(end.tv_nsec, >=, 0);
        g_assert_cmpint(end.tv_nsec, <, 1000000000);
        g_assert_cmpint(to_ms(&end), >=, to_ms(&before) + after_ms[i]);
        g_assert_cmpint(to_ms(&end), <=, to_ms(&after) + after_ms[i]);
    }
}

static void test_clock(void)
{
    int64_t wall = nrd_clock_wall_ms();
    int64_t mono = nrd_clock_mono_ms();
    nrd_clock_shift_wall_ms(1000000);
    g_assert_cmpint(nrd_clock_wall_ms() - wall, >=, 1000000);
    g_assert_cmpint(nrd_clock_mono_ms() - mono, <, 1000000);
    nrd_clock_shift_wall_ms(-1000000);
    nrd_clock_shift_mono_ms(5000);
    g_assert_cmpint(nrd_clock_mono_ms() - mono, >=, 5000);
    nrd_clock_shift_mono_ms(-5000);
}

static void test_levels(void)
{
    NrdLevel level = NRD_LEVEL_INFO;
    g_assert_cmpint(nrd_diag_parse_level("debug", &level), ==, 0);
    g_assert_cmpint(level, ==, NRD_LEVEL_DEBUG);
    g_assert_cmpint(nrd_diag_parse_level("loud", &level), ==, -EINVAL);
    g_assert_cmpint(level, ==, NRD_LEVEL_DEBUG);
}

static void test_line(void)
{
    if (g_test_subprocess()) {
        g_unsetenv("JOURNAL_STREAM");
        nrd_diag(NRD_LEVEL_DEBUG, NRD_NOWHERE, "not urgent enough");
        nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ "t\nu", 3, 12 }, "disk %s", "full");
        return;
    }
    g_test_trap_subprocess(NULL, 0, 0);
    g_test_trap_assert_passed();
    g_test_trap_assert_stderr("naradfs: error: disk full topic=t?u partition=00003 offset=12\n");
}

static void test_random_differs(void)
{
    g_autoptr(GHashTable) seen = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    for (int i = 0; i < 1000; i++) {
        uint64_t v = nrd_random_u64();
        g_assert_true(g_hash_table_add(seen, g_memdup2(&v, sizeof v)));
    }
}

/* The vector of eight bytes from the appendix of the SipHash paper's reference implementation: key 00..0f, input 00..07. */
static void test_siphash(void)
{
    const uint64_t key[2] = { UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908) };
    g_assert_cmphex(nrd_siphash(2, 4, key, UINT64_C(0x0706050403020100)), ==, UINT64_C(0x93f5f5799a932462));
}

/* Over several keys; no bit is stuck. */
static void test_random_fill(void)
{
    enum { N = 20000 };
    g_autofree uint64_t *numbers = g_new(uint64_t, N);
    g_autoptr(GHashTable) seen = g_hash_table_new(g_int64_hash, g_int64_equal);
    uint64_t any = 0, all = UINT64_MAX;
    nrd_random_fill(numbers, N);
    for (int i = 0; i < N; i++) {
        g_assert_true(g_hash_table_add(seen, &numbers[i]));
        any |= numbers[i];
        all &= numbers[i];
    }
    g_assert_cmphex(any, ==, UINT64_MAX);
    g_assert_cmphex(all, ==, 0);
}

static void test_counters(void)
{
    uint64_t before = nrd_counter_get(NRD_COUNTER_COMMITS);
    nrd_counter_add(NRD_COUNTER_COMMITS, 3);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_COMMITS), ==, before + 3);
}

static void test_steady_clock(void)
{
    const int64_t hour = 3600 * 1000, year = 365 * 24 * hour;
    NrdSteadyClock clock;
    bool stepped;
    nrd_steady_clock_start(&clock, 1000 * hour, 5, 0);
    g_assert_cmpint(nrd_steady_clock_now(&clock, 1000 * hour + 60, 65, &stepped), ==, 1000 * hour + 60);
    g_assert_false(stepped);
    /* ahead by ten years: seen once, not followed for an hour */
    g_assert_cmpint(nrd_steady_clock_now(&clock, 10 * year + 1000 * hour + 100, 105, &stepped), ==, 1000 * hour + 100);
    g_assert_true(stepped);
    g_assert_cmpint(nrd_steady_clock_now(&clock, 10 * year + 1001 * hour, 5 + hour, &stepped), ==, 1001 * hour);
    g_assert_false(stepped);
    /* back again before it is over: as if nothing had been */
    g_assert_cmpint(nrd_steady_clock_now(&clock, 1001 * hour + 10, 15 + hour, &stepped), ==, 1001 * hour + 10);
    g_assert_cmpint(nrd_steady_clock_now(&clock, 10 * year + 1001 * hour + 20, 25 + hour, &stepped), ==,
                    1001 * hour + 20);
    g_assert_true(stepped);
    g_assert_cmpint(nrd_steady_clock_now(&clock, 10 * year + 1002 * hour + 20, 25 + 2 * hour, &stepped), ==,
                    10 * year + 1002 * hour + 20);
    /* backwards is followed at once: it only keeps things longer */
    g_assert_cmpint(nrd_steady_clock_now(&clock, 5, 26 + 2 * hour, &stepped), ==, 5);
    /* and so is the way back to where it was */
    g_assert_cmpint(nrd_steady_clock_now(&clock, 10 * year + 1002 * hour + 21, 26 + 2 * hour, &stepped), ==,
                    10 * year + 1002 * hour + 21);
    g_assert_false(stepped);
    /* drift is followed */
    g_assert_cmpint(nrd_steady_clock_now(&clock, 10 * year + 1002 * hour + NRD_STEADY_STEP_MS, 26 + 2 * hour, &stepped),
                    ==, 10 * year + 1002 * hour + NRD_STEADY_STEP_MS);
    g_assert_false(stepped);
    /* a run that begins long after the last one ended doubts its clock for an hour */
    nrd_steady_clock_start(&clock, 10 * year, 100, year);
    g_assert_cmpint(nrd_steady_clock_now(&clock, 10 * year + 1, 101, &stepped), ==, year + 1);
    g_assert_true(stepped);
    g_assert_cmpint(nrd_steady_clock_now(&clock, 10 * year + hour + 1, 101 + hour, &stepped), ==, 10 * year + hour + 1);
}

/* ---- memory; a sanitizer has an allocator of its own, which tells glibc's nothing ---- */

#define BLOCKS 1000
#define BLOCK_BYTES 20000

static bool allocator_is_glibcs(void)
{
    uint64_t before = nrd_memory_used_bytes();
    void *volatile block = g_malloc(BLOCK_BYTES);
    bool told = nrd_memory_used_bytes() >= before + BLOCK_BYTES;
    g_free(block);
    if (!told)
        g_test_skip("another allocator");
    return told;
}

static void allocate(void **blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = memset(g_malloc(BLOCK_BYTES), 1, BLOCK_BYTES);
}

static void free_all(void **blocks)
{
    for (int i = 0; i < BLOCKS; i++)
        g_free(blocks[i]);
}

static void test_memory_used(void)
{
    static void *blocks[BLOCKS];
    if (!allocator_is_glibcs())
        return;
    uint64_t before = nrd_memory_used_bytes();
    allocate(blocks);
    void *large = g_malloc(64 << 20); /* mapped by itself */
    uint64_t most = nrd_memory_used_bytes();
    g_assert_cmpuint(most, >=, before + BLOCKS * BLOCK_BYTES + (64 << 20));
    g_assert_cmpuint(most, <, before + BLOCKS * (BLOCK_BYTES + 64) + (65 << 20));
    free_all(blocks);
    g_free(large);
    g_assert_cmpuint(nrd_memory_used_bytes(), <=, before + (1 << 20)); /* the thread's own stock */
}

static void *address_of_a_block(void *data)
{
    pthread_barrier_t *together = data;
    void *block = g_malloc(BLOCK_BYTES);
    uintptr_t address = (uintptr_t)block;
    pthread_barrier_wait(together); /* all are there at once: none can have another's arena after its end */
    g_free(block);
    return GSIZE_TO_POINTER(address);
}

/* Arenas but the first are made of heaps of 64 MiB, each at a multiple of that. */
static void test_memory_arenas(void)
{
    GThread *threads[32];
    pthread_barrier_t together;
    g_autoptr(GHashTable) heaps = g_hash_table_new(NULL, NULL);
    if (!allocator_is_glibcs())
        return;
    pthread_barrier_init(&together, NULL, G_N_ELEMENTS(threads));
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++)
        threads[i] = g_thread_new("allocates", address_of_a_block, &together);
    for (size_t i = 0; i < G_N_ELEMENTS(threads); i++)
        g_hash_table_add(heaps, GSIZE_TO_POINTER(GPOINTER_TO_SIZE(g_thread_join(threads[i])) >> 26));
    pthread_barrier_destroy(&together);
    g_assert_cmpuint(g_hash_table_size(heaps), <=, CLAMP(g_get_num_processors(), 2, 8));
}

static void test_memory_trim(void)
{
    static void *blocks[BLOCKS];
    if (!allocator_is_glibcs())
        return;
    allocate(blocks);
    void *last = g_malloc(BLOCK_BYTES); /* what is below cannot just be cut off */
    free_all(blocks);
    g_assert_true(nrd_memory_trim(true));
    g_assert_false(nrd_memory_trim(true)); /* nothing has changed */
    void *keep = g_malloc(64 << 20);
    void *change = g_malloc(BLOCK_BYTES * 10);
    g_assert_false(nrd_memory_trim(false)); /* less is free than in use */
    g_assert_true(nrd_memory_trim(true));
    g_free(change);
    g_free(keep);
    g_free(last);
}

static void test_url(void)
{
    static const char *const cases[][2] = {
        { "nats://a:4222", "nats://a:4222" },
        { "nats://me:p@ss@a:4222,b:4222", "nats://a:4222,b:4222" },
        { "token@a:4222,nats://me@b", "a:4222,nats://b" },
        { "", "" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *shown = nrd_url_without_secrets(cases[i][0]);
        g_assert_cmpstr(shown, ==, cases[i][1]);
    }
}

static void check_servers(const char *list, const char *addresses, const char *user, const char *password, bool tls)
{
    NrdServers servers;
    char *why = NULL;
    g_assert_cmpint(nrd_servers_parse(list, &servers, &why), ==, 0);
    g_autofree char *joined = g_strjoinv(" ", servers.addresses);
    g_assert_cmpstr(joined, ==, addresses);
    g_assert_cmpstr(servers.user, ==, user);
    g_assert_cmpstr(servers.password, ==, password);
    g_assert_true(servers.tls == tls);
    nrd_servers_clear(&servers);
}

static void test_servers(void)
{
    check_servers("nats://a:1, b:2,c", "nats://a:1 nats://b:2 nats://c:4222", NULL, NULL, false);
    check_servers("tls://[::1]:7/", "nats://[::1]:7", NULL, NULL, true);
    check_servers("nats://me:p%2Cs%40%25%22@a,me:p%2cs@%25%22@b:1", "nats://a:4222 nats://b:1", "me", "p,s@%\"", false);
    check_servers("token@a:1,b", "nats://a:1 nats://b:4222", "token", NULL, false);
    static const char *const bad[] = {
        "",
        ",",
        "a,",
        "ws://a",
        "nats://",
        "nats://a:",
        "a:0",
        "a:65536",
        "a:4222x",
        "a/b",
        "a b",
        "nats://:1",
        "[::1:4222",
        "[::1]x",
        "me:x%2@a",
        "me:x%00@a",
        "me:x%0a@a",
        "me:%ff@a",
        "me:@a",
        ":x@a",
        "@a",
        "me:x@a,y@b",
        "a,me:x@b",
        "nats://me:se",
        "nats://me:12,cret@a:1",
        "nats://me:secret,a@b",
        "[x]:1",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        NrdServers servers;
        g_autofree char *why = NULL;
        g_assert_cmpint(nrd_servers_parse(bad[i], &servers, &why), ==, -EINVAL);
        g_assert_true(g_str_has_prefix(why, "the list of servers, its number "));
        g_assert_null(strstr(why, "secret"));
    }
}

/* Lines that nobody reads are kept within a bound: whole lines, the newest, and the one that a read may be in. */
static void test_ranges_bounded(void)
{
    g_autoptr(GString) ranges = g_string_new("0 0\n"); /* the rest of a line */
    for (uint64_t i = 0; i < 200000; i++) {
        nrd_ranges_add(ranges, 7, i, i);
        g_assert_cmpuint(ranges->len, <, NRD_RANGES_BYTES + 100);
    }
    g_assert_true(g_str_has_prefix(ranges->str, "0 0\np00007 "));
    g_assert_true(g_str_has_suffix(ranges->str, "\np00007 199998 199998\np00007 199999 199999\n"));
}

static void test_ranges_taken(void)
{
    char buf[64];
    g_autoptr(GString) ranges = g_string_new(NULL);
    g_assert_cmpuint(nrd_ranges_take(ranges, buf, sizeof buf), ==, 0);
    nrd_ranges_add(ranges, 3, 10, 12);
    nrd_ranges_add(ranges, 99999, 0, G_MAXUINT64);
    g_assert_cmpuint(nrd_ranges_take(ranges, buf, 9), ==, 9); /* in the middle of a line */
    g_assert_cmpmem(buf, 9, "p00003 10", 9);
    g_assert_cmpuint(nrd_ranges_take(ranges, buf, 0), ==, 0);
    size_t n = nrd_ranges_take(ranges, buf, sizeof buf);
    g_assert_cmpmem(buf, n, " 12\np99999 0 18446744073709551615\n", 34);
    g_assert_cmpuint(ranges->len, ==, 0);
}

int main(int argc, char **argv)
{
    nrd_memory_limit_arenas();
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/base/crc/vectors", test_crc_vectors);
    g_test_add_func("/base/crc/pieces", test_crc_in_pieces);
    g_test_add_func("/base/endian", test_endian);
    g_test_add_func("/base/uvarint", test_uvarint);
    g_test_add_func("/base/cond/end", test_cond_end);
    g_test_add_func("/base/ranges/bounded", test_ranges_bounded);
    g_test_add_func("/base/ranges/taken", test_ranges_taken);
    g_test_add_func("/base/clock", test_clock);
    g_test_add_func("/base/diag/levels", test_levels);
    g_test_add_func("/base/diag/line", test_line);
    g_test_add_func("/base/random", test_random_differs);
    g_test_add_func("/base/random-fill", test_random_fill);
    g_test_add_func("/base/siphash", test_siphash);
    g_test_add_func("/base/counters", test_counters);
    g_test_add_func("/base/steady-clock", test_steady_clock);
    g_test_add_func("/base/memory/used", test_memory_used);
    g_test_add_func("/base/memory/arenas", test_memory_arenas);
    g_test_add_func("/base/memory/trim", test_memory_trim);
    g_test_add_func("/base/url/secrets", test_url);
    g_test_add_func("/base/url/servers", test_servers);
    return g_test_run();
}
