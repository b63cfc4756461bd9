/* An outbox's insides: what outbox.c (its life, what an open file asks of it), outbox_run.c (sending), outbox_place.c (where to),
 * outbox_look.c (whether it is stored) and outbox_say.c (what is said of it) share. */
#ifndef NRD_ENGINE_JETSTREAM_OUTBOX_PRIVATE_H
#define NRD_ENGINE_JETSTREAM_OUTBOX_PRIVATE_H

#include "engine/jetstream/outbox.h"
#include "engine/jetstream/partition.h"

#define NRD_JS_OUTBOX_ID_DIGITS 16
#define NRD_JS_OUTBOX_ID_BYTES (NRD_JS_OUTBOX_ID_DIGITS + 24)

/* REFUSED: the servers will never take it, since it is too long with its key: it is dropped, and its writer told. */
typedef enum NrdJsOutState { NRD_JS_OUT_HELD, NRD_JS_OUT_OUT, NRD_JS_OUT_STORED, NRD_JS_OUT_REFUSED } NrdJsOutState;

/* A record until it is acknowledged and those before it are. */
typedef struct NrdJsOut {
    GList link;
    NrdJsOutbox *outbox;
    NrdPartition *partition;
    uint64_t number; /* of the outbox's; its id is made of it */
    uint64_t sequence;
    NrdJsEnd sent_after;   /* the end of its partition, when it was first sent, or that was looked through since */
    int64_t first_sent_ms; /* monotonic: or when it was last found not to be stored */
    NrdJsOutState state;
    char *key;     /* in base64, or NULL */
    bool again;    /* it was sent before */
    bool doubtful; /* ... and may be stored, as no answer has told */
    bool passed;   /* by the last pass of a run: it may be stored where nothing is taken, so it goes nowhere now */
    bool told;     /* ... which somebody was told, and nobody has answered for it since */
    size_t size;
    size_t cost; /* of all of it, in memory */
    uint8_t payload[];
} NrdJsOut;

/* Records of one call that were not taken up yet, packed, since a record by itself takes so much more: for each the sizes of
 * its key and of its payload (uint32_t, this machine's), and both. */
typedef struct NrdJsPending {
    GList link;
    size_t cost; /* of all of it, in memory */
    size_t pos;  /* of the next one */
    size_t size;
    uint8_t bytes[];
} NrdJsPending;

/* Somebody who waits for all records below `number`. */
typedef struct NrdJsSyncWaiter {
    uint64_t number;
    bool own; /* it is the writer, who is told of what was dropped */
    NrdDoneFn done;
    void *user_data;
} NrdJsSyncWaiter;

/* A run of offsets of one partition, for the lines that a writer reads back. */
typedef struct NrdJsRun {
    uint32_t partition;
    uint64_t first, last;
} NrdJsRun;

/* NrdProducer and NrdTopicProducer are both this. */
struct NrdJsOutbox {
    const NrdEngineTable *table; /* first: see table.h */
    gint n_refs;                 /* atomic */
    NrdTopic *topic;             /* referenced */
    NrdPartition *partition;     /* NULL: of the topic as a whole */
    bool want_ranges;
    char id[NRD_JS_OUTBOX_ID_DIGITS + 1];
    GMutex lock;
    /* guarded by lock */
    GQueue records; /* by their link, in order */
    GQueue pending; /* ... those behind them, by their link */
    GList *next;    /* the first that is not out, of a run; NULL: the first that is pending */
    uint64_t n_added;
    uint64_t n_taken;  /* of those; the others are pending */
    uint64_t n_stored; /* all below are stored */
    size_t bytes;      /* that the records take in memory */
    uint32_t n_out;    /* a look, too */
    size_t bytes_out;
    bool running;
    bool failed;         /* of this run: something has to go out again */
    bool repeats;        /* ... and does */
    uint32_t n_passed;   /* records that this pass of the run has left behind */
    int run_error;       /* ... or will not succeed */
    uint64_t run_end;    /* the run is about the records below */
    int64_t progress_ms; /* monotonic: the last acknowledgement of the run, or its beginning */
    GArray *waiters;     /* of NrdJsSyncWaiter */
    int untold_errno;    /* of a run that nobody waited for: its records are still here */
    int lost_errno;      /* why a record was dropped, until the writer's sync has told */
    bool closed;         /* nothing is begun any more */
    int failing_errno;
    uint32_t turn;
    GArray *runs; /* of NrdJsRun, of this run */
    GString *ranges;
    GPtrArray *sayings; /* see outbox_say.c; NULL: none */
    NrdTimer timer;     /* linger, or the next try */
};

