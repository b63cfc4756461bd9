/* TEMPORARY: a list of links, nothing is copied. */
#include "engine/engine_private.h"

#include <errno.h>

typedef struct Link {
    NrdTopic *parent;
    NrdChildRecord *record;
    int64_t delay_ms;
} Link;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static GList *links;

static GList *find_locked(NrdTopic *parent, const char *child)
{
    for (GList *l = links; l; l = l->next) {
        const Link *link = l->data;
        if (link->parent == parent && (!child || strcmp(link->record->name, child) == 0))
            return l;
    }
    return NULL;
}

static void drop_locked(GList *l)
{
    Link *link = l->data;
    links = g_list_delete_link(links, l);
    nrd_child_record_free(link->record);
    g_free(link);
}

void nrd_fan_start(NrdTopic *parent, NrdTopic *child, const NrdChildRecord *link, int64_t delay_ms)
{
    Link *made = g_new0(Link, 1);
    *made = (Link){ parent, nrd_child_record_copy(link), delay_ms };
    pthread_mutex_lock(&lock);
    links = g_list_prepend(links, made);
    pthread_mutex_unlock(&lock);
}

static void start_links(NrdTopic *parent)
{
    for (guint i = 0; parent->record && i < parent->record->children->len; i++) {
        const NrdChildRecord *link = parent->record->children->pdata[i];
        NrdTopic *child = NULL;
        if (nrd_topic_find(parent->engine, link->name, &child) == 0 && child->record)
            nrd_fan_start(parent, child, link, child->record->config.fanout_delay_ms);
        nrd_topic_unref(child);
    }
}

void nrd_fan_open(NrdEngine *engine)
{
    g_autoptr(GPtrArray) topics = nrd_engine_topics(engine);
    for (guint i = 0; i < topics->len; i++)
        start_links(topics->pdata[i]);
}

void nrd_fan_close(NrdEngine *engine)
{
    pthread_mutex_lock(&lock);
    for (GList *l = links, *next; l; l = next) {
        next = l->next;
        if (((Link *)l->data)->parent->engine == engine)
            drop_locked(l);
    }
    pthread_mutex_unlock(&lock);
}

int nrd_fan_prepare(NrdTopic *parent, const NrdChildRecord *child)
{
    return 0;
}

void nrd_fan_stop(NrdTopic *parent, const char *child)
{
    pthread_mutex_lock(&lock);
    GList *l = find_locked(parent, child);
    if (l)
        drop_locked(l);
    pthread_mutex_unlock(&lock);
}

void nrd_fan_forget(NrdTopic *parent, const char *child)
{
}

void nrd_fan_committed(NrdPartition *partition)
{
}

int nrd_topic_child_info(NrdTopic *parent, const char *child, NrdChildInfo *ret_info)
{
    pthread_mutex_lock(&lock);
    GList *l = find_locked(parent, child);
    if (l) {
        const Link *link = l->data;
        *ret_info = (NrdChildInfo){ .delay_ms = link->delay_ms, .attached_ms = link->record->attached_ms };
        ret_info->rows = g_array_new(FALSE, FALSE, sizeof(NrdChildRow));
    }
    pthread_mutex_unlock(&lock);
    return l ? 0 : -ENOENT;
}

void nrd_child_info_clear(NrdChildInfo *info)
{
    if (info->rows)
        g_array_unref(info->rows);
    info->rows = NULL;
}
