/* See options.h. Process identity (for the defaults of uid, gid and umask) is read here, once. */
#include "mount/options.h"

#define FUSE_USE_VERSION 312
#include "engine/base/diag.h"
#include "engine/base/url.h"
#include "mount/servers.h"

#include <errno.h>
#include <fuse_opt.h>
#include <glib.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_INTERVAL_MS (INT64_C(366) * 86400 * 1000) /* a year */
#define MAX_MEMORY_BYTES (UINT64_C(1) << 44)

enum { KEY_IGNORED, KEY_REFUSED, KEY_REMOUNT, KEY_URL };

#define OPT(template, field, value)                                                                                    \
    {                                                                                                                  \
        template, offsetof(NrdMountOptions, field), value                                                              \
    }

static const struct fuse_opt specs[] = {
    OPT("-h", help, 1),
    OPT("--help", help, 1),
    OPT("-V", version, 1),
    OPT("--version", version, 1),
    OPT("-f", foreground, 1),
    OPT("-d", debug, 1),
    OPT("debug", debug, 1),
    OPT("nonempty", nonempty, 1),
    OPT("-s", max_threads, 1),
    OPT("max_threads=%s", threads, 0),
    OPT("uid=%s", uid, 0),
    OPT("gid=%s", gid, 0),
    OPT("umask=%s", umask, 0),
    OPT("codec=%s", codec, 0),
    OPT("retention_ms=%s", retention_ms, 0),
    OPT("partitions=%s", partitions, 0),
    OPT("idle_close_ms=%s", idle_close, 0),
    OPT("retention_check_ms=%s", retention_check, 0),
    OPT("cold_retention_walk_ms=%s", cold_walk, 0),
    OPT("cache_bytes=%s", cache, 0),
    OPT("partial_bytes=%s", partial, 0),
    OPT("log_level=%s", log_level, 0),
    FUSE_OPT_KEY("default_permissions", KEY_IGNORED), /* always on */
    FUSE_OPT_KEY("rw", KEY_IGNORED),
    FUSE_OPT_KEY("defaults", KEY_IGNORED), /* of an fstab line */
    FUSE_OPT_KEY("nofail", KEY_IGNORED),
    FUSE_OPT_KEY("_netdev", KEY_IGNORED),
    FUSE_OPT_KEY("relatime", KEY_IGNORED), /* of mount(8): nothing here keeps the time of a read, nor a version */
    FUSE_OPT_KEY("norelatime", KEY_IGNORED),
    FUSE_OPT_KEY("nodiratime", KEY_IGNORED),
    FUSE_OPT_KEY("strictatime", KEY_IGNORED),
    FUSE_OPT_KEY("nostrictatime", KEY_IGNORED),
    FUSE_OPT_KEY("lazytime", KEY_IGNORED),
    FUSE_OPT_KEY("nolazytime", KEY_IGNORED),
    FUSE_OPT_KEY("iversion", KEY_IGNORED),
    FUSE_OPT_KEY("noiversion", KEY_IGNORED),
    FUSE_OPT_KEY("silent", KEY_IGNORED),
    FUSE_OPT_KEY("loud", KEY_IGNORED),
    FUSE_OPT_KEY("max_idle_threads=", KEY_IGNORED), /* threads that are there stay */
    FUSE_OPT_KEY("clone_fd", KEY_IGNORED),          /* one descriptor is as fast: see loop.c */
    FUSE_OPT_KEY("max_read=", KEY_REFUSED),
    FUSE_OPT_KEY("remount", KEY_REMOUNT),
    OPT("engine=%s", engine, 0),
    OPT("replicas=%s", replicas, 0),
    OPT("fsync=%s", fsync, 0),
    OPT("require_fsync", require_fsync, 1),
    OPT("url_file=%s", url_file, 0),
    OPT("tls_ca=%s", tls_ca, 0),
    OPT("tls_cert=%s", tls_cert, 0),
    OPT("tls_key=%s", tls_key, 0),
    OPT("tls_host=%s", tls_host, 0),
    OPT("creds=%s", creds, 0),
    OPT("nkey=%s", nkey, 0),
    OPT("nkey_seed=%s", nkey_seed, 0),
    FUSE_OPT_KEY("url=",
                 KEY_URL), /* has commas, which end an option: what looks like a server behind it belongs to it */
    FUSE_OPT_END,
};

