#include "mount/mountpoint.h"

#include "engine/base/diag.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <mntent.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int refuse(char **ret_why, int error, char *sentence)
{
    *ret_why = sentence;
    return error;
}

/* ---- a dead mount ---- */

static int run_fusermount(const char *mountpoint)
{
    char *argv[] = { (char *)"fusermount3", (char *)"-u", (char *)"-z", (char *)"--", (char *)mountpoint, NULL };
    pid_t pid;
    int status;
    int rc = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ); /* a positive error */
    if (rc != 0)
        return -rc;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

/* After a crash of the daemon its mount answers ENOTCONN to everything until it is unmounted. */
static int clear_dead_mount(const char *mountpoint, char **ret_why)
{
    struct statvfs st; /* stat may be answered from what the kernel remembers; this asks the daemon */
    if (statvfs(mountpoint, &st) == 0 || errno != ENOTCONN)
        return 0;
    int rc = geteuid() == 0 ? (umount2(mountpoint, MNT_DETACH) < 0 ? -errno : 0) : run_fusermount(mountpoint);
    if (rc < 0)
        return refuse(ret_why, rc,
                      g_strdup_printf("%s is a mount whose daemon is gone, and it could not be unmounted: %s; "
                                      "try: fusermount3 -u -z %s",
                                      mountpoint, g_strerror(-rc), mountpoint));
    nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE, "took away the mount that a crashed daemon left at %s", mountpoint);
    return 0;
}

/* ---- the mount point ---- */

static bool mounted_by_naradfs(const char *path)
{
    FILE *mounts = setmntent("/proc/self/mounts", "r");
    bool found = false;
    struct mntent *entry;
    if (!mounts)
        return false;
    while (!found && (entry = getmntent(mounts)))
        found = g_str_equal(entry->mnt_type, "fuse.naradfs") && g_str_equal(entry->mnt_dir, path);
    endmntent(mounts);
    return found;
}

static int check_empty(const char *path, char **ret_why)
{
    DIR *dir = opendir(path);
    if (!dir)
        return refuse(ret_why, -errno,
                      g_strdup_printf("the mount point %s cannot be opened: %s%s", path, g_strerror(errno),
                                      errno == EACCES ? "; take one that belongs to this user" : ""));
    struct dirent *entry;
    errno = 0;
    while ((entry = readdir(dir)) && (g_str_equal(entry->d_name, ".") || g_str_equal(entry->d_name, "..")))
        errno = 0;
    int error = errno;
    closedir(dir);
    if (entry)
        return refuse(ret_why, -ENOTEMPTY,
                      g_strdup_printf("the mount point %s is not empty; what is in it would be hidden "
                                      "(mount over it all the same with -o nonempty)",
                                      path));
    if (error != 0)
        return refuse(ret_why, -error,
                      g_strdup_printf("the mount point %s cannot be listed: %s", path, g_strerror(error)));
    return 0;
}

static int check_mountpoint(const char *given, bool nonempty, char **ret_path, char **ret_why)
{
    struct stat st;
    int rc = clear_dead_mount(given, ret_why);
    if (rc < 0)
        return rc;
    char *path = realpath(given, NULL);
    if (!path)
        return refuse(ret_why, -errno,
                      g_strdup_printf("the mount point %s: %s%s", given, g_strerror(errno),
                                      errno == ENOENT ? "; make the folder first" : ""));
    if (stat(path, &st) < 0)
        rc = refuse(ret_why, -errno, g_strdup_printf("the mount point %s: %s", given, g_strerror(errno)));
    else if (!S_ISDIR(st.st_mode))
        rc = refuse(ret_why, -ENOTDIR,
                    g_strdup_printf("the mount point %s is not a folder; name one that is empty", given));
    else if (mounted_by_naradfs(path))
        rc = refuse(ret_why, -EBUSY,
                    g_strdup_printf("naradfs is mounted at %s already; unmount it first: %s %s", path,
                                    geteuid() == 0 ? "umount" : "fusermount3 -u", path));
    else if (!nonempty)
        rc = check_empty(path, ret_why);
    if (rc < 0) {
        free(path);
        return rc;
    }
    *ret_path = g_strdup(path);
    free(path);
    return 0;
}

