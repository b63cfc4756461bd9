/* What a topic is set to, as its files show it and as they are changed: the same for every engine, by its record. */
#include "engine/table.h"

const char *const *nrd_config_keys(void)
{
    return nrd_topic_config_keys();
}

char *nrd_topic_config_value(NrdTopic *topic, const char *key)
{
    NrdTopicConfig config;
    return nrd_table_of(topic)->topic_get_config(topic, &config) ? nrd_topic_config_get(&config, key) : NULL;
}

char *nrd_topic_config_lines(NrdTopic *topic)
{
    NrdTopicConfig config;
    return nrd_table_of(topic)->topic_get_config(topic, &config) ? nrd_topic_config_text(&config) : g_strdup("");
}

NrdAttr nrd_attr_of_record(const NrdTopicRecord *record, const char *path, uint32_t base_mode)
{
    NrdFileAttr attr =
        record ? nrd_topic_record_attr(record, path, base_mode) : (NrdFileAttr){ 0, 0, base_mode & 0500 };
    return (NrdAttr){ attr.uid, attr.gid, attr.mode };
}

bool nrd_attr_change_record(NrdTopicRecord *record, const char *path, uint32_t base_mode, int what, const NrdAttr *attr)
{
    NrdFileAttr next = nrd_topic_record_attr(record, path, base_mode);
    next.uid = what & NRD_ATTR_UID ? attr->uid : next.uid;
    next.gid = what & NRD_ATTR_GID ? attr->gid : next.gid;
    next.mode = what & NRD_ATTR_MODE ? attr->mode : next.mode;
    return nrd_topic_record_set_attr(record, path, &next);
}
