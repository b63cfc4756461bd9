/* naradfs DATA MNT: the daemon. Order of life: options, checks, (fork), engine, mount, loop; then parked readers are
 * answered, handles finished, unmount, engine closed. Exit status 0: all was closed cleanly; 1: a refusal or a failure,
 * with a sentence. */
#define FUSE_USE_VERSION 312
#include "engine/base/diag.h"
#include "engine/base/memory.h"
#include "engine/base/pool.h"
#include "engine/base/url.h"
#include "engine/base/version.h"
#include "engine/engine.h"
#include "fs/fs.h"
#include "mount/background.h"
#include "mount/loop.h"
#include "mount/mountpoint.h"
#include "mount/notify.h"
#include "mount/options.h"
#include "mount/privileges.h"
#include "mount/secrets.h"
#include "mount/signals.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* One megabyte of buffer each; more than the default ten, since commits run on them. */
#define MAX_THREADS 16
/* Who has to wait for servers does so on such a thread, and holds up nobody who asks nothing of them. */
#define MAX_THREADS_OF_SERVERS 128

static const char usage[] =
    "usage: naradfs DATA MNT [-f] [-o OPTIONS]\n"
    "       naradfs MNT -o engine=jetstream,url=nats://HOST:4222[,HOST:4222...] [-f] [-o OPTIONS]\n"
    "Serves the data directory DATA as a file system at MNT: topics, partitions and records are files.\n"
    "\n"
    "  -f                   stay in the foreground, messages to standard error\n"
    "  -d                   the same, and show every request\n"
    "  -s                   one thread for requests\n"
    "  -h, -V               this text; the version\n"
    "  -o OPTION[,OPTION]   allow_other         other users may use the mount\n"
    "                       ro                  read-only\n"
    "                       nonempty            mount over a folder that is not empty\n"
    "                       uid=N,gid=N,umask=M owner and mode of what belongs to no topic: N up to\n"
    "                                           4294967295, M octal up to 777\n"
    "                       codec=none|zstd     defaults of new topics (none)\n"
    "                       retention_ms=N      the same; N from 1000, or 0: no limit (7 days)\n"
    "                       partitions=N        the same; N from 1 to 1024 (1)\n"
    "                       idle_close_ms=N     a partition that nobody uses for so long is closed (30 minutes)\n"
    "                       retention_check_ms=N\n"
    "                                           between looks at what has expired (1 minute)\n"
    "                       cold_retention_walk_ms=N\n"
    "                                           the same for closed partitions (5 minutes); 0: never\n"
    "                       cache_bytes=N       memory for records read lately (64 MiB)\n"
    "                       partial_bytes=N     memory for records that producers have begun and not ended,\n"
    "                                           beyond 64 KiB each; then writes get EAGAIN (256 MiB)\n"
    "                       max_threads=N       threads for requests, made as they are needed, N from 1; more than\n"
    "                                           1024 count as 1024 (16; over servers 128)\n"
    "                       log_level=L         error, warning, notice, info or debug (info)\n"
    "                       and those of libfuse and mount(8)\n"
    "                       engine=jetstream    the records are in NATS JetStream, see docs/scale-out.md; with it:\n"
    "                       url=nats://H:P,...  its servers\n"
    "                       url_file=FILE       the same in a file of mode 0600, for a user and a password:\n"
    "                                           nats://USER:PASSWORD@H:P\n"
    "                       tls_ca=FILE         who vouches for the servers' certificates; TLS or nothing\n"
    "                                           then, as with tls://H:P\n"
    "                       tls_host=NAME       the name in the servers' certificates, if it is not H\n"
    "                       tls_cert=FILE,tls_key=FILE\n"
    "                                           the certificate that is shown to the servers, and its key\n"
    "                       creds=FILE          a user's credentials, of nsc\n"
    "                       nkey=U...,nkey_seed=FILE\n"
    "                                           a user's public key, and its seed\n"
    "                       replicas=N          copies of each record, N from 1 to 5 (as many as servers, up to 3)\n"
    "                       fsync=asserted      every server syncs before it acknowledges; durability then says so\n"
    "                       require_fsync       refuse to start when what is acknowledged may not be synced\n"
    "\n"
    "Milliseconds go from 1 to 31622400000, 366 days; bytes from 1 to 17592186044416, 16 TiB; in plain digits.\n"
    "\n"
    "Unmount with: umount MNT (root) or fusermount3 -u MNT. Read MNT/HELP first.\n";

typedef struct Daemon {
    NrdMountOptions options;
    char *data;
    char *mountpoint;
    NrdEngine *engine;
    NrdFs *fs;
    struct fuse_session *session;
    bool told_secrets; /* on its command line */
} Daemon;

static int fail(char *why)
{
    nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "%s", why);
    g_free(why);
    return EXIT_FAILURE;
}

static void on_ready(void *user_data)
{
    nrd_background_ready();
}

/* A partition has a file of its own open. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)!setrlimit(RLIMIT_NOFILE, &limit); /* it stays as it was then */
    }
}

