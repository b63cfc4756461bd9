/* See memory_io.h. */
#include "memory_io.h"

#include "engine/io/io.h"
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define FIRST_FD 1000
#define N_FDS 64
#define FILE_MAX ((int64_t)64 << 20)

typedef struct Node {
    char *name;
    GByteArray *bytes;  /* of a file */
    GPtrArray *entries; /* of a folder: Node* */
    int64_t mtime_ms;
    int refs; /* its name, and descriptors */
} Node;

static Node *root;
static Node *fds[N_FDS]; /* the root is the first */
static unsigned n_maps;

/* ---- the tree ---- */

static void unref_node(gpointer data)
{
    Node *node = data;
    if (--node->refs > 0)
        return;
    if (node->bytes)
        g_byte_array_unref(node->bytes);
    if (node->entries)
        g_ptr_array_unref(node->entries);
    g_free(node->name);
    g_free(node);
}

static Node *new_node(const char *name, bool is_dir)
{
    Node *node = g_new0(Node, 1);
    node->name = g_strdup(name);
    node->refs = 1;
    node->mtime_ms = 1000000;
    if (is_dir)
        node->entries = g_ptr_array_new_with_free_func(unref_node);
    else
        node->bytes = g_byte_array_new();
    return node;
}

static Node *find_entry(const Node *folder, const char *name, size_t size, guint *ret_i)
{
    for (guint i = 0; i < folder->entries->len; i++) {
        Node *node = folder->entries->pdata[i];
        if (strlen(node->name) == size && memcmp(node->name, name, size) == 0) {
            if (ret_i)
                *ret_i = i;
            return node;
        }
    }
    return NULL;
}

/* The folder that holds the last component of path, and that component; NULL and an error when there is none. */
static Node *walk(Node *from, const char *path, const char **ret_last, int *ret_error)
{
    const char *slash;
    while ((slash = strchr(path, '/')) != NULL) {
        from = find_entry(from, path, (size_t)(slash - path), NULL);
        *ret_error = from ? -ENOTDIR : -ENOENT;
        if (!from || !from->entries)
            return NULL;
        path = slash + 1;
    }
    *ret_last = path;
    return from;
}

static Node *node_of(int fd)
{
    FUZZ_CHECK(fd >= FIRST_FD && fd < FIRST_FD + N_FDS && fds[fd - FIRST_FD] != NULL);
    return fds[fd - FIRST_FD];
}

static Node *folder_of(int fd)
{
    Node *node = node_of(fd);
    FUZZ_CHECK(node->entries != NULL);
    return node;
}

/* ---- the calls ---- */

static int open_node(Node *node)
{
    for (int i = 0; i < N_FDS; i++) {
        if (!fds[i]) {
            fds[i] = node;
            node->refs++;
            return FIRST_FD + i;
        }
    }
    return -EMFILE;
}

static int memory_open(int dirfd, const char *path, int flags, mode_t mode)
{
    const char *name = NULL;
    int error = 0;
    if (strcmp(path, ".") == 0)
        return open_node(folder_of(dirfd));
    Node *folder = walk(folder_of(dirfd), path, &name, &error);
    if (!folder)
        return error;
    Node *node = find_entry(folder, name, strlen(name), NULL);
    if (node && flags & O_CREAT && flags & O_EXCL)
        return -EEXIST;
    if (!node && !(flags & O_CREAT))
        return -ENOENT;
    if (node && flags & O_DIRECTORY && !node->entries)
        return -ENOTDIR;
    if (node && node->entries && (flags & O_ACCMODE) != O_RDONLY)
        return -EISDIR;
    if (!node) {
        node = new_node(name, false);
        g_ptr_array_add(folder->entries, node);
    } else if (flags & O_TRUNC) {
        g_byte_array_set_size(node->bytes, 0);
    }
    return open_node(node);
}

static int memory_close(int fd)
{
    Node *node = node_of(fd);
    FUZZ_CHECK(fd != FIRST_FD);
    fds[fd - FIRST_FD] = NULL;
    unref_node(node);
    return 0;
}

static ssize_t memory_pread(int fd, void *buf, size_t size, int64_t pos)
{
    const Node *node = node_of(fd);
    if (!node->bytes)
        return -EISDIR;
    if (pos < 0)
        return -EINVAL;
    if (pos >= (int64_t)node->bytes->len)
        return 0;
    size_t n = MIN(size, node->bytes->len - (size_t)pos);
    memcpy(buf, node->bytes->data + pos, n);
    return (ssize_t)n;
}