void nrd_js_out_free(NrdJsOut *record);
void nrd_js_out_id(const NrdJsOut *record, char id[NRD_JS_OUTBOX_ID_BYTES]); /* that it is sent with */
void nrd_js_outbox_free(void *user_data); /* nobody has a reference, and its timer may wait */

guint nrd_js_outbox_n_locked(const NrdJsOutbox *outbox); /* records that it holds */
/* The first of those that are pending: there is one. */
NrdJsOut *nrd_js_outbox_take_up_locked(NrdJsOutbox *outbox);

/* A line for the log, about a partition or (NULL) the topic, that is said when the lock is given back. */
void nrd_js_outbox_say_locked(NrdJsOutbox *outbox, NrdLevel level, const NrdPartition *partition, const char *format,
                              ...) G_GNUC_PRINTF(4, 5);
void nrd_js_outbox_unlock(NrdJsOutbox *outbox); /* ... and then says them; the outbox may be gone by then */
/* What of this run's is in doubt, in the log and in the topic's status: of partitions with something that was not told yet. */
void nrd_js_outbox_say_passed_locked(NrdJsOutbox *outbox);

/* Those who wait for records below `number` are answered; with an error all of them. Without one the writer is told, once, of
 * what was dropped. */
void nrd_js_outbox_answer_locked(NrdJsOutbox *outbox, uint64_t number, int error);
/* Those who are not the writer are answered, all of them, without an error. */
void nrd_js_outbox_answer_others_locked(NrdJsOutbox *outbox);

/* Whether it may be stored, and was sent so long ago that the servers may have forgotten its id. */
bool nrd_js_out_is_late(const NrdJsOut *record);
/* A place for a record that is held: its own partition, or, to a topic as a whole, for one that is surely not stored, the next
 * that is well when its own is not. false: there is none now. */
bool nrd_js_outbox_find_place_locked(const NrdJsOutbox *outbox, NrdJsOut *record);
/* Whether the stream of the first record is gone, and there is no other place for it, though it has to wait for one: nobody is to
 * wait for what will not come by itself. */
bool nrd_js_outbox_is_gone_locked(const NrdJsOutbox *outbox);
/* One without a place: the run goes on behind it. false: there is no use in that, as nothing has a place. */
bool nrd_js_outbox_pass_locked(NrdJsOutbox *outbox, NrdJsOut *record);
/* Those are told, in the log and the status, and by who calls: whether there is one that nobody was told of before. */
bool nrd_js_outbox_tell_passed_locked(NrdJsOutbox *outbox);

/* Looks, on another thread, which of those are stored; nothing is out. That ends with nrd_js_outbox_looked, which goes on, and
 * gives back the reference that was taken for it. error: 0, -EIO what is late is not sent, -ENODEV. */
void nrd_js_outbox_look_locked(NrdJsOutbox *outbox);
void nrd_js_outbox_looked(NrdJsOutbox *outbox, int error);

/* A run that has records, or an answer at once. The lock is released. */
void nrd_js_outbox_run_and_unlock(NrdJsOutbox *outbox);

/* Nothing is begun any more, and no timer will come: it may be the last reference that goes. Who still waits for a next try is
 * answered. */
void nrd_js_outbox_stop_locked(NrdJsOutbox *outbox);

/* Linger is over, or a pause before the next try. */
void nrd_js_outbox_on_timer(void *user_data);

#endif