static void ignore_signal(int number)
{
    struct sigaction action = { .sa_handler = SIG_IGN };
    sigaction(number, &action, NULL);
}

/* ---- the mount ---- */

static int add_option(struct fuse_args *args, const char *name, const char *value)
{
    char *list = NULL;
    g_autofree char *option = value ? g_strconcat(name, "=", value, NULL) : g_strdup(name);
    if (fuse_opt_add_opt_escaped(&list, option) < 0)
        return -ENOMEM;
    int rc = fuse_opt_add_arg(args, "-o") < 0 || fuse_opt_add_arg(args, list) < 0 ? -ENOMEM : 0;
    free(list);
    return rc;
}

/* nosuid and nodev last: mount(8) run by root adds dev and suid. */
static int add_fixed_options(struct fuse_args *args, const Daemon *daemon)
{
    int rc = add_option(args, "fsname", daemon->data);
    if (rc == 0)
        rc = add_option(args, "subtype", "naradfs");
    if (rc == 0)
        rc = add_option(args, "default_permissions", NULL);
    if (rc == 0)
        rc = add_option(args, "nosuid", NULL);
    if (rc == 0)
        rc = add_option(args, "nodev", NULL);
    if (rc == 0 && daemon->options.debug)
        rc = add_option(args, "debug", NULL);
    return rc;
}

/* Whether libfuse takes what is left of the command line. Asked before anything is made or taken away: the session itself
 * comes after the engine, which makes DATA. */
static int check_libfuse_options(const struct fuse_args *args)
{
    const struct fuse_lowlevel_ops *ops = nrd_fs_ops();
    struct fuse_args copy = FUSE_ARGS_INIT(0, NULL);
    struct fuse_session *session = NULL;
    int rc = 0;
    for (int i = 0; rc == 0 && i < args->argc; i++)
        rc = fuse_opt_add_arg(&copy, args->argv[i]);
    if (rc == 0)
        session = fuse_session_new(&copy, ops, sizeof *ops, NULL);
    fuse_opt_free_args(&copy);
    if (!session)
        return fail(g_strdup("the mount options were not understood; naradfs -h lists them"));
    fuse_session_destroy(session);
    return EXIT_SUCCESS;
}

static int start_session(Daemon *daemon, struct fuse_args *args)
{
    NrdFsOptions fs_options = {
        .engine = daemon->engine,
        .data_path = daemon->data,
        .uid = daemon->options.owner_uid,
        .gid = daemon->options.owner_gid,
        .umask = daemon->options.owner_umask,
        .partial_bytes = daemon->options.partial_bytes,
        .request_timeout_ms = nrd_kernel_request_timeout_ms(),
        .ready = on_ready,
    };
    daemon->fs = nrd_fs_new(&fs_options);
    if (!daemon->fs)
        return fail(nrd_pool_why_none("requests that wait for the disk", NRD_START_THREADS));
    const struct fuse_lowlevel_ops *ops = nrd_fs_ops();
    daemon->session = fuse_session_new(args, ops, sizeof *ops, daemon->fs);
    if (!daemon->session)
        return fail(g_strdup("the session with the kernel could not be set up; the line above says why"));
    nrd_fs_set_session(daemon->fs, daemon->session);
    if (!nrd_loop_can_begin())
        return fail(nrd_pool_why_none("requests", NRD_START_THREADS));
    if (fuse_session_mount(daemon->session, daemon->mountpoint) != 0)
        return fail(g_strdup_printf("mounting at %s failed; the line above says why", daemon->mountpoint));
    return EXIT_SUCCESS;
}

static void tell_alive(void)
{
    nrd_notify("WATCHDOG=1");
}

/* The last thread that a start takes is there. */
static void on_begun(void *user_data)
{
    Daemon *daemon = user_data;
    nrd_engine_start(daemon->engine);
}

/* Who waits in the engine is told now: a request of his is waited for by the loop. */
static void on_ending(void *user_data)
{
    Daemon *daemon = user_data;
    nrd_engine_stop(daemon->engine);
}

static unsigned max_threads(const NrdMountOptions *options)
{
    return options->max_threads > 0 ? options->max_threads : options->data ? MAX_THREADS : MAX_THREADS_OF_SERVERS;
}

static int run_loop(Daemon *daemon)
{
    NrdLoopOptions options = {
        .session = daemon->session,
        .max_threads = max_threads(&daemon->options),
        .alive_ms = nrd_notify_watchdog_ms(),
        .alive = tell_alive,
        .begun = on_begun,
        .ending = on_ending,
        .user_data = daemon,
    };
    int rc = nrd_loop_run(&options);
    nrd_notify("STOPPING=1");
    if (rc == -EAGAIN)
        return fail(nrd_pool_why_none("requests", NRD_START_THREADS));
    if (rc < 0)
        return fail(g_strdup_printf("the connection to the kernel failed: %s", g_strerror(-rc)));
    return EXIT_SUCCESS;
}

