/* A fresh data directory for each test, and the io table as a mutable copy. */
#ifndef NRD_TESTS_UNIT_META_FIXTURE_H
#define NRD_TESTS_UNIT_META_FIXTURE_H

#include "engine/io/io.h"

extern char *fix_path; /* host path of the root */
extern int fix_fd;     /* the root */
extern NrdIo fix_io;   /* in force; change its entries to inject faults */

/* with_folders: meta/ and topics/ are there. */
void fix_set_up(bool with_folders);
void fix_tear_down(void);

void fix_put(const char *path, const void *bytes, size_t size);
void fix_put_text(const char *path, const char *text);
void fix_make_dir(const char *path);
void fix_link(const char *path, const char *target);
void fix_fifo(const char *path);
void fix_remove(const char *path); /* file or tree */
bool fix_exists(const char *path);
char *fix_text(const char *path); /* the file's content; g_free */
void fix_assert_text(const char *path, const char *expected);

/* Faults: every call of the kind fails with -EIO from the n-th on (1: the first), counted from this call. */
typedef enum FixCall { FIX_FSYNC, FIX_RENAME, FIX_UNLINK, FIX_MKDIR, FIX_WRITE, FIX_LIST, FIX_OPEN, FIX_READ } FixCall;
void fix_fail(FixCall call, int from, int until, int error);
void fix_heal(void);
int fix_n_failed(void); /* faults that fired since fix_fail */

#endif
