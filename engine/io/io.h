/* The only file system calls of the project, as a table that tests replace (to fail, shorten, skip or watch calls).
 *
 * Every entry returns 0 (or a count, or a descriptor) on success and a negative errno on failure; errno itself is not
 * part of the interface. Nothing below dirfd is ever reached through a symbolic link: paths are relative, resolved
 * beneath dirfd (openat2(2) with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), and O_CLOEXEC is always added; open_root makes the
 * first dirfd. Any thread; every call may block on the disk. The table itself is changed only while no other thread uses it. */
#ifndef NRD_IO_IO_H
#define NRD_IO_IO_H

#include "engine/base/macros.h"

#include <dirent.h>
#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef struct NrdIo {
    int (*open_root)(const char *path); /* a folder by its path on the host; its last component is not followed */
    int (*open)(int dirfd, const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*pread)(int fd, void *buf, size_t size, int64_t pos);
    ssize_t (*pwritev)(int fd, const struct iovec *iov, int n_iov, int64_t pos);
    int (*fdatasync)(int fd);
    int (*fsync)(int fd);
    int (*ftruncate)(int fd, int64_t size_bytes);
    int (*punch)(int fd, int64_t pos, int64_t size_bytes); /* zeros there, and their blocks free; the size stays */
    int64_t (*seek)(int fd, int64_t pos, bool hole); /* lseek SEEK_DATA or SEEK_HOLE; -ENXIO: nothing behind pos */
    int (*set_mtime)(int fd, int64_t unix_ms);
    int (*fstat)(int fd, struct stat *ret_st);
    /* without the file's times, which may be 0: to ask for them makes the next sync dearer */
    int (*fstat_untimed)(int fd, struct stat *ret_st);
    int (*fstatat)(int dirfd, const char *name, struct stat *ret_st); /* does not follow a link */
    int (*mkdir)(int dirfd, const char *name, mode_t mode);
    /* without replace an existing target is -EEXIST (RENAME_NOREPLACE) */
    int (*rename)(int from_dirfd, const char *from, int to_dirfd, const char *to, bool replace);
    int (*unlink)(int dirfd, const char *name, bool is_dir);
    int (*list)(int dirfd, GPtrArray *names); /* appends g_strdup'd names, without . and ..; all or -errno */
    int (*drop_cache)(int fd);                /* posix_fadvise DONTNEED over the whole file */
    int (*lock)(int fd);                      /* flock LOCK_EX | LOCK_NB; -EWOULDBLOCK when held elsewhere */
    int (*fstatvfs)(int fd, struct statvfs *ret_st);
    int (*map)(int fd, size_t size, void **ret_addr); /* the file's first size bytes, shared, read only */
    int (*unmap)(void *addr, size_t size);
} NrdIo;

/* The real calls, and the table in force (initially the real one). Other folders use the functions below, and
 * nrd_io->X where a single raw call is what is wanted. An entry takes names of dirfd's own folder, except open and open_root,
 * which take a path. list gives the names appended in this call back when it fails. */
extern const NrdIo nrd_io_real;
extern const NrdIo *nrd_io;

/* Opens the data directory (an absolute or relative host path; a final symbolic link is refused with -ELOOP).
 * The caller owns *ret_fd. */
int nrd_io_open_root(const char *path, int *ret_fd) NRD_MUST_CHECK;

/* Opens the folder path beneath dirfd; -ENOENT, -ENOTDIR, -ELOOP as open(2). The caller closes *ret_fd. */
int nrd_io_open_dir(int dirfd, const char *path, int *ret_fd) NRD_MUST_CHECK;

/* Reads up to size bytes at pos; EINTR and short reads go on; less than size only at the end of the file. An error is
 * never reported as the end of data. */
int nrd_io_pread_full(int fd, void *buf, size_t size, int64_t pos, size_t *ret_size) NRD_MUST_CHECK;

/* The next run of bytes from pos on that a file of size_bytes bytes may hold data in: all others are a hole, which reads as
 * zeros. An empty run at size_bytes: nothing but a hole follows. Where the file system, or the table, cannot tell, all of it
 * is data. Errors: what lseek(2) says but for that. */
int nrd_io_next_data(int fd, uint64_t pos, uint64_t size_bytes, uint64_t *ret_pos, uint64_t *ret_end) NRD_MUST_CHECK;

/* Writes all of iov at pos; EINTR and short writes go on. iov is consumed (its entries are changed). After an error
 * the bytes from pos on are of unknown content. A write of 0 bytes that makes no progress is -EIO. */
int nrd_io_pwritev_full(int fd, struct iovec *iov, int n_iov, int64_t pos) NRD_MUST_CHECK;
int nrd_io_pwrite_full(int fd, const void *buf, size_t size, int64_t pos) NRD_MUST_CHECK;

/* Writes zeros from pos to end (nothing when end <= pos), so that the blocks are the file's before they are needed. Errors as
 * nrd_io_pwritev_full; a part may have been written then. */
int nrd_io_write_zeros(int fd, uint64_t pos, uint64_t end) NRD_MUST_CHECK;

