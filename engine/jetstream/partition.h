/* What is known of a partition, by what this daemon has done and by what the servers say. */
#ifndef NRD_ENGINE_JETSTREAM_PARTITION_H
#define NRD_ENGINE_JETSTREAM_PARTITION_H

#include "engine/jetstream/js_private.h"

/* ---- partition.c ---- */

NrdPartition *nrd_js_partition_new(NrdTopic *topic, uint32_t number);
void nrd_js_partition_free(NrdPartition *partition);
NrdPlace nrd_js_partition_place(const NrdPartition *partition);
int nrd_js_partition_usable(NrdPartition *partition) NRD_MUST_CHECK; /* -EIDRM, -EIO poisoned */
/* What is told when something about its stream has given rc: -EIDRM when it failed and the topic was removed meanwhile; -EIO for
 * -ENOENT, a stream that is gone otherwise; else rc. */
int nrd_js_partition_why(const NrdPartition *partition, int rc);
/* Whether records may be produced to it: -EIO when only synced ones will do and its stream syncs none. May block, as looking. */
int nrd_js_partition_check_durable(NrdPartition *partition) NRD_MUST_CHECK;
/* A record of that sequence is there; published: this daemon's was acknowledged just now. */
void nrd_js_partition_grew(NrdPartition *partition, uint64_t sequence, bool published);
/* A record of this daemon's was sent and not answered: its leader may be behind (see nrd_js_nudge), and is helped on, with more
 * each time. However many records that is said of, once in a while. Does not wait. */
void nrd_js_partition_nudge(NrdPartition *partition);
/* Nothing is taken from it and nothing served any more, which is said. Not under the lock of an outbox. */
void nrd_js_partition_end_service(NrdPartition *partition, const char *why);
/* Whether there was something by the last look that the servers would give out. */
bool nrd_js_partition_has_deliverable(NrdPartition *partition);
/* Something is deliverable again: who does not wait asks twice, as of what was published just now. */
void nrd_js_partition_has_more(NrdPartition *partition);
/* Whether its consumer may not know yet of what this daemon has published: it follows another server's copy. */
bool nrd_js_partition_may_lag(NrdPartition *partition);
/* This daemon has taken or settled something: who asks how things are has the servers asked. */
void nrd_js_partition_changed(NrdPartition *partition);
/* The end of what is known to be committed, as a sequence; asked for anew when `fresh`. */
int nrd_js_partition_last(NrdPartition *partition, bool fresh, uint64_t *ret_first, uint64_t *ret_last) NRD_MUST_CHECK;
/* What came of a commit: whether that is a failure to be told of, which the one before was not. */
bool nrd_js_partition_committed(NrdPartition *partition, int error);

/* ---- partition_look.c ---- */

/* Asks the servers. -ENOENT: the stream is gone. Blocks. */
int nrd_js_partition_look(NrdPartition *partition, int64_t patience_ms) NRD_MUST_CHECK;
/* Whether the last look was not answered. */
bool nrd_js_partition_is_silent(NrdPartition *partition);
/* Every second or so, with a connection: those that gave no answer are looked at again, on other threads, as nobody may read
 * who would. Does not wait. */
void nrd_js_silent_watch(NrdEngine *engine);
/* Whether the servers have said for a while that there is no such stream. */
bool nrd_js_partition_is_gone(NrdPartition *partition);

/* ---- rewound.c ---- */

/* The last sequence that was known to be there, and the reopening since which. */
typedef struct NrdJsEnd {
    uint64_t sequence; /* 0: none is known */
    uint32_t n_reopened;
} NrdJsEnd;

NrdJsEnd nrd_js_partition_end(NrdPartition *partition);
/* A record of this daemon's is acknowledged: sent_after is the end when it was first sent; duplicate: it was there already;
 * hash: of its id (acked.h). What that proves of the stream ends the partition's service, on another thread. */
void nrd_js_partition_published(NrdPartition *partition, uint64_t sequence, uint32_t hash, bool duplicate,
                                NrdJsEnd sent_after);

#endif
