/* What an exported partition consists of: the first file of the archive, a text.
 *
 *   naradfs-export 1
 *   topic <name>
 *   partition <number>
 *   incarnation <16 hex digits>        of the topic it came from
 *   oldest <offset>                    base of the first segment
 *   hwm <offset>                       high watermark, exclusive
 *   records <number>
 *   frontier <offset>                  lowest offset that is not settled
 *   ahead <number>                     settled above it
 *   file <name> <size> <crc32c> <time> each file of the archive that follows, in its order: bytes, 8 hex digits over all
 *                                      of them, and Unix milliseconds of its last change
 *   crc32c <8 hex digits>              the last line: over every byte before it
 *
 * Valid when each line stands there once, in that order (`file` as often as needed), the last one matches, and every
 * name is one of <20 digits>.log (ascending, all before the others), hwm, consumer.offset, consumer.ahead. */
#ifndef NRD_CTL_MANIFEST_H
#define NRD_CTL_MANIFEST_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define NRD_MANIFEST_NAME "manifest"
#define NRD_MANIFEST_MAX_BYTES ((size_t)64 * 1024 * 1024)

typedef struct NrdManifestFile {
    char name[32];
    uint64_t size_bytes;
    uint32_t crc;
    int64_t mtime_ms;
} NrdManifestFile;

typedef struct NrdManifest {
    char *topic;
    char *incarnation;
    uint64_t partition;
    uint64_t oldest;
    uint64_t hwm;
    uint64_t n_records;
    uint64_t frontier;
    uint64_t n_ahead;
    GArray *files; /* NrdManifestFile */
} NrdManifest;

NrdManifest *nrd_manifest_new(void);
void nrd_manifest_free(NrdManifest *manifest); /* takes NULL */

void nrd_manifest_add(NrdManifest *manifest, const char *name, uint64_t size_bytes, uint32_t crc, int64_t mtime_ms);

/* The text (g_string_free). Pure. */
GString *nrd_manifest_encode(const NrdManifest *manifest);

/* -EBADMSG; any bytes may be given. Pure. */
int nrd_manifest_decode(const char *text, size_t size, NrdManifest **ret_manifest) NRD_MUST_CHECK;

/* How many records, and which offsets (g_free). Pure. */
char *nrd_manifest_in_words(const NrdManifest *manifest);

/* Whether two say the same of what is in the files: everything but topic, partition, incarnation and times. */
bool nrd_manifest_same_content(const NrdManifest *a, const NrdManifest *b);

#endif
