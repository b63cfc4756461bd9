/* Calls of the library that may not return: it has no bound for a server that takes a connection and falls silent in the
 * middle of the handshake, waits there for ever, or turns in circles, and holds its lock meanwhile. What ends that is that the
 * connection breaks. So each socket that is there for too long while there is no connection is broken from this side. It goes
 * on with the next server then.
 *
 * Which socket that is the library does not say (3.4): it takes none that others have made, an event loop is given it behind
 * the handshake, and no bound that can be set is in force during it. But the only sockets to other machines that this process
 * has are the library's, so it is found among the descriptors. What tells that it is still the one that was seen before is its
 * cookie, as numbers are given out again. */
#include "engine/jetstream/conn_private.h"

#include "engine/base/clock.h"
#include "engine/base/diag.h"

#include <sys/resource.h>
#include <sys/socket.h>

#define HANDSHAKE_MS 6000 /* by then the library is done with one server, else */
#define CONNECT_MS 60000  /* with all of them; a call that takes longer is left to itself */
#define STOP_MS 2000      /* the same, when nobody wants it any more */
#define LOOK_MS 100
#define NO_THREAD "pthread_create" /* as the library says it */
#define MAX_FDS 65536

/* ---- sockets ---- */

static int option_of(int fd, int option)
{
    int value = -1;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

/* The socket of a connection that is there or is being made; -1: there is none. */
static int find_socket(uint64_t *ret_cookie)
{
    struct rlimit limit;
    int end = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (int)MIN(limit.rlim_cur, MAX_FDS) : MAX_FDS;
    for (int fd = 0; fd < end; fd++) {
        int domain = option_of(fd, SO_DOMAIN);
        socklen_t size = sizeof *ret_cookie;
        if ((domain == AF_INET || domain == AF_INET6) && option_of(fd, SO_TYPE) == SOCK_STREAM &&
            getsockopt(fd, SOL_SOCKET, SO_COOKIE, ret_cookie, &size) == 0)
            return fd;
    }
    return -1;
}

/* Whether there was one. Should the number be another socket's by now, that one is made again. */
static bool break_stuck(NrdJsSeen *seen, int64_t max_ms)
{
    uint64_t cookie = 0;
    int64_t now_ms = nrd_clock_mono_ms();
    int fd = find_socket(&cookie);
    if (cookie != seen->cookie)
        *seen = (NrdJsSeen){ cookie, now_ms };
    return fd >= 0 && now_ms - seen->since_ms >= max_ms && shutdown(fd, SHUT_RDWR) == 0;
}

void nrd_js_conn_watch(NrdJsConn *conn)
{
    if (nrd_js_conn_is_up(conn))
        conn->seen = (NrdJsSeen){ .cookie = 0 };
    else if (break_stuck(&conn->seen, HANDSHAKE_MS))
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE,
                 "a NATS server takes the connection and goes on with nothing: it is left for the next one");
}

/* ---- calls ---- */

/* One, on a thread of its own. */
typedef struct Call Call;
struct Call {
    gint n_refs; /* atomic: who waits, and the thread */
    NrdJsConn *conn;
    void (*run)(Call *call);
    natsConnection *nats; /* what it gives, or is about */
    natsStatus status;
    NrdJsFailure failure;
    bool broken; /* of who waits: a socket of it was */
    GMutex lock;
    bool over; /* guarded by lock */
    GCond done;
};

static void unref_call(Call *call)
{
    if (!g_atomic_int_dec_and_test(&call->n_refs))
        return;
    g_free(call->failure.last);
    g_mutex_clear(&call->lock);
    g_cond_clear(&call->done);
    g_free(call);
}

static gpointer run_call(gpointer data)
{
    Call *call = data;
    call->run(call);
    g_mutex_lock(&call->lock);
    call->over = true;
    g_cond_signal(&call->done);
    g_mutex_unlock(&call->lock);
    unref_call(call);
    return NULL;
}

/* NULL: the system gave no thread for it. */
static Call *begin(NrdJsConn *conn, void (*run)(Call *call), natsConnection *nats)
{
    Call *call = g_new0(Call, 1);
    *call = (Call){ .n_refs = 2, .conn = conn, .run = run, .nats = nats };
    g_mutex_init(&call->lock);
    g_cond_init(&call->done);
    GThread *thread = g_thread_try_new("naradfs-nats", run_call, call, NULL);
    if (thread) {
        g_thread_unref(thread);
        return call;
    }
    call->n_refs = 1;
    unref_call(call);
    return NULL;
}

static bool wait_a_while(Call *call)
{
    gint64 until_us = g_get_monotonic_time() + LOOK_MS * G_TIME_SPAN_MILLISECOND;
    g_mutex_lock(&call->lock);
    while (!call->over && g_cond_wait_until(&call->done, &call->lock, until_us))
        ;
    bool over = call->over;
    g_mutex_unlock(&call->lock);
    return over;
}

bool nrd_js_is_told_to_end(NrdJsConn *conn)
{
    g_mutex_lock(&conn->lock);
    bool stopping = conn->stopping;
    g_mutex_unlock(&conn->lock);
    return stopping || (conn->is_told_to_end && conn->is_told_to_end());
}

/* false: it does not end, and what it uses has to stay. */
static bool wait_over(Call *call)
{
    NrdJsSeen seen = { .cookie = 0 };
    int64_t now_ms = nrd_clock_mono_ms(), until_ms = now_ms + CONNECT_MS;
    bool over, ends = false;
    while (!(over = wait_a_while(call)) && (now_ms = nrd_clock_mono_ms()) < until_ms) {
        if (!ends && nrd_js_is_told_to_end(call->conn)) {
            ends = true;
            until_ms = now_ms + STOP_MS;
        }
        if (!nrd_js_conn_is_up(call->conn))
            call->broken |= break_stuck(&seen, ends ? 0 : HANDSHAKE_MS);
    }
    if (!over)
        call->conn->stuck = true;
    return over;
}

static void run_connect(Call *call)
{
    call->status = natsConnection_Connect(&call->nats, call->conn->options);
    call->failure.last = g_strdup(nats_GetLastError(&call->failure.of));
}

natsStatus nrd_js_connect(NrdJsConn *conn, natsConnection **ret_nats, NrdJsFailure *ret_failure)
{
    Call *call = begin(conn, run_connect, NULL);
    natsStatus s = NATS_TIMEOUT;
    *ret_failure = (NrdJsFailure){ .of = NATS_OK };
    if (!call) {
        *ret_failure = (NrdJsFailure){ g_strdup(NO_THREAD), NATS_SYS_ERROR };
        return NATS_SYS_ERROR;
    }
    if (!wait_over(call)) {
        ret_failure->of = s;
    } else if (call->status != NATS_OK && call->broken) {
        *ret_failure = (NrdJsFailure){ g_strdup("a handshake that did not end"), s };
    } else {
        s = call->status;
        *ret_nats = call->nats;
        *ret_failure = call->failure;
        call->failure.last = NULL;
    }
    unref_call(call);
    return s;
}

bool nrd_js_failed_for_threads(natsStatus status, const NrdJsFailure *failure)
{
    return status == NATS_SYS_ERROR && failure->last && strstr(failure->last, NO_THREAD);
}

static void run_close(Call *call)
{
    natsConnection_Close(call->nats);
}

void nrd_js_close_one(NrdJsConn *conn, natsConnection *nats)
{
    Call *call = begin(conn, run_close, nats);
    if (!call) { /* it might not end here, either; it goes with the process */
        conn->stuck = true;
        return;
    }
    (void)wait_over(call);
    unref_call(call);
}
