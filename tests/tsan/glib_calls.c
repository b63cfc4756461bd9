/* What ThreadSanitizer cannot see for itself, told to it. Linked into programs built with -Db_sanitize=thread alone: the linker
 * turns each call of the project to a function named in meson.build into one to __wrap_<function> here.
 *
 * glib is not instrumented. Its mutexes and condition variables are futexes, and its queues and thread pools are built on them,
 * so without this every field that they guard looks like a race. Told are the locks (then their order is checked as well), and
 * that what is pushed happens before it is popped or run.
 *
 * Its containers change their memory unseen, so one used without its lock would not be noticed. So each call counts as a
 * read or a write of the container's head. Strings are left out: none is shared.
 *
 * Not here: calls that glib makes to itself, atomics (macros over the compiler's, which are seen), threads (pthread_create
 * and pthread_join are intercepted within glib too). scripts/tsan fails when the project comes to use a synchronisation of
 * glib's that is missing here. */
#include <glib.h>
#include <pthread.h>
#include <sanitizer/tsan_interface.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

/* ThreadSanitizer's own entry points for accesses; no header declares them. */
void __tsan_read_range(void *addr, unsigned long size);
void __tsan_write_range(void *addr, unsigned long size);

/* What the linker calls the functions wrapped, and what it calls those here. */
#define REAL(function) __real_##function
#define WRAP(function) __wrap_##function

/* ---- where a thread gives way ---- */

/* Two accesses count as a race when no lock that one thread gave back was taken by the other in between; and what is left out
 * in one place mostly stands between two other locks, a microsecond apart. So a thread sleeps now and then when it has
 * just given a lock back, while others come to the same place. */
static void give_way(void)
{
    static _Thread_local uint32_t state;
    if (state == 0)
        state = (uint32_t)(uintptr_t)&state | 1;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    if (state % 64 == 0)
        usleep(state / 64 % 256);
}

int REAL(pthread_mutex_unlock)(pthread_mutex_t *mutex);
int WRAP(pthread_mutex_unlock)(pthread_mutex_t *mutex);

int WRAP(pthread_mutex_unlock)(pthread_mutex_t *mutex)
{
    int rc = REAL(pthread_mutex_unlock)(mutex);
    give_way();
    return rc;
}

/* ---- locks ---- */

void REAL(g_mutex_init)(GMutex *mutex);
void REAL(g_mutex_clear)(GMutex *mutex);
void REAL(g_mutex_lock)(GMutex *mutex);
gboolean REAL(g_mutex_trylock)(GMutex *mutex);
void REAL(g_mutex_unlock)(GMutex *mutex);
void REAL(g_cond_wait)(GCond *cond, GMutex *mutex);
gboolean REAL(g_cond_wait_until)(GCond *cond, GMutex *mutex, gint64 end_time);
void WRAP(g_mutex_init)(GMutex *mutex);
void WRAP(g_mutex_clear)(GMutex *mutex);
void WRAP(g_mutex_lock)(GMutex *mutex);
gboolean WRAP(g_mutex_trylock)(GMutex *mutex);
void WRAP(g_mutex_unlock)(GMutex *mutex);
void WRAP(g_cond_wait)(GCond *cond, GMutex *mutex);
gboolean WRAP(g_cond_wait_until)(GCond *cond, GMutex *mutex, gint64 end_time);

void WRAP(g_mutex_init)(GMutex *mutex)
{
    __tsan_mutex_create(mutex, __tsan_mutex_not_static);
    REAL(g_mutex_init)(mutex);
}

void WRAP(g_mutex_clear)(GMutex *mutex)
{
    REAL(g_mutex_clear)(mutex);
    __tsan_mutex_destroy(mutex, 0);
}

void WRAP(g_mutex_lock)(GMutex *mutex)
{
    __tsan_mutex_pre_lock(mutex, 0);
    REAL(g_mutex_lock)(mutex);
    __tsan_mutex_post_lock(mutex, 0, 0);
}

