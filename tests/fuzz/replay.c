/* Feeds files to a fuzz target, without libFuzzer: each argument is a file, or a folder whose files are taken in order.
 * Finding none is a failure. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static unsigned n_fed;

static void feed_file(const char *path)
{
    char *bytes = NULL;
    gsize size = 0;
    GError *error = NULL;
    if (!g_file_get_contents(path, &bytes, &size, &error)) {
        fprintf(stderr, "cannot read %s: %s\n", path, error->message);
        exit(2);
    }
    FuzzInput in = { (const uint8_t *)bytes, size };
    size_t n;
    uint8_t *exact = fuzz_rest(&in, &n);
    g_free(bytes);
    (void)LLVMFuzzerTestOneInput(exact, n);
    g_free(exact);
    n_fed++;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void feed_folder(const char *path)
{
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, NULL, by_name);
    for (int i = 0; i < n; i++) {
        g_autofree char *file = g_build_filename(path, entries[i]->d_name, NULL);
        if (entries[i]->d_name[0] != '.')
            feed_file(file);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (g_file_test(argv[i], G_FILE_TEST_IS_DIR))
            feed_folder(argv[i]);
        else
            feed_file(argv[i]);
    }
    printf("%u inputs\n", n_fed);
    return n_fed > 0 ? 0 : 1;
}
