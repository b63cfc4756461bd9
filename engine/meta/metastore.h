/* The metastore: which topics there are. The authority for incarnations, as the leader is in the seed.
 *
 * Records are files; the copy in memory is written through. A record that cannot be read or is damaged stays listed, as
 * out of service with the reason, and blocks every reclaim (its id is not known).
 * Threads: any; guarded inside by one lock, which is held across the write of a record so that two changes of a topic
 * never overtake each other. Blocks. */
#ifndef NRD_META_METASTORE_H
#define NRD_META_METASTORE_H

#include "engine/base/macros.h"
#include "engine/meta/topic_record.h"

#include <stdbool.h>

typedef struct NrdMetastore NrdMetastore;

/* Reads every record of meta/ beneath root_fd (borrowed). A listing that fails is an error (-errno, the sentence in
 * *ret_why): nothing is guessed. Stray *.tmp files are removed unless read_only. */
int nrd_metastore_open(int root_fd, bool read_only, NrdMetastore **ret_store, char **ret_why) NRD_MUST_CHECK;
void nrd_metastore_free(NrdMetastore *store); /* takes NULL */

/* Names of all topics, also of damaged ones, sorted (char*, free with g_ptr_array_unref). */
GPtrArray *nrd_metastore_names(NrdMetastore *store);

/* A copy of the record (nrd_topic_record_free). -ENOENT; -EIO when damaged, with the reason in *ret_why (may be NULL). */
int nrd_metastore_get(NrdMetastore *store, const char *name, NrdTopicRecord **ret_record,
                      char **ret_why) NRD_MUST_CHECK;

/* Durably stores a new record; -EEXIST when the name has one (damaged or not). This and the next two: -ENOSPC, -EDQUOT,
 * and -EIO for everything else that the disk says; nrd_metastore_why_not says what it was. */
int nrd_metastore_create(NrdMetastore *store, const NrdTopicRecord *record) NRD_MUST_CHECK;

/* Durably replaces the record of the same incarnation; -ENOENT, -ESTALE when the id differs. On failure the old record
 * stands, in memory and on disk. */
int nrd_metastore_update(NrdMetastore *store, const NrdTopicRecord *record) NRD_MUST_CHECK;

/* Durably removes the record of this incarnation; it is there as before when meta/ is not. When that fails half-way and the
 * record cannot be put back, the topic is out of service from then on (nrd_metastore_get: -EIO). */
int nrd_metastore_remove(NrdMetastore *store, const char *name, const char *id) NRD_MUST_CHECK;

/* Writes again, from memory, the records that others have removed from meta/, and says so: the next start would take their
 * topics for deleted. Does nothing where meta/ has not changed since the last time, unless `all`. The first error, which was
 * told; -ENOENT: meta/ itself is gone, and nothing is made in its place. Blocks. */
int nrd_metastore_mend(NrdMetastore *store, bool all) NRD_MUST_CHECK;

/* Why the record of that name could not be written or removed with error, for a person; g_free. Looks at the disk. */
char *nrd_metastore_why_not(NrdMetastore *store, const char *name, int error);

/* Whether some record carries id, or might (a damaged record): then nothing with that id may be reclaimed. */
bool nrd_metastore_may_know(NrdMetastore *store, const char *id);

#endif
