/* How signals end the daemon: SIGTERM and SIGINT ask the session to end; SIGHUP, SIGPIPE and SIGXFSZ are ignored. */
#ifndef NRD_MOUNT_SIGNALS_H
#define NRD_MOUNT_SIGNALS_H

#include "engine/base/macros.h"

#include <stdbool.h>

struct fuse_session;

/* Before a thread is started: it inherits a mask that blocks every signal but those that a thread brings upon itself (SIGBUS
 * and the like). A thread that took a SIGTERM would run its handler and leave the main thread asleep in the session's loop,
 * or a system call of the engine would be interrupted. */
void nrd_signals_block(void);

/* From then on, until they are watched: whether a SIGTERM or SIGINT has come. Any thread. */
bool nrd_signals_have_come(void);

/* On the main thread, before the session's loop: SIGTERM and SIGINT end it from now on, also those that came before. */
int nrd_signals_watch(struct fuse_session *session) NRD_MUST_CHECK;

/* After the loop: they do nothing any more. */
void nrd_signals_unwatch(void);

#endif
