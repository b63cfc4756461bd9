/* The table: each entry does what the real call does, on the tree of the disk that is installed. Errors are those of
 * ext4 and xfs; tests/unit/sim compares. */
#include "tests/sim/disk_private.h"

#include "engine/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK_BYTES 4096 /* that statvfs counts in */

static gint next_fd = 1 << 20; /* far from real ones; never given out twice, by no disk */

/* ---- what a call stands on ---- */

static SimOpen *find_open(SimDisk *disk, int fd)
{
    return g_hash_table_lookup(disk->open, GINT_TO_POINTER(fd));
}

/* The path of name in the folder; g_free. */
static char *join(const SimOpen *dir, const char *name)
{
    if (dir == NULL)
        return g_strconcat("?/", name, NULL);
    return strcmp(name, ".") == 0 ? g_strdup(dir->path) : g_strconcat(dir->path, "/", name, NULL);
}

static bool is_dir(const SimDisk *disk, uint64_t number)
{
    return sim_tree_get(disk->tree, number)->is_dir;
}

/* Begins a call on a descriptor. *ret_open is what it stands on, with the lock held from here to sim_act_end. */
static bool begin_fd(SimAct *act, SimCall call, int fd, int64_t pos, uint64_t size, SimOpen **ret_open)
{
    SimDisk *disk = sim_disk_installed();
    *act = (SimAct){ .disk = disk, .info = { .call = call, .pos = pos, .size = size, .path = "?" } };
    g_rec_mutex_lock(&disk->lock);
    SimOpen *open = find_open(disk, fd);
    if (open != NULL) {
        act->info.path = open->path;
        if (call == SIM_FSYNC && is_dir(disk, open->inode))
            act->info.call = SIM_FSYNC_DIR;
    }
    bool works = sim_act_begin(act);
    g_rec_mutex_unlock(&disk->lock); /* taken twice so far */
    if (open == NULL && act->info.index > 0) {
        disk->n_bad++;
        act->error = -EBADF;
        works = false;
    }
    *ret_open = open;
    return works;
}

static int check_folder(SimDisk *disk, const SimOpen *dir, const char *name)
{
    if (name[0] == '\0')
        return -ENOENT;
    disk->n_bad += dir == NULL;
    if (dir == NULL)
        return -EBADF;
    return is_dir(disk, dir->inode) ? 0 : -ENOTDIR;
}

/* Begins a call on a name in the folder that dirfd stands for; *ret_dir is 0 when that is none (the error is set). */
static bool begin_at(SimAct *act, SimCall call, int dirfd, const char *name, uint64_t *ret_dir)
{
    SimDisk *disk = sim_disk_installed();
    *act = (SimAct){ .disk = disk, .info = { .call = call } };
    g_rec_mutex_lock(&disk->lock);
    const SimOpen *open = find_open(disk, dirfd);
    g_autofree char *path = join(open, name);
    act->info.path = path;
    bool works = sim_act_begin(act);
    g_rec_mutex_unlock(&disk->lock);
    if (act->info.index == 0)
        act->info.path = NULL; /* only interned when the power is on */
    if (works && (open == NULL || !is_dir(disk, open->inode))) {
        act->error = name[0] == '/' ? -EXDEV : check_folder(disk, open, name);
        return false;
    }
    *ret_dir = works ? open->inode : 0;
    return works;
}

