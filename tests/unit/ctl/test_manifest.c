/* The manifest of an exported partition: what is written is read back, and nothing else is taken for one. */
#include "ctl/manifest.h"
#include "engine/base/crc32c.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

static NrdManifest *make(void)
{
    NrdManifest *m = nrd_manifest_new();
    m->topic = g_strdup("orders");
    m->incarnation = g_strdup("0123456789abcdef");
    m->partition = 7;
    m->oldest = 20;
    m->hwm = 60;
    m->n_records = 40;
    m->frontier = 25;
    m->n_ahead = 2;
    nrd_manifest_add(m, "00000000000000000020.log", 1234, 0xdeadbeef, 1795999061267);
    nrd_manifest_add(m, "00000000000000000050.log", 0, 0, -5);
    nrd_manifest_add(m, "hwm", 8, 1, 0);
    nrd_manifest_add(m, "consumer.offset", 8, 2, 0);
    nrd_manifest_add(m, "consumer.ahead", 8192, 3, 0);
    return m;
}

static int decode(const char *text, size_t size)
{
    NrdManifest *found = NULL;
    int rc = nrd_manifest_decode(text, size, &found);
    nrd_manifest_free(found);
    return rc;
}

static void test_round_trip(void)
{
    NrdManifest *m = make(), *found = NULL;
    GString *text = nrd_manifest_encode(m);
    g_assert_cmpint(nrd_manifest_decode(text->str, text->len, &found), ==, 0);
    g_assert_true(nrd_manifest_same_content(m, found));
    g_assert_cmpstr(found->topic, ==, "orders");
    g_assert_cmpstr(found->incarnation, ==, m->incarnation);
    g_assert_cmpuint(found->partition, ==, 7);
    g_assert_cmpint(g_array_index(found->files, NrdManifestFile, 0).mtime_ms, ==, 1795999061267);
    g_assert_cmpint(g_array_index(found->files, NrdManifestFile, 1).mtime_ms, ==, -5);
    g_array_index(found->files, NrdManifestFile, 4).crc++;
    g_assert_false(nrd_manifest_same_content(m, found));
    g_string_free(text, TRUE);
    nrd_manifest_free(m);
    nrd_manifest_free(found);
}

/* Every bit and every length. */
static void test_damage(void)
{
    NrdManifest *m = make();
    GString *text = nrd_manifest_encode(m);
    for (size_t size = 0; size < text->len; size++) {
        g_autofree char *cut = g_memdup2(text->str, size + 1); /* exactly so long, for the sanitizer */
        g_assert_cmpint(decode(cut, size), ==, -EBADMSG);
    }
    for (size_t bit = 0; bit < text->len * 8; bit++) {
        text->str[bit / 8] ^= (char)(1 << bit % 8);
        g_assert_cmpint(decode(text->str, text->len), ==, -EBADMSG);
        text->str[bit / 8] ^= (char)(1 << bit % 8);
    }
    g_assert_cmpint(decode(text->str, text->len), ==, 0);
    g_string_free(text, TRUE);
    nrd_manifest_free(m);
}

/* With a checksum that is right: -EBADMSG for what no export writes. */
static void check_made(const char *from, const char *to, int expected)
{
    NrdManifest *m = make();
    GString *text = nrd_manifest_encode(m);
    g_string_truncate(text, text->len - strlen("crc32c 01234567\n"));
    guint n = g_string_replace(text, from, to, 1);
    g_assert_cmpuint(n, ==, 1);
    uint32_t crc = nrd_crc32c(0, text->str, text->len);
    g_string_append_printf(text, "crc32c %08x\n", crc);
    g_assert_cmpint(decode(text->str, text->len), ==, expected);
    g_string_free(text, TRUE);
    nrd_manifest_free(m);
}

static void test_odd(void)
{
    check_made("orders", "others", 0);
    check_made("export 1", "export 2", -EBADMSG);
    check_made("hwm 60", "hwm -1", -EBADMSG);
    check_made("hwm 60", "hwm 9223372036854775808", -EBADMSG);
    check_made("frontier 25", "frontier 61", -EBADMSG);
    check_made("oldest 20\n", "", -EBADMSG);
    check_made("ahead 2\n", "ahead 2\nahead 2\n", -EBADMSG);
    check_made("file hwm", "file ../hwm", -EBADMSG);
    check_made("file hwm", "file consumer.ahead", -EBADMSG);
    check_made("00000000000000000050.log", "00000000000000000020.log", -EBADMSG);
    check_made("00000000000000000050.log", "00000000000000000010.log", -EBADMSG);
    check_made("deadbeef", "DEADBEEF", -EBADMSG);
    check_made(" 1234 ", " 1234 5 ", -EBADMSG);
    check_made("ahead 2", "ahead 02", -EBADMSG);
    check_made(" 1795999061267", " +1795999061267", -EBADMSG);
    check_made(" 1234 ", " 01234 ", -EBADMSG);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl/manifest/round-trip", test_round_trip);
    g_test_add_func("/ctl/manifest/damage", test_damage);
    g_test_add_func("/ctl/manifest/odd", test_odd);
    return g_test_run();
}
