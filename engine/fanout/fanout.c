/* Links: how they come and go, and what is asked of them. */
#include "engine/fanout/fanout_private.h"

#include "engine/base/clock.h"
#include "engine/base/cond.h"

#define DEFAULT_WORKERS 4

/* Where the cursors of a link to come were written, to tell it before they are read. */
typedef struct Prepared {
    NrdCursorOwner owner;
    GArray *offsets; /* of uint64_t, by partition */
} Prepared;

static void prepared_free(gpointer data)
{
    Prepared *prepared = data;
    g_array_unref(prepared->offsets);
    g_free(prepared);
}

static char *prepared_key(const void *parent, const char *child)
{
    return g_strdup_printf("%p/%s", parent, child);
}

/* ---- life ---- */

static void links_free(gpointer links)
{
    g_ptr_array_unref(links);
}

NrdFanout *nrd_fanout_new(const NrdFanoutOptions *options)
{
    NrdFanout *f = g_new0(NrdFanout, 1);
    f->options = *options;
    if (f->options.n_workers == 0)
        f->options.n_workers = DEFAULT_WORKERS;
    pthread_mutex_init(&f->lock, NULL);
    nrd_cond_init(&f->work);
    nrd_cond_init(&f->time);
    nrd_cond_init(&f->change);
    f->parents = g_hash_table_new_full(NULL, NULL, NULL, links_free);
    f->prepared = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, prepared_free);
    g_queue_init(&f->ready);
    nrd_due_heap_init(&f->soon);
    nrd_due_heap_init(&f->delayed);
    f->workers = g_array_new(FALSE, FALSE, sizeof(pthread_t));
    pthread_mutex_lock(&f->lock);
    f->stopping = !f->options.frozen && !nrd_workers_add(f);
    bool any = !f->stopping;
    pthread_mutex_unlock(&f->lock);
    if (any)
        return f;
    nrd_fanout_free(f);
    return NULL;
}

static void link_free(NrdLink *link)
{
    const NrdFanoutOps *ops = &link->fanout->options.ops;
    for (guint i = 0; i < link->cursors->len; i++)
        nrd_cursor_free(link->cursors->pdata[i]);
    g_ptr_array_unref(link->cursors);
    ops->release(link->parent);
    ops->release(link->child);
    g_free(link->parent_name);
    g_free(link->child_name);
    g_free(link);
}

/* Takes the link out of everything; the passes under way go on. Lock held. */
static void detach_locked(NrdFanout *f, NrdLink *link)
{
    GPtrArray *links = g_hash_table_lookup(f->parents, link->parent);
    atomic_store(&link->stopping, true);
    g_ptr_array_remove(links, link);
    if (links->len == 0)
        g_hash_table_remove(f->parents, link->parent);
    for (guint i = 0; i < link->cursors->len; i++)
        nrd_cursor_detach(link->cursors->pdata[i]);
}

/* Any link, or NULL. */
static NrdLink *take_link(NrdFanout *f)
{
    GHashTableIter iter;
    gpointer links;
    NrdLink *link = NULL;
    pthread_mutex_lock(&f->lock);
    g_hash_table_iter_init(&iter, f->parents);
    if (g_hash_table_iter_next(&iter, NULL, &links)) {
        link = ((GPtrArray *)links)->pdata[0];
        detach_locked(f, link);
    }
    pthread_mutex_unlock(&f->lock);
    return link;
}

void nrd_fanout_close(NrdFanout *f)
{
    NrdLink *link;
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->stopping = true;
    pthread_mutex_unlock(&f->lock);
    nrd_workers_join(f);
    while ((link = take_link(f))) {
        for (guint i = 0; !f->options.frozen && i < link->cursors->len; i++)
            nrd_cursor_flush(link->cursors->pdata[i]);
        link_free(link);
    }
}

