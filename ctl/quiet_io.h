/* The table of file system calls for verbs that look and never change: whatever would write is refused with -EROFS, reads
 * are told of, and an interruption ends them with -ECANCELED. */
#ifndef NRD_CTL_QUIET_IO_H
#define NRD_CTL_QUIET_IO_H

#include "ctl/progress.h"

/* Puts the table in force for the rest of the process; progress (borrowed) hears of every byte. */
void nrd_quiet_io_install(NrdProgress *progress);

#endif