static int check_name(const char *name)
{
    g_assert_null(strchr(name, '/')); /* io.h: an entry takes names of dirfd's own folder */
    if (name[0] == '\0')
        return -ENOENT;
    return strlen(name) > NAME_MAX ? -ENAMETOOLONG : 0;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* The inode of a name: a negative errno is returned, else *ret_number is 0 when there is none. */
static int look_up(const SimDisk *disk, uint64_t dir, const char *name, uint64_t *ret_number)
{
    const SimInode *inode = sim_tree_get(disk->tree, dir);
    int rc = check_name(name);
    if (rc < 0)
        return rc;
    if (strcmp(name, ".") == 0)
        *ret_number = dir;
    else if (strcmp(name, "..") == 0)
        *ret_number = inode->parent;
    else
        *ret_number = sim_names_get(inode->names, name);
    return 0;
}

static int may_create(const SimDisk *disk, uint64_t dir)
{
    if (sim_tree_get(disk->tree, dir)->n_links == 0)
        return -ENOENT; /* the folder was removed */
    return disk->tree->n_inodes < disk->max_inodes ? 0 : -ENOSPC;
}

static bool is_open_inode(SimDisk *disk, uint64_t number)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init(&iter, disk->open);
    while (g_hash_table_iter_next(&iter, NULL, &value)) {
        if (((SimOpen *)value)->inode == number)
            return true;
    }
    return false;
}

/* After a name or a descriptor of it went. */
static void maybe_release(SimDisk *disk, uint64_t number)
{
    const SimInode *inode = sim_tree_get(disk->tree, number);
    if (inode == NULL || inode->n_links > 0 || is_open_inode(disk, number))
        return;
    sim_tree_release(disk->tree, number);
    sim_tree_collect(disk->tree, disk->open);
}

static void touch(SimInode *owned)
{
    owned->mtime_ns = nrd_clock_wall_ms() * 1000000;
}

/* ---- open and close ---- */

typedef struct Place {
    uint64_t dir;      /* where the last component is looked up */
    uint64_t number;   /* what the path names, 0: nothing */
    char *last;        /* the name in dir; g_free */
    bool needs_folder; /* the path ends in a slash */
} Place;

/* Walks a path below start. RESOLVE_BENEATH: -EXDEV on a way out. */
static int walk(const SimDisk *disk, uint64_t start, const char *path, Place *ret_place)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    Place place = { start, start, NULL, g_str_has_suffix(path, "/") };
    int rc = 0;

    if (path[0] == '\0')
        return -ENOENT;
    if (strlen(path) >= PATH_MAX)
        return -ENAMETOOLONG;
    if (path[0] == '/')
        return -EXDEV;
    for (guint i = 0; rc == 0 && parts[i] != NULL; i++) {
        if (parts[i][0] == '\0')
            continue;
        if (place.number == 0)
            rc = -ENOENT;
        else if (!is_dir(disk, place.number))
            rc = -ENOTDIR;
        else if (strcmp(parts[i], "..") == 0 && place.number == start)
            rc = -EXDEV;
        else {
            place.dir = place.number;
            rc = look_up(disk, place.dir, parts[i], &place.number);
            g_free(place.last);
            place.last = g_strdup(parts[i]);
        }
    }
    if (rc < 0)
        g_free(place.last);
    else
        *ret_place = place;
    return rc;
}

static int check_open(const SimDisk *disk, const Place *place, int flags)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
    if ((flags & (O_DIRECTORY | O_CREAT)) == (O_DIRECTORY | O_CREAT))
        return -EINVAL;
    if (place->number == 0) {
        if ((flags & O_CREAT) == 0)
            return -ENOENT;
        return place->needs_folder ? -EISDIR : may_create(disk, place->dir);
    }
    bool folder = is_dir(disk, place->number);
    if ((flags & O_CREAT) != 0 && place->needs_folder)
        return -EISDIR;
    if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
        return -EEXIST;
    if (folder)
        return writes || (flags & O_CREAT) != 0 ? -EISDIR : 0;
    return (flags & O_DIRECTORY) != 0 || place->needs_folder ? -ENOTDIR : 0;
}

/* path is interned. */
static int add_open(SimDisk *disk, uint64_t number, int flags, const char *path)
{
    int fd = g_atomic_int_add(&next_fd, 1);
    SimOpen *open = g_new0(SimOpen, 1);
    open->inode = number;
    open->flags = flags;
    open->path = path;
    g_hash_table_insert(disk->open, GINT_TO_POINTER(fd), open);
    return fd;
}

