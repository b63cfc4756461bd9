/* See segment_files.h. */
#include "engine/log/segment_files.h"

#include "engine/io/io.h"

#include <errno.h>
#include <string.h>

#define NAME_DIGITS 20

bool nrd_segment_parse_name(const char *name, uint64_t *ret_base)
{
    uint64_t base = 0;

    if (strlen(name) != NAME_DIGITS + 4 || strcmp(name + NAME_DIGITS, ".log") != 0)
        return false;
    for (int i = 0; i < NAME_DIGITS; i++) {
        if (!g_ascii_isdigit(name[i]))
            return false;
        unsigned digit = (unsigned)(name[i] - '0');
        base = base > (UINT64_MAX - digit) / 10 ? UINT64_MAX : base * 10 + digit;
    }
    *ret_base = base;
    return true;
}

static int add_file(int dir_fd, const char *name, GArray *files, bool *whole)
{
    NrdSegmentFile file;
    struct stat st;

    if (!nrd_segment_parse_name(name, &file.base))
        return 0;
    int r = nrd_io->fstatat(dir_fd, name, &st);
    if (r < 0 && r != -ENOENT)
        return r;
    if (r < 0 || !S_ISREG(st.st_mode) || file.base >= INT64_MAX) {
        *whole = false;
        return 0;
    }
    file.size_bytes = (uint64_t)st.st_size;
    file.mtime_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    g_array_append_val(files, file);
    return 0;
}

static gint by_base(gconstpointer a, gconstpointer b)
{
    const NrdSegmentFile *left = a, *right = b;
    return left->base < right->base ? -1 : left->base > right->base;
}

int nrd_segment_files_list(int root_fd, const char *dir, GArray *files, bool *ret_whole)
{
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
    bool whole = true;
    int dir_fd = -1;

    int r = nrd_io_open_dir(root_fd, dir, &dir_fd);
    if (r == 0)
        r = nrd_io->list(dir_fd, names);
    for (guint i = 0; r == 0 && i < names->len; i++)
        r = add_file(dir_fd, names->pdata[i], files, &whole);
    nrd_io_close(&dir_fd);
    g_ptr_array_unref(names);
    if (r < 0)
        return r;
    g_array_sort(files, by_base);
    *ret_whole = whole;
    return 0;
}
