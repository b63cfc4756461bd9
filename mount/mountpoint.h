/* What is on the host around the mount: the paths given, the mount point, /dev/fuse. The only file of mount/ with file
 * system calls; none of them touches what is inside the data directory. */
#ifndef NRD_MOUNT_MOUNTPOINT_H
#define NRD_MOUNT_MOUNTPOINT_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

/* Makes both paths absolute and free of links (g_free), and checks them: the mount point is an empty folder (unless
 * nonempty) that is not mounted by naradfs already; neither lies in the other. A mount that a crashed daemon left behind
 * is taken away first. data may be NULL: there is none, and *ret_data is left alone. On failure a sentence for a person is in
 * *ret_why (g_free). Blocks. */
int nrd_mountpoint_check(const char *data, const char *mountpoint, bool nonempty, char **ret_data,
                         char **ret_mountpoint, char **ret_why) NRD_MUST_CHECK;

/* Whether this process can mount at all: /dev/fuse, fusermount3. */
int nrd_mountpoint_check_fuse(char **ret_why) NRD_MUST_CHECK;

/* The shortest time, in milliseconds, after which this kernel aborts a mount whose requests take long; 0: never. */
int64_t nrd_kernel_request_timeout_ms(void);

#endif