void nrd_fanout_free(NrdFanout *f)
{
    if (!f)
        return;
    g_assert(f->stopping && g_hash_table_size(f->parents) == 0);
    g_hash_table_unref(f->parents);
    g_hash_table_unref(f->prepared);
    nrd_due_heap_clear(&f->soon);
    nrd_due_heap_clear(&f->delayed);
    g_array_unref(f->workers);
    pthread_cond_destroy(&f->work);
    pthread_cond_destroy(&f->time);
    pthread_cond_destroy(&f->change);
    pthread_mutex_destroy(&f->lock);
    g_free(f);
}

/* ---- links come ---- */

static void remember_locked(NrdFanout *f, char *key, uint32_t partition, const NrdCursorOwner *owner, uint64_t offset)
{
    Prepared *prepared = g_hash_table_lookup(f->prepared, key);
    if (!prepared || prepared->owner.epoch != owner->epoch) {
        prepared = g_new(Prepared, 1);
        *prepared = (Prepared){ *owner, g_array_new(FALSE, FALSE, sizeof(uint64_t)) };
        g_hash_table_replace(f->prepared, g_strdup(key), prepared);
    }
    const uint64_t unknown = NRD_NOT_PREPARED;
    while (prepared->offsets->len <= partition)
        g_array_append_val(prepared->offsets, unknown);
    g_array_index(prepared->offsets, uint64_t, partition) = offset;
}

int nrd_fanout_prepare(NrdFanout *f, const void *parent, const char *parent_name, uint32_t partition, const char *child,
                       const NrdCursorOwner *owner, uint64_t offset)
{
    NrdCursorStore store;
    nrd_cursor_store_init(&store, f->options.root_fd, parent_name, partition, child, owner);
    int rc = nrd_cursor_store_write(&store, offset); /* nothing is loaded: the file is replaced, durably */
    nrd_cursor_store_clear(&store);
    if (rc < 0)
        return rc;
    g_autofree char *key = prepared_key(parent, child);
    pthread_mutex_lock(&f->lock);
    remember_locked(f, key, partition, owner, offset);
    pthread_mutex_unlock(&f->lock);
    return 0;
}

static NrdLink *link_new(NrdFanout *f, const NrdFanoutLink *options)
{
    NrdLink *link = g_new0(NrdLink, 1);
    link->fanout = f;
    link->parent = options->parent;
    link->child = options->child;
    link->parent_name = g_strdup(options->parent_name);
    link->child_name = g_strdup(options->child_name);
    link->owner = options->owner;
    link->attached_ms = options->attached_ms;
    link->delay_ms = options->delay_ms;
    link->cursors = g_ptr_array_new();
    link->ready_link.data = link;
    g_queue_init(&link->ready);
    return link;
}

/* The link has cursors for so many partitions at least; new ones are to be loaded. */
static void grow(NrdLink *link, uint32_t n_partitions)
{
    for (uint32_t i = link->cursors->len; i < n_partitions; i++) {
        NrdFanCursor *cursor = nrd_fan_cursor_new(link, i);
        g_ptr_array_add(link->cursors, cursor);
        if (!link->fanout->options.frozen)
            nrd_cursor_set_state(cursor, NRD_CURSOR_READY, 0);
    }
}

static void tell_prepared_locked(NrdFanout *f, NrdLink *link)
{
    g_autofree char *key = prepared_key(link->parent, link->child_name);
    const Prepared *prepared = g_hash_table_lookup(f->prepared, key);
    if (prepared && prepared->owner.epoch == link->owner.epoch) {
        for (guint i = 0; i < MIN(prepared->offsets->len, link->cursors->len); i++) {
            NrdFanCursor *cursor = link->cursors->pdata[i];
            uint64_t offset = g_array_index(prepared->offsets, uint64_t, i);
            cursor->shown.cursor = offset;
            cursor->shown_known = offset != NRD_NOT_PREPARED;
        }
    }
    g_hash_table_remove(f->prepared, key);
}

