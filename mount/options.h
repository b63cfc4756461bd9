/* The command line of naradfs. */
#ifndef NRD_MOUNT_OPTIONS_H
#define NRD_MOUNT_OPTIONS_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

struct fuse_args;

typedef struct NrdMountOptions {
    char *data; /* as given; NULL with an engine that has none */
    char *mountpoint;
    /* flags are int: libfuse's option parser writes them */
    int help;
    int version;
    int foreground;
    int debug; /* libfuse's own, on standard error */
    bool read_only;
    int nonempty;
    unsigned max_threads; /* of the loop; 0: as it thinks best */
    char *threads;        /* texts until nrd_mount_options_check */
    char *uid;
    char *gid;
    char *umask;
    char *codec;
    char *retention_ms;
    char *partitions;
    char *idle_close;
    char *retention_check;
    char *cold_walk;
    char *cache;
    char *partial;
    char *log_level;
    char *engine;
    GString *servers; /* `url=` and what followed it, or what `url_file=` has: servers, with commas; NULL: not given */
    char *url_file;   /* this and the next as given; what may be shown by nobody is in the files */
    char *tls_ca;
    char *tls_cert;
    char *tls_key;
    char *tls_host;
    char *creds;
    char *nkey; /* public */
    char *nkey_seed;
    char *replicas;
    char *fsync;
    int require_fsync;
    /* what they say; 0 or NULL: not given */
    char *tls_ca_path; /* absolute: the daemon changes its folder */
    char *tls_cert_path;
    char *tls_key_path;
    char *creds_path;
    char *nkey_seed_path;
    int64_t idle_close_ms;
    int64_t retention_check_ms;
    int64_t cold_retention_ms; /* -1: no walks */
    uint64_t cache_bytes;
    uint64_t partial_bytes;
    uint32_t n_replicas;
    bool fsync_asserted;
    uint32_t owner_uid;
    uint32_t owner_gid;
    uint32_t owner_umask;
    char *topic_defaults; /* `key=value` lines, or NULL */
} NrdMountOptions;

/* Takes what is ours out of args; what stays is libfuse's. -EINVAL, with a sentence on standard error. The caller calls
 * nrd_mount_options_clear in any case. */
int nrd_mount_options_parse(struct fuse_args *args, NrdMountOptions *ret_options) NRD_MUST_CHECK;

void nrd_mount_options_clear(NrdMountOptions *options);

#endif
