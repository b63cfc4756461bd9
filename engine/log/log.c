/* Opening, closing and describing a log; see log.h. */
#include "engine/log/log_private.h"

#include "engine/io/io.h"
#include "engine/log/segments/segment_age.h"
#include "engine/log/segments/segment_render.h"
#include "engine/log/zero_ahead.h"

#include <errno.h>

int nrd_log_open(const NrdLogOptions *options, NrdLog **ret_log)
{
    NrdLog *log = g_new0(NrdLog, 1);

    log->home = (NrdSegmentHome){ .root_fd = options->root_fd,
                                  .dir = g_strdup(options->dir),
                                  .topic = g_strdup(options->topic),
                                  .partition = options->partition,
                                  .read_only = options->read_only };
    log->hwm_path = g_strdup_printf("%s/hwm", options->dir);
    log->settings = options->settings;
    log->list = nrd_segment_list_new(NULL, 0);
    log->missing = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    log->forgotten = g_array_new(FALSE, FALSE, sizeof(NrdGap));
    g_mutex_init(&log->lock);
    g_mutex_init(&log->remove_lock);
    g_queue_init(&log->detached);
    int r = nrd_log_recover(log);
    if (r < 0) {
        log->home.closed = true;
        if (options->ret_why != NULL)
            *options->ret_why = g_steal_pointer(&log->why);
        nrd_log_free(log);
        return r;
    }
    *ret_log = log;
    return 0;
}

int nrd_log_write_hwm(NrdLog *log)
{
    NrdHwm hwm;
    /* What was lost above the boundary is remembered until a commit has passed it. */
    uint64_t value = MAX(nrd_load(&log->hwm), log->skip_to);

    int r = nrd_hwm_read(log->home.root_fd, log->hwm_path, &hwm);
    if (r == 0 && hwm.clean && hwm.value == value)
        return 0;
    if (r == 0 && !hwm.exists && value == 0)
        return 0;
    if (r == 0)
        r = nrd_hwm_write(log->home.root_fd, log->home.dir, log->hwm_path, value);
    return r;
}

/* Leaves the exact boundary for the next open. */
static int leave_hwm(NrdLog *log)
{
    if (log->home.read_only || nrd_log_is_poisoned(log))
        return 0; /* poisoned: the file is empty, or from before; the next open looks at the disk */
    int r = nrd_log_write_hwm(log);
    if (r < 0)
        nrd_diag(NRD_LEVEL_ERROR, nrd_segment_home_place(&log->home, (int64_t)nrd_load(&log->hwm)),
                 "cannot write %s: %s; the next open takes the boundary from the records", log->hwm_path,
                 g_strerror(-r));
    return r;
}

/* Leaves what nrd_log_peek tells about the active segment; behind the boundary, which has to be right for it. */
static void write_sums(NrdLog *log)
{
    NrdSegment *active = nrd_log_active(log);

    if (active != NULL && !log->home.read_only && !nrd_log_is_poisoned(log)) {
        nrd_segment_write_closed(active, nrd_load(&log->hwm) == nrd_load(&log->next_offset));
        nrd_segment_render_close(active);
    }
}

static void drop_descriptors(NrdLog *log)
{
    GPtrArray *segments = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_segment_unref);

    g_mutex_lock(&log->lock);
    for (guint i = 0; i < log->list->n; i++)
        g_ptr_array_add(segments, nrd_segment_ref(log->list->items[i]));
    for (GList *l = log->detached.head; l != NULL; l = l->next)
        g_ptr_array_add(segments, nrd_segment_ref(l->data));
    g_mutex_unlock(&log->lock);
    for (guint i = 0; i < segments->len; i++)
        nrd_segment_drop_fd(segments->pdata[i]); /* a reader that is in the middle closes it when it is done */
    g_ptr_array_unref(segments);
}

int nrd_log_close(NrdLog *log)
{
    if (__atomic_exchange_n(&log->home.closed, true, __ATOMIC_ACQ_REL))
        return 0;
    if (!log->home.read_only && !nrd_log_is_poisoned(log) && nrd_log_active(log) != NULL)
        nrd_zero_ahead_cut(log, nrd_log_active(log));
    int r = leave_hwm(log);
    if (r == 0)
        write_sums(log);
    nrd_log_remove_at_close(log);
    drop_descriptors(log);
    return r;
}

void nrd_log_abandon(NrdLog *log)
{
    __atomic_store_n(&log->home.abandoned, true, __ATOMIC_RELEASE);
    if (!__atomic_exchange_n(&log->home.closed, true, __ATOMIC_ACQ_REL))
        drop_descriptors(log);
}

