/* See fixture.h. */
#include "tests/unit/sim/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void open_data(Fixture *f)
{
    sim_disk_install(f->disk);
    g_assert_cmpint(nrd_io_open_root(SIM_DATA, &f->data_fd), ==, 0);
}

void fixture_set_up(Fixture *f, gconstpointer options)
{
    f->disk = sim_disk_new(options, NULL);
    open_data(f);
}

void fixture_tear_down(Fixture *f, gconstpointer options)
{
    sim_disk_install(NULL);
    sim_disk_free(f->disk);
}

void fixture_power_cycle(Fixture *f, const SimCrash *crash)
{
    sim_disk_power_off(f->disk);
    sim_disk_power_on(f->disk, crash);
    open_data(f);
}

void fixture_load(Fixture *f, const SimImage *image)
{
    sim_disk_install(NULL);
    sim_disk_free(f->disk);
    f->disk = sim_disk_new(NULL, image);
    open_data(f);
}

int file_open(Fixture *f, const char *name)
{
    int fd = nrd_io->open(f->data_fd, name, O_RDWR | O_CREAT, 0600);
    g_assert_cmpint(fd, >=, 0);
    return fd;
}

void file_write(int fd, const char *bytes, int64_t pos)
{
    g_assert_cmpint(nrd_io_pwrite_full(fd, bytes, strlen(bytes), pos), ==, 0);
}

void file_fill(int fd, char byte, size_t size, int64_t pos)
{
    g_autofree char *bytes = g_malloc(size);
    memset(bytes, byte, size);
    g_assert_cmpint(nrd_io_pwrite_full(fd, bytes, size, pos), ==, 0);
}

void file_make(Fixture *f, const char *name, const char *bytes)
{
    int fd = file_open(f, name);
    file_write(fd, bytes, 0);
    g_assert_cmpint(nrd_io->fsync(fd), ==, 0);
    g_assert_cmpint(nrd_io->fsync(f->data_fd), ==, 0);
    g_assert_cmpint(nrd_io->close(fd), ==, 0);
}

/* With a NUL behind; there may be NULs in it. */
static char *text_of(GBytes *bytes)
{
    gsize size = 0;
    const void *data = g_bytes_get_data(bytes, &size);
    char *text = g_malloc0(size + 1);
    if (size > 0)
        memcpy(text, data, size);
    return text;
}

char *file_read(Fixture *f, const char *name, size_t *ret_size)
{
    g_autoptr(GBytes) bytes = NULL;
    int rc = nrd_io_read_file(f->data_fd, name, 1 << 20, &bytes);
    if (rc == -ENOENT)
        return NULL;
    g_assert_cmpint(rc, ==, 0);
    if (ret_size != NULL)
        *ret_size = g_bytes_get_size(bytes);
    return text_of(bytes);
}

char *image_text(const SimImage *image, SimLayer layer, const char *path)
{
    g_autoptr(GBytes) bytes = sim_image_read(image, layer, path);
    return bytes != NULL ? text_of(bytes) : NULL;
}