/* Everything is closed, whatever fails on the way. */
static int stop(Daemon *daemon, int status)
{
    if (daemon->engine)
        nrd_engine_stop(daemon->engine); /* parked readers are answered while the connection is there */
    if (daemon->fs)
        nrd_fs_shutdown(daemon->fs);
    if (daemon->session)
        fuse_session_unmount(daemon->session);
    int rc = daemon->engine ? nrd_engine_close(daemon->engine) : 0;
    if (rc < 0)
        status = fail(g_strdup_printf("the data directory could not be closed cleanly: %s; the next start recovers it",
                                      g_strerror(-rc)));
    if (daemon->session)
        fuse_session_destroy(daemon->session);
    nrd_fs_free(daemon->fs);
    return status;
}

static int serve(Daemon *daemon, struct fuse_args *args)
{
    char *why = NULL;
    NrdEngineOptions options = {
        .data_path = daemon->data,
        .read_only = daemon->options.read_only,
        .held = true,
        .topic_defaults = daemon->options.topic_defaults,
        .idle_close_ms = daemon->options.idle_close_ms,
        .retention_check_ms = daemon->options.retention_check_ms,
        .cold_retention_ms = daemon->options.cold_retention_ms,
        .cache_bytes = daemon->options.cache_bytes,
        .engine = daemon->options.engine,
        .url = daemon->options.servers ? daemon->options.servers->str : NULL,
        .tls_ca = daemon->options.tls_ca_path,
        .tls_cert = daemon->options.tls_cert_path,
        .tls_key = daemon->options.tls_key_path,
        .tls_host = daemon->options.tls_host,
        .creds = daemon->options.creds_path,
        .nkey = daemon->options.nkey,
        .nkey_seed = daemon->options.nkey_seed_path,
        .replicas = (int)daemon->options.n_replicas,
        .fsync_asserted = daemon->options.fsync_asserted,
        .require_fsync = daemon->options.require_fsync,
        .is_told_to_end = nrd_signals_have_come,
    };
    nrd_signals_block();
    if (nrd_engine_open(&options, &daemon->engine, &why) < 0)
        return fail(why);
    int status = add_fixed_options(args, daemon) < 0 ? fail(g_strdup("out of memory")) : start_session(daemon, args);
    if (status == EXIT_SUCCESS && nrd_signals_watch(daemon->session) < 0)
        status = fail(g_strdup("signal handlers could not be set"));
    if (status == EXIT_SUCCESS)
        status = run_loop(daemon);
    nrd_signals_unwatch();
    return stop(daemon, status);
}

static int run(Daemon *daemon, struct fuse_args *args)
{
    char *why = NULL;
    const NrdMountOptions *options = &daemon->options;
    if (check_libfuse_options(args) != EXIT_SUCCESS)
        return EXIT_FAILURE;
    int rc = nrd_privileges_drop();
    if (rc < 0)
        return fail(g_strdup_printf("capabilities that are not needed could not be given up: %s", g_strerror(-rc)));
    if (nrd_mountpoint_check_fuse(&why) < 0 ||
        nrd_mountpoint_check(options->data, options->mountpoint, options->nonempty, &daemon->data, &daemon->mountpoint,
                             &why) < 0)
        return fail(why);
    if (!daemon->data)
        daemon->data = nrd_url_without_secrets(options->servers->str); /* what is mounted, for mount(8) and `status` */
    if (daemon->told_secrets)
        nrd_diag(
            NRD_LEVEL_WARNING, NRD_NOWHERE,
            "a user or password of the servers stood on the command line, where everybody on this machine could see "
            "it until now: put the addresses into a file of mode 0600, and name that by url_file=FILE in the place of "
            "url=");
    raise_file_limit();
    ignore_signal(SIGHUP);
    ignore_signal(SIGPIPE);
    ignore_signal(SIGXFSZ); /* a file size limit is an error of the write (EFBIG), not the end */
    if (!options->foreground && !options->debug) {
        rc = nrd_background_fork();
        if (rc < 0)
            return fail(g_strdup_printf("going into the background failed: %s", g_strerror(-rc)));
    }
    return serve(daemon, args);
}

/* What everybody could see until now is in the copy only. */
static char **hide_secrets(char **argv, bool *ret_found)
{
    char **copy = g_strdupv(argv);
    for (char **argument = argv; *argument; argument++)
        *ret_found |= nrd_secrets_scrub(*argument);
    return copy;
}

int main(int argc, char **argv)
{
    Daemon daemon = { 0 };
    g_auto(GStrv) arguments = hide_secrets(argv, &daemon.told_secrets);
    struct fuse_args args = FUSE_ARGS_INIT(argc, arguments);
    int status = EXIT_FAILURE;
    nrd_memory_limit_arenas();
    if (nrd_mount_options_parse(&args, &daemon.options) == 0) {
        if (daemon.options.help)
            status = fputs(usage, stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        else if (daemon.options.version)
            status = printf("naradfs %s\n", nrd_version) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        else
            status = run(&daemon, &args);
    }
    fuse_opt_free_args(&args);
    nrd_mount_options_clear(&daemon.options);
    g_free(daemon.data);
    g_free(daemon.mountpoint);
    return status;
}