static void peek_cursors(NrdLink *link)
{
    for (guint i = 0; i < link->cursors->len; i++) {
        NrdFanCursor *cursor = link->cursors->pdata[i];
        nrd_cursor_peek(cursor);
        cursor->shown.cursor = cursor->offset;
        cursor->shown_known = cursor->loaded;
    }
}

void nrd_fanout_add(NrdFanout *f, const NrdFanoutLink *options)
{
    NrdLink *link = link_new(f, options);
    uint32_t n_partitions = f->options.ops.n_partitions(link->parent);
    if (f->options.frozen) {
        grow(link, n_partitions);
        peek_cursors(link);
    }
    pthread_mutex_lock(&f->lock);
    GPtrArray *links = g_hash_table_lookup(f->parents, link->parent);
    if (!links) {
        links = g_ptr_array_new();
        g_hash_table_insert(f->parents, link->parent, links);
    }
    g_ptr_array_add(links, link);
    grow(link, n_partitions);
    tell_prepared_locked(f, link);
    pthread_mutex_unlock(&f->lock);
}

/* ---- links go ---- */

NrdLink *nrd_link_find_locked(NrdFanout *f, const void *parent, const char *child, bool newest)
{
    GPtrArray *links = g_hash_table_lookup(f->parents, parent);
    NrdLink *found = NULL;
    for (guint i = 0; links && i < links->len; i++) {
        NrdLink *link = links->pdata[i];
        if (strcmp(link->child_name, child) == 0 && (newest || !found))
            found = link;
    }
    return found;
}

static void tell_removal(const char *parent, uint32_t partition, const char *path, int rc)
{
    if (rc < 0)
        nrd_diag(NRD_LEVEL_WARNING, (NrdPlace){ parent, partition, NRD_NO_OFFSET },
                 "%s could not be removed: %s; it does no harm", path, g_strerror(-rc));
}

/* How many records of the cursor's partition were neither copied nor lost before. No worker has it any more. */
static uint64_t left_behind(NrdFanCursor *cursor)
{
    uint64_t oldest = 0, hwm = 0;
    if (!cursor->loaded || !nrd_cursor_same_files(cursor))
        nrd_cursor_peek(cursor);
    if (!cursor->loaded)
        return 0;
    if (nrd_cursor_ops(cursor)->bounds(cursor->link->parent, cursor->partition, true, &oldest, &hwm) < 0)
        hwm = cursor->shown.hwm;          /* the last that was seen of a topic that goes away */
    bool planned = cursor->plan->len > 0; /* of a batch that failed in part the rest */
    uint64_t from = MAX(planned ? cursor->plan_to : cursor->offset, oldest);
    return (hwm > from ? hwm - from : 0) + cursor->plan->len;
}

/* Nobody copies them later: whoever ended the link may not have known that records waited, for the delay above all. */
static void tell_left_behind(NrdLink *link)
{
    uint64_t n = 0;
    for (guint i = 0; i < link->cursors->len; i++)
        n += left_behind(link->cursors->pdata[i]);
    if (n > 0)
        nrd_diag(NRD_LEVEL_WARNING, (NrdPlace){ link->parent_name, NRD_NO_PARTITION, NRD_NO_OFFSET },
                 "copying to %s ends, with %" G_GUINT64_FORMAT " record%s that waited and will not be copied any more",
                 link->child_name, (guint64)n, nrd_plural(n));
}

bool nrd_fanout_stop(NrdFanout *f, const void *parent, const char *child)
{
    pthread_mutex_lock(&f->lock);
    NrdLink *link = nrd_link_find_locked(f, parent, child, false);
    if (link)
        detach_locked(f, link);
    while (link && link->n_running > 0)
        pthread_cond_wait(&f->change, &f->lock);
    pthread_mutex_unlock(&f->lock);
    if (!link)
        return false;
    if (!f->options.frozen)
        tell_left_behind(link);
    for (guint i = 0; i < link->cursors->len; i++) {
        NrdFanCursor *cursor = link->cursors->pdata[i];
        nrd_cursor_rest(cursor);
        int rc = f->options.frozen ? 0 : nrd_cursor_store_remove(&cursor->store);
        tell_removal(link->parent_name, cursor->partition, cursor->store.path, rc);
    }
    link_free(link);
    return true;
}

