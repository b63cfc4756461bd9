/* Whether an append may begin: enough memory, WAL and disk for it and for all that is not dispatched yet.
 *
 * What is let in was promised room: it is written to the WAL, and later once more to its partition. So it counts from
 * nrd_admission_enter to nrd_admission_leave as being on its way; the dispatcher counts it from then on.
 *
 * A refusal is told in the log once for each topic, when it begins or its reason changes, and once when an append of the
 * topic is let in again. Threads: everything from any. */
#ifndef NRD_INGRESS_ADMISSION_H
#define NRD_INGRESS_ADMISSION_H

#include "engine/base/macros.h"
#include "engine/ingress/dispatcher.h"
#include "engine/ingress/wal.h"

typedef struct NrdAdmission NrdAdmission;

typedef struct NrdAdmissionOptions {
    int root_fd;               /* of the data directory, on the disk whose room counts; borrowed */
    NrdDispatcher *dispatcher; /* borrowed */
    NrdDispatcherLoad max;     /* undispatched, of all topics; one topic gets a quarter */
} NrdAdmissionOptions;

NrdAdmission *nrd_admission_new(const NrdAdmissionOptions *options);
void nrd_admission_free(NrdAdmission *admission); /* takes NULL */

/* Before the first enter; borrowed. */
void nrd_admission_set_wal(NrdAdmission *admission, NrdWal *wal);

/* An append of n_bytes of the topic with this incarnation id. 0: it is on its way, and nrd_admission_leave is to follow.
 * Else nothing was changed: -EAGAIN when too much is undispatched, of the topic or of all; -ENOSPC when the disk has no
 * room. May block on the disk, to free what is done. */
int nrd_admission_enter(NrdAdmission *admission, const char *topic, const char *id, uint64_t n_bytes) NRD_MUST_CHECK;
void nrd_admission_leave(NrdAdmission *admission, uint64_t n_bytes);

/* The incarnation is gone. Memory only. */
void nrd_admission_forget(NrdAdmission *admission, const char *id);

/* Why the topic's last append was refused, and the next one would be: -ENOSPC, -EAGAIN; 0: it was not, or there is room
 * now. Asks the file system how much is free. */
int nrd_admission_refusal(NrdAdmission *admission, const char *id);

#endif
