/* Who is whose child in a fan-out.
 *
 * Two records tell: the parent's lists its children by name and incarnation and is the authority, the child's names its
 * parent. Attaching writes the child's first and the parent's last, detaching and deleting go the other way round, so
 * that whatever a crash or a full disk leaves is one of two things: a child that names a parent which does not list it,
 * or an entry for an incarnation that is gone. Neither is a link. The next start puts both right (family_open.c).
 *
 * In memory the two agree at all times: where the disk refuses to follow, memory goes ahead, and the next change of that
 * record, or the next start, writes it. So `record->parent` of a topic says whether it is a child. There is one
 * exception: while a parent's record is damaged its children stay children, because nobody knows better and a delayed
 * child must not become producible on doubt.
 *
 * Threads: changes under engine admin, each record under its topic's guard, one guard at a time. A child's delay stays
 * as it is from when its record names a parent, and the parent's retention is checked against it under the parent's
 * guard: so neither can slip past the other. */
#include "engine/family_private.h"

#include "engine/fan.h"
#include "engine/topic.h"

#include <errno.h>
#include <string.h>

/* ---- looking ---- */

GPtrArray *nrd_local_topic_children(NrdTopic *topic)
{
    GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
    pthread_mutex_lock(&topic->lock);
    for (guint i = 0; topic->record && i < topic->record->children->len; i++)
        g_ptr_array_add(names, g_strdup(((const NrdChildRecord *)topic->record->children->pdata[i])->name));
    pthread_mutex_unlock(&topic->lock);
    return names;
}

char *nrd_local_topic_parent(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    char *parent = topic->record ? g_strdup(topic->record->parent) : NULL;
    pthread_mutex_unlock(&topic->lock);
    return parent;
}

bool nrd_local_topic_is_delayed(NrdTopic *topic)
{
    return atomic_load(&topic->delayed);
}

int nrd_family_refuse_producer(NrdTopic *topic, int64_t partition)
{
    g_autofree char *parent = nrd_topic_parent(topic);
    nrd_diag(NRD_LEVEL_WARNING, (NrdPlace){ topic->name, partition, NRD_NO_OFFSET },
             "a delayed child takes records from its parent %s alone: producing refused", parent ? parent : "");
    return -EPERM;
}

NrdChildRecord *nrd_family_link(NrdTopic *parent, const char *child)
{
    pthread_mutex_lock(&parent->lock);
    const NrdChildRecord *link = parent->record ? nrd_topic_record_child(parent->record, child) : NULL;
    NrdChildRecord *copy = link ? nrd_child_record_copy(link) : NULL;
    pthread_mutex_unlock(&parent->lock);
    return copy;
}

bool nrd_family_lists(NrdTopic *parent, const NrdTopic *child)
{
    NrdChildRecord *link = nrd_family_link(parent, child->name);
    bool listed = link && strcmp(link->id, child->id) == 0;
    nrd_child_record_free(link);
    return listed;
}

guint nrd_family_count(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    guint n = topic->record ? topic->record->children->len : 0;
    pthread_mutex_unlock(&topic->lock);
    return n;
}

bool nrd_family_has_record(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    bool there = topic->record != NULL;
    pthread_mutex_unlock(&topic->lock);
    return there;
}

/* ---- changing records ---- */

/* Puts next (taken over) in the place of the record. anyway: in memory at least, whatever the disk says. Guard held. */
static int put_record(NrdTopic *topic, NrdTopicRecord *next, bool anyway)
{
    if (topic->engine->read_only) {
        nrd_topic_swap_record(topic, next);
        return 0;
    }
    NrdTopicRecord *kept = anyway ? nrd_topic_record_copy(next) : NULL;
    int rc = nrd_topic_replace_record(topic, next);
    if (rc == 0 || !anyway || rc == -EIDRM) {
        nrd_topic_record_free(kept);
        return rc;
    }
    nrd_diag(NRD_LEVEL_WARNING, nrd_topic_place(topic),
             "the fan-out has changed all the same; its next change, or the next start, "
             "writes it down");
    nrd_topic_swap_record(topic, kept);
    return 0;
}

/* A copy of the record, also of a read-only mount. */
static int copy_record(NrdTopic *topic, NrdTopicRecord **ret_record)
{
    if (!topic->engine->read_only)
        return nrd_topic_copy_record(topic, ret_record);
    if (!topic->record)
        return -EIO;
    *ret_record = nrd_topic_record_copy(topic->record);
    return 0;
}

int nrd_family_set_parent(NrdTopic *child, const char *parent, bool anyway)
{
    NrdTopicRecord *next = NULL;
    pthread_mutex_lock(&child->guard);
    int rc = copy_record(child, &next);
    if (rc == 0) {
        g_free(next->parent);
        next->parent = g_strdup(parent);
        rc = put_record(child, next, anyway);
    }
    pthread_mutex_unlock(&child->guard);
    return rc;
}

int nrd_family_unlist(NrdTopic *parent, const char *child, bool anyway)
{
    NrdTopicRecord *next = NULL;
    pthread_mutex_lock(&parent->guard);
    int rc = copy_record(parent, &next);
    if (rc == 0 && !nrd_topic_record_remove_child(next, child)) {
        nrd_topic_record_free(next);
        rc = -ENOENT;
    }
    if (rc == 0)
        rc = put_record(parent, next, anyway);
    pthread_mutex_unlock(&parent->guard);
    return rc;
}

