/* Waiting for records, on one partition or on any of a topic: what hand.c, ask.c, asked.c, pull.c, now.c, round.c and consume.c
 * share.
 *
 * A take first looks into the hand: records that this daemon has leased and nobody has taken yet. Else it asks the servers:
 * one that does not wait asks each partition in turn for what is there now; one that waits parks a pull at each partition. Each
 * pull has an inbox of its own, which stays until its answer is there, or its time is over: what the servers have sent comes,
 * whoever waits by then, and 2.9 may forget a pull behind one whose inbox is gone.
 *
 * A parked pull is nobody's own: its record goes to who has waited longest for one of that partition. Whoever gives up, or is
 * served by another partition, leaves it where it is, and the next one who comes needs no other. When a record comes and nobody
 * waits, it is given back at once. So at most as many are parked at a partition as have waited there at once in these seconds.
 * What comes for a reader that does not wait, after it has given up, goes the same way.
 *
 * A parked pull lasts five seconds at the servers and is then asked for again: it may be lost with the server that kept it, and
 * nobody says so.
 *
 * poll(2) has to know whether there is a record, which only a pull can tell. So a watch sends a scout, which takes a record
 * into the hand; there it waits a while for the read that follows, and is given back when none comes.
 *
 * Locks: one for all of it, memory only; nothing is sent and nobody called with it held. */
#ifndef NRD_ENGINE_JETSTREAM_PULL_PRIVATE_H
#define NRD_ENGINE_JETSTREAM_PULL_PRIVATE_H

#include "engine/jetstream/js_private.h"

#define NRD_JS_LOOK_MS 2500  /* for the answer to a pull that does not wait */
#define NRD_JS_RENEW_MS 6000 /* a parked pull is asked for again at the latest */
#define NRD_JS_LAG_MS 30     /* how long a consumer may be behind its stream */

/* NrdWaiter.state; its link's data is its NrdJsTake. */
enum {
    NRD_JS_WAITER_NEW,       /* not entered take yet */
    NRD_JS_WAITER_CANCELLED, /* ... and never will wait */
    NRD_JS_WAITER_PARKED,
    NRD_JS_WAITER_DONE,
};

/* A record that was delivered to this daemon. */
typedef struct NrdJsGot {
    NrdPartition *partition; /* a reference to its topic */
    natsMsg *msg;
    int64_t came_ms;  /* monotonic: it was sent by the servers then or later */
    int64_t until_ms; /* in the hand: monotonic */
} NrdJsGot;

typedef struct NrdJsWatchers NrdJsWatchers;

/* A pull that the servers were asked for. Found by its number. */
typedef struct NrdJsAsked {
    uint64_t number;
    NrdPartition *partition; /* a reference to its topic */
    uint64_t asker;          /* the take that asks what is there now; 0: parked, for whoever waits */
    int64_t asked_ms;        /* monotonic: it was asked for then or later */
    int64_t until_ms;        /* monotonic: then it is over, or was forgotten */
    natsSubscription *inbox; /* kept until the answer is there, or its time is over; NULL: not there yet */
    bool of_round;           /* several may come; round.c takes them */
    bool lost;               /* so it seems: not counted upon, but what comes of it is taken */
    bool cancelled;          /* its end is on its way: see asked.c */
} NrdJsAsked;

/* One who waits. Found by its number: who has waited longest has the lowest. */
typedef struct NrdJsTake {
    uint64_t number;
    NrdTopic *topic;         /* referenced */
    NrdPartition *partition; /* NULL: any of the topic */
    NrdWaiter *waiter;       /* NULL: a scout */
    NrdJsWatchers *watchers; /* whose scout it is */
    NrdDeliverFn deliver;
    void *user_data;
    bool waits;
    uint32_t first, n_asked; /* where it began to ask what is there now, and how many have said that nothing is */
    int64_t deadline_ms;     /* monotonic; INT64_MAX: for ever */
    int64_t renew_ms;        /* when an answer is overdue; INT64_MAX: none is awaited */
    bool nobody;             /* the last answer was that nobody is there */
    uint64_t asked;          /* the number of the pull whose answer is awaited before anything else is asked; 0: none */
    bool asked_twice;        /* a pull of its was forgotten once */
    bool again, asks_again;  /* it has found nothing once; it waits to ask anew: see ask_again_locked and fail_take */
} NrdJsTake;

/* Those who watch a partition or a topic. In the table while there is a watch, whose owner has the topic, or a scout. */
struct NrdJsWatchers {
    void *source; /* an NrdPartition or an NrdTopic; the key */
    GQueue watches;
    NrdJsTake *scout;
};

