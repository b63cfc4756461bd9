#include "fixture.h"

#include "engine/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

atomic_int fault_fired, fault_calls[FAULT_N], fault_also;
static atomic_int fault_call, fault_nth, fault_error, fault_stays, fault_seen;
static NrdIo faulty;

static bool fires(FaultCall call)
{
    atomic_fetch_add(&fault_calls[call], 1);
    if (atomic_load(&fault_also) == (int)call)
        return true;
    if (atomic_load(&fault_call) != (int)call)
        return false;
    int n = atomic_fetch_add(&fault_seen, 1) + 1;
    if (n != atomic_load(&fault_nth) && !(atomic_load(&fault_stays) && n > atomic_load(&fault_nth)))
        return false;
    atomic_fetch_add(&fault_fired, 1);
    return true;
}

static int error_of(void)
{
    int error = atomic_load(&fault_error);
    return error < 0 ? error : -EIO;
}

/* ---- what a power cut would leave ---- */

typedef struct Durable {
    gint64 size_bytes;            /* as of the last sync of the file */
    bool named;                   /* its folder was synced since it was made */
    gint64 dirty_from, dirty_end; /* overwritten since; empty when the end is 0 */
} Durable;

static pthread_mutex_t durable_lock = PTHREAD_MUTEX_INITIALIZER;
static GHashTable *durables; /* inode number -> Durable */

static Durable *durable_of(ino_t inode)
{
    if (!durables)
        durables = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    Durable *d = g_hash_table_lookup(durables, GSIZE_TO_POINTER(inode));
    if (!d) {
        d = g_new0(Durable, 1);
        g_hash_table_insert(durables, GSIZE_TO_POINTER(inode), d);
    }
    return d;
}

static void note_names(int dir_fd)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    if (nrd_io_real.list(dir_fd, names) < 0)
        return;
    for (guint i = 0; i < names->len; i++) {
        struct stat st;
        if (nrd_io_real.fstatat(dir_fd, names->pdata[i], &st) == 0)
            durable_of(st.st_ino)->named = true;
    }
}

static int note_sync(int fd, int rc)
{
    struct stat st;
    if (rc < 0 || nrd_io_real.fstat(fd, &st) < 0)
        return rc;
    pthread_mutex_lock(&durable_lock);
    if (S_ISDIR(st.st_mode))
        note_names(fd);
    else
        *durable_of(st.st_ino) = (Durable){ .size_bytes = st.st_size, .named = durable_of(st.st_ino)->named };
    pthread_mutex_unlock(&durable_lock);
    return rc;
}

static ssize_t note_write(int fd, int64_t pos, ssize_t n)
{
    struct stat st;
    if (n <= 0 || nrd_io_real.fstat(fd, &st) < 0)
        return n;
    pthread_mutex_lock(&durable_lock);
    Durable *durable = durable_of(st.st_ino);
    durable->dirty_from = durable->dirty_end == 0 ? pos : MIN(durable->dirty_from, pos);
    durable->dirty_end = MAX(durable->dirty_end, pos + n);
    pthread_mutex_unlock(&durable_lock);
    return n;
}

/* A file that is made may get the number of one that is gone. */
static int note_created(int fd)
{
    struct stat st;
    if (fd < 0 || nrd_io_real.fstat(fd, &st) < 0 || st.st_size > 0)
        return fd;
    pthread_mutex_lock(&durable_lock);
    *durable_of(st.st_ino) = (Durable){ 0 };
    pthread_mutex_unlock(&durable_lock);
    return fd;
}

/* size_bytes -1: nothing of it. */
static Durable durable_state(const char *path)
{
    GStatBuf st;
    Durable durable = { .size_bytes = -1 };
    pthread_mutex_lock(&durable_lock);
    /* The checkpoint is synced before it gets its name, and replaces one that had it: the new one is as good. */
    if (g_stat(path, &st) == 0 && (durable_of(st.st_ino)->named || g_str_has_suffix(path, "/checkpoint")))
        durable = *durable_of(st.st_ino);
    pthread_mutex_unlock(&durable_lock);
    return durable;
}

static int faulty_open(int dirfd, const char *path, int flags, mode_t mode)
{
    if (!(flags & O_CREAT))
        return nrd_io_real.open(dirfd, path, flags, mode);
    return fires(FAULT_OPEN) ? error_of() : note_created(nrd_io_real.open(dirfd, path, flags, mode));
}