/* fsync of the folder path beneath dirfd ("." for dirfd itself): makes creates, renames and unlinks in it durable. */
int nrd_io_sync_dir(int dirfd, const char *path) NRD_MUST_CHECK;

/* Creates the folder path (its parent exists) with mode 0700 and makes it durable; an existing folder is success. */
int nrd_io_make_dir(int dirfd, const char *path) NRD_MUST_CHECK;

/* Reads a whole small regular file; -EFBIG when it is over max_bytes, -EINVAL when it is not a regular file.
 * The caller unrefs *ret_bytes. */
int nrd_io_read_file(int dirfd, const char *path, size_t max_bytes, GBytes **ret_bytes) NRD_MUST_CHECK;

/* Whether bytes of a file are what they should be: a checksum matches, or they say what is known from elsewhere. */
typedef bool (*NrdIoCheckFn)(const uint8_t *bytes, size_t size, void *data);

/* The same. A read may be wrong while the disk is well: bytes that do not pass the check are read again, past the page
 * cache, until they pass or the same come twice; those are returned, and the caller looks whether they pass. -EIO also when
 * they are others each time. */
int nrd_io_read_checked(int dirfd, const char *path, size_t max_bytes, NrdIoCheckFn check, void *data,
                        GBytes **ret_bytes) NRD_MUST_CHECK;

/* Replaces the file `path` by data atomically and durably: temporary file beside it, write, fsync, rename, fsync of the
 * folder; then it is read back, since a sync may lie while a file system goes (-EIO: it holds something else). An error
 * after the rename leaves it undecided which one a crash keeps. After a crash the file is the old one or the new one; a stray
 * "<name>.tmp" may remain and is overwritten by the next replacement. Mode 0600. */
int nrd_io_replace_file(int dirfd, const char *path, const void *data, size_t size) NRD_MUST_CHECK;

/* Removes a folder and everything below it, children first, without following links; makes the removal durable in the
 * parent. A missing folder is success. */
int nrd_io_remove_tree(int dirfd, const char *path) NRD_MUST_CHECK;

/* Closes *fd if it is not negative and sets it to -1; a failure is only worth a line in the log, since nothing durable
 * hangs on close here. EINTR is not retried (close(2): the descriptor is gone). */
void nrd_io_close(int *fd);

/* Renames path to to_path (both beneath dirfd) and makes it durable in both folders. Without replace: -EEXIST. An error
 * after the rename itself (a folder that cannot be synced) leaves it undecided which name a crash keeps. */
int nrd_io_rename(int dirfd, const char *path, const char *to_path, bool replace) NRD_MUST_CHECK;

/* Maps the first size bytes (not 0) of a file for reading; the descriptor may be closed then. Where the file has lost
 * bytes since, or the disk cannot read them, the mapping gives zeros instead of killing the process: whoever reads has
 * to check what he reads, in a copy of his own. Other errors: what mmap(2) says; -ENODEV also when there is no mapping
 * in the table. */
int nrd_io_map(int fd, size_t size, const void **ret_addr) NRD_MUST_CHECK;
void nrd_io_unmap(const void *addr, size_t size);

/* Removes the file path durably; a missing file is success. */
int nrd_io_unlink(int dirfd, const char *path) NRD_MUST_CHECK;

/* stat of path beneath dirfd, not following a link anywhere. */
int nrd_io_stat(int dirfd, const char *path, struct stat *ret_st) NRD_MUST_CHECK;

/* Which file, while it exists. */
typedef struct NrdIoFileId {
    dev_t dev;
    ino_t ino;
} NrdIoFileId;

/* Whether what is written to the open file fd can be found again, now that others may have removed, moved or replaced it; one
 * rule for every file that a promise hangs on:
 *   always, for the price of an fstat: it has a name at all, and is the file `known` (NULL: whichever it is). A name may have
 *     been opened anew since, and be another file's
 *   with a path, for ten times as much: the name at path beneath dirfd is its own. *ret_looked says that this was seen to be
 *     so; false for want of descriptors or memory, which is no failure of the file: the caller looks at its next call. What
 *     the first look has found is final, whatever becomes of the second
 * -ENOENT: it is gone, or has no name there (-ENOTDIR, -ELOOP: something else is in the place of its folder); -ESTALE: it, or
 * what stands at path, is another file; nrd_error_is_taken_away knows these. Others: it could not be looked at, and nothing
 * may be promised. Without a path dirfd and ret_looked are not used (NULL). Blocks. */
int nrd_io_check_place(int fd, const NrdIoFileId *known, int dirfd, const char *path, bool *ret_looked) NRD_MUST_CHECK;

/* What a file of that mode is, in words: "a folder". Pure. */
const char *nrd_io_kind(mode_t mode);

/* What stands at path when it is no regular file ("it is a folder, and no regular file"); g_free. NULL: it is one, is not
 * there, or cannot be looked at. */
char *nrd_io_foreign_kind(int dirfd, const char *path);

/* Appends the names in folder path to *ret_names (a new array, g_ptr_array_unref). All of them or an error. */
int nrd_io_list_dir(int dirfd, const char *path, GPtrArray **ret_names) NRD_MUST_CHECK;

#endif
