/* engine.h to the engine that an object belongs to: topics and fan-out. See table.h. */
#include "engine/table.h"

GPtrArray *nrd_engine_topic_names(NrdEngine *engine)
{
    return nrd_table_of(engine)->engine_topic_names(engine);
}

int nrd_topic_find(NrdEngine *engine, const char *name, NrdTopic **ret_topic)
{
    return nrd_table_of(engine)->topic_find(engine, name, ret_topic);
}

int nrd_topic_create(NrdEngine *engine, const char *name, const NrdAttr *attr, uint32_t umask, NrdTopic **ret_topic)
{
    return nrd_table_of(engine)->topic_create(engine, name, attr, umask, ret_topic);
}

int nrd_topic_remove(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_remove(topic);
}

int nrd_topic_delete(NrdTopic *topic, const char *id)
{
    return nrd_table_of(topic)->topic_delete(topic, id);
}

NrdTopic *nrd_topic_ref(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_ref(topic);
}

void nrd_topic_unref(NrdTopic *topic)
{
    if (topic)
        nrd_table_of(topic)->topic_unref(topic);
}

int nrd_topic_hold(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_hold(topic);
}

void nrd_topic_release(NrdTopic *topic)
{
    nrd_table_of(topic)->topic_release(topic);
}

const char *nrd_topic_name(const NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_name(topic);
}

const char *nrd_topic_incarnation(const NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_incarnation(topic);
}

bool nrd_topic_deleted(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_deleted(topic);
}

char *nrd_topic_fault(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_fault(topic);
}

int nrd_topic_produce_error(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_produce_error(topic);
}

bool nrd_topic_lost(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_lost(topic);
}

uint32_t nrd_topic_n_partitions(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_n_partitions(topic);
}

int64_t nrd_topic_created_ms(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_created_ms(topic);
}

void nrd_topic_get_attr(NrdTopic *topic, const char *path, uint32_t base_mode, NrdAttr *ret_attr)
{
    nrd_table_of(topic)->topic_get_attr(topic, path, base_mode, ret_attr);
}

int nrd_topic_set_attr(NrdTopic *topic, const char *path, uint32_t base_mode, int what, const NrdAttr *attr)
{
    return nrd_table_of(topic)->topic_set_attr(topic, path, base_mode, what, attr);
}

int nrd_topic_config_write(NrdTopic *topic, const char *text, size_t size)
{
    return nrd_table_of(topic)->topic_config_write(topic, text, size);
}

char *nrd_topic_refusal(NrdTopic *topic, int64_t *ret_ms)
{
    return nrd_table_of(topic)->topic_refusal(topic, ret_ms);
}

int64_t nrd_topic_max_key_bytes(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_max_key_bytes(topic);
}

int64_t nrd_topic_max_record_bytes(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_max_record_bytes(topic);
}

int64_t nrd_topic_consume_wait_ms(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_consume_wait_ms(topic);
}

int nrd_topic_attach(NrdTopic *parent, const char *child)
{
    return nrd_table_of(parent)->topic_attach(parent, child);
}

int nrd_topic_detach(NrdTopic *parent, const char *child)
{
    return nrd_table_of(parent)->topic_detach(parent, child);
}

GPtrArray *nrd_topic_children(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_children(topic);
}

char *nrd_topic_parent(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_parent(topic);
}

bool nrd_topic_is_delayed(NrdTopic *topic)
{
    return nrd_table_of(topic)->topic_is_delayed(topic);
}

int nrd_topic_child_info(NrdTopic *parent, const char *child, NrdChildInfo *ret_info)
{
    return nrd_table_of(parent)->topic_child_info(parent, child, ret_info);
}
