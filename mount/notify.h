/* What the service manager is told, and what it asks for (sd_notify(3), without its library). Without one there is nothing
 * to tell: all of this does nothing then. */
#ifndef NRD_MOUNT_NOTIFY_H
#define NRD_MOUNT_NOTIFY_H

#include <stdint.h>

/* Sends a state, such as "READY=1", to the socket that $NOTIFY_SOCKET names. Does not wait; a failure is nobody's loss. */
void nrd_notify(const char *state);

/* How often the service manager wants to hear "WATCHDOG=1": a third of the time after which it gives this process
 * up, milliseconds; 0: never. Once, after the fork. */
int64_t nrd_notify_watchdog_ms(void);

#endif
