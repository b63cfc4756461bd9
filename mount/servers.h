/* What the command line says of the servers of engine=jetstream: their addresses, and the files with what they want to be
 * shown. */
#ifndef NRD_MOUNT_SERVERS_H
#define NRD_MOUNT_SERVERS_H

#include "mount/options.h"

/* More of `url=`. */
void nrd_mount_servers_add(NrdMountOptions *options, const char *servers);

/* Whether a part between commas behind `url=` belongs to it: `host:port` or `scheme://...`, which no option of libfuse is; or with
 * an @, which may be a piece of a secret: it goes nowhere else, where it could be shown. */
bool nrd_mount_servers_include(const char *text);

/* Reads and checks them, the files included. -EINVAL, with a sentence on standard error that has no secret. */
int nrd_mount_servers_check(NrdMountOptions *options) NRD_MUST_CHECK;

/* Whether there is any option that only these servers have. */
bool nrd_mount_servers_given(const NrdMountOptions *options);

void nrd_mount_servers_clear(NrdMountOptions *options);

#endif
