/* How a topic becomes another one's child: what is in the way of it, and the order in which the two records, the cursors and the
 * link come to be (family.c tells why). Engine admin is held. */
#include "engine/family_private.h"

#include "engine/fan.h"
#include "engine/topic.h"

#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/base/random.h"

#include <errno.h>

_Static_assert(NRD_MAX_CHILDREN == NRD_TOPIC_CHILDREN_MAX, "one bound for both headers");

static int refuse(NrdTopic *parent, const char *child, int rc, const char *why)
{
    nrd_topic_refuse(parent, NRD_NO_PARTITION, "%s was not attached: %s", child, why);
    return rc;
}

static int refuse_retention(NrdTopic *parent, const char *child, int64_t delay_ms)
{
    g_autofree char *why =
        g_strdup_printf("retention_ms has to be 0, or its delay and an hour at least: %" G_GINT64_FORMAT,
                        delay_ms + NRD_FAMILY_RETENTION_MARGIN_MS);
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
    if (!nrd_local_topic_get_config(parent, &of_parent) || !nrd_local_topic_get_config(child, &of_child))
        return refuse(parent, child->name, -EIO, "a record is damaged");
    if (!nrd_family_retention_suffices(of_parent.retention_ms, of_child.fanout_delay_ms))
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
    if (rc == 0 && !nrd_family_retention_suffices(next->config.retention_ms, delay_ms))
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
    rc = nrd_local_topic_get_config(child, &config) ? list(parent, &link, config.fanout_delay_ms) : -EIO;
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
