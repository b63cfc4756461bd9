/* Going into the background: the command returns when the mount answers, with 0, or with what went wrong. */
#ifndef NRD_MOUNT_BACKGROUND_H
#define NRD_MOUNT_BACKGROUND_H

#include "engine/base/macros.h"

/* Forks, before any thread is started. Returns only in the daemon; the command itself waits for nrd_background_ready (it
 * exits 0) or for the daemon's end (it exits 1; the daemon has said why on standard error). */
int nrd_background_fork(void) NRD_MUST_CHECK;

/* The mount answers: lets the command return, lets go of the terminal, and sends diagnostics to syslog. Without
 * nrd_background_fork: only tells the service manager. Called once. */
void nrd_background_ready(void);

#endif