static ssize_t faulty_pread(int fd, void *buf, size_t size, int64_t pos)
{
    return fires(FAULT_PREAD) ? error_of() : nrd_io_real.pread(fd, buf, size, pos);
}

static ssize_t faulty_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    if (!fires(FAULT_PWRITEV))
        return note_write(fd, pos, nrd_io_real.pwritev(fd, iov, n_iov, pos));
    struct iovec part = { iov[0].iov_base, iov[0].iov_len };
    if (n_iov == 1)
        part.iov_len /= 2;
    g_assert_cmpint(note_write(fd, pos, nrd_io_real.pwritev(fd, &part, 1, pos)), >=, 0);
    return error_of();
}

/* What was written since the last true sync is gone, as on a file system that was shut down meanwhile. */
static int lie(int fd)
{
    struct stat st;
    if (nrd_io_real.fstat(fd, &st) < 0)
        return -EIO;
    pthread_mutex_lock(&durable_lock);
    Durable durable = *durable_of(st.st_ino);
    pthread_mutex_unlock(&durable_lock);
    int rc = nrd_io_real.ftruncate(fd, durable.size_bytes);
    if (rc < 0 || MIN(durable.dirty_end, durable.size_bytes) <= durable.dirty_from)
        return rc;
    g_autofree char *zeros = g_malloc0((gsize)(durable.size_bytes - durable.dirty_from));
    struct iovec iov = { zeros, (size_t)(MIN(durable.dirty_end, durable.size_bytes) - durable.dirty_from) };
    return nrd_io_real.pwritev(fd, &iov, 1, durable.dirty_from) < 0 ? -EIO : 0;
}

static int faulty_fdatasync(int fd)
{
    if (fires(FAULT_LIE))
        return lie(fd);
    return fires(FAULT_FDATASYNC) ? error_of() : note_sync(fd, nrd_io_real.fdatasync(fd));
}

atomic_llong fault_free_bytes = -1;

static int faulty_fstatvfs(int fd, struct statvfs *ret_st)
{
    int rc = nrd_io_real.fstatvfs(fd, ret_st);
    if (rc == 0 && atomic_load(&fault_free_bytes) >= 0) {
        ret_st->f_frsize = 1;
        ret_st->f_bavail = (fsblkcnt_t)atomic_load(&fault_free_bytes);
    }
    return rc;
}

static int faulty_punch(int fd, int64_t pos, int64_t size_bytes)
{
    return fires(FAULT_PUNCH) ? error_of() : nrd_io_real.punch(fd, pos, size_bytes);
}

static int faulty_fsync(int fd)
{
    return fires(FAULT_FSYNC) ? error_of() : note_sync(fd, nrd_io_real.fsync(fd));
}

static int faulty_ftruncate(int fd, int64_t size)
{
    return fires(FAULT_FTRUNCATE) ? error_of() : nrd_io_real.ftruncate(fd, size);
}

static int faulty_unlink(int dirfd, const char *name, bool is_dir)
{
    return g_str_has_suffix(name, ".wal") && fires(FAULT_UNLINK) ? error_of() : nrd_io_real.unlink(dirfd, name, is_dir);
}

static int faulty_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    return fires(FAULT_RENAME) ? error_of() : nrd_io_real.rename(from_dirfd, from, to_dirfd, to, replace);
}

void fault_set(FaultCall call, int nth, int error, bool stays)
{
    atomic_store(&fault_seen, 0);
    atomic_store(&fault_fired, 0);
    atomic_store(&fault_nth, nth);
    atomic_store(&fault_error, error);
    atomic_store(&fault_stays, stays);
    atomic_store(&fault_call, (int)call);
}

void fault_clear(void)
{
    atomic_store(&fault_call, FAULT_NONE);
    atomic_store(&fault_free_bytes, -1);
    atomic_store(&fault_also, FAULT_NONE);
}

static unsigned count_descriptors(void)
{
    GDir *dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned n = 0;
    while (g_dir_read_name(dir))
        n++;
    g_dir_close(dir);
    return n;
}

