/* How signals end the daemon: SIGTERM and SIGINT ask the session to end; SIGHUP, SIGPIPE and SIGXFSZ are ignored. */
#ifndef NRD_MOUNT_SIGNALS_H
#define NRD_MOUNT_SIGNALS_H

#include "engine/base/macros.h"

struct fuse_session;

/* Before any thread is started: threads inherit a mask with every signal blocked. A thread that took a SIGTERM would run
 * its handler and leave the main thread asleep in the session's loop. */
void nrd_signals_block(void);

/* On the main thread, before the session's loop: SIGTERM and SIGINT end it from now on, also those that came before. */
int nrd_signals_watch(struct fuse_session *session) NRD_MUST_CHECK;

/* After the loop: they do nothing any more. */
void nrd_signals_unwatch(void);

#endif
