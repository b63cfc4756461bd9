/* The command line of the daemon. */
#define FUSE_USE_VERSION 312
#include "mount/options.h"

#include <errno.h>
#include <fuse_opt.h>
#include <glib.h>

/* Parses "naradfs" and the words; what is left for libfuse goes to *ret_rest, joined by spaces. */
static int parse(const char *words, NrdMountOptions *ret_options, char **ret_rest)
{
    g_autofree char *line = g_strconcat("naradfs ", words, NULL);
    g_auto(GStrv) argv = g_strsplit(line, " ", -1);
    struct fuse_args args = FUSE_ARGS_INIT((int)g_strv_length(argv), argv);
    int error = nrd_mount_options_parse(&args, ret_options);
    if (ret_rest && error == 0)
        *ret_rest = g_strjoinv(" ", args.argv);
    fuse_opt_free_args(&args);
    return error;
}

static void assert_refused(const char *words)
{
    NrdMountOptions options;
    g_assert_cmpint(parse(words, &options, NULL), <, 0);
    nrd_mount_options_clear(&options);
}

static void test_plain(void)
{
    NrdMountOptions options;
    g_autofree char *rest = NULL;
    g_assert_cmpint(parse("data mnt -f", &options, &rest), ==, 0);
    g_assert_cmpstr(options.data, ==, "data");
    g_assert_cmpstr(options.mountpoint, ==, "mnt");
    g_assert_true(options.foreground);
    g_assert_false(options.read_only);
    nrd_mount_options_clear(&options);
}

/* As mount(8) calls it. */
static void test_mount_options(void)
{
    NrdMountOptions options;
    g_autofree char *rest = NULL;
    g_assert_cmpint(
        parse("data mnt -o rw,dev,suid,allow_other,uid=7,gid=8,umask=027,codec=zstd,partitions=4", &options, &rest), ==,
        0);
    g_assert_cmpuint(options.owner_uid, ==, 7);
    g_assert_cmpuint(options.owner_gid, ==, 8);
    g_assert_cmpuint(options.owner_umask, ==, 027);
    g_assert_cmpstr(options.topic_defaults, ==, "codec=zstd\npartitions=4\n");
    g_assert_nonnull(g_strstr_len(rest, -1, "allow_other"));
    g_assert_null(g_strstr_len(rest, -1, "uid="));
    nrd_mount_options_clear(&options);
}

static void test_read_only(void)
{
    NrdMountOptions options;
    g_autofree char *rest = NULL;
    g_assert_cmpint(parse("data mnt -o ro", &options, &rest), ==, 0);
    g_assert_true(options.read_only);
    g_assert_nonnull(g_strstr_len(rest, -1, "ro"));
    nrd_mount_options_clear(&options);
}

static void test_housekeeping(void)
{
    NrdMountOptions options;
    g_assert_cmpint(parse("data mnt -o idle_close_ms=1,retention_check_ms=60000,cold_retention_walk_ms=7,cache_bytes=1",
                          &options, NULL),
                    ==, 0);
    g_assert_cmpint(options.idle_close_ms, ==, 1);
    g_assert_cmpint(options.retention_check_ms, ==, 60000);
    g_assert_cmpint(options.cold_retention_ms, ==, 7);
    g_assert_cmpuint(options.cache_bytes, ==, 1);
    g_assert_cmpuint(options.partial_bytes, ==, 0);
    nrd_mount_options_clear(&options);
    g_assert_cmpint(parse("data mnt -o partial_bytes=17592186044416", &options, NULL), ==, 0);
    g_assert_cmpuint(options.partial_bytes, ==, UINT64_C(1) << 44);
    nrd_mount_options_clear(&options);
    g_assert_cmpint(parse("data mnt -o cold_retention_walk_ms=0", &options, NULL), ==, 0);
    g_assert_cmpint(options.cold_retention_ms, ==, -1);
    g_assert_cmpint(options.idle_close_ms, ==, 0);
    nrd_mount_options_clear(&options);
    g_assert_cmpint(parse("data mnt", &options, NULL), ==, 0);
    g_assert_cmpint(options.cold_retention_ms, ==, 0);
    nrd_mount_options_clear(&options);
}

static void test_refused(void)
{
    static const char *const lines[] = {
        "-f",
        "data",
        "data mnt more",
        "data mnt -o uid=x",
        "data mnt -o uid=-1",
        "data mnt -o gid=4294967296",
        "data mnt -o umask=8",
        "data mnt -o umask=1000",
        "data mnt -o log_level=loud",
        "data mnt -o idle_close_ms=0",
        "data mnt -o idle_close_ms=-1",
        "data mnt -o idle_close_ms=1s",
        "data mnt -o idle_close_ms=31622400001",
        "data mnt -o retention_check_ms=",
        "data mnt -o retention_check_ms=0",
        "data mnt -o cold_retention_walk_ms=-1",
        "data mnt -o cache_bytes=0",
        "data mnt -o cache_bytes=64M",
        "data mnt -o partial_bytes=0",
        "data mnt -o partial_bytes=17592186044417",
        "data mnt -o cache_bytes=18446744073709551616",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(lines); i++)
        assert_refused(lines[i]);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/options/plain", test_plain);
    g_test_add_func("/options/mount", test_mount_options);
    g_test_add_func("/options/read-only", test_read_only);
    g_test_add_func("/options/housekeeping", test_housekeeping);
    g_test_add_func("/options/refused", test_refused);
    return g_test_run();
}
