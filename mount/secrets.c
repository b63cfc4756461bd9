/* See secrets.h. */
#include "mount/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES 65536 /* of a file that is read */

/* ---- the command line ---- */

/* Where a list of servers begins, behind its first scheme, or NULL. */
static char *servers_in(char *argument)
{
    char *option = strstr(argument, "url=");
    char *list = option ? option + strlen("url=") : argument;
    char *scheme = strstr(list, "://");
    if (scheme && scheme < strchrnul(list, ','))
        return scheme + strlen("://");
    return option ? list : scheme ? scheme + strlen("://") : NULL;
}

/* Of an option behind the list, `key=/path`. */
static bool is_path_option(const char *text, const char *end)
{
    const char *equals = memchr(text, '=', (size_t)(end - text));
    return equals && equals[1] == '/' && strspn(text, "abcdefghijklmnopqrstuvwxyz_") == (size_t)(equals - text);
}

/* The end of the last part, between commas, that has a secret; NULL: none has. */
static char *end_of_secrets(char *servers)
{
    char *found = NULL;
    for (char *part = servers, *end; part; part = *end ? end + 1 : NULL) {
        end = strchrnul(part, ',');
        if (memchr(part, '@', (size_t)(end - part)) && !is_path_option(part, end))
            found = end;
    }
    return found;
}

/* Of the parts up to the last secret only what stands behind an @ stays: one without may be half a password with a comma. */
bool nrd_secrets_scrub(char *argument)
{
    char *servers = servers_in(argument);
    char *last = servers ? end_of_secrets(servers) : NULL;
    if (!last)
        return false;
    char *to = servers;
    for (char *part = servers, *end; part < last; part = end + 1) {
        end = strchrnul(part, ',');
        char *at = memrchr(part, '@', (size_t)(end - part));
        size_t n = at ? (size_t)(end - at) - 1 : 0;
        if (!at)
            continue;
        if (to > servers)
            *to++ = ',';
        memmove(to, at + 1, n);
        to += n;
    }
    size_t rest = strlen(last);
    memmove(to, last, rest);
    memset(to + rest, 0, (size_t)(last - to));
    return true;
}

/* ---- files ---- */

static int refuse(const char *option, const char *path, const char *why)
{
    fprintf(stderr, "naradfs: option %s=%s: %s\n", option, path, why);
    return -EINVAL;
}

static int refuse_error(const char *option, const char *path, int error)
{
    return refuse(option, path, g_strerror(error));
}

/* As libpq takes keys: of this user 0600, of root 0640, so that root can let a group of its choice read it. */
static int check_owner(const char *option, const char *path, const struct stat *st, bool secret)
{
    mode_t refused = !secret ? 022 : st->st_uid == 0 ? 037 : 077;
    g_autofree char *why = NULL;
    if (!S_ISREG(st->st_mode))
        return refuse(option, path, "that is no regular file");
    if (st->st_uid != 0 && st->st_uid != geteuid())
        why = g_strdup_printf("it belongs to the user %u, who could change it: chown it to %s", (unsigned)st->st_uid,
                              geteuid() == 0 ? "root" : "root or to who mounts");
    else if (st->st_mode & refused)
        why = g_strdup_printf("its mode is %04o, so that others can %s: chmod %s %s", (unsigned)st->st_mode & 07777,
                              secret && st->st_mode & 044 & refused ? "read it" : "change it", secret ? "600" : "go-w",
                              path);
    return why ? refuse(option, path, why) : 0;
}

static int read_text(int fd, const char *option, const char *path, char **ret_text)
{
    g_autofree char *text = g_malloc(MAX_BYTES + 1);
    size_t size = 0;
    ssize_t n = 1;
    while (n > 0 && size <= MAX_BYTES) {
        n = read(fd, text + size, MAX_BYTES + 1 - size);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n < 0)
            return refuse_error(option, path, errno);
        else
            size += (size_t)n;
    }
    if (size > MAX_BYTES)
        return refuse(option, path, "it has more than 64 KiB");
    text[size] = '\0';
    if (strlen(text) != size)
        return refuse(option, path, "it has a NUL, and is no text");
    *ret_text = g_steal_pointer(&text);
    return 0;
}

static int check_file(const char *option, const char *path, bool secret, char **ret_path, char **ret_text)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return refuse_error(option, path, errno);
    int rc = fstat(fd, &st) < 0 ? refuse_error(option, path, errno) : check_owner(option, path, &st, secret);
    if (rc == 0 && ret_text)
        rc = read_text(fd, option, path, ret_text);
    close(fd);
    if (rc == 0 && ret_path)
        *ret_path = g_canonicalize_filename(path, NULL);
    return rc;
}

int nrd_secrets_read(const char *option, const char *path, char **ret_path, char **ret_text)
{
    return check_file(option, path, true, ret_path, ret_text);
}

int nrd_secrets_check_public(const char *option, const char *path, char **ret_path)
{
    return check_file(option, path, false, ret_path, NULL);
}
