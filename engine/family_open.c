/* What a start makes of the records of parents and children: the two sides are brought in line, then the links start.
 *
 * An entry in a parent's record stands unless its topic is known to be gone, of another incarnation, a parent itself (a
 * ring would copy for ever) or another parent's; a parent that a child names stands if it lists that child. What cannot be
 * known, because a record is damaged, is left as it is. Nobody uses a topic yet; one thread. */
#include "engine/family_private.h"

#include "engine/fan.h"

#include <string.h>

/* Why an entry is no link, or NULL. */
static const char *examine(NrdTopic *parent, const NrdChildRecord *link, NrdTopic *child)
{
    if (!child)
        return "there is no such topic";
    if (!nrd_family_has_record(child))
        return NULL;
    if (strcmp(child->id, link->id) != 0)
        return "it is another incarnation";
    if (nrd_family_count(child) > 0)
        return "it has children itself";
    g_autofree char *named = nrd_topic_parent(child);
    NrdTopic *other = NULL;
    bool taken = named && strcmp(named, parent->name) != 0 && nrd_topic_find(parent->engine, named, &other) == 0 &&
                 (!nrd_family_has_record(other) || nrd_family_lists(other, child));
    nrd_topic_unref(other);
    return taken ? "it has another parent" : NULL;
}

static void settle_link(NrdTopic *parent, const char *name)
{
    NrdChildRecord *link = nrd_family_link(parent, name);
    NrdTopic *child = NULL;
    (void)!nrd_topic_find(parent->engine, name, &child);
    const char *wrong = examine(parent, link, child);
    g_autofree char *named = child ? nrd_topic_parent(child) : NULL;
    if (wrong) {
        nrd_diag(NRD_LEVEL_WARNING, nrd_topic_place(parent), "%s is no child: %s", name, wrong);
        (void)!nrd_family_unlist(parent, name, true);
        if (!parent->engine->read_only)
            nrd_fan_forget(parent, name);
    } else if (child && nrd_family_has_record(child) && g_strcmp0(named, parent->name) != 0) {
        (void)!nrd_family_set_parent(child, parent->name, true); /* the parent's record is the authority */
    }
    nrd_topic_unref(child);
    nrd_child_record_free(link);
}

static void settle_parent(NrdTopic *child)
{
    g_autofree char *name = nrd_topic_parent(child);
    NrdTopic *parent = NULL;
    if (!name)
        return;
    bool stands = nrd_topic_find(child->engine, name, &parent) == 0 &&
                  (!nrd_family_has_record(parent) || nrd_family_lists(parent, child));
    if (!stands) {
        nrd_diag(NRD_LEVEL_NOTICE, nrd_topic_place(child), "it is no child of %s any more", name);
        if (parent && !child->engine->read_only)
            nrd_fan_forget(parent, child->name); /* no entry of that name is left */
        nrd_family_orphan(child);
    }
    nrd_topic_unref(parent);
}

/* The links that have proved to be some. One whose child's record is damaged waits: nobody knows its delay. */
static void start_links(NrdTopic *parent)
{
    g_autoptr(GPtrArray) names = nrd_topic_children(parent);
    for (guint i = 0; i < names->len; i++) {
        NrdChildRecord *link = nrd_family_link(parent, names->pdata[i]);
        NrdTopic *child = NULL;
        NrdTopicConfig config;
        if (nrd_topic_find(parent->engine, link->name, &child) == 0 && nrd_local_topic_get_config(child, &config))
            nrd_fan_start(parent, child, link, config.fanout_delay_ms);
        nrd_topic_unref(child);
        nrd_child_record_free(link);
    }
}

void nrd_family_open(NrdEngine *engine)
{
    g_autoptr(GPtrArray) topics = nrd_engine_topics(engine);
    for (guint i = 0; i < topics->len; i++) {
        g_autoptr(GPtrArray) names = nrd_topic_children(topics->pdata[i]);
        for (guint k = 0; k < names->len; k++)
            settle_link(topics->pdata[i], names->pdata[k]);
    }
    for (guint i = 0; i < topics->len; i++)
        settle_parent(topics->pdata[i]);
    for (guint i = 0; i < topics->len; i++)
        start_links(topics->pdata[i]);
}