void fixture_set_up(Fixture *f)
{
    faulty = nrd_io_real;
    faulty.open = faulty_open;
    faulty.pread = faulty_pread;
    faulty.pwritev = faulty_pwritev;
    faulty.fdatasync = faulty_fdatasync;
    faulty.fsync = faulty_fsync;
    faulty.punch = faulty_punch;
    faulty.fstatvfs = faulty_fstatvfs;
    faulty.ftruncate = faulty_ftruncate;
    faulty.unlink = faulty_unlink;
    faulty.rename = faulty_rename;
    nrd_io = &faulty;
    fault_clear();
    fixture_make(f);
    f->n_descriptors = count_descriptors();
}

void fixture_make(Fixture *f)
{
    f->path = g_dir_make_tmp("nrd-ingress-XXXXXX", NULL);
    g_assert_nonnull(f->path);
    g_assert_cmpint(nrd_io_open_root(f->path, &f->root_fd), ==, 0);
    g_assert_cmpint(nrd_io_make_dir(f->root_fd, "ingress"), ==, 0);
}

void fixture_tear_down(Fixture *f)
{
    fault_clear();
    g_assert_cmpuint(count_descriptors(), ==, f->n_descriptors);
    fixture_remove(f);
}

void fixture_before(Fixture *f, gconstpointer data)
{
    fixture_set_up(f);
}

void fixture_after(Fixture *f, gconstpointer data)
{
    fixture_tear_down(f);
}

void fixture_remove(Fixture *f)
{
    g_assert_cmpint(nrd_io_remove_tree(f->root_fd, "ingress"), ==, 0);
    close(f->root_fd);
    g_assert_cmpint(g_rmdir(f->path), ==, 0);
    g_free(f->path);
}

static gint by_name(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

GPtrArray *fixture_names(Fixture *f)
{
    GPtrArray *names = NULL;
    g_assert_cmpint(nrd_io_list_dir(f->root_fd, "ingress", &names), ==, 0);
    g_ptr_array_sort(names, by_name);
    return names;
}

char *fixture_file(Fixture *f, const char *name)
{
    return g_build_filename(f->path, "ingress", name, NULL);
}

unsigned fixture_count(Fixture *f, const char *suffix)
{
    g_autoptr(GPtrArray) names = fixture_names(f);
    unsigned n = 0;
    for (guint i = 0; i < names->len; i++)
        n += g_str_has_suffix(names->pdata[i], suffix);
    return n;
}

void fixture_copy(Fixture *from, Fixture *to)
{
    g_autoptr(GPtrArray) names = fixture_names(from);
    for (guint i = 0; i < names->len; i++) {
        g_autofree char *source = fixture_file(from, names->pdata[i]), *target = fixture_file(to, names->pdata[i]);
        g_autofree char *bytes = NULL;
        gsize size = 0;
        Durable durable = durable_state(source); /* first: the file may grow meanwhile */
        if (durable.size_bytes < 0 || !g_file_get_contents(source, &bytes, &size, NULL))
            continue; /* it may just have been removed */
        size = MIN(size, (gsize)durable.size_bytes);
        gsize dirty_end = MIN(size, (gsize)durable.dirty_end);
        if (dirty_end > (gsize)durable.dirty_from)
            memset(bytes + durable.dirty_from, 0, dirty_end - (gsize)durable.dirty_from);
        g_assert_true(g_file_set_contents(target, bytes, (gssize)size, NULL));
    }
}

typedef struct Call {
    NrdWalAppend append;
    atomic_int error;
} Call;

static void on_done(NrdWalAppend *append, int error)
{
    atomic_store(&((Call *)append)->error, error);
}

int append_now(NrdWal *wal, const char *topic, const char *id, uint32_t partition, const char *payload,
               uint64_t *ret_sequence)
{
    Call call = { .append = { .n_parts = 1, .done = on_done }, .error = 1 };
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, partition, NULL, 0, payload, strlen(payload));
    g_assert_cmpint(nrd_entry_encode(draft, topic, id, &call.append.bytes, &call.append.size), ==, 0);
    nrd_entry_draft_free(draft);
    nrd_wal_append(wal, &call.append);
    for (int i = 0; atomic_load(&call.error) == 1 && i < 20000; i++)
        g_usleep(500);
    int error = atomic_load(&call.error);
    g_assert_cmpint(error, !=, 1);
    if (error == 0 && ret_sequence)
        *ret_sequence = call.append.sequence;
    nrd_wal_segment_unref(call.append.segment);
    g_free(call.append.bytes);
    return error;
}
