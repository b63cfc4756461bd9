/* See segment_files.h. */
#include "engine/log/segments/segment_files.h"

#include "engine/io/io.h"
#include "engine/log/index/index_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define NAME_DIGITS 20

/* Whether name is 20 digits and the suffix; *ret_base saturates at UINT64_MAX. */
static bool parse_name(const char *name, const char *suffix, uint64_t *ret_base)
{
    uint64_t base = 0;

    if (strlen(name) != NAME_DIGITS + strlen(suffix) || strcmp(name + NAME_DIGITS, suffix) != 0)
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

/* Looks at a name; *ret_what: why its file is none, when there was no error. */
static int look_at(int dir_fd, const char *name, NrdSegmentFile *file, const char **ret_what)
{
    struct stat st;

    if (file->base >= INT64_MAX) {
        *ret_what = "its base offset leaves no room for records";
        return 0;
    }
    int r = nrd_io->fstatat(dir_fd, name, &st);
    if (r < 0)
        return r;
    if (!S_ISREG(st.st_mode))
        *ret_what = "it is not a regular file";
    file->st = st;
    file->size_bytes = (uint64_t)st.st_size;
    file->mtime_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    return 0;
}

static void add_name(int dir_fd, const char *name, GArray *files, NrdSegmentOdd *odd)
{
    NrdSegmentFile file;
    const char *what = NULL;

    if (!parse_name(name, ".log", &file.base))
        return; /* not ours: left alone */
    int r = look_at(dir_fd, name, &file, &what);
    if (r == 0 && what == NULL)
        g_array_append_val(files, file);
    else if (odd->name == NULL)
        *odd = (NrdSegmentOdd){ g_strdup(name), r, what };
}

static gint by_base(gconstpointer a, gconstpointer b)
{
    const NrdSegmentFile *left = a, *right = b;
    return left->base < right->base ? -1 : left->base > right->base;
}

static int list_names(int root_fd, const char *dir, GPtrArray *names, int *ret_dir_fd)
{
    int r = nrd_io_open_dir(root_fd, dir, ret_dir_fd);
    return r == 0 ? nrd_io->list(*ret_dir_fd, names) : r;
}

static bool has_segment(const GArray *files, uint64_t base)
{
    NrdSegmentFile file = { .base = base };
    return g_array_binary_search((GArray *)files, &file, by_base, NULL);
}

static gint by_number(gconstpointer a, gconstpointer b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

int nrd_segment_files_orphans(int root_fd, const char *dir, const char *suffix, const GArray *files, GArray *orphans)
{
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
    int dir_fd = -1;
    uint64_t base;

    int r = list_names(root_fd, dir, names, &dir_fd);
    nrd_io_close(&dir_fd);
    for (guint i = 0; r == 0 && i < names->len; i++) {
        if (parse_name(names->pdata[i], suffix, &base) && base < INT64_MAX && !has_segment(files, base))
            g_array_append_val(orphans, base);
    }
    g_array_sort(orphans, by_number);
    g_ptr_array_unref(names);
    return r;
}

int nrd_segment_files_missing(int root_fd, const char *dir, const GArray *files, GArray *missing)
{
    g_autoptr(GArray) bases = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    int r = nrd_segment_files_orphans(root_fd, dir, ".index", files, bases);

    for (guint i = 0; r == 0 && i < bases->len; i++) {
        uint64_t base = g_array_index(bases, uint64_t, i);
        NrdGap gap = { .pos = base, .end_pos = base, .offset = base };
        g_autofree char *path = g_strdup_printf("%s/%020" PRIu64 ".index", dir, base);
        r = nrd_index_file_claim(root_fd, path, base, &gap.end_offset);
        if (r == 0)
            g_array_append_val(missing, gap);
        else if (r == -ENOENT)
            r = 0; /* no file that this log has written */
    }
    return r;
}

int nrd_segment_files_list(int root_fd, const char *dir, GArray *files, NrdSegmentOdd *ret_odd)
{
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
    NrdSegmentOdd odd = { .name = NULL };
    int dir_fd = -1;

    int r = list_names(root_fd, dir, names, &dir_fd);
    for (guint i = 0; r == 0 && i < names->len; i++)
        add_name(dir_fd, names->pdata[i], files, &odd);
    nrd_io_close(&dir_fd);
    g_ptr_array_unref(names);
    if (r < 0)
        return r;
    g_array_sort(files, by_base);
    *ret_odd = odd;
    return 0;
}
