/* Shows that a race is found, and that what is right is not called one. `tsan_probe CASE`: each case has two threads that
 * change the same variable or container; scripts/tsan knows which have to be reported. */
#include <glib.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct Shared {
    GMutex mutex;
    GMutex other;
    GCond cond;
    pthread_mutex_t lock;
    GHashTable *table;
    GThreadPool *pool;
    GAsyncQueue *queue;
    int number;
    bool ready;
} Shared;

typedef struct Case {
    const char *name;
    gpointer (*first)(gpointer data);
    gpointer (*second)(gpointer data);
} Case;

static Shared shared;

static gpointer bare(gpointer data)
{
    shared.number++;
    return NULL;
}

static gpointer under_mutex(gpointer data)
{
    g_mutex_lock(&shared.mutex);
    shared.number++;
    g_mutex_unlock(&shared.mutex);
    return NULL;
}

static gpointer under_other_mutex(gpointer data)
{
    g_mutex_lock(&shared.other);
    shared.number++;
    g_mutex_unlock(&shared.other);
    return NULL;
}

static gpointer under_pthread_mutex(gpointer data)
{
    pthread_mutex_lock(&shared.lock);
    shared.number++;
    pthread_mutex_unlock(&shared.lock);
    return NULL;
}

static gpointer in_table(gpointer data)
{
    g_mutex_lock(&shared.mutex);
    g_hash_table_add(shared.table, data);
    g_mutex_unlock(&shared.mutex);
    return NULL;
}

static gpointer in_table_bare(gpointer data)
{
    g_hash_table_add(shared.table, data);
    return NULL;
}

static gpointer give(gpointer data)
{
    g_mutex_lock(&shared.mutex);
    shared.number++;
    shared.ready = true;
    g_cond_signal(&shared.cond);
    g_mutex_unlock(&shared.mutex);
    return NULL;
}

static gpointer await(gpointer data)
{
    g_mutex_lock(&shared.mutex);
    while (!shared.ready)
        g_cond_wait(&shared.cond, &shared.mutex);
    g_mutex_unlock(&shared.mutex);
    shared.number++;
    return NULL;
}

static gpointer in_one_order(gpointer data)
{
    g_mutex_lock(&shared.mutex);
    g_mutex_lock(&shared.other);
    g_mutex_unlock(&shared.other);
    g_mutex_unlock(&shared.mutex);
    return NULL;
}

/* After the first has done, so that it does not hang; the order is wrong all the same. */
static gpointer in_the_other_order(gpointer data)
{
    g_usleep(100000);
    g_mutex_lock(&shared.other);
    g_mutex_lock(&shared.mutex);
    g_mutex_unlock(&shared.mutex);
    g_mutex_unlock(&shared.other);
    return NULL;
}

static gpointer push(gpointer data)
{
    int *number = g_new0(int, 1);
    *number = 1;
    g_async_queue_push(shared.queue, number);
    g_thread_pool_push(shared.pool, g_memdup2(number, sizeof(int)), NULL);
    return NULL;
}

static gpointer push_and_keep(gpointer data)
{
    int *number = g_new0(int, 1);
    g_async_queue_push(shared.queue, number);
    *number = 1;
    return NULL;
}

static gpointer pop(gpointer data)
{
    int *number = g_async_queue_pop(shared.queue);
    shared.number += *number;
    return NULL;
}

static void run_task(gpointer data, gpointer user_data)
{
    *(int *)data += 1;
    g_free(data);
}

static const Case cases[] = {
    { "bare", bare, bare },
    { "mutex-removed", under_mutex, bare },
    { "two-mutexes", under_mutex, under_other_mutex },
    { "pthread-mutex-removed", under_pthread_mutex, bare },
    { "table-unlocked", in_table, in_table_bare },
    { "pushed-and-kept", push_and_keep, pop },
    { "lock-order", in_one_order, in_the_other_order },
    { "right", under_mutex, under_mutex },
    { "right", under_pthread_mutex, under_pthread_mutex },
    { "right", in_table, in_table },
    { "right", give, await },
    { "right", push, pop },
    { "right", in_one_order, in_one_order },
};

static void run(const Case *which)
{
    g_mutex_init(&shared.mutex);
    g_mutex_init(&shared.other);
    g_cond_init(&shared.cond);
    pthread_mutex_init(&shared.lock, NULL);
    shared.table = g_hash_table_new(NULL, NULL);
    shared.queue = g_async_queue_new();
    shared.pool = g_thread_pool_new(run_task, NULL, 1, FALSE, NULL);
    GThread *first = g_thread_new("first", which->first, GINT_TO_POINTER(1));
    GThread *second = g_thread_new("second", which->second, GINT_TO_POINTER(2));
    g_thread_join(first);
    g_thread_join(second);
    g_thread_pool_free(shared.pool, FALSE, TRUE);
    g_async_queue_unref(shared.queue);
    g_hash_table_unref(shared.table);
    pthread_mutex_destroy(&shared.lock);
    g_cond_clear(&shared.cond);
    g_mutex_clear(&shared.other);
    g_mutex_clear(&shared.mutex);
}

int main(int argc, char **argv)
{
    unsigned n = 0;
    for (size_t i = 0; argc == 2 && i < G_N_ELEMENTS(cases); i++) {
        if (strcmp(cases[i].name, argv[1]) != 0)
            continue;
        run(&cases[i]);
        n++;
    }
    printf("%u of %s, number %d\n", n, argc == 2 ? argv[1] : "nothing", shared.number);
    return n == 0 ? 2 : 0;
}
