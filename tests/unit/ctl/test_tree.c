/* What is read out of /proc/self/mounts and out of a status page. */
#include "ctl/tree.h"

#include "ctl/partition_name.h"

#include <glib.h>

static void test_mounts(void)
{
    g_autoptr(GPtrArray) mounts = nrd_tree_mounts("proc /proc proc rw,nosuid 0 0\n"
                                                  "/d /mnt/with\\040space fuse.naradfs rw,user_id=0 0 0\n"
                                                  "fuse.naradfs /not/this fuse.sshfs rw 0 0\n"
                                                  "/e\\134x /b\\134\\011c fuse.naradfs ro 0 0\n"
                                                  "broken fuse.naradfs\n"
                                                  "\n");
    g_assert_cmpuint(mounts->len, ==, 2);
    g_assert_cmpstr(mounts->pdata[0], ==, "/mnt/with space");
    g_assert_cmpstr(mounts->pdata[1], ==, "/b\\\tc");
    g_autoptr(GPtrArray) none = nrd_tree_mounts("");
    g_assert_cmpuint(none->len, ==, 0);
}

static void test_state_line(void)
{
    g_autofree char *ok = nrd_tree_state_line("topic        t\nstate        ok\nincarnation  1\n");
    g_assert_cmpstr(ok, ==, "ok");
    g_autofree char *out = nrd_tree_state_line("state        out of service: its record is damaged");
    g_assert_cmpstr(out, ==, "out of service: its record is damaged");
    g_assert_null(nrd_tree_state_line("topic        t\nestate ok\n"));
    g_assert_null(nrd_tree_state_line(""));
}

static void test_paths(void)
{
    g_assert_cmpstr(nrd_tree_below("/mnt/a", "/mnt/a"), ==, "");
    g_assert_cmpstr(nrd_tree_below("/mnt/a", "/mnt/a/topics/t"), ==, "topics/t");
    g_assert_null(nrd_tree_below("/mnt/a", "/mnt/ab"));
    g_assert_null(nrd_tree_below("/mnt/a", "/mnt"));
    char *topic = NULL, *partition = NULL;
    g_assert_true(nrd_tree_split("t/p00003/log", &topic, &partition));
    g_assert_cmpstr(topic, ==, "t");
    g_assert_cmpstr(partition, ==, "p00003");
    g_free(topic);
    g_free(partition);
    g_assert_true(nrd_tree_split("t/children", &topic, &partition));
    g_assert_null(partition);
    g_free(topic);
    g_assert_false(nrd_tree_split("", &topic, &partition));
    g_autofree char *refused = nrd_tree_line("state        ok\nrefused      T: no\n", "refused");
    g_assert_cmpstr(refused, ==, "T: no");
}

static void test_partition_names(void)
{
    static const char *const same[] = { "p00007", "p7", "7", "00007", "p007" };
    static const char *const none[] = { "", "p", "pp7", "p-7", "+7", " 7", "7x", "p100000", "children", "q7" };
    uint32_t number = 0;
    for (size_t i = 0; i < G_N_ELEMENTS(same); i++) {
        number = 0;
        g_assert_true(nrd_partition_name_parse(same[i], &number));
        g_assert_cmpuint(number, ==, 7);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(none); i++)
        g_assert_false(nrd_partition_name_parse(none[i], &number));
    g_assert_false(nrd_partition_name_parse(NULL, &number));
    char *topic = NULL, *partition = NULL;
    g_assert_true(nrd_tree_split("t/p3", &topic, &partition));
    g_assert_cmpstr(partition, ==, "p00003");
    g_free(topic);
    g_free(partition);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl/tree/mounts", test_mounts);
    g_test_add_func("/ctl/tree/state-line", test_state_line);
    g_test_add_func("/ctl/tree/paths", test_paths);
    g_test_add_func("/ctl/tree/partition-names", test_partition_names);
    return g_test_run();
}