void nrd_log_free(NrdLog *log)
{
    if (log == NULL)
        return;
    g_assert(log->home.closed && log->texts == NULL && log->rendered == NULL);
    nrd_segment_list_unref(log->list);
    g_array_unref(log->missing);
    g_array_unref(log->forgotten);
    g_queue_clear_full(&log->detached, (GDestroyNotify)nrd_segment_unref);
    g_mutex_clear(&log->lock);
    g_mutex_clear(&log->remove_lock);
    g_free(log->poison_reason);
    g_free(log->why);
    g_free(log->hwm_path);
    g_free(log->home.dir);
    g_free(log->home.topic);
    g_free(log);
}

void nrd_log_configure(NrdLog *log, const NrdLogSettings *settings)
{
    g_mutex_lock(&log->lock);
    log->settings = *settings;
    g_mutex_unlock(&log->lock);
}

int nrd_log_check(NrdLog *log)
{
    return nrd_log_is_poisoned(log) ? -EIO : 0;
}

char *nrd_log_poison_reason(NrdLog *log)
{
    g_mutex_lock(&log->lock);
    char *reason = g_strdup(log->poison_reason);
    g_mutex_unlock(&log->lock);
    return reason;
}

static void add_unreadable_locked(NrdLog *log, NrdLogStats *stats)
{
    for (guint i = 0; nrd_load(&log->home.n_unreadable) > 0 && i < log->list->n; i++) {
        int error = nrd_segment_read_error(log->list->items[i]);
        if (error == 0)
            continue;
        if (stats->n_unreadable++ == 0) {
            stats->unreadable = nrd_segment_base(log->list->items[i]);
            stats->unreadable_errno = -error;
        }
    }
}

static uint64_t count_files_locked(const NrdLog *log)
{
    uint64_t n = log->list->n;

    for (guint i = 0; nrd_load(&log->home.n_gaps) > 0 && i < log->list->n; i++)
        n -= nrd_segment_is_gone(log->list->items[i]);
    return n;
}

void nrd_log_stats(NrdLog *log, NrdLogStats *ret_stats)
{
    NrdLogStats stats = { 0 };

    g_mutex_lock(&log->lock);
    stats.oldest_offset = nrd_load(&log->oldest);
    stats.hwm = nrd_load(&log->hwm);
    stats.next_offset = MAX(nrd_load(&log->next_offset), log->skip_to); /* set once, at open */
    stats.last_commit_ms = __atomic_load_n(&log->newest_ms, __ATOMIC_ACQUIRE);
    stats.commit_errno = -__atomic_load_n(&log->commit_error, __ATOMIC_ACQUIRE);
    stats.poison_errno = log->poison_errno;
    stats.by_others = log->poison_errno != 0 && log->poison_by_others;
    stats.n_segments = count_files_locked(log);
    if (log->list->n > 0) {
        const NrdSegmentSums *sums = nrd_segment_list_sums_locked(log->list, nrd_load(&log->home.text_version));
        NrdSegment *active = nrd_segment_list_last(log->list);
        stats.size_bytes = sums->size_bytes + nrd_segment_size_bytes(active);
        stats.text_bytes = sums->text_start[log->list->n - 1] + nrd_log_visible_text_locked(log, active);
        stats.oldest_first_ms = nrd_segment_first_ms(log->list->items[0]);
        stats.oldest_last_ms = nrd_segment_last_ms(log->list->items[0]);
        stats.oldest_bytes = nrd_segment_size_bytes(log->list->items[0]);
        stats.oldest_file_ms = nrd_segment_file_ms(log->list->items[0]);
    }
    for (guint i = 0; nrd_load(&log->home.n_gaps) > 0 && i < log->list->n; i++)
        nrd_segment_add_damage(log->list->items[i], &stats.damage);
    nrd_log_add_missing_locked(log, &stats.damage);
    add_unreadable_locked(log, &stats);
    uint64_t hidden_end = MIN(log->hidden_end, nrd_load(&log->next_offset));
    stats.n_hidden = hidden_end > stats.hwm ? hidden_end - stats.hwm : 0;
    g_mutex_unlock(&log->lock);
    *ret_stats = stats;
}

static gint by_offset(gconstpointer a, gconstpointer b)
{
    const NrdGap *left = a, *right = b;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

GArray *nrd_log_gaps(NrdLog *log)
{
    GArray *gaps = g_array_new(FALSE, FALSE, sizeof(NrdGap));

    g_mutex_lock(&log->lock);
    for (guint i = 0; nrd_load(&log->home.n_gaps) > 0 && i < log->list->n; i++)
        nrd_segment_copy_gaps(log->list->items[i], gaps);
    g_mutex_unlock(&log->lock);
    g_array_sort(gaps, by_offset);
    return gaps;
}

const char *nrd_log_why(const NrdLog *log)
{
    return log->why != NULL ? log->why : "it is closed";
}

uint64_t nrd_log_hwm(NrdLog *log)
{
    return nrd_load(&log->hwm);
}

uint64_t nrd_log_oldest(NrdLog *log)
{
    return nrd_load(&log->oldest);
}