static int on_argument(void *data, const char *arg, int key, struct fuse_args *outargs)
{
    NrdMountOptions *options = data;
    if (key == KEY_IGNORED)
        return 0;
    if (key == KEY_REFUSED) {
        fprintf(stderr, "naradfs: option %s is not supported\n", arg);
        return -1;
    }
    if (key == KEY_REMOUNT) {
        fprintf(stderr, "naradfs: a naradfs that is mounted cannot be remounted, not even read-only: "
                        "umount it, then mount it with the other options (-o ro)\n");
        return -1;
    }
    if (key == KEY_URL) {
        nrd_mount_servers_add(options, arg + strlen("url="));
        return 0;
    }
    if (key == FUSE_OPT_KEY_OPT && options->servers && nrd_mount_servers_include(arg)) {
        nrd_mount_servers_add(options, arg);
        return 0;
    }
    if (key == FUSE_OPT_KEY_OPT) {
        if (g_str_equal(arg, "ro"))
            options->read_only = true; /* and the kernel's too: it stays */
        return 1;
    }
    if (arg[0] == 0) {
        fprintf(stderr, "naradfs: %s is an empty name\n", options->data ? "the mount point" : "the data directory");
        return -1;
    }
    if (!options->data) {
        options->data = g_strdup(arg);
        return 0;
    }
    if (!options->mountpoint) {
        options->mountpoint = g_strdup(arg);
        return 0;
    }
    g_autofree char *shown = nrd_url_without_secrets(arg);
    fprintf(stderr, "naradfs: one data directory and one mount point are expected, not also '%s'\n", shown);
    return -1;
}

static int read_number(const char *name, const char *text, unsigned base, uint32_t max, uint32_t *ret_value)
{
    guint64 value;
    if (!text)
        return 0;
    if (!g_ascii_string_to_unsigned(text, base, 0, max, &value, NULL)) {
        if (base == 8)
            fprintf(stderr, "naradfs: option %s=%s: an octal number (digits 0 to 7) up to %o is expected\n", name, text,
                    (unsigned)max);
        else
            fprintf(stderr, "naradfs: option %s=%s: a decimal number up to %u is expected\n", name, text,
                    (unsigned)max);
        return -EINVAL;
    }
    *ret_value = (uint32_t)value;
    return 0;
}

static int read_amount(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
    guint64 value;
    if (!text)
        return 0;
    if (!g_ascii_string_to_unsigned(text, 10, min, max, &value, NULL)) {
        fprintf(stderr,
                "naradfs: option %s=%s: a decimal number from %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT
                " is expected\n",
                name, text, (guint64)min, (guint64)max);
        return -EINVAL;
    }
    *ret_value = value;
    return 0;
}

static int read_interval(const char *name, const char *text, uint64_t min_ms, int64_t *ret_ms)
{
    uint64_t value = 0;
    int rc = read_amount(name, text, min_ms, MAX_INTERVAL_MS, &value);
    if (rc == 0 && text)
        *ret_ms = (int64_t)value;
    return rc;
}

/* How the engine keeps house. 0 turns the walks off, which is -1 to the engine, where 0 means its default. */
static int interpret_housekeeping(NrdMountOptions *options)
{
    int rc = read_interval("idle_close_ms", options->idle_close, 1, &options->idle_close_ms);
    if (rc == 0)
        rc = read_interval("retention_check_ms", options->retention_check, 1, &options->retention_check_ms);
    if (rc == 0)
        rc = read_interval("cold_retention_walk_ms", options->cold_walk, 0, &options->cold_retention_ms);
    if (rc == 0 && options->cold_walk && options->cold_retention_ms == 0)
        options->cold_retention_ms = -1;
    if (rc == 0)
        rc = read_amount("cache_bytes", options->cache, 1, MAX_MEMORY_BYTES, &options->cache_bytes);
    if (rc == 0)
        rc = read_amount("partial_bytes", options->partial, 1, MAX_MEMORY_BYTES, &options->partial_bytes);
    return rc;
}

static int interpret_threads(NrdMountOptions *options)
{
    uint64_t value = options->max_threads; /* -s */
    int rc = read_amount("max_threads", options->threads, 1, UINT_MAX, &value);
    options->max_threads = (unsigned)value;
    return rc;
}

static void add_default(GString *lines, const char *key, const char *value)
{
    if (value)
        g_string_append_printf(lines, "%s=%s\n", key, value);
}

static int interpret(NrdMountOptions *options)
{
    NrdLevel level = NRD_LEVEL_INFO;
    mode_t mask = umask(077); /* what the daemon makes is private; the caller's mask is for the mounted tree */
    options->owner_uid = geteuid();
    options->owner_gid = getegid();
    options->owner_umask = mask;
    if (options->log_level && nrd_diag_parse_level(options->log_level, &level) < 0) {
        fprintf(stderr, "naradfs: option log_level=%s: error, warning, notice, info or debug is expected\n",
                options->log_level);
        return -EINVAL;
    }
    nrd_diag_set_level(level);
    int rc = read_number("uid", options->uid, 10, UINT32_MAX, &options->owner_uid);
    if (rc == 0)
        rc = read_number("gid", options->gid, 10, UINT32_MAX, &options->owner_gid);
    if (rc == 0)
        rc = read_number("umask", options->umask, 8, 0777, &options->owner_umask);
    if (rc == 0)
        rc = interpret_threads(options);
    if (rc == 0)
        rc = interpret_housekeeping(options);
    GString *lines = g_string_new(NULL);
    add_default(lines, "codec", options->codec);
    add_default(lines, "retention_ms", options->retention_ms);
    add_default(lines, "partitions", options->partitions);
    options->topic_defaults = g_string_free(lines, FALSE);
    return rc;
}

