/* What a daemon that root has started gives up. */
#ifndef NRD_MOUNT_PRIVILEGES_H
#define NRD_MOUNT_PRIVILEGES_H

#include "engine/base/macros.h"

/* Leaves of root's capabilities CAP_SYS_ADMIN, to mount and at the end to unmount, CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH,
 * for folders that belong to somebody else, and CAP_FOWNER, for the time of a lock file that does (data_dir.h: retention
 * decides by it at the next start); nothing that is run from now on gets more (the bounding set, no_new_privs). Does nothing
 * for other users, who have none to give up and who need fusermount3, a set-user-ID program, at the end. On the main thread,
 * before any other: what a thread may do is its own and inherited. A negative errno: a part may be given up. */
int nrd_privileges_drop(void) NRD_MUST_CHECK;

#endif
