/* The bar's text, and how much it says has been read. */
#include "ctl/progress.h"

#include <glib.h>
#include <string.h>

static void test_text(void)
{
    g_autofree char *start = nrd_progress_text(0, 4096, 1000, 79);
    g_assert_cmpstr(start, ==, "[........................]   0%  0 bytes of 4.0 KiB");
    g_autofree char *half = nrd_progress_text(2 << 20, 4 << 20, 1000000, 79);
    g_assert_cmpstr(half, ==, "[############............]  50%  2.0 MiB of 4.0 MiB  2.0 MiB/s  00:01 left");
    g_autofree char *slow = nrd_progress_text(1, 7201, 1000000, 79);
    g_assert_nonnull(strstr(slow, "2:00:00 left"));
    g_autofree char *narrow = nrd_progress_text(2 << 20, 4 << 20, 1000000, 10);
    g_assert_cmpuint(strlen(narrow), ==, 10);
    g_autofree char *nothing = nrd_progress_text(0, 0, 1000000, 79);
    g_assert_nonnull(strstr(nothing, "100%"));
    g_autofree char *beyond = nrd_progress_text(9000, 4096, 1000000, 79);
    g_assert_nonnull(strstr(beyond, "100%"));
    g_assert_nonnull(strstr(beyond, "00:00 left"));
}

/* What is read twice counts once, and a file that is left early counts whole. */
static void test_items(void)
{
    NrdProgress progress;
    nrd_progress_init(&progress, false);
    nrd_progress_begin(&progress, 100);
    nrd_progress_read(&progress, 60);
    nrd_progress_read(&progress, 60);
    g_assert_cmpuint(progress.item_done, ==, 100);
    nrd_progress_end(&progress);
    nrd_progress_begin(&progress, 50);
    nrd_progress_read(&progress, 1);
    nrd_progress_end(&progress);
    nrd_progress_read(&progress, 1000); /* of no file */
    g_assert_cmpuint(progress.done_bytes + progress.item_done, ==, 150);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ctl/progress/text", test_text);
    g_test_add_func("/ctl/progress/items", test_items);
    return g_test_run();
}