struct NrdJsPulls {
    NrdEngine *engine;
    char *inbox; /* what all inboxes begin with */
    NrdTimer timer;
    GMutex lock;
    /* guarded by lock */
    GHashTable *takes; /* of Take, by number */
    GHashTable *asked; /* of Asked, by number */
    guint n_answering; /* pulls out of that table whose answer is being looked at */
    GCond none_asked;  /* both have come to nothing */
    uint64_t next_number;
    int64_t pinged_ms;    /* monotonic: see nrd_js_asked_ping_locked */
    GQueue hand;          /* of Got, the oldest first */
    GHashTable *watchers; /* of Watchers, by source */
};

/* ---- hand.c ---- */

NrdJsGot *nrd_js_got_new(NrdPartition *partition, natsMsg *msg, int64_t came_ms); /* msg is taken over */
void nrd_js_got_free(NrdJsGot *got);
void nrd_js_got_give_back(NrdJsGot *got); /* to the servers, unless it may be somebody else's by now; frees it */
bool nrd_js_is_record(natsMsg *msg);      /* a delivery, and no word that there is none */

/* The delivery of a record, under a lease that begins now. false: its subject means nothing, or its partition serves nothing. The
 * bytes are the message's; the key is the caller's (g_free). */
bool nrd_js_got_lease(NrdJsGot *got, NrdDelivery *ret_delivery, uint8_t **ret_key);

/* Leases it and calls deliver, on this thread; frees it. */
void nrd_js_got_hand_over(NrdJsGot *got, NrdDeliverFn deliver, void *user_data);

/* What is said to one who waits, on a thread that may block. */
typedef struct NrdJsAnswer {
    NrdDeliverFn deliver;
    void *user_data;
    int error;
    NrdJsGot *got; /* taken over; NULL with an error */
} NrdJsAnswer;
void nrd_js_pull_answer_later(NrdJsPulls *pulls, NrdJsAnswer answer);

/* source: a partition or a topic. Take gives the oldest, the caller's from then on, or NULL. */
NrdJsGot *nrd_js_hand_take_locked(NrdJsPulls *pulls, const void *source);
bool nrd_js_hand_has_locked(NrdJsPulls *pulls, const void *source);
/* Those who wait get what is in the hand: poll or a batch has left it there, and their own pulls may never be answered. */
void nrd_js_hand_serve(NrdJsPulls *pulls, NrdPartition *partition);
void nrd_js_hand_put_locked(NrdJsPulls *pulls, NrdJsGot *got);
GPtrArray *nrd_js_hand_stale_locked(NrdJsPulls *pulls, int64_t now_ms);                 /* to be given back */
GPtrArray *nrd_js_hand_forget_locked(NrdJsPulls *pulls, const NrdPartition *partition); /* to be freed */

/* Who has waited longest for a record of this partition; NULL: nobody. */
NrdJsTake *nrd_js_hand_longest_locked(NrdJsPulls *pulls, const NrdPartition *partition);

/* ---- asked.c ---- */

/* Asks what is there now, for the take. */
void nrd_js_asked_now_locked(NrdJsPulls *pulls, NrdPartition *partition, NrdJsTake *take);
/* Parks as many pulls as there are takes that wait for the partition, and no pull yet. */
void nrd_js_asked_fill_locked(NrdJsPulls *pulls, NrdPartition *partition);
/* Those of the partition, or (NULL) all, are not counted upon any more. */
void nrd_js_asked_lose_locked(NrdJsPulls *pulls, const NrdPartition *partition);
/* Takes it out of the table: the caller's, until nrd_js_asked_done, which takes NULL; or NULL. */
NrdJsAsked *nrd_js_asked_steal(NrdJsPulls *pulls, uint64_t number);
void nrd_js_asked_done(NrdJsPulls *pulls, NrdJsAsked *asked);
/* Ends all of them: what settles or gives back from now on makes nothing come to them. */
void nrd_js_asked_cancel_all(NrdJsPulls *pulls);
/* Waits until they have ended, for a moment at most. Blocks. */
void nrd_js_asked_wait_ended(NrdJsPulls *pulls);
/* Those whose time is over, which others take the place of: to be freed, without the lock. */
GPtrArray *nrd_js_asked_overdue_locked(NrdJsPulls *pulls, int64_t now_ms);
int64_t nrd_js_asked_next_ms_locked(NrdJsPulls *pulls); /* when the next one's time is over; INT64_MAX: there is none */
/* A record that comes of it was sent by the servers then or later (monotonic). */
int64_t nrd_js_asked_sent_ms(NrdJsPulls *pulls, const NrdJsAsked *asked);
/* Keeps that time young while pulls are parked, by asking the servers something; when it is to be called next, INT64_MAX: not. */
int64_t nrd_js_asked_ping_locked(NrdJsPulls *pulls, int64_t now_ms);
/* An inbox (taken over) that something may still come to is kept for as long as one of a parked pull. */
void nrd_js_asked_keep(NrdJsPulls *pulls, NrdPartition *partition, natsSubscription *inbox);
void nrd_js_asked_free(NrdJsAsked *asked);
void nrd_js_asked_free_all(NrdJsPulls *pulls);