/* Zeros where the file grows. */
static int set_size(Node *node, int64_t size)
{
    guint before = node->bytes->len;
    if (size < 0 || size > FILE_MAX)
        return -EFBIG;
    g_byte_array_set_size(node->bytes, (guint)size);
    if ((guint)size > before)
        memset(node->bytes->data + before, 0, (guint)size - before);
    return 0;
}

static ssize_t memory_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    Node *node = node_of(fd);
    ssize_t total = 0;
    FUZZ_CHECK(node->bytes != NULL);
    for (int i = 0; i < n_iov; i++) {
        int64_t end = pos + (int64_t)iov[i].iov_len;
        int error = end > (int64_t)node->bytes->len ? set_size(node, end) : 0;
        if (error < 0)
            return error;
        if (iov[i].iov_len > 0)
            memcpy(node->bytes->data + pos, iov[i].iov_base, iov[i].iov_len);
        pos = end;
        total += (ssize_t)iov[i].iov_len;
    }
    return total;
}

static int memory_sync(int fd)
{
    (void)node_of(fd);
    return 0;
}

static int memory_ftruncate(int fd, int64_t size_bytes)
{
    Node *node = node_of(fd);
    FUZZ_CHECK(node->bytes != NULL);
    return set_size(node, size_bytes);
}

static int memory_punch(int fd, int64_t pos, int64_t size_bytes)
{
    Node *node = node_of(fd);
    FUZZ_CHECK(node->bytes != NULL && pos >= 0 && size_bytes > 0);
    int64_t end = MIN(pos + size_bytes, (int64_t)node->bytes->len);
    if (pos < end)
        memset(node->bytes->data + pos, 0, (size_t)(end - pos));
    return 0;
}

static int memory_set_mtime(int fd, int64_t unix_ms)
{
    node_of(fd)->mtime_ms = unix_ms;
    return 0;
}

static void fill_stat(const Node *node, struct stat *st)
{
    *st = (struct stat){ .st_mode = node->entries ? S_IFDIR | 0700 : S_IFREG | 0600,
                         .st_size = node->bytes ? (off_t)node->bytes->len : 0,
                         .st_nlink = 1,
                         .st_ino = (ino_t)(uintptr_t)node,
                         .st_mtim = { node->mtime_ms / 1000, node->mtime_ms % 1000 * 1000000 } };
}

static int memory_fstat(int fd, struct stat *ret_st)
{
    fill_stat(node_of(fd), ret_st);
    return 0;
}

static int memory_fstatat(int dirfd, const char *name, struct stat *ret_st)
{
    const Node *node = find_entry(folder_of(dirfd), name, strlen(name), NULL);
    if (node)
        fill_stat(node, ret_st);
    return node ? 0 : -ENOENT;
}

static int memory_mkdir(int dirfd, const char *name, mode_t mode)
{
    Node *folder = folder_of(dirfd);
    if (find_entry(folder, name, strlen(name), NULL))
        return -EEXIST;
    g_ptr_array_add(folder->entries, new_node(name, true));
    return 0;
}

static int memory_unlink(int dirfd, const char *name, bool is_dir)
{
    Node *folder = folder_of(dirfd);
    guint i;
    const Node *node = find_entry(folder, name, strlen(name), &i);
    if (!node)
        return -ENOENT;
    if (is_dir != (node->entries != NULL))
        return is_dir ? -ENOTDIR : -EISDIR;
    if (is_dir && node->entries->len > 0)
        return -ENOTEMPTY;
    g_ptr_array_remove_index(folder->entries, i);
    return 0;
}

static int memory_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    Node *folder = folder_of(from_dirfd), *target = folder_of(to_dirfd);
    guint i;
    const Node *there = find_entry(target, to, strlen(to), NULL);
    Node *node = find_entry(folder, from, strlen(from), NULL);
    if (!node)
        return -ENOENT;
    if (there && !replace)
        return -EEXIST;
    if (there && there->entries)
        return node->entries ? -ENOTEMPTY : -EISDIR;
    if (there)
        FUZZ_CHECK(memory_unlink(to_dirfd, to, false) == 0);
    FUZZ_CHECK(find_entry(folder, from, strlen(from), &i) == node);
    g_free(node->name);
    node->name = g_strdup(to);
    g_ptr_array_add(target->entries, g_ptr_array_steal_index(folder->entries, i));
    return 0;
}