void nrd_fanout_forget(NrdFanout *f, const void *parent, const char *parent_name, uint32_t n_partitions,
                       const char *child)
{
    g_autofree char *key = prepared_key(parent, child);
    pthread_mutex_lock(&f->lock);
    bool active = nrd_link_find_locked(f, parent, child, false) != NULL;
    g_hash_table_remove(f->prepared, key);
    pthread_mutex_unlock(&f->lock);
    for (uint32_t i = 0; !active && i < n_partitions; i++) {
        g_autofree char *path = nrd_cursor_path(parent_name, i, child);
        tell_removal(parent_name, i, path, nrd_cursor_file_remove(f->options.root_fd, path));
    }
}

/* ---- what happens to them ---- */

/* A full batch does not linger. */
static void notify_cursor(NrdFanCursor *cursor, uint64_t hwm)
{
    NrdFanoutRow *shown = &cursor->shown;
    shown->hwm = MAX(shown->hwm, hwm);
    bool full = shown->hwm > shown->cursor && shown->hwm - shown->cursor >= NRD_FANOUT_BATCH_RECORDS;
    bool waits = cursor->state == NRD_CURSOR_IDLE || cursor->state == NRD_CURSOR_LINGER;
    if (cursor->state == NRD_CURSOR_RUNNING)
        cursor->again = true;
    else if (waits && (full || !cursor->shown_known))
        nrd_cursor_set_state(cursor, NRD_CURSOR_READY, 0);
    else if (cursor->state == NRD_CURSOR_IDLE && hwm != shown->cursor) /* below it: are these still the same files? */
        nrd_cursor_set_state(cursor, NRD_CURSOR_LINGER, nrd_clock_mono_ms() + NRD_FANOUT_LINGER_MS);
}

void nrd_fanout_notify(NrdFanout *f, const void *parent, uint32_t partition, uint64_t hwm)
{
    if (f->options.frozen || partition >= NRD_FANOUT_MAX_PARTITIONS)
        return;
    pthread_mutex_lock(&f->lock);
    GPtrArray *links = f->stopping ? NULL : g_hash_table_lookup(f->parents, parent);
    for (guint i = 0; links && i < links->len; i++) {
        NrdLink *link = links->pdata[i];
        grow(link, partition + 1);
        notify_cursor(link->cursors->pdata[partition], hwm);
    }
    pthread_mutex_unlock(&f->lock);
}

static void kick_link(NrdLink *link)
{
    for (guint i = 0; i < link->cursors->len; i++) {
        NrdFanCursor *cursor = link->cursors->pdata[i];
        if (cursor->state == NRD_CURSOR_RUNNING) {
            cursor->again = cursor->kicked = true;
        } else if (cursor->state == NRD_CURSOR_RETRY) {
            cursor->retry_ms = 0;
            nrd_cursor_set_state(cursor, NRD_CURSOR_READY, 0);
        }
    }
}

void nrd_fanout_kick(NrdFanout *f, const void *topic)
{
    GHashTableIter iter;
    gpointer links;
    pthread_mutex_lock(&f->lock);
    g_hash_table_iter_init(&iter, f->parents);
    while (!f->stopping && g_hash_table_iter_next(&iter, NULL, &links)) {
        for (guint i = 0; i < ((GPtrArray *)links)->len; i++) {
            NrdLink *link = ((GPtrArray *)links)->pdata[i];
            if (link->parent == topic || link->child == topic)
                kick_link(link);
        }
    }
    pthread_mutex_unlock(&f->lock);
}