/* ---- came.c ---- */

/* A record that nobody asked for any more, on whichever thread; taken over. It was sent at came_ms or later. */
void nrd_js_record_came(NrdPartition *partition, natsMsg *msg, int64_t came_ms);

/* A message for a pull, on the client's own thread; taken over. */
void nrd_js_asked_answered(NrdJsPulls *pulls, uint64_t number, natsMsg *msg);

/* ---- ask.c ---- */

/* A pull of the partition's consumer, to be answered to `reply`. */
void nrd_js_ask_consumer(NrdPartition *partition, const char *reply, const char *json);

/* Asks for the take of that number, if it still waits, on a thread that may block. */
void nrd_js_take_start_later(NrdJsPulls *pulls, uint64_t number);

/* The next partition is asked, or the wait begins, or it ends with this error. */
void nrd_js_take_found_nothing(NrdJsPulls *pulls, uint64_t number, int error);

/* The servers have not answered: asks, on a thread that may block, whether they are there at all, then as above. */
void nrd_js_take_was_silent(NrdJsPulls *pulls, uint64_t number);

bool nrd_js_take_is_parked(const NrdJsTake *take);
bool nrd_js_take_wants(const NrdJsTake *take, const NrdPartition *partition);
void nrd_js_take_renew_locked(NrdJsPulls *pulls, NrdJsTake *take, int64_t after_ms);

/* ---- consume.c ---- */

void nrd_js_watchers_fire_locked(NrdJsPulls *pulls,
                                 NrdJsWatchers *watchers); /* they are told later, on other threads */
/* Out of the table, and freed, when nobody watches. */
void nrd_js_watchers_tidy_locked(NrdJsPulls *pulls, NrdJsWatchers *watchers);

/* ---- pull.c ---- */

/* The error of a partition or topic that nothing can be taken from, or 0. One of a topic's partitions is enough. */
int nrd_js_pull_why_not(NrdEngine *engine, NrdTopic *topic, NrdPartition *partition) NRD_MUST_CHECK;

NrdJsTake *nrd_js_take_find_locked(NrdJsPulls *pulls, uint64_t number); /* or NULL */

/* A take in the table, for a waiter or (NULL) a scout. */
NrdJsTake *nrd_js_take_begin_locked(NrdJsPulls *pulls, NrdTopic *topic, NrdPartition *partition, NrdWaiter *waiter,
                                    int64_t wait_ms);

/* Out of the table: nobody else finds it any more, and the waiter is its owner's. Then it is finished, which tells the waiter,
 * or freed. */
void nrd_js_take_leave_locked(NrdJsPulls *pulls, NrdJsTake *take);
void nrd_js_take_finish(NrdJsPulls *pulls, NrdJsTake *take, int error);
void nrd_js_take_free(NrdJsTake *take);

/* As nrd_partition_take and nrd_waiter_cancel, of a partition or (NULL) any of the topic. */
void nrd_js_pull_take(NrdTopic *topic, NrdPartition *partition, NrdWaiter *waiter, int64_t wait_ms,
                      NrdDeliverFn deliver, void *user_data);
bool nrd_js_pull_cancel(NrdJsPulls *pulls, NrdWaiter *waiter);

/* ---- round.c ---- */

typedef struct NrdJsRound NrdJsRound;

/* Asks the partition's consumer for up to n records that are there now; the servers say that there are no more within
 * expires_ms, unless it is 0: but when there is none at all not before that. -EIO. May block, as subscribing. */
int nrd_js_round_ask(NrdPartition *partition, guint n, int expires_ms, NrdJsRound **ret_round) NRD_MUST_CHECK;
int64_t nrd_js_round_asked_ms(const NrdJsRound *round);
/* The next answer, the caller's; NULL: none has come in that time. Blocks. */
natsMsg *nrd_js_round_next(NrdJsRound *round, int64_t wait_ms);
/* Frees it. answered: nothing more can come. */
void nrd_js_round_leave(NrdJsRound *round, bool answered);

/* ---- now.c ---- */

/* As nrd_partition_take_sure, nrd_partition_take_batch and nrd_topic_take_batch. Block for the servers' answer. */
void nrd_js_now_one(NrdTopic *topic, NrdPartition *partition, NrdDeliverFn deliver, void *user_data);
int nrd_js_now_batch(NrdPartition *partition, NrdBatch *batch) NRD_MUST_CHECK;
int nrd_js_now_topic_batch(NrdTopic *topic, NrdBatch *batch) NRD_MUST_CHECK;

#endif
