/* What the log's tests share: a folder of their own, batches, and a table of file system calls that can be told to
 * fail. One log at a time; single-threaded but for what a test starts itself. */
#ifndef NRD_TESTS_LOG_FIXTURE_H
#define NRD_TESTS_LOG_FIXTURE_H

#include "engine/log/log.h"

#include <glib.h>

typedef struct Fixture {
    char *path; /* temporary folder on the host */
    int root_fd;
    NrdLogOptions options; /* dir is "p" beneath path */
    NrdLog *log;
} Fixture;

void fixture_set_up(Fixture *f);
void fixture_tear_down(Fixture *f); /* closes what is open, removes the folder */

void fixture_open(Fixture *f);
void fixture_close(Fixture *f);

/* As if the process died: the log is forgotten, and the hwm file is what it was. */
void fixture_crash(Fixture *f);

/* One batch of one record; the key may be NULL. */
NrdRecordBatch *fixture_batch(const char *key, const void *payload, size_t size);

/* Commits one record and checks that it succeeds; returns its offset. */
uint64_t fixture_commit(Fixture *f, const char *payload);
/* Commits n records "<first>".. as one batch. */
uint64_t fixture_commit_numbers(Fixture *f, unsigned first, unsigned n);
/* Tries to commit one record; returns the error. */
int fixture_try_commit(Fixture *f, const char *payload, uint64_t *ret_offset);

/* Checks that the record at offset has this payload. */
void fixture_expect(Fixture *f, uint64_t offset, const char *payload);
/* Reads the record at offset through a new cursor; returns the error. */
int fixture_read(Fixture *f, uint64_t offset, char **ret_payload, uint64_t *ret_next);

/* All of the text, in reads of `chunk` bytes (0: random sizes). */
GString *fixture_text(NrdText *text, size_t chunk);

NrdLogStats fixture_stats(Fixture *f);

/* Files of the log's folder. With NRD_TEST_ZEROS=n in the environment a segment that is put has n zeros behind it; with
 * NRD_TEST_PREALLOC=n logs write zeros ahead in chunks of n. */
char *fixture_file(Fixture *f, const char *name);
GByteArray *fixture_get(Fixture *f, const char *name);
void fixture_put(Fixture *f, const char *name, const void *bytes, size_t size);
bool fixture_exists(Fixture *f, const char *name);
void fixture_remove(Fixture *f, const char *name);
void fixture_flip(Fixture *f, const char *name, size_t pos);
#define SEGMENT_0 "00000000000000000000.log"

/* Appends a frame of the given records (NULL-terminated) made by hand to bytes. */
void fixture_append_frame(GByteArray *bytes, uint64_t offset, const char *const *payloads);

/* Faults: the n-th call (from now, 1 the first) of a kind fails with error, and every later one too when it stays. */
typedef enum FaultCall {
    FAULT_NONE,
    FAULT_OPEN,
    FAULT_PREAD,
    FAULT_PWRITEV,
    FAULT_FDATASYNC,
    FAULT_FSYNC,
    FAULT_FTRUNCATE,
    FAULT_UNLINK,
    FAULT_LIST,
    FAULT_N
} FaultCall;

typedef struct Fault {
    FaultCall call;
    unsigned nth;
    int error; /* negative; 0 for pwritev: a short write of half, then go on; 0 for pread: flip a bit */
    bool stays;
    FaultCall also;     /* every call of this kind fails too, with -EIO */
    const char *suffix; /* only calls on paths that end so (open, unlink) */
    /* results */
    unsigned n_calls;
    unsigned n_fired;
    unsigned counts[FAULT_N]; /* calls by kind since the set */
} Fault;

extern Fault fault;

/* Syncs are counted and fail on demand, but are not done, nor is the cache dropped: no test cuts the power. The commit tests
 * set it. */
extern bool fixture_really_sync;
void fault_set(FaultCall call, unsigned nth, int error, bool stays);
void fault_clear(void);

#endif