gboolean WRAP(g_mutex_trylock)(GMutex *mutex)
{
    __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
    gboolean got = REAL(g_mutex_trylock)(mutex);
    __tsan_mutex_post_lock(mutex, __tsan_mutex_try_lock | (got ? 0 : __tsan_mutex_try_lock_failed), 0);
    return got;
}

void WRAP(g_mutex_unlock)(GMutex *mutex)
{
    __tsan_mutex_pre_unlock(mutex, 0);
    REAL(g_mutex_unlock)(mutex);
    __tsan_mutex_post_unlock(mutex, 0);
    give_way();
}

void REAL(g_rec_mutex_init)(GRecMutex *mutex);
void REAL(g_rec_mutex_clear)(GRecMutex *mutex);
void REAL(g_rec_mutex_lock)(GRecMutex *mutex);
void REAL(g_rec_mutex_unlock)(GRecMutex *mutex);
void WRAP(g_rec_mutex_init)(GRecMutex *mutex);
void WRAP(g_rec_mutex_clear)(GRecMutex *mutex);
void WRAP(g_rec_mutex_lock)(GRecMutex *mutex);
void WRAP(g_rec_mutex_unlock)(GRecMutex *mutex);

void WRAP(g_rec_mutex_init)(GRecMutex *mutex)
{
    __tsan_mutex_create(mutex, __tsan_mutex_write_reentrant);
    REAL(g_rec_mutex_init)(mutex);
}

void WRAP(g_rec_mutex_clear)(GRecMutex *mutex)
{
    REAL(g_rec_mutex_clear)(mutex);
    __tsan_mutex_destroy(mutex, 0);
}

void WRAP(g_rec_mutex_lock)(GRecMutex *mutex)
{
    __tsan_mutex_pre_lock(mutex, __tsan_mutex_write_reentrant);
    REAL(g_rec_mutex_lock)(mutex);
    __tsan_mutex_post_lock(mutex, __tsan_mutex_write_reentrant, 1);
}

void WRAP(g_rec_mutex_unlock)(GRecMutex *mutex)
{
    __tsan_mutex_pre_unlock(mutex, 0);
    REAL(g_rec_mutex_unlock)(mutex);
    __tsan_mutex_post_unlock(mutex, 0);
    give_way();
}

/* glib gives the mutex back and takes it again unseen. */
static void before_wait(GMutex *mutex)
{
    __tsan_mutex_pre_unlock(mutex, 0);
    __tsan_mutex_post_unlock(mutex, 0);
}

static void after_wait(GMutex *mutex)
{
    __tsan_mutex_pre_lock(mutex, 0);
    __tsan_mutex_post_lock(mutex, 0, 0);
}

void WRAP(g_cond_wait)(GCond *cond, GMutex *mutex)
{
    before_wait(mutex);
    REAL(g_cond_wait)(cond, mutex);
    after_wait(mutex);
}

gboolean WRAP(g_cond_wait_until)(GCond *cond, GMutex *mutex, gint64 end_time)
{
    before_wait(mutex);
    gboolean in_time = REAL(g_cond_wait_until)(cond, mutex, end_time);
    after_wait(mutex);
    return in_time;
}

/* ThreadSanitizer knows sem_post and sem_wait, but not this one. */
int REAL(sem_clockwait)(sem_t *sem, clockid_t clock, const struct timespec *until);
int WRAP(sem_clockwait)(sem_t *sem, clockid_t clock, const struct timespec *until);

int WRAP(sem_clockwait)(sem_t *sem, clockid_t clock, const struct timespec *until)
{
    int rc = REAL(sem_clockwait)(sem, clock, until);
    if (rc == 0)
        __tsan_acquire(sem);
    return rc;
}

/* ---- queues and thread pools ---- */

void REAL(g_async_queue_push)(GAsyncQueue *queue, gpointer data);
gpointer REAL(g_async_queue_pop)(GAsyncQueue *queue);
gpointer REAL(g_async_queue_try_pop)(GAsyncQueue *queue);
void WRAP(g_async_queue_push)(GAsyncQueue *queue, gpointer data);
gpointer WRAP(g_async_queue_pop)(GAsyncQueue *queue);
gpointer WRAP(g_async_queue_try_pop)(GAsyncQueue *queue);

