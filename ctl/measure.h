/* Reads a partition that nobody serves, all of it, and says what an export of it consists of. Changes nothing; blocks. */
#ifndef NRD_CTL_MEASURE_H
#define NRD_CTL_MEASURE_H

#include "ctl/manifest.h"

/* The partition's files that are made, not copied. */
typedef struct NrdMadeFile {
    const char *name;
    GBytes *bytes;
} NrdMadeFile;

/* Fills oldest, hwm, records, frontier, ahead and files of the manifest (new, but for topic and partition, which are for
 * messages), and *made with what hwm, consumer.offset and consumer.ahead of a copy hold (NrdMadeFile; the caller unrefs
 * the bytes). Segments count up to the committed end. Every frame is checked: -EBADMSG with a sentence (g_free) when one
 * is damaged or records are lost; other errors with a sentence too. */
int nrd_measure(int root_fd, const char *dir, NrdManifest *manifest, GArray *made, char **ret_why) NRD_MUST_CHECK;

void nrd_made_files_free(GArray *made); /* and its bytes */

#endif
