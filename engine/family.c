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

#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/base/random.h"

#include <errno.h>
#include <string.h>

#define RETENTION_MARGIN_MS ((int64_t)3600 * 1000)

_Static_assert(NRD_MAX_CHILDREN == NRD_TOPIC_CHILDREN_MAX, "one bound for both headers");

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

bool nrd_family_config(NrdTopic *topic, NrdTopicConfig *ret_config)
{
    pthread_mutex_lock(&topic->lock);
    bool there = topic->record != NULL;
    if (there)
        *ret_config = topic->record->config;
    pthread_mutex_unlock(&topic->lock);
    return there;
}

static bool retention_suffices(int64_t retention_ms, int64_t delay_ms)
{
    return retention_ms == 0 || retention_ms >= delay_ms + RETENTION_MARGIN_MS;
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

/* ---- attaching ---- */

static int refuse(NrdTopic *parent, const char *child, int rc, const char *why)
{
    nrd_topic_refuse(parent, NRD_NO_PARTITION, "%s was not attached: %s", child, why);
    return rc;
}

static int refuse_retention(NrdTopic *parent, const char *child, int64_t delay_ms)
{
    g_autofree char *why =
        g_strdup_printf("retention_ms has to be 0, or its delay and an hour at least: %" G_GINT64_FORMAT,
                        delay_ms + RETENTION_MARGIN_MS);
    return refuse(parent, child, -EINVAL, why);
}

static int check_one_service(NrdTopic *parent, NrdTopic *child, NrdTopic *either, const char *why)
{
    int rc = nrd_topic_retry(either);
    return rc == -EIO ? refuse(parent, child->name, rc, why) : rc;
}

/* What passes by itself is looked at again. */
static int check_service(NrdTopic *parent, NrdTopic *child)
{
    int rc = check_one_service(parent, child, parent, "the parent is out of service");
    return rc < 0 ? rc : check_one_service(parent, child, child, "it is out of service");
}

/* Both are in service, or one of them has just been damaged. */
static int check_kin(NrdTopic *parent, NrdTopic *child)
{
    g_autofree char *other = nrd_topic_parent(child);
    g_autofree char *grandparent = nrd_topic_parent(parent);
    NrdTopicConfig of_parent, of_child;
    if (other)
        return refuse(parent, child->name, -EBUSY, "it has another parent");
    if (parent == child)
        return refuse(parent, child->name, -EINVAL, "it would be its own child");
    if (grandparent)
        return refuse(parent, child->name, -EINVAL, "the parent is a child itself, and fan-out makes no chains");
    if (nrd_family_count(child) > 0)
        return refuse(parent, child->name, -EINVAL, "it has children itself, and fan-out makes no chains");
    if (!nrd_family_config(parent, &of_parent) || !nrd_family_config(child, &of_child))
        return refuse(parent, child->name, -EIO, "a record is damaged");
    if (!retention_suffices(of_parent.retention_ms, of_child.fanout_delay_ms))
        return refuse_retention(parent, child->name, of_child.fanout_delay_ms);
    if (nrd_family_count(parent) >= NRD_MAX_CHILDREN)
        return refuse(parent, child->name, -EMLINK, "a topic has 108 children at most");
    return 0;
}

/* Everything that can be told before something changes. */
static int check_attach(NrdTopic *parent, NrdTopic *child)
{
    NrdChildRecord *link = nrd_family_link(parent, child->name);
    bool attached = link != NULL;
    nrd_child_record_free(link);
    if (attached)
        return refuse(parent, child->name, -EEXIST, "it is attached already");
    int rc = check_service(parent, child);
    return rc < 0 ? rc : check_kin(parent, child);
}

static int prepare(NrdTopic *parent, const NrdChildRecord *link)
{
    int rc = nrd_fan_prepare(parent, link);
    if (rc == 0)
        return 0;
    g_autofree char *why =
        g_strdup_printf("its cursors could not be written into topics/%s of the data directory: %s", parent->name,
                        rc == -ENOENT ? "a partition's folder is missing: put it back" : g_strerror(-rc));
    return refuse(parent, link->name, nrd_error_unless_taken_away(rc), why);
}

/* Cursors, then the record that makes them count. The retention may have changed since it was looked at; the delay cannot
 * have, since the child's record names a parent. */
static int list(NrdTopic *parent, const NrdChildRecord *link, int64_t delay_ms)
{
    NrdTopicRecord *next = NULL;
    pthread_mutex_lock(&parent->guard);
    int rc = nrd_topic_copy_record(parent, &next);
    if (rc == 0 && !retention_suffices(next->config.retention_ms, delay_ms))
        rc = refuse_retention(parent, link->name, delay_ms);
    if (rc == 0)
        rc = prepare(parent, link);
    if (rc == 0) {
        nrd_topic_record_add_child(next, link);
        rc = nrd_topic_replace_record(parent, g_steal_pointer(&next));
    }
    pthread_mutex_unlock(&parent->guard);
    nrd_topic_record_free(next);
    if (rc < 0)
        nrd_fan_forget(parent, link->name);
    return rc;
}

static int link_up(NrdTopic *parent, NrdTopic *child)
{
    NrdTopicConfig config;
    NrdChildRecord link = { child->name, "", nrd_random_u64(), nrd_clock_wall_ms() };
    g_strlcpy(link.id, child->id, sizeof link.id);
    int rc = nrd_family_set_parent(child, parent->name, false);
    if (rc < 0)
        return rc;
    rc = nrd_family_config(child, &config) ? list(parent, &link, config.fanout_delay_ms) : -EIO;
    if (rc < 0) {
        nrd_family_orphan(child);
        return rc;
    }
    nrd_fan_start(parent, child, &link, config.fanout_delay_ms);
    nrd_diag(NRD_LEVEL_NOTICE, nrd_topic_place(parent),
             "%s is attached as a child, with a delay of %" G_GINT64_FORMAT " ms", child->name, config.fanout_delay_ms);
    return 0;
}

int nrd_local_topic_attach(NrdTopic *parent, const char *name)
{
    NrdEngine *engine = parent->engine;
    NrdTopic *child = NULL;
    if (engine->read_only)
        return -EROFS;
    pthread_mutex_lock(&engine->admin);
    int rc = nrd_topic_deleted(parent) ? -EIDRM : nrd_topic_find(engine, name, &child);
    if (rc == -ENOENT)
        rc = refuse(parent, name, rc, "there is no such topic");
    if (rc == 0)
        rc = check_attach(parent, child);
    if (rc == 0)
        rc = link_up(parent, child);
    pthread_mutex_unlock(&engine->admin);
    nrd_topic_unref(child);
    return rc;
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
    bool known = nrd_topic_find(parent->engine, name, &child) == 0 && nrd_family_config(child, &config);
    nrd_topic_unref(child);
    g_autofree char *why = NULL;
    if (known && !retention_suffices(next_ms, config.fanout_delay_ms))
        why = g_strdup_printf("retention_ms has to be 0 or at least %" G_GINT64_FORMAT
                              ", the delay of its child %s and an hour",
                              config.fanout_delay_ms + RETENTION_MARGIN_MS, name);
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