void WRAP(g_async_queue_push)(GAsyncQueue *queue, gpointer data)
{
    __tsan_release(queue);
    REAL(g_async_queue_push)(queue, data);
}

gpointer WRAP(g_async_queue_pop)(GAsyncQueue *queue)
{
    gpointer data = REAL(g_async_queue_pop)(queue);
    __tsan_acquire(queue);
    return data;
}

gpointer WRAP(g_async_queue_try_pop)(GAsyncQueue *queue)
{
    gpointer data = REAL(g_async_queue_try_pop)(queue);
    __tsan_acquire(queue);
    return data;
}

/* A pool's function, called by way of run_task. Stands in the pool's public user_data. */
typedef struct Pool {
    GFunc func;
    gpointer user_data;
    char pushed; /* only its address counts */
    char done;   /* likewise */
} Pool;

GThreadPool *REAL(g_thread_pool_new)(GFunc func, gpointer user_data, gint max_threads, gboolean exclusive,
                                     GError **error);
gboolean REAL(g_thread_pool_push)(GThreadPool *pool, gpointer data, GError **error);
void REAL(g_thread_pool_free)(GThreadPool *pool, gboolean immediate, gboolean wait);
GThreadPool *WRAP(g_thread_pool_new)(GFunc func, gpointer user_data, gint max_threads, gboolean exclusive,
                                     GError **error);
gboolean WRAP(g_thread_pool_push)(GThreadPool *pool, gpointer data, GError **error);
void WRAP(g_thread_pool_free)(GThreadPool *pool, gboolean immediate, gboolean wait);

/* glib's last thread frees the pool, which comes after all looks at it, unseen. */
static __attribute__((noinline, no_sanitize("thread"))) Pool *pool_of(GThreadPool *pool)
{
    return pool->user_data;
}

static void run_task(gpointer data, gpointer user_data)
{
    Pool *pool = user_data;
    __tsan_acquire(&pool->pushed);
    pool->func(data, pool->user_data);
    __tsan_release(&pool->done);
}

GThreadPool *WRAP(g_thread_pool_new)(GFunc func, gpointer user_data, gint max_threads, gboolean exclusive,
                                     GError **error)
{
    Pool *pool = g_new0(Pool, 1);
    pool->func = func;
    pool->user_data = user_data;
    return REAL(g_thread_pool_new)(run_task, pool, max_threads, exclusive, error);
}

gboolean WRAP(g_thread_pool_push)(GThreadPool *pool, gpointer data, GError **error)
{
    __tsan_release(&pool_of(pool)->pushed);
    return REAL(g_thread_pool_push)(pool, data, error);
}

void WRAP(g_thread_pool_free)(GThreadPool *pool, gboolean immediate, gboolean wait)
{
    Pool *ours = pool_of(pool);
    REAL(g_thread_pool_free)(pool, immediate, wait);
    if (!wait)
        return; /* tasks may still run: `ours` stays for them */
    __tsan_acquire(&ours->done);
    g_free(ours);
}

/* ---- containers ---- */

#define READS(container) __tsan_read_range(container, sizeof(gpointer))
#define WRITES(container) __tsan_write_range(container, sizeof(gpointer))

/* A function that looks at, or changes, the container that is its first parameter. */
#define CALL(access, type, function, parameters, arguments, container)                                                 \
    type REAL(function) parameters;                                                                                    \
    type WRAP(function) parameters;                                                                                    \
    type WRAP(function) parameters                                                                                     \
    {                                                                                                                  \
        access(container);                                                                                             \
        return REAL(function) arguments;                                                                               \
    }

#define HASH(access, type, function) CALL(access, type, function, (GHashTable * table), (table), table)
#define HASH_KEY(access, type, function)                                                                               \
    CALL(access, type, function, (GHashTable * table, gconstpointer key), (table, key), table)
#define HASH_PAIR(access, type, function)                                                                              \
    CALL(access, type, function, (GHashTable * table, gpointer key, gpointer value), (table, key, value), table)

