/* Where the records of topics are on the servers: the bucket, and what is in it. */
#ifndef NRD_ENGINE_JETSTREAM_STORE_H
#define NRD_ENGINE_JETSTREAM_STORE_H

#include "engine/jetstream/js_private.h"

/* ---- bucket.c ---- */

/* Makes it, unless it is there. Blocks. */
int nrd_js_bucket_ensure(NrdEngine *engine, char **ret_why) NRD_MUST_CHECK;
/* Looks whether the bucket is the one that was here, and whole. -EIO: it is not; that is told, also in *ret_why (g_free;
 * ret_why may be NULL), and by all that use the bucket until the next look. Servers that do not answer are no news (0). Admin
 * held. Blocks. */
int nrd_js_bucket_look_admin_held(NrdEngine *engine, int64_t patience_ms, char **ret_why) NRD_MUST_CHECK;
char *nrd_js_bucket_fault(NrdEngine *engine); /* g_free; NULL: none */
/* By the last look, as nobody waits for an answer that does not come: -EIO, and *ret_why as above. */
int nrd_js_bucket_usable(NrdEngine *engine, char **ret_why) NRD_MUST_CHECK;

/* ---- store.c ---- */

/* A value of the bucket. */
typedef struct NrdJsEntry {
    char *name; /* of the topic */
    uint64_t revision;
    bool removed;
    GBytes *text; /* of the record */
} NrdJsEntry;

void nrd_js_entry_clear(NrdJsEntry *entry);
/* The first from `sequence` on; -ENOENT there is none. Blocks. */
int nrd_js_store_next(NrdEngine *engine, uint64_t sequence, NrdJsEntry *ret_entry, char **ret_why) NRD_MUST_CHECK;
/* The last one of that name; -ENOENT there is none. Blocks. */
int nrd_js_store_get(NrdEngine *engine, const char *name, NrdJsEntry *ret_entry, char **ret_why) NRD_MUST_CHECK;
/* Whether it is a record of that incarnation. Pure. */
bool nrd_js_entry_has_id(const NrdJsEntry *entry, const char *id);
/* -EBUSY: the record is not at that revision (0: there is none, or it was removed). *ret_open (NULL: who asks looks for himself):
 * whether a failure leaves open if it was written. Blocks. */
int nrd_js_store_put(NrdEngine *engine, const NrdTopicRecord *record, uint64_t revision, uint64_t *ret_revision,
                     bool *ret_open, char **ret_why) NRD_MUST_CHECK;
int nrd_js_store_remove(NrdEngine *engine, const char *name, uint64_t revision, bool *ret_open,
                        char **ret_why) NRD_MUST_CHECK;
/* Writes the record as it is, at a revision of its own: a change or removal that others have begun, or that is still on its
 * way, comes too late. Not there: the topic has no record of that incarnation. Blocks. */
int nrd_js_store_touch(NrdEngine *engine, const char *name, const char *id, bool *ret_there) NRD_MUST_CHECK;
/* The revision that a new record of that name follows: 0, or that of a removal; -EEXIST there is a record. Blocks. */
int nrd_js_store_vacancy(NrdEngine *engine, const char *name, uint64_t *ret_revision, char **ret_why) NRD_MUST_CHECK;

#endif
