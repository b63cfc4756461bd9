/* An outbox: what one open file has written, until the servers have acknowledged it. See outbox.c.
 * Counted. Threads: any. Nothing blocks: what is to be sent is left to the thread that sends (send.c). */
#ifndef NRD_ENGINE_JETSTREAM_OUTBOX_H
#define NRD_ENGINE_JETSTREAM_OUTBOX_H

#include "engine/jetstream/js_private.h"

typedef struct NrdJsOutbox NrdJsOutbox;
void nrd_js_outboxes_fail(GPtrArray *outboxes, int error); /* references; each answers who waits */
NrdJsOutbox *nrd_js_outbox_ref(NrdJsOutbox *outbox);

/* For a partition, or (NULL) for the topic, where keys choose the partition, and records without one take turns. -EIDRM, -EIO,
 * -EROFS. The caller's reference is given back by its close. */
int nrd_js_outbox_open(NrdTopic *topic, NrdPartition *partition, bool want_ranges,
                       NrdJsOutbox **ret_outbox) NRD_MUST_CHECK;
void nrd_js_outbox_unref(NrdJsOutbox *outbox);

/* The list of its partition or topic that it is in, and the lock that guards the list. */
GPtrArray *nrd_js_outbox_list(NrdJsOutbox *outbox, GMutex **ret_lock);

int nrd_js_outbox_check(NrdJsOutbox *outbox) NRD_MUST_CHECK; /* as nrd_producer_check */
void nrd_js_outbox_add(NrdJsOutbox *outbox, const NrdNewRecord *records, size_t n);
NrdUrgency nrd_js_outbox_wrote(NrdJsOutbox *outbox);
void nrd_js_outbox_flush(NrdJsOutbox *outbox); /* begins to send what it holds */
size_t nrd_js_outbox_read_ranges(NrdJsOutbox *outbox, char *buf, size_t size);

/* Sends what it holds and calls back, on another thread, when all of that is acknowledged, or has failed and stays. own: for its
 * writer, who is also told, once, that a record was dropped since the servers do not take one so long (-EMSGSIZE). */
void nrd_js_outbox_sync(NrdJsOutbox *outbox, bool own, NrdDoneFn done, void *user_data);

/* As a sync of its writer; what fails is dropped. done may be NULL. */
void nrd_js_outbox_close(NrdJsOutbox *outbox, NrdDoneFn done, void *user_data);

#endif