HASH_KEY(READS, gpointer, g_hash_table_lookup)
HASH_KEY(READS, gboolean, g_hash_table_contains)
HASH(READS, guint, g_hash_table_size)
HASH(READS, GList *, g_hash_table_get_keys)
HASH(READS, GList *, g_hash_table_get_values)
HASH_KEY(WRITES, gboolean, g_hash_table_remove)
HASH_KEY(WRITES, gboolean, g_hash_table_steal)
HASH_PAIR(WRITES, gboolean, g_hash_table_insert)
HASH_PAIR(WRITES, gboolean, g_hash_table_replace)
CALL(WRITES, gboolean, g_hash_table_add, (GHashTable * table, gpointer key), (table, key), table)
CALL(READS, void, g_hash_table_iter_init, (GHashTableIter * iter, GHashTable *table), (iter, table), table)

/* The first three words of an array, a pointer array and a byte array are the same: where the elements are. */
#define ARRAY(access, type, function, parameters, arguments) CALL(access, type, function, parameters, arguments, array)

ARRAY(WRITES, void, g_ptr_array_add, (GPtrArray * array, gpointer data), (array, data))
ARRAY(WRITES, void, g_ptr_array_insert, (GPtrArray * array, gint i, gpointer data), (array, i, data))
ARRAY(WRITES, gpointer, g_ptr_array_remove_index, (GPtrArray * array, guint i), (array, i))
ARRAY(WRITES, gboolean, g_ptr_array_remove, (GPtrArray * array, gpointer data), (array, data))
ARRAY(WRITES, void, g_ptr_array_set_size, (GPtrArray * array, gint size), (array, size))
ARRAY(WRITES, void, g_ptr_array_sort, (GPtrArray * array, GCompareFunc compare), (array, compare))
ARRAY(READS, gboolean, g_ptr_array_find, (GPtrArray * array, gconstpointer data, guint *ret_i), (array, data, ret_i))
ARRAY(WRITES, GArray *, g_array_append_vals, (GArray * array, gconstpointer data, guint n), (array, data, n))
ARRAY(WRITES, GArray *, g_array_insert_vals, (GArray * array, guint i, gconstpointer data, guint n),
      (array, i, data, n))
ARRAY(WRITES, GArray *, g_array_set_size, (GArray * array, guint size), (array, size))
ARRAY(WRITES, GArray *, g_array_remove_range, (GArray * array, guint i, guint n), (array, i, n))
ARRAY(WRITES, GArray *, g_array_remove_index, (GArray * array, guint i), (array, i))
ARRAY(WRITES, GArray *, g_array_remove_index_fast, (GArray * array, guint i), (array, i))
ARRAY(WRITES, void, g_array_sort, (GArray * array, GCompareFunc compare), (array, compare))
ARRAY(READS, GArray *, g_array_copy, (GArray * array), (array))
ARRAY(READS, gboolean, g_array_binary_search,
      (GArray * array, gconstpointer target, GCompareFunc compare, guint *ret_i), (array, target, compare, ret_i))
ARRAY(WRITES, GByteArray *, g_byte_array_append, (GByteArray * array, const guint8 *data, guint n), (array, data, n))
ARRAY(WRITES, GByteArray *, g_byte_array_set_size, (GByteArray * array, guint size), (array, size))

#define QUEUE(access, type, function) CALL(access, type, function, (GQueue * queue), (queue), queue)
#define QUEUE_LINK(function) CALL(WRITES, void, function, (GQueue * queue, GList * link), (queue, link), queue)

QUEUE(READS, gboolean, g_queue_is_empty)
QUEUE(READS, gpointer, g_queue_peek_head)
QUEUE(READS, gpointer, g_queue_peek_tail)
QUEUE(WRITES, gpointer, g_queue_pop_head)
QUEUE(WRITES, GList *, g_queue_pop_head_link)
QUEUE_LINK(g_queue_push_head_link)
QUEUE_LINK(g_queue_push_tail_link)
QUEUE_LINK(g_queue_unlink)
QUEUE_LINK(g_queue_delete_link)
CALL(WRITES, void, g_queue_push_tail, (GQueue * queue, gpointer data), (queue, data), queue)
