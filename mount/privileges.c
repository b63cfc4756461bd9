/* See privileges.h. By capset(2) itself: a library for one call is one more to trust. */
#include "mount/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BIT(capability) (UINT64_C(1) << (capability))
#define NEEDED (BIT(CAP_SYS_ADMIN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_FOWNER))

/* CAP_SETPCAP is still there. Capabilities that this kernel knows and this header does not are among them. */
static int narrow_bounding_set(void)
{
    for (unsigned long i = 0; i < 64 && prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++) {
        if (!(NEEDED & BIT(i)) && prctl(PR_CAPBSET_READ, i, 0, 0, 0) > 0 && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) < 0)
            return -errno;
    }
    return 0;
}

static int narrow_own_sets(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        data[i].permitted &= (uint32_t)(NEEDED >> (32 * i));
        data[i].effective &= data[i].permitted;
        data[i].inheritable = 0; /* and with them what is ambient */
    }
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

int nrd_privileges_drop(void)
{
    if (geteuid() != 0)
        return 0;
    int rc = narrow_bounding_set();
    if (rc == -EPERM) /* a root without CAP_SETPCAP: whoever took it has decided about the rest */
        rc = 0;
    if (rc == 0)
        rc = narrow_own_sets();
    if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        rc = -errno;
    return rc;
}
