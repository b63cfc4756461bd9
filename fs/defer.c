/* See defer.h. The requests of one topic have at most two of the pool's eight threads, and wait for them in the order
 * they came: one topic whose disk is slow leaves room for the others. Files that are measured (NrdFileOps.visit_open),
 * which may take minutes, have a pool of four threads for themselves, so that they hold up nothing but each other. */
#include "fs/defer.h"

#include "engine/base/pool.h"

#include <errno.h>

#define MAX_THREADS 8
#define MAX_SLOW_THREADS 4
#define MAX_THREADS_OF_TOPIC 2

/* A deferred request. */
typedef struct Task {
    NrdNode *node; /* referenced */
    fuse_req_t req;
    NrdDeferFn fn;
    void *data;
} Task;

/* A pool, and who waits for it. */
typedef struct Desk {
    NrdPool *pool;
    GHashTable *lanes; /* topic -> Lane; guarded by the lock */
} Desk;

/* The requests of a topic; there while it has some. */
typedef struct Lane {
    NrdTopic *topic;
    uint32_t n_running; /* given to the pool */
    GQueue waiting;     /* Task */
} Lane;

struct NrdDefer {
    Desk quick;
    Desk slow;
    /* guarded by lock */
    GMutex lock;
    GCond idle;
    uint64_t n_pending;
    bool finishing;
};

static Desk *desk_of(NrdDefer *defer, const NrdNode *node)
{
    return node->info->ops && node->info->ops->visit_open ? &defer->slow : &defer->quick;
}

static Lane *lane_of_locked(Desk *desk, NrdTopic *topic)
{
    Lane *lane = g_hash_table_lookup(desk->lanes, topic);
    if (lane)
        return lane;
    lane = g_new0(Lane, 1);
    lane->topic = topic;
    g_queue_init(&lane->waiting);
    g_hash_table_insert(desk->lanes, topic, lane);
    return lane;
}

/* A task of the topic has ended: its place goes to the next one, which queues behind those of other topics. The task
 * still holds its node, and with it the topic. */
static void leave_lane_locked(Desk *desk, NrdTopic *topic)
{
    Lane *lane = g_hash_table_lookup(desk->lanes, topic);
    Task *next = g_queue_pop_head(&lane->waiting);
    if (next)
        nrd_pool_push(desk->pool, next);
    else if (--lane->n_running == 0)
        g_hash_table_remove(desk->lanes, topic);
}

static void run(void *data, void *user_data)
{
    Task *task = data;
    NrdDefer *defer = user_data;
    g_mutex_lock(&defer->lock);
    bool finishing = defer->finishing;
    g_mutex_unlock(&defer->lock);
    task->fn(task->node, task->req, task->data, finishing ? -ENODEV : 0);
    g_mutex_lock(&defer->lock);
    leave_lane_locked(desk_of(defer, task->node), task->node->topic);
    g_mutex_unlock(&defer->lock);
    nrd_node_unref(task->node);
    g_free(task);
    g_mutex_lock(&defer->lock);
    if (--defer->n_pending == 0)
        g_cond_broadcast(&defer->idle);
    g_mutex_unlock(&defer->lock);
}

static Desk new_desk(NrdDefer *defer, const char *name, unsigned max_threads)
{
    return (Desk){ nrd_pool_new(name, max_threads, run, defer),
                   g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free) };
}

static void free_desk(Desk *desk)
{
    nrd_pool_free(desk->pool);
    g_hash_table_unref(desk->lanes);
}

NrdDefer *nrd_defer_new(void)
{
    NrdDefer *defer = g_new0(NrdDefer, 1);
    g_mutex_init(&defer->lock);
    g_cond_init(&defer->idle);
    defer->quick = new_desk(defer, "naradfs-defer", MAX_THREADS);
    defer->slow = new_desk(defer, "naradfs-measure", MAX_SLOW_THREADS);
    if (defer->quick.pool && defer->slow.pool)
        return defer;
    nrd_defer_free(defer);
    return NULL;
}

void nrd_defer_free(NrdDefer *defer)
{
    if (!defer)
        return;
    free_desk(&defer->quick);
    free_desk(&defer->slow);
    g_cond_clear(&defer->idle);
    g_mutex_clear(&defer->lock);
    g_free(defer);
}

void nrd_defer(NrdNode *node, fuse_req_t req, NrdDeferFn fn, void *data)
{
    NrdDefer *defer = node->fs->defer;
    Task *task = g_new(Task, 1);
    *task = (Task){ node, req, fn, data };
    nrd_node_ref(node);
    g_mutex_lock(&defer->lock);
    defer->n_pending++;
    Desk *desk = desk_of(defer, node);
    Lane *lane = lane_of_locked(desk, node->topic);
    if (lane->n_running < MAX_THREADS_OF_TOPIC) {
        lane->n_running++;
        nrd_pool_push(desk->pool, task);
    } else {
        g_queue_push_tail(&lane->waiting, task);
    }
    g_mutex_unlock(&defer->lock);
}

void nrd_defer_finish(NrdDefer *defer)
{
    g_mutex_lock(&defer->lock);
    defer->finishing = true;
    while (defer->n_pending > 0)
        g_cond_wait(&defer->idle, &defer->lock);
    g_mutex_unlock(&defer->lock);
}

/* ---- what waits ---- */

/* The page of a topic tells of all its partitions. */
static bool all_known(NrdTopic *topic)
{
    uint32_t n = nrd_topic_n_partitions(topic);
    for (uint32_t i = 0; i < n; i++) {
        NrdPartition *partition = nrd_topic_partition(topic, i);
        if (partition && !nrd_partition_known(partition))
            return false;
    }
    return true;
}

/* Of all partitions of the node's topic: of a child's status it is the parent. */
static bool tells_of_partitions(const NrdKindInfo *info)
{
    return info->kind == NRD_KIND_TOPIC_STATUS || info->kind == NRD_KIND_CHILD_STATUS;
}

bool nrd_key_unknown(const NrdNodeKey *key)
{
    if (key->partition)
        return !nrd_partition_known(key->partition);
    return tells_of_partitions(key->info) && !all_known(key->topic);
}

bool nrd_node_unknown(const NrdNode *node)
{
    return nrd_key_unknown(&(NrdNodeKey){ .info = node->info, .topic = node->topic, .partition = node->partition });
}

bool nrd_node_waits(NrdNode *node)
{
    if (nrd_node_unknown(node))
        return true;
    if (!node->info->ops || !node->info->ops->visit)
        return false;
    g_mutex_lock(&node->lock);
    bool told = node->seen.final || (node->handles->len > 0 && !node->info->ops->visit_open);
    g_mutex_unlock(&node->lock);
    return !told;
}

int nrd_node_learn(NrdNode *node)
{
    if (node->partition)
        return nrd_partition_learn(node->partition);
    if (tells_of_partitions(node->info))
        nrd_topic_learn(node->topic);
    return 0;
}

int nrd_node_visit(NrdNode *node)
{
    int error = nrd_node_learn(node);
    if (error < 0)
        return error;
    return node->info->ops && node->info->ops->visit ? node->info->ops->visit(node) : 0;
}