static int memory_list(int dirfd, GPtrArray *names)
{
    const Node *folder = folder_of(dirfd);
    for (guint i = 0; i < folder->entries->len; i++)
        g_ptr_array_add(names, g_strdup(((const Node *)folder->entries->pdata[i])->name));
    return 0;
}

static int memory_fstatvfs(int fd, struct statvfs *ret_st)
{
    *ret_st = (struct statvfs){ .f_bsize = 4096, .f_frsize = 4096, .f_blocks = 1 << 20, .f_bavail = 1 << 20 };
    return 0;
}

/* A copy, so that a look beyond it is seen. */
static int memory_map(int fd, size_t size, void **ret_addr)
{
    const Node *node = node_of(fd);
    uint8_t *copy = g_malloc0(size);
    FUZZ_CHECK(node->bytes != NULL);
    memcpy(copy, node->bytes->data, MIN(size, node->bytes->len));
    *ret_addr = copy;
    n_maps++;
    return 0;
}

static int memory_unmap(void *addr, size_t size)
{
    FUZZ_CHECK(n_maps > 0);
    n_maps--;
    g_free(addr);
    return 0;
}

static const NrdIo memory_io = {
    .open = memory_open,
    .close = memory_close,
    .pread = memory_pread,
    .pwritev = memory_pwritev,
    .fdatasync = memory_sync,
    .fsync = memory_sync,
    .ftruncate = memory_ftruncate,
    .punch = memory_punch,
    .set_mtime = memory_set_mtime,
    .fstat = memory_fstat,
    .fstat_untimed = memory_fstat,
    .fstatat = memory_fstatat,
    .mkdir = memory_mkdir,
    .rename = memory_rename,
    .unlink = memory_unlink,
    .list = memory_list,
    .drop_cache = memory_sync,
    .lock = memory_sync,
    .fstatvfs = memory_fstatvfs,
    .map = memory_map,
    .unmap = memory_unmap,
};

/* ---- for the targets ---- */

int memory_io_start(void)
{
    FUZZ_CHECK(root == NULL);
    nrd_io = &memory_io;
    root = new_node("", true);
    return open_node(root);
}

void memory_io_end(void)
{
    for (int i = 1; i < N_FDS; i++)
        FUZZ_CHECK(fds[i] == NULL);
    FUZZ_CHECK(n_maps == 0);
    fds[0] = NULL;
    unref_node(root);
    unref_node(root);
    root = NULL;
}

static Node *make_folders(const char *path, const char **ret_name)
{
    Node *folder = root;
    const char *slash;
    while ((slash = strchr(path, '/')) != NULL) {
        Node *next = find_entry(folder, path, (size_t)(slash - path), NULL);
        if (!next) {
            g_autofree char *name = g_strndup(path, (size_t)(slash - path));
            next = new_node(name, true);
            g_ptr_array_add(folder->entries, next);
        }
        folder = next;
        path = slash + 1;
    }
    *ret_name = path;
    return folder;
}

static Node *put_node(const char *path, bool is_dir)
{
    const char *name;
    guint i;
    Node *folder = make_folders(path, &name);
    if (find_entry(folder, name, strlen(name), &i))
        g_ptr_array_remove_index(folder->entries, i);
    Node *node = new_node(name, is_dir);
    g_ptr_array_add(folder->entries, node);
    return node;
}

void memory_io_put(const char *path, const void *bytes, size_t size)
{
    Node *node = put_node(path, false);
    if (size > 0)
        g_byte_array_append(node->bytes, bytes, (guint)size);
}

void memory_io_put_folder(const char *path)
{
    (void)put_node(path, true);
}

static const Node *find_path(const char *path)
{
    const char *name = NULL;
    int error;
    const Node *folder = walk(root, path, &name, &error);
    return folder ? find_entry(folder, name, strlen(name), NULL) : NULL;
}

const GByteArray *memory_io_get(const char *path)
{
    const Node *node = find_path(path);
    return node ? node->bytes : NULL;
}

bool memory_io_exists(const char *path)
{
    return find_path(path) != NULL;
}

static unsigned count_below(const Node *folder)
{
    unsigned n = folder->entries->len;
    for (guint i = 0; i < folder->entries->len; i++) {
        const Node *node = folder->entries->pdata[i];
        n += node->entries ? count_below(node) : 0;
    }
    return n;
}

unsigned memory_io_count(void)
{
    return count_below(root);
}
