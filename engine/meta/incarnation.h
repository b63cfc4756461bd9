/* Incarnation markers: which incarnation of a topic a folder topics/<name> belongs to, and what happens when it is not
 * the one that the record names. Source: the seed, "The incarnation marker".
 * Threads: the caller holds the topic's guard. Blocks. */
#ifndef NRD_META_INCARNATION_H
#define NRD_META_INCARNATION_H

#include "engine/base/macros.h"
#include "engine/meta/metastore.h"

typedef enum NrdClaim {
    NRD_CLAIM_MATCH,       /* the marker is ours */
    NRD_CLAIM_CREATED,     /* no folder: it and its marker were made */
    NRD_CLAIM_ADOPTED,     /* no marker, or a half-written one of ours: stamped */
    NRD_CLAIM_QUARANTINED, /* foreign marker: the folder was renamed to <name>.stale-<its id>, a fresh one was made */
} NrdClaim;

/* Makes topics/<name> the folder of incarnation id, durably, or says why not: -EIO with a sentence in *ret_why (g_free)
 * when the marker is damaged (neither ours, nor a beginning of ours, nor another well-formed id far from ours: a
 * flipped bit is not a foreign topic), or what the disk says. When quarantined, after_rename (may be NULL) is called
 * right after the rename and before the fresh folder exists. */
int nrd_incarnation_claim(int root_fd, const char *name, const char *id, void (*after_rename)(void *), void *user_data,
                          NrdClaim *ret_claim, char **ret_why) NRD_MUST_CHECK;

/* For a read-only mount: 0 when topics/<name> carries the marker of id (or its beginning, or none), else -EIO with a
 * sentence. Changes nothing. */
int nrd_incarnation_verify(int root_fd, const char *name, const char *id, char **ret_why) NRD_MUST_CHECK;

/* What the sweep makes of a name in topics/ that no topic record has. */
typedef enum NrdFate {
    NRD_FATE_REMOVED, /* with all that is in it: a deletion that a crash cut short leaves it, or a quarantine */
    NRD_FATE_KNOWN,   /* a topic record carries, or may carry, its incarnation: kept, in silence */
    NRD_FATE_LEFT,    /* what it is cannot be told: left alone */
} NrdFate;

/* Whether a topic record carries that incarnation, or may, since one of the records is damaged. */
typedef bool (*NrdKnowsFn)(void *user_data, const char *id);

/* Judges a name in topics/ that has no record, and changes nothing. *ret_id: the incarnation that it is of, "" when that
 * is not known; *ret_why (g_free) is set with NRD_FATE_LEFT alone. */
NrdFate nrd_incarnation_fate(int root_fd, const char *entry, NrdKnowsFn knows, void *user_data,
                             char ret_id[NRD_INCARNATION_DIGITS + 1], char **ret_why);

/* Deletes what is left of topics that are gone: quarantined folders whose id no record may carry, and folders
 * topics/<name> without a record. Does nothing while any record is damaged. What it does not understand it leaves.
 * Returns the number of folders removed, or a negative errno from the listing; failures to remove are logged. */
int nrd_incarnation_sweep(int root_fd, NrdMetastore *store) NRD_MUST_CHECK;

/* Purges topics/<name> of incarnation id after its record is gone: renames it to <name>.stale-<id> first, so that a new
 * topic of that name never meets it, then removes it. A folder with another marker is left alone. */
int nrd_incarnation_purge(int root_fd, const char *name, const char *id) NRD_MUST_CHECK;

#endif
