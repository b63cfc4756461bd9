/* Calls below the engine that fail: on files of one folder, one kind of call, from some moment on. */
#ifndef NRD_TESTS_MODEL_DISK_H
#define NRD_TESTS_MODEL_DISK_H

#include "engine/io/io.h"

typedef enum Call {
    CALL_PWRITEV,
    CALL_FDATASYNC,
    CALL_FTRUNCATE,
    CALL_PREAD,
    CALL_OPEN,
    CALL_FSYNC,
    CALL_RENAME,
    N_CALLS
} Call;

void disk_start(NrdIo *table); /* adds its own to a table */

/* From now on n_pass calls of that kind on files in folder ("topics/t/", below the data directory) pass, then one, or with
 * `stays` all, fail with error (positive). No such call may be under way. */
void disk_fail(const char *folder, Call call, int error, unsigned n_pass, bool stays);
void disk_heal(void);
unsigned disk_n_failed(void); /* since disk_fail */

#endif
