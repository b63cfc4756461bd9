/* The connection's insides: what conn.c (its life), connect.c (calls that may not return), send.c (the thread that sends),
 * request.c (who waits for answers) and jobs.c (threads for what those set off) share.
 *
 * Whatever the client library does with the connection takes its lock, which it holds while it writes to a socket that is
 * full, and while it tries to connect: seconds, when a server hangs. So nobody calls it for that but the sender, a thread of
 * the connection's own: everybody else puts what is to be sent into its queue, and asks for the state in `up`, which the
 * library's callbacks keep. What waits in the queue when its call has been given up, or the connection was lost, is not sent.
 *
 * Locks: one, taken last; memory only. */
#ifndef NRD_ENGINE_JETSTREAM_CONN_PRIVATE_H
#define NRD_ENGINE_JETSTREAM_CONN_PRIVATE_H

#include "engine/jetstream/conn.h"

#include "engine/base/pool.h"

#include <stdatomic.h>

/* A socket, and since when it is there. */
typedef struct NrdJsSeen {
    uint64_t cookie; /* of no other socket; 0: there is none */
    int64_t since_ms;
} NrdJsSeen;

/* Somebody who is called with an answer. */
typedef struct NrdJsCall {
    uint64_t token;
    int64_t deadline_ms; /* monotonic; 0: it could not be sent */
    int error;           /* what is answered then */
    int64_t begun_ms;    /* monotonic: it was sent then or later */
    bool waits;          /* a thread waits for it: see nrd_js_conn_hurry */
    NrdJsReplyFn fn;
    void *user_data;
} NrdJsCall;

typedef struct NrdJsReserve NrdJsReserve; /* see reserve.c */

struct NrdJsConn {
    NrdTimers *timers;
    NrdTimer look;      /* for calls whose time is over */
    NrdPool *workers;   /* may wait for servers */
    NrdPool *answerers; /* wait for no server: see nrd_js_answer_later */
    void (*reconnected)(void *user_data);
    void *user_data;
    bool (*is_told_to_end)(void); /* see NrdEngineOptions */
    natsOptions *options;         /* what each connection is made with */
    char *inbox;
    size_t inbox_size;
    _Atomic(natsConnection *) nats; /* whose lock only the sender waits for; lives until the close */
    atomic_bool up;
    atomic_size_t max_payload;
    _Atomic uint64_t next_token;
    _Atomic int64_t heard_ms; /* see nrd_js_conn_heard_ms; written with the lock held */
    GThread *sender;
    NrdJsReserve *reserve; /* the sender's; before it is there and after its end of who opens and closes */
    bool stuck;            /* of who makes and closes it: a call of the library does not end, and uses what there is */
    GPtrArray *natses;  /* the sender's: of natsConnection, all that there have been, since others may still use them */
    GPtrArray *replies; /* ... of natsSubscription, of their answers */
    NrdJsSeen seen;     /* of who calls nrd_js_conn_watch */
    GMutex lock;
    /* guarded by lock */
    GHashTable *calls; /* of NrdJsCall, by its token */
    uint64_t n_busy;   /* calls that are not answered yet, and jobs that have not ended */
    GCond idle;        /* there are none */
    bool hurried, stopping;
    GCond hurry;       /* one of the two has come */
    GQueue queue;      /* of what is to be sent */
    uint64_t n_losses; /* of the connection: what was queued before one is not sent after it, unless it is a call */
    bool given_up;     /* by the library: the sender makes another connection */
    bool sender_ends;
    bool sender_waits;
    GCond work;        /* for the sender, or its end */
    int64_t since_ms;  /* wall clock: of the state of `up` */
    char *refusal;     /* what the servers say to who connects; NULL: nothing */
    uint64_t n_late;   /* answers that came after the end of their lease, and are not in the log yet */
    int64_t late_ms;   /* ... by how much, at most */
    char *late_stream; /* ... of the last one */
};

/* ---- connect.c ---- */

/* What the library says of a failure, to the thread that it happened to. */
typedef struct NrdJsFailure {
    char *last; /* g_free; NULL: nothing */
    natsStatus of;
} NrdJsFailure;

/* natsConnection_Connect, bounded for each server that falls silent in the middle of the handshake, and ended when the process is
 * told to. *ret_failure is the caller's. Blocks. */
natsStatus nrd_js_connect(NrdJsConn *conn, natsConnection **ret_nats, NrdJsFailure *ret_failure);
/* Whether the connection is being closed, or who opens it was told to end before that has begun. */
bool nrd_js_is_told_to_end(NrdJsConn *conn);
/* natsConnection_Close, also of one that is in such a handshake. Blocks. */
void nrd_js_close_one(NrdJsConn *conn, natsConnection *nats);

/* Whether that failed as the system gave no thread. */
bool nrd_js_failed_for_threads(natsStatus status, const NrdJsFailure *failure);

/* ---- reserve.c ---- */

NrdJsReserve *nrd_js_reserve_new(void);
bool nrd_js_reserve_take(NrdJsReserve *reserve); /* those that are missing; false: the system does not give them all */
void nrd_js_reserve_give(NrdJsReserve *reserve); /* they have ended */
void nrd_js_reserve_free(NrdJsReserve *reserve); /* takes NULL */

/* ---- conn.c ---- */

/* Another connection in the place of one that the library has given up. The sender's. */
natsStatus nrd_js_conn_renew(NrdJsConn *conn);

/* ---- request.c ---- */

/* The servers' answers come here. */
void nrd_js_on_reply(natsConnection *nats, natsSubscription *sub, natsMsg *msg, void *user_data);
/* The timer's thread answers what is over. */
void nrd_js_on_look(void *user_data);
/* Answers all that have been given up, or wait too long, at that time. */
void nrd_js_answer_overdue(NrdJsConn *conn, int64_t now_ms);
/* It could not be sent. */
void nrd_js_call_failed(NrdJsConn *conn, uint64_t token, int error);
/* What came late is said in the log. */
void nrd_js_say_late(NrdJsConn *conn);
void nrd_js_busy_locked(NrdJsConn *conn);
void nrd_js_less_busy(NrdJsConn *conn);

/* ---- jobs.c ---- */

bool nrd_js_jobs_start(NrdJsConn *conn) NRD_MUST_CHECK; /* false: the system gave no threads for them */
void nrd_js_jobs_stop(NrdJsConn *conn);                 /* waits for those that run */

/* ---- send.c ---- */

/* What the sender does, in the order in which it is asked. */
typedef struct NrdJsSending {
    GList link;
    bool is_call;
    uint64_t token;
    uint64_t n_losses;
    int64_t not_after_ms;  /* monotonic: from then on it is not sent; 0: whenever it can be */
    natsMsg *msg;          /* to be sent, or NULL */
    natsSubscription *sub; /* to be given up, or NULL */
} NrdJsSending;

/* Taken over. */
void nrd_js_sending_push_locked(NrdJsConn *conn, const NrdJsSending *sending);
bool nrd_js_sender_start(NrdJsConn *conn) NRD_MUST_CHECK; /* false: the system gave no thread */
/* Sends what is queued, as long as there is a connection; then the thread ends. Waits for it. */
void nrd_js_sender_stop(NrdJsConn *conn);

#endif