/* ---- both paths ---- */

/* The data directory may not exist yet; its parent does. */
static int resolve_data(const char *given, char **ret_path, char **ret_why)
{
    char *path = realpath(given, NULL);
    if (path) {
        *ret_path = g_strdup(path);
        free(path);
        return 0;
    }
    g_autofree char *parent = g_path_get_dirname(given);
    g_autofree char *name = g_path_get_basename(given);
    path = errno == ENOENT ? realpath(parent, NULL) : NULL;
    if (!path)
        return refuse(ret_why, -errno,
                      g_strdup_printf("the data directory %s: %s%s", given, g_strerror(errno),
                                      errno == ENOENT ? "; make the folder that it is to lie in first" : ""));
    *ret_path = g_build_filename(path, name, NULL);
    free(path);
    return 0;
}

static bool is_inside(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0' || folder[n - 1] == '/');
}

/* Before the mount point is looked into: inside the data directory it would not be empty either. */
static int check_apart(const char *data, const char *mountpoint, char **ret_why)
{
    char *early = realpath(mountpoint, NULL);
    int rc = 0;
    if (early && (is_inside(early, data) || is_inside(data, early)))
        rc = refuse(ret_why, -EINVAL,
                    g_strdup_printf("the data directory %s and the mount point %s must not lie in each other: a "
                                    "daemon that needs its own mount stands still",
                                    data, early));
    free(early);
    return rc;
}

int nrd_mountpoint_check(const char *data, const char *mountpoint, bool nonempty, char **ret_data,
                         char **ret_mountpoint, char **ret_why)
{
    g_autofree char *real_data = NULL;
    g_autofree char *real_mountpoint = NULL;
    int rc = clear_dead_mount(mountpoint, ret_why);
    if (rc == 0 && data)
        rc = resolve_data(data, &real_data, ret_why);
    if (rc == 0 && data)
        rc = check_apart(real_data, mountpoint, ret_why);
    if (rc == 0)
        rc = check_mountpoint(mountpoint, nonempty, &real_mountpoint, ret_why);
    if (rc < 0)
        return rc;
    if (data)
        *ret_data = g_steal_pointer(&real_data);
    *ret_mountpoint = g_steal_pointer(&real_mountpoint);
    return 0;
}

int nrd_mountpoint_check_fuse(char **ret_why)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return refuse(ret_why, -ENOENT,
                      g_strdup("/dev/fuse does not exist: load the kernel module (modprobe fuse), or "
                               "give the container that device"));
    if (fd < 0)
        return refuse(ret_why, -errno,
                      g_strdup_printf("/dev/fuse cannot be opened: %s%s", g_strerror(errno),
                                      errno == EACCES  ? "; chmod 666 /dev/fuse lets every user mount"
                                      : errno == EPERM ? "; give the container that device"
                                                       : ""));
    close(fd);
    g_autofree char *fusermount = g_find_program_in_path("fusermount3");
    if (!fusermount && geteuid() != 0)
        return refuse(ret_why, -ENOENT,
                      g_strdup("fusermount3 was not found, which mounts for users other than root: install the "
                               "package fuse3"));
    return 0;
}

static int64_t read_seconds(const char *path)
{
    int64_t seconds = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0; /* a kernel without the limit */
    if (fscanf(file, "%" G_GINT64_FORMAT, &seconds) != 1)
        seconds = 0;
    fclose(file);
    return seconds;
}

int64_t nrd_kernel_request_timeout_ms(void)
{
    int64_t limit = read_seconds("/proc/sys/fs/fuse/default_request_timeout");
    int64_t max = read_seconds("/proc/sys/fs/fuse/max_request_timeout");
    if (max > 0 && (limit == 0 || max < limit))
        limit = max;
    return limit * 1000;
}