static void resize(SimDisk *disk, uint64_t number, int64_t size)
{
    SimInode *inode = sim_tree_own(disk->tree, number);
    uint64_t before = inode->n_sectors;
    sim_inode_resize(inode, ++disk->tree->sequence, size);
    touch(inode);
    sim_tree_account(disk->tree, inode, before);
    sim_disk_refresh_maps(disk, number);
}

static int open_below(SimDisk *disk, uint64_t start, const char *path, int flags, const char *full_path)
{
    Place place = { 0 };
    int rc = walk(disk, start, path, &place);
    if (rc < 0)
        return rc;
    g_autofree char *last = place.last;
    rc = check_open(disk, &place, flags);
    if (rc == 0 && g_hash_table_size(disk->open) >= disk->options.max_open)
        rc = -EMFILE;
    if (rc < 0)
        return rc;
    if (place.number == 0)
        place.number = sim_tree_create(disk->tree, place.dir, last, false);
    else if ((flags & O_TRUNC) != 0)
        resize(disk, place.number, 0);
    return add_open(disk, place.number, flags, full_path);
}

static void drop_open(SimDisk *disk, int fd)
{
    uint64_t number = find_open(disk, fd)->inode;
    g_hash_table_remove(disk->open, GINT_TO_POINTER(fd));
    maybe_release(disk, number);
}

/* An open that did its work and fails all the same gives no descriptor. */
static int end_open(SimAct *act, int result)
{
    if (result >= 0 && act->error < 0)
        drop_open(act->disk, result);
    return (int)sim_act_end(act, result);
}

static int sim_open_root(const char *path)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    g_autoptr(GString) clean = g_string_new(NULL);
    for (guint i = 0; parts[i] != NULL; i++) {
        if (parts[i][0] != '\0' && strcmp(parts[i], ".") != 0)
            g_string_append_printf(clean, "/%s", parts[i]);
    }
    SimAct act = { .disk = sim_disk_installed(), .info = { .call = SIM_OPEN_ROOT, .path = clean->str } };
    int fd = -EIO; /* not one to give back */
    if (sim_act_begin(&act))
        fd = open_below(act.disk, SIM_ROOT, clean->len > 0 ? clean->str + 1 : ".", O_RDONLY | O_DIRECTORY,
                        act.info.path);
    return end_open(&act, fd);
}

static int sim_open(int dirfd, const char *path, int flags, mode_t mode)
{
    SimAct act;
    uint64_t dir;
    int fd = -EIO; /* not one to give back */
    if (begin_at(&act, (flags & O_CREAT) != 0 ? SIM_CREATE : SIM_OPEN, dirfd, path, &dir))
        fd = open_below(act.disk, dir, path, flags, act.info.path);
    return end_open(&act, fd);
}

static int sim_close(int fd)
{
    SimAct act;
    SimOpen *open;
    bool works = begin_fd(&act, SIM_CLOSE, fd, 0, 0, &open);
    if (open != NULL && (works || act.info.index == 0))
        drop_open(act.disk, fd);
    if (act.info.index == 0)
        act.error = 0; /* a dead engine is closed without noise */
    return (int)sim_act_end(&act, 0);
}

/* ---- bytes ---- */

