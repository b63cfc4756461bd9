/* Jobs, on the threads of the connection's two pools: what waits for servers, and what waits for none. See conn.h. */
#include "engine/jetstream/conn_private.h"

#define MAX_WORKERS 32
#define MAX_ANSWERERS 8

/* What a thread of nrd_js_later is to do. */
typedef struct Job {
    void (*fn)(void *user_data);
    void *user_data;
} Job;

static void run_job(void *data, void *user_data)
{
    NrdJsConn *conn = user_data;
    Job *job = data;
    job->fn(job->user_data);
    g_free(job);
    nrd_js_less_busy(conn);
}

bool nrd_js_jobs_start(NrdJsConn *conn)
{
    conn->workers = nrd_pool_new("naradfs-servers", MAX_WORKERS, run_job, conn);
    conn->answerers = nrd_pool_new("naradfs-answers", MAX_ANSWERERS, run_job, conn);
    return conn->workers && conn->answerers;
}

void nrd_js_jobs_stop(NrdJsConn *conn)
{
    nrd_pool_free(conn->workers);
    nrd_pool_free(conn->answerers);
}

static void push_job(NrdJsConn *conn, NrdPool *pool, void (*fn)(void *user_data), void *user_data)
{
    Job *job = g_new(Job, 1);
    *job = (Job){ fn, user_data };
    g_mutex_lock(&conn->lock);
    nrd_js_busy_locked(conn);
    g_mutex_unlock(&conn->lock);
    nrd_pool_push(pool, job);
}

void nrd_js_later(NrdJsConn *conn, void (*fn)(void *user_data), void *user_data)
{
    push_job(conn, conn->workers, fn, user_data);
}

void nrd_js_answer_later(NrdJsConn *conn, void (*fn)(void *user_data), void *user_data)
{
    push_job(conn, conn->answerers, fn, user_data);
}

/* Somebody who is called when something is done. */
typedef struct Done {
    NrdDoneFn done;
    void *user_data;
    int error;
} Done;

static void run_done(void *user_data)
{
    Done *done = user_data;
    done->done(done->user_data, done->error);
    g_free(done);
}

void nrd_js_done_later(NrdJsConn *conn, NrdDoneFn done, void *user_data, int error)
{
    Done job = { done, user_data, error };
    nrd_js_answer_later(conn, run_done, g_memdup2(&job, sizeof job));
}
