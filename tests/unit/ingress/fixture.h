/* What the ingress tests share: a data folder with ingress/ in it, and a table of file system calls that fail on demand
 * and keep count. */
#ifndef NRD_TESTS_INGRESS_FIXTURE_H
#define NRD_TESTS_INGRESS_FIXTURE_H

#include "engine/ingress/wal.h"

#include <glib.h>
#include <stdatomic.h>

typedef struct Fixture {
    char *path;
    int root_fd;
    unsigned n_descriptors; /* open after the set-up: none more at the tear-down */
} Fixture;

void fixture_set_up(Fixture *f);
void fixture_tear_down(Fixture *f);

/* The same, for g_test_add. */
void fixture_before(Fixture *f, gconstpointer data);
void fixture_after(Fixture *f, gconstpointer data);

/* Only the folder, beside a fixture that is in use. */
void fixture_make(Fixture *f); /* removed before the other is torn down */
void fixture_remove(Fixture *f);

typedef enum FaultCall {
    FAULT_NONE,
    FAULT_OPEN,
    FAULT_PREAD,
    FAULT_PWRITEV,
    FAULT_FDATASYNC,
    FAULT_FSYNC,
    FAULT_FTRUNCATE,
    FAULT_UNLINK,
    FAULT_RENAME,
    FAULT_PUNCH,
    FAULT_LIE, /* an fdatasync that returns success and throws away what it should have written */
    FAULT_N
} FaultCall;

/* The nth call from now on (1: the first) fails with error, and with `stays` all later ones; pwritev writes a half
 * before it fails. fault_fired counts. With fault_also calls of that kind fail too. */
extern atomic_int fault_fired, fault_calls[FAULT_N], fault_also;
void fault_set(FaultCall call, int nth, int error, bool stays);
void fault_clear(void);

/* What fstatvfs says is free, in bytes; -1: what it is. */
extern atomic_llong fault_free_bytes;

/* The files of ingress/, sorted. */
GPtrArray *fixture_names(Fixture *f);
char *fixture_file(Fixture *f, const char *name);
unsigned fixture_count(Fixture *f, const char *suffix);

/* Copies of ingress/ what a power cut would leave: files whose name was synced, as long as they were at their last sync. */
void fixture_copy(Fixture *from, Fixture *to);

/* Appends and waits. */
int append_now(NrdWal *wal, const char *topic, const char *id, uint32_t partition, const char *payload,
               uint64_t *ret_sequence);

#define ID_A "00112233445566aa"
#define ID_B "00112233445566bb"

#endif
