/* Which partition of a data directory is meant, for verbs that work offline. One thread; blocks. */
#ifndef NRD_CTL_PLACE_H
#define NRD_CTL_PLACE_H

#include "ctl/cli.h"
#include "engine/base/macros.h"
#include "engine/meta/data_dir.h"
#include "engine/meta/topic_record.h"

#include <stdbool.h>
#include <stdint.h>

/* The data directory's lock is held as long as it is open. */
typedef struct NrdPlaceInData {
    NrdDataDir *data;
    int root_fd;
    NrdTopicRecord *record;
    uint32_t number;
    char *topic_dir; /* topics/TOPIC */
    char *dir;       /* topics/TOPIC/pNNNNN */
    bool missing;    /* there is no such folder */
} NrdPlaceInData;

/* Opens DATA and finds "TOPIC/pNNNNN" in it: the record is whole, the folder is of that incarnation, the topic has that
 * partition; its folder may be missing. Else a sentence (g_free) that says what is missing. */
int nrd_place_open(const char *data, const char *name, NrdPlaceInData *ret_place, char **ret_why) NRD_MUST_CHECK;
void nrd_place_close(NrdPlaceInData *place);

/* What a verb does with a partition and a file; negative when it failed, after a sentence. */
typedef int (*NrdPlaceFn)(const NrdPlaceInData *place, const char *file, bool quiet);

/* A verb called with DATA TOPIC/pNNNNN FILE and --quiet, from its command line to its exit status. check: whether FILE will
 * do (it says so itself), or NULL. */
int nrd_place_verb(const NrdCliVerb *verb, int argc, char **argv, bool (*check)(const char *file), NrdPlaceFn run);

#endif
