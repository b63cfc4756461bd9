/* What topic_produce.c and topic_produce_sync.c share. */
#ifndef NRD_ENGINE_TOPIC_PRODUCE_PRIVATE_H
#define NRD_ENGINE_TOPIC_PRODUCE_PRIVATE_H

#include "engine/ingress/ingress.h"
#include "engine/produce_private.h"

/* Somebody who waits until entries are durable. */
typedef struct NrdTopicWaiter {
    uint64_t until; /* entries that have to be durable */
    NrdDoneFn done;
    void *user_data;
} NrdTopicWaiter;

struct NrdTopicProducer {
    const NrdEngineTable *table; /* first: see table.h */
    NrdTopic *topic;             /* a reference */
    bool want_ranges;
    gint n_refs; /* atomic */
    /* guarded by the topic's produce lock */
    GList link;
    NrdEntryDraft *pending;
    GQueue drafts;                /* of NrdEntryDraft: closed, in order */
    bool in_flight;               /* the first of them is on its way */
    uint64_t n_closed, n_durable; /* entries, ever */
    GArray *waiters;              /* of NrdTopicWaiter */
    uint32_t turn;                /* of an unkeyed record */
    int untold_errno;
    int failing_errno;
    GString *ranges;
};

/* What is pending becomes an entry, behind the others. Produce lock held. */
void nrd_topic_produce_close_pending_locked(NrdTopicProducer *producer);

/* Everything that it holds, without the topic's other producers. */
void nrd_topic_produce_sync_own(NrdTopicProducer *producer, NrdDoneFn done, void *user_data);

#endif