static ssize_t read_open(const SimAct *act, const SimOpen *open, void *buf, size_t size, int64_t pos)
{
    const SimInode *inode = sim_tree_get(act->disk->tree, open->inode);
    if (pos < 0)
        return -EINVAL;
    if ((open->flags & O_ACCMODE) == O_WRONLY)
        return -EBADF;
    if (inode->is_dir)
        return -EISDIR;
    size_t n = (size_t)sim_act_limit(act, sim_inode_read(inode, SIM_CACHED, buf, size, pos));
    if (n > 0 && act->plan != NULL && act->plan->fault.kind == SIM_FLIP) {
        uint64_t bit = act->plan->fault.bit % (8 * n);
        ((uint8_t *)buf)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    return (ssize_t)n;
}

static ssize_t sim_pread(int fd, void *buf, size_t size, int64_t pos)
{
    SimAct act;
    SimOpen *open;
    ssize_t n = 0;
    if (begin_fd(&act, SIM_PREAD, fd, pos, size, &open))
        n = read_open(&act, open, buf, size, pos);
    return sim_act_end(&act, n);
}

/* As much of size as there is room for: whole blocks of a file system, here sectors. */
static size_t fitting(const SimDisk *disk, const SimInode *inode, size_t size, int64_t pos)
{
    uint64_t used = disk->tree->n_sectors;
    uint64_t free_sectors = disk->capacity_sectors > used ? disk->capacity_sectors - used : 0;
    while (size > 0 && sim_inode_room_needed(inode, size, pos) > free_sectors) {
        size_t in_last = ((uint64_t)pos + size - 1) % SIM_SECTOR_BYTES + 1;
        size -= MIN(size, in_last);
    }
    return size;
}

static ssize_t write_open(const SimAct *act, const SimOpen *open, const GByteArray *bytes, int64_t pos)
{
    SimDisk *disk = act->disk;
    if (pos < 0)
        return -EINVAL;
    if ((open->flags & O_ACCMODE) == O_RDONLY)
        return -EBADF;
    if (bytes->len == 0)
        return 0;
    if (pos >= MAX_FILE_BYTES)
        return -EFBIG;
    size_t size = (size_t)sim_act_limit(act, MIN(bytes->len, (uint64_t)(MAX_FILE_BYTES - pos)));
    SimInode *inode = sim_tree_own(disk->tree, open->inode);
    uint64_t before = inode->n_sectors;
    size_t n = fitting(disk, inode, size, pos);
    if (n == 0 && size > 0)
        return -ENOSPC;
    sim_inode_write(inode, ++disk->tree->sequence, bytes->data, n, pos);
    touch(inode);
    sim_tree_account(disk->tree, inode, before);
    sim_disk_refresh_maps(disk, open->inode);
    return (ssize_t)n;
}

static ssize_t sim_pwritev(int fd, const struct iovec *iov, int n_iov, int64_t pos)
{
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    for (int i = 0; n_iov <= IOV_MAX && i < n_iov; i++) {
        if (iov[i].iov_len > 0)
            g_byte_array_append(bytes, iov[i].iov_base, (guint)iov[i].iov_len);
    }
    SimAct act;
    SimOpen *open;
    ssize_t n = 0;
    if (begin_fd(&act, SIM_PWRITEV, fd, pos, bytes->len, &open))
        n = n_iov < 0 || n_iov > IOV_MAX ? -EINVAL : write_open(&act, open, bytes, pos);
    return sim_act_end(&act, n);
}

static int sim_ftruncate(int fd, int64_t size_bytes)
{
    SimAct act;
    SimOpen *open;
    int rc = 0;
    if (begin_fd(&act, SIM_FTRUNCATE, fd, size_bytes, 0, &open)) {
        if (size_bytes < 0 || (open->flags & O_ACCMODE) == O_RDONLY)
            rc = -EINVAL;
        else if (size_bytes > MAX_FILE_BYTES)
            rc = -EFBIG;
        else
            resize(act.disk, open->inode, size_bytes);
    }
    return (int)sim_act_end(&act, rc);
}

static int sim_punch(int fd, int64_t pos, int64_t size_bytes)
{
    SimAct act;
    SimOpen *open;
    int rc = 0;
    if (!begin_fd(&act, SIM_PUNCH, fd, pos, (uint64_t)size_bytes, &open))
        return (int)sim_act_end(&act, 0);
    if (pos < 0 || size_bytes <= 0)
        rc = -EINVAL;
    else if ((open->flags & O_ACCMODE) == O_RDONLY)
        rc = -EBADF;
    else if (size_bytes > MAX_FILE_BYTES || pos > MAX_FILE_BYTES - size_bytes)
        rc = -EFBIG;
    if (rc == 0) {
        SimTree *tree = act.disk->tree;
        SimInode *inode = sim_tree_own(tree, open->inode);
        uint64_t before = inode->n_sectors;
        sim_inode_punch(inode, ++tree->sequence, pos, size_bytes);
        touch(inode);
        sim_tree_account(tree, inode, before);
        sim_disk_refresh_maps(act.disk, open->inode);
    }
    return (int)sim_act_end(&act, rc);
}

/* ---- syncs ---- */

static void sync_file(const SimAct *act, uint64_t number, bool with_time)
{
    SimTree *tree = act->disk->tree;
    const SimFault *fault = act->plan != NULL ? &act->plan->fault : NULL;
    if (fault == NULL || (fault->kind != SIM_FAIL && fault->kind != SIM_LIE) || fault->done_anyway) {
        sim_inode_sync(sim_tree_own(tree, number), with_time);
        if (act->disk->options.names_with_files)
            sim_tree_sync_names_of(tree, number);
    } else if (fault->kind == SIM_FAIL && !fault->keeps_dirty)
        sim_inode_fail_sync(sim_tree_own(tree, number), fault->reached, act->disk->rand);
    else if (fault->kind == SIM_LIE && fault->forgets)
        sim_inode_fail_sync(sim_tree_own(tree, number), SIM_REACHED_NONE, act->disk->rand);
}

static void sync_dir(const SimAct *act, uint64_t number)
{
    SimTree *tree = act->disk->tree;
    const SimFault *fault = act->plan != NULL ? &act->plan->fault : NULL;
    if (fault == NULL || (fault->kind != SIM_FAIL && fault->kind != SIM_LIE) || fault->done_anyway)
        sim_tree_sync_dir(tree, number);
    else if (fault->forgets)
        sim_tree_forget_dir(tree, number);
    sim_tree_collect(tree, act->disk->open);
}

static int sync_any(SimCall call, int fd)
{
    SimAct act;
    SimOpen *open;
    if (begin_fd(&act, call, fd, 0, 0, &open)) {
        if (is_dir(act.disk, open->inode))
            sync_dir(&act, open->inode);
        else
            sync_file(&act, open->inode, call == SIM_FSYNC);
    }
    return (int)sim_act_end(&act, 0);
}

static int sim_fdatasync(int fd)
{
    return sync_any(SIM_FDATASYNC, fd);
}

static int sim_fsync(int fd)
{
    return sync_any(SIM_FSYNC, fd);
}

static int sim_drop_cache(int fd)
{
    SimAct act;
    SimOpen *open;
    if (begin_fd(&act, SIM_DROP_CACHE, fd, 0, 0, &open) && !is_dir(act.disk, open->inode)) {
        SimInode *inode = sim_tree_own(act.disk->tree, open->inode);
        uint64_t before = inode->n_sectors;
        sim_inode_drop_clean(inode);
        sim_tree_account(act.disk->tree, inode, before);
        sim_disk_refresh_maps(act.disk, open->inode);
    }
    return (int)sim_act_end(&act, 0);
}

/* ---- what stands in an inode ---- */

static int sim_set_mtime(int fd, int64_t unix_ms)
{
    SimAct act;
    SimOpen *open;
    int rc = 0;
    if (begin_fd(&act, SIM_SET_MTIME, fd, unix_ms, 0, &open)) {
        if (unix_ms % 1000 < 0)
            rc = -EINVAL;
        else
            sim_tree_own(act.disk->tree, open->inode)->mtime_ns = unix_ms * 1000000;
    }
    return (int)sim_act_end(&act, rc);
}

static void fill_stat(const SimDisk *disk, uint64_t number, struct stat *ret_st)
{
    const SimInode *inode = sim_tree_get(disk->tree, number);
    *ret_st = (struct stat){
        .st_dev = 1,
        .st_ino = number,
        .st_mode = inode->is_dir ? S_IFDIR | 0700 : S_IFREG | 0600,
        .st_nlink = inode->n_links,
        .st_size = inode->is_dir ? BLOCK_BYTES : inode->size,
        .st_blksize = BLOCK_BYTES,
        .st_blocks = (blkcnt_t)inode->n_sectors,
        .st_mtim = { inode->mtime_ns / 1000000000, inode->mtime_ns % 1000000000 },
    };
    ret_st->st_ctim = ret_st->st_atim = ret_st->st_mtim;
}

static int sim_fstat(int fd, struct stat *ret_st)
{
    SimAct act;
    SimOpen *open;
    if (begin_fd(&act, SIM_FSTAT, fd, 0, 0, &open))
        fill_stat(act.disk, open->inode, ret_st);
    return (int)sim_act_end(&act, 0);
}

static int sim_fstatat(int dirfd, const char *name, struct stat *ret_st)
{
    SimAct act;
    uint64_t dir, number = 0;
    int rc = 0;
    if (begin_at(&act, SIM_FSTATAT, dirfd, name, &dir)) {
        rc = look_up(act.disk, dir, name, &number);
        if (rc == 0 && number == 0)
            rc = -ENOENT;
        if (rc == 0)
            fill_stat(act.disk, number, ret_st);
    }
    return (int)sim_act_end(&act, rc);
}

static int sim_fstatvfs(int fd, struct statvfs *ret_st)
{
    SimAct act;
    SimOpen *open;
    if (begin_fd(&act, SIM_FSTATVFS, fd, 0, 0, &open)) {
        const SimDisk *disk = act.disk;
        uint64_t used = disk->tree->n_sectors, n_inodes = disk->tree->n_inodes;
        uint64_t n_free = disk->capacity_sectors > used ? disk->capacity_sectors - used : 0;
        *ret_st = (struct statvfs){
            .f_bsize = BLOCK_BYTES,
            .f_frsize = SIM_SECTOR_BYTES,
            .f_blocks = disk->capacity_sectors,
            .f_files = disk->max_inodes,
            .f_namemax = NAME_MAX,
        };
        ret_st->f_bfree = ret_st->f_bavail = n_free;
        ret_st->f_ffree = ret_st->f_favail = disk->max_inodes > n_inodes ? disk->max_inodes - n_inodes : 0;
    }
    return (int)sim_act_end(&act, 0);
}

static int sim_lock(int fd)
{
    SimAct act;
    SimOpen *open;
    int rc = 0;
    if (begin_fd(&act, SIM_LOCK, fd, 0, 0, &open)) {
        GHashTableIter iter;
        gpointer value;
        g_hash_table_iter_init(&iter, act.disk->open);
        while (g_hash_table_iter_next(&iter, NULL, &value)) {
            const SimOpen *other = value;
            if (other != open && other->locks && other->inode == open->inode)
                rc = -EWOULDBLOCK;
        }
        open->locks |= rc == 0;
    }
    return (int)sim_act_end(&act, rc);
}

/* ---- names ---- */

static int make_dir(SimDisk *disk, uint64_t dir, const char *name)
{
    uint64_t number = 0;
    int rc = look_up(disk, dir, name, &number);
    if (rc == 0 && number != 0)
        rc = -EEXIST;
    if (rc == 0)
        rc = may_create(disk, dir);
    if (rc == 0)
        sim_tree_create(disk->tree, dir, name, true);
    return rc;
}

static int sim_mkdir(int dirfd, const char *name, mode_t mode)
{
    SimAct act;
    uint64_t dir;
    int rc = 0;
    if (begin_at(&act, SIM_MKDIR, dirfd, name, &dir))
        rc = make_dir(act.disk, dir, name);
    return (int)sim_act_end(&act, rc);
}

static int check_unlink(const SimDisk *disk, uint64_t number, bool wants_dir)
{
    const SimInode *inode = number != 0 ? sim_tree_get(disk->tree, number) : NULL;
    if (inode == NULL)
        return -ENOENT;
    if (inode->is_dir != wants_dir)
        return wants_dir ? -ENOTDIR : -EISDIR;
    return inode->is_dir && g_tree_nnodes(inode->names) > 0 ? -ENOTEMPTY : 0;
}

static int unlink_name(SimDisk *disk, uint64_t dir, const char *name, bool wants_dir)
{
    uint64_t number = 0;
    if (is_dots(name))
        return !wants_dir ? -EISDIR : strcmp(name, ".") == 0 ? -EINVAL : -ENOTEMPTY;
    int rc = look_up(disk, dir, name, &number);
    if (rc == 0)
        rc = check_unlink(disk, number, wants_dir);
    if (rc < 0)
        return rc;
    sim_tree_unlink(disk->tree, dir, name);
    maybe_release(disk, number);
    return 0;
}

static int sim_unlink(int dirfd, const char *name, bool wants_dir)
{
    SimAct act;
    uint64_t dir;
    int rc = 0;
    if (begin_at(&act, wants_dir ? SIM_RMDIR : SIM_UNLINK, dirfd, name, &dir))
        rc = unlink_name(act.disk, dir, name, wants_dir);
    return (int)sim_act_end(&act, rc);
}

/* What stands at the target of a rename makes way, or not. */
static int check_target(const SimDisk *disk, uint64_t moved, uint64_t target)
{
    const SimInode *from = sim_tree_get(disk->tree, moved), *to = sim_tree_get(disk->tree, target);
    if (from->is_dir && !to->is_dir)
        return -ENOTDIR;
    if (!from->is_dir && to->is_dir)
        return -EISDIR;
    return to->is_dir && g_tree_nnodes(to->names) > 0 ? -ENOTEMPTY : 0;
}

static int rename_name(SimDisk *disk, uint64_t dir, const char *from, uint64_t to_dir, const char *to, bool replace)
{
    uint64_t moved = 0, target = 0;
    if (is_dots(from) || is_dots(to))
        return replace || is_dots(from) ? -EBUSY : -EEXIST;
    int rc = look_up(disk, dir, from, &moved);
    if (rc == 0)
        rc = look_up(disk, to_dir, to, &target);
    if (rc < 0)
        return rc;
    if (moved == 0)
        return -ENOENT;
    if (target != 0 && !replace)
        return -EEXIST;
    if (sim_tree_get(disk->tree, to_dir)->n_links == 0)
        return -ENOENT;
    if (moved == target)
        return 0;
    if (is_dir(disk, moved) && sim_tree_is_below(disk->tree, to_dir, moved))
        return -EINVAL;
    if (target != 0 && sim_tree_is_below(disk->tree, dir, target))
        return -ENOTEMPTY;
    rc = target != 0 ? check_target(disk, moved, target) : 0;
    if (rc < 0)
        return rc;
    sim_tree_rename(disk->tree, dir, from, to_dir, to);
    if (target != 0)
        maybe_release(disk, target);
    return 0;
}

static int sim_rename(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace)
{
    SimDisk *disk = sim_disk_installed();
    SimAct act = { .disk = disk, .info = { .call = SIM_RENAME } };
    int rc = 0;

    g_rec_mutex_lock(&disk->lock);
    const SimOpen *dir = find_open(disk, from_dirfd), *to_dir = find_open(disk, to_dirfd);
    g_autofree char *path = join(dir, from);
    g_autofree char *to_path = join(to_dir, to);
    act.info.path = path;
    act.to_path = to_path;
    if (sim_act_begin(&act)) {
        rc = check_folder(disk, dir, from);
        if (rc == 0)
            rc = check_folder(disk, to_dir, to);
        if (rc == 0)
            rc = rename_name(disk, dir->inode, from, to_dir->inode, to, replace);
    }
    rc = (int)sim_act_end(&act, rc);
    g_rec_mutex_unlock(&disk->lock);
    return rc;
}

static int sim_list(int dirfd, GPtrArray *names)
{
    SimAct act;
    SimOpen *open;
    int rc = 0;
    if (begin_fd(&act, SIM_LIST, dirfd, 0, 0, &open)) {
        const SimInode *dir = sim_tree_get(act.disk->tree, open->inode);
        GTreeNode *node = NULL;
        if (!dir->is_dir)
            rc = -ENOTDIR;
        else
            node = g_tree_node_first(dir->names);
        uint64_t n = node != NULL ? sim_act_limit(&act, (uint64_t)g_tree_nnodes(dir->names)) : 0;
        for (; n > 0; n--, node = g_tree_node_next(node)) /* all, or what comes before the error */
            g_ptr_array_add(names, g_strdup(g_tree_node_key(node)));
    }
    return (int)sim_act_end(&act, rc);
}

/* ---- mappings ---- */

static int map_open(SimDisk *disk, const SimOpen *open, size_t size, void **ret_addr)
{
    const SimInode *inode = sim_tree_get(disk->tree, open->inode);
    if (size == 0)
        return -EINVAL;
    if ((open->flags & O_ACCMODE) == O_WRONLY)
        return -EACCES;
    if (inode->is_dir)
        return -ENODEV;
    void *addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (addr == MAP_FAILED)
        return -ENOMEM;
    SimMapping *mapping = g_new0(SimMapping, 1);
    *mapping = (SimMapping){ open->inode, addr, size };
    g_ptr_array_add(disk->mappings, mapping);
    (void)sim_inode_read(inode, SIM_CACHED, addr, size, 0);
    *ret_addr = addr;
    return 0;
}

static int sim_map(int fd, size_t size, void **ret_addr)
{
    SimAct act;
    SimOpen *open;
    int rc = 0;
    if (begin_fd(&act, SIM_MAP, fd, 0, size, &open) && act.error == 0)
        rc = map_open(act.disk, open, size, ret_addr);
    return (int)sim_act_end(&act, rc);
}

static SimMapping *find_mapping(const SimDisk *disk, const void *addr)
{
    for (guint i = 0; i < disk->mappings->len; i++) {
        if (((SimMapping *)disk->mappings->pdata[i])->addr == addr)
            return disk->mappings->pdata[i];
    }
    return NULL;
}

static int sim_unmap(void *addr, size_t size)
{
    SimAct act = { .disk = sim_disk_installed(), .info = { .call = SIM_UNMAP, .path = "?", .size = size } };
    int rc = 0;
    bool works = sim_act_begin(&act);
    if (works || act.info.index == 0) {
        SimMapping *mapping = find_mapping(act.disk, addr);
        if (mapping == NULL || mapping->size != size)
            rc = -EINVAL;
        else
            g_ptr_array_remove(act.disk->mappings, mapping);
    }
    if (act.info.index == 0)
        act.error = 0; /* also of a dead engine */
    return (int)sim_act_end(&act, rc);
}

const NrdIo sim_io = {
    .open_root = sim_open_root,
    .open = sim_open,
    .close = sim_close,
    .pread = sim_pread,
    .pwritev = sim_pwritev,
    .fdatasync = sim_fdatasync,
    .fsync = sim_fsync,
    .ftruncate = sim_ftruncate,
    .punch = sim_punch,
    .set_mtime = sim_set_mtime,
    .fstat = sim_fstat,
    .fstat_untimed = sim_fstat,
    .fstatat = sim_fstatat,
    .mkdir = sim_mkdir,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .list = sim_list,
    .drop_cache = sim_drop_cache,
    .lock = sim_lock,
    .fstatvfs = sim_fstatvfs,
    .map = sim_map,
    .unmap = sim_unmap,
};