void nrd_family_orphan(NrdTopic *child)
{
    int rc = nrd_family_has_record(child) ? nrd_family_set_parent(child, NULL, true) : 0;
    if (rc < 0 && rc != -EIDRM)
        nrd_diag(NRD_LEVEL_ERROR, nrd_topic_place(child),
                 "its record still names a parent: %s; the next start puts it right", g_strerror(-rc));
}

/* ---- detaching ---- */

/* The parent does not list the child any more: copying ends, then the child is told. */
static void part(NrdTopic *parent, const NrdChildRecord *link)
{
    NrdTopic *child = NULL;
    nrd_fan_stop(parent, link->name);
    if (nrd_topic_find(parent->engine, link->name, &child) == 0 &&
        (child->id[0] == '\0' || strcmp(child->id, link->id) == 0))
        nrd_family_orphan(child);
    nrd_topic_unref(child);
}

static int detach_admin_held(NrdTopic *parent, const char *name)
{
    if (nrd_topic_deleted(parent))
        return -EIDRM;
    if (!nrd_family_has_record(parent))
        return -EIO;
    NrdChildRecord *link = nrd_family_link(parent, name);
    if (!link)
        return -ENOENT;
    int rc = nrd_family_unlist(parent, name, false);
    if (rc == 0) {
        part(parent, link);
        nrd_diag(NRD_LEVEL_NOTICE, nrd_topic_place(parent), "%s is detached", name);
    }
    nrd_child_record_free(link);
    return rc;
}

int nrd_local_topic_detach(NrdTopic *parent, const char *child)
{
    NrdEngine *engine = parent->engine;
    if (engine->read_only)
        return -EROFS;
    pthread_mutex_lock(&engine->admin);
    int rc = detach_admin_held(parent, child);
    pthread_mutex_unlock(&engine->admin);
    return rc;
}

/* ---- a topic is deleted ---- */

static void leave_parent(NrdTopic *child)
{
    g_autofree char *name = nrd_topic_parent(child);
    NrdTopic *parent = NULL;
    if (!name || nrd_topic_find(child->engine, name, &parent) < 0)
        return;
    if (nrd_family_lists(parent, child)) {
        nrd_fan_stop(parent, child->name);
        int rc = nrd_family_unlist(parent, child->name, true);
        if (rc < 0)
            nrd_diag(NRD_LEVEL_ERROR, nrd_topic_place(parent),
                     "its record still lists the deleted child %s: %s; the next start "
                     "puts it right",
                     child->name, g_strerror(-rc));
    }
    nrd_topic_unref(parent);
}

void nrd_family_leave(NrdTopic *topic)
{
    leave_parent(topic);
    g_autoptr(GPtrArray) names = nrd_topic_children(topic);
    for (guint i = 0; i < names->len; i++) {
        NrdChildRecord *link = nrd_family_link(topic, names->pdata[i]);
        part(topic, link);
        nrd_child_record_free(link);
    }
}

/* ---- settings ---- */

static int refuse_config(NrdTopic *topic, int rc, const char *why)
{
    nrd_topic_refuse(topic, NRD_NO_PARTITION, "config refused: %s; nothing was changed", why);
    return rc;
}

/* Of a child whose record is damaged nobody knows the delay: the retention does not shrink. */
static int check_retention(NrdTopic *parent, const char *name, int64_t old_ms, int64_t next_ms)
{
    NrdTopic *child = NULL;
    NrdTopicConfig config;
    bool known = nrd_topic_find(parent->engine, name, &child) == 0 && nrd_local_topic_get_config(child, &config);
    nrd_topic_unref(child);
    g_autofree char *why = NULL;
    if (known && !nrd_family_retention_suffices(next_ms, config.fanout_delay_ms))
        why = g_strdup_printf("retention_ms has to be 0 or at least %" G_GINT64_FORMAT
                              ", the delay of its child %s and an hour",
                              config.fanout_delay_ms + NRD_FAMILY_RETENTION_MARGIN_MS, name);
    if (!known && (old_ms == 0 || next_ms < old_ms))
        why = g_strdup_printf("retention_ms cannot be made shorter while its child %s is out of service", name);
    return why ? refuse_config(parent, -EINVAL, why) : 0;
}

int nrd_family_check_config(NrdTopic *topic, const NrdTopicConfig *next)
{
    const NrdTopicRecord *record = topic->record; /* only changed under the guard */
    if (record->parent && next->fanout_delay_ms != record->config.fanout_delay_ms) {
        g_autofree char *why =
            g_strdup_printf("fanout_delay_ms stays as it is while %s is a child of %s", topic->name, record->parent);
        return refuse_config(topic, -EBUSY, why);
    }
    if (next->retention_ms == 0 || next->retention_ms == record->config.retention_ms)
        return 0;
    int rc = 0;
    for (guint i = 0; rc == 0 && i < record->children->len; i++)
        rc = check_retention(topic, ((const NrdChildRecord *)record->children->pdata[i])->name,
                             record->config.retention_ms, next->retention_ms);
    return rc;
}
