/* Names for the calls of a run: what is done, and to which kind of file ("fdatasync log"). With its number at the site,
 * from 1, the same call is found again in another run, whatever threads did elsewhere meanwhile. Pure. */
#ifndef NRD_TEST_SWEEP_SITE_H
#define NRD_TEST_SWEEP_SITE_H

#include "tests/sim/disk.h"

typedef enum SiteFile {
    SITE_DATA, /* the data directory itself, and above it */
    SITE_LOCK,
    SITE_FORMAT,
    SITE_META, /* meta/ */
    SITE_RECORD,
    SITE_INGRESS, /* ingress/ */
    SITE_WAL,
    SITE_CHECKPOINT,
    SITE_TOPICS,    /* topics/ */
    SITE_TOPIC,     /* topics/<topic>/, stale ones too */
    SITE_MARKER,    /* incarnation */
    SITE_PARTITION, /* topics/<topic>/pNNNNN/ */
    SITE_LOG,
    SITE_INDEX,
    SITE_RENDERED,
    SITE_HWM,
    SITE_OFFSET,
    SITE_AHEAD,
    SITE_CURSOR, /* of fan-out */
    SITE_OTHER,
    SITE_N_FILES,
} SiteFile;

typedef struct Site {
    SimCall call;
    SiteFile file;
} Site;

/* A temporary file is of the kind of what it will be. */
SiteFile site_file(const char *path);
const char *site_file_name(SiteFile file);

/* Names of either, as printed; false when there is none such. */
bool site_parse(const char *call, const char *file, Site *ret_site);

/* Whether the call changes what a crash leaves. */
bool site_changes(SimCall call);
bool site_syncs(SimCall call);

#endif
