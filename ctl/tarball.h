/* Tar archives, by libarchive. Writing: entries with their size first, then their bytes. Reading: entry by entry.
 * An
 * interruption (cli.h) ends both with -EINTR. Sentences in *ret_why are the caller's (g_free). One thread; blocks. */
#ifndef NRD_CTL_TARBALL_H
#define NRD_CTL_TARBALL_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NrdTarball NrdTarball;

/* fd is borrowed. */
int nrd_tarball_write_open(int fd, NrdTarball **ret_tar, char **ret_why) NRD_MUST_CHECK;
int nrd_tarball_write_entry(NrdTarball *tar, const char *name, uint64_t size_bytes, int64_t mtime_ms,
                            char **ret_why) NRD_MUST_CHECK;
int nrd_tarball_write_bytes(NrdTarball *tar, const void *bytes, size_t size, char **ret_why) NRD_MUST_CHECK;
/* Writes the end of the archive; the tar is to be freed all the same. */
int nrd_tarball_write_end(NrdTarball *tar, char **ret_why) NRD_MUST_CHECK;

int nrd_tarball_read_open(int fd, NrdTarball **ret_tar, char **ret_why) NRD_MUST_CHECK;

/* The next entry, which has to be a regular file; its name is valid until the next call. *ret_found is false at the end
 * of the archive. */
int nrd_tarball_read_entry(NrdTarball *tar, const char **ret_name, uint64_t *ret_size, bool *ret_found,
                           char **ret_why) NRD_MUST_CHECK;

/* The next bytes of the entry; *ret_n is 0 at its end. */
int nrd_tarball_read_bytes(NrdTarball *tar, void *buf, size_t size, size_t *ret_n, char **ret_why) NRD_MUST_CHECK;

void nrd_tarball_free(NrdTarball *tar); /* takes NULL */

#endif
