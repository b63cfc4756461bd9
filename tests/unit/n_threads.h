/* How many threads this process has. */
#ifndef NRD_TESTS_UNIT_N_THREADS_H
#define NRD_TESTS_UNIT_N_THREADS_H

#include <glib.h>

static inline guint n_threads(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/task", 0, NULL);
    guint n = 0;
    while (g_dir_read_name(dir))
        n++;
    return n;
}

#endif
