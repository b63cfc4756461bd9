/* What whoever takes segments out of a log tells its open texts. */
#ifndef NRD_LOG_TEXTS_H
#define NRD_LOG_TEXTS_H

#include "engine/log/state/state.h"

/* Before segments leave the list: lets every open text take over the list as it is, so that it knows which
 * ones left. log->lock is held. */
void nrd_text_extend_all_locked(NrdLog *log);

/* The list was replaced, and segments in it by others that begin where they did or in between: every open text takes that
 * over, and looks its place up again. log->lock is held. */
void nrd_text_relist_all_locked(NrdLog *log);

/* Lets texts that nobody reads any more (an idle tail) give up the detached segments behind their place,
 * which they would otherwise keep for ever. Takes log->lock. */
void nrd_text_drop_idle(NrdLog *log);

#endif