static int refuse(const char *sentence)
{
    fprintf(stderr, "naradfs: %s\n", sentence);
    return -EINVAL;
}

/* Those of the local engine that nothing here goes by. */
static int refuse_meaningless(const NrdMountOptions *options)
{
    const char *const given[][2] = {
        { options->idle_close, "idle_close_ms" },
        { options->retention_check, "retention_check_ms" },
        { options->cold_walk, "cold_retention_walk_ms" },
        { options->cache, "cache_bytes" },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(given); i++) {
        if (!given[i][0])
            continue;
        fprintf(
            stderr,
            "naradfs: option %s means nothing with engine=jetstream, whose servers keep records as they will: leave "
            "it out\n",
            given[i][1]);
        return -EINVAL;
    }
    return 0;
}

/* Records in NATS JetStream need no data directory: what stands for it is the mount point, or, as mount(8) writes it, the
 * servers, or "none". */
static int interpret_jetstream(NrdMountOptions *options)
{
    uint64_t replicas = 0;
    if (options->data && options->mountpoint && strstr(options->data, "://") && !options->servers)
        nrd_mount_servers_add(options, options->data);
    else if (options->data && options->mountpoint && !g_str_equal(options->data, "none"))
        return refuse("engine=jetstream has no data directory: naradfs MNT -o engine=jetstream,url=nats://HOST:4222");
    if (!options->mountpoint)
        options->mountpoint = g_steal_pointer(&options->data);
    g_clear_pointer(&options->data, g_free);
    if (!options->mountpoint)
        return refuse("a mount point is expected: naradfs MNT -o engine=jetstream,url=nats://HOST:4222");
    if (options->fsync && !g_str_equal(options->fsync, "asserted"))
        return refuse(
            "option fsync: only fsync=asserted means something: that every server syncs before it acknowledges");
    options->fsync_asserted = options->fsync != NULL;
    int rc = refuse_meaningless(options);
    if (rc == 0)
        rc = nrd_mount_servers_check(options);
    if (rc == 0)
        rc = read_amount("replicas", options->replicas, 1, 5, &replicas);
    options->n_replicas = (uint32_t)replicas;
    return rc;
}

static int interpret_engine(NrdMountOptions *options)
{
    if (options->engine && g_str_equal(options->engine, "jetstream"))
        return interpret_jetstream(options);
    if (options->engine && !g_str_equal(options->engine, "local")) {
        fprintf(stderr, "naradfs: option engine=%s: local (records in DATA) or jetstream (in NATS) is expected\n",
                options->engine);
        return -EINVAL;
    }
    if (nrd_mount_servers_given(options) || options->replicas || options->fsync)
        return refuse("url=, url_file=, tls_...=, creds=, nkey=, replicas= and fsync= belong to engine=jetstream; the "
                      "records of the local engine are in DATA");
    if (options->data && strstr(options->data, "://"))
        return refuse("the address of a server stands in the place of DATA, which needs the option engine=jetstream");
    if (!options->mountpoint)
        return refuse("a data directory and a mount point are expected: naradfs DATA MNT [-f] [-o OPTIONS]");
    return 0;
}

int nrd_mount_options_parse(struct fuse_args *args, NrdMountOptions *ret_options)
{
    *ret_options = (NrdMountOptions){ 0 };
    if (fuse_opt_parse(args, ret_options, specs, on_argument) < 0)
        return -EINVAL;
    if (ret_options->help || ret_options->version)
        return 0;
    int rc = interpret_engine(ret_options);
    return rc < 0 ? rc : interpret(ret_options);
}

void nrd_mount_options_clear(NrdMountOptions *options)
{
    g_free(options->data);
    g_free(options->mountpoint);
    free(options->threads);
    free(options->uid);
    free(options->gid);
    free(options->umask);
    free(options->codec);
    free(options->retention_ms);
    free(options->partitions);
    free(options->idle_close);
    free(options->retention_check);
    free(options->cold_walk);
    free(options->cache);
    free(options->partial);
    free(options->log_level);
    free(options->engine);
    free(options->replicas);
    free(options->fsync);
    nrd_mount_servers_clear(options);
    g_free(options->topic_defaults);
}
