/* Extended attributes, all under user.narad.: the numbers of a partition, on its folder and on everything in it but
 * symlinks; the settings of a topic, on its folder, where they can be set. The kernel asks for foreign names often:
 * those are refused before anything is looked up. */
#include "fs/node.h"

#include <errno.h>
#include <sys/xattr.h>

#define PREFIX "user.narad."

static const char *const partition_names[] = {
    "hwm", "incarnation", "poisoned",    "poison_reason", "oldest_offset", "next_offset", "frontier",
    "lag", "in_flight",   "acked_ahead", "segments",      "size_bytes",    "durability",  NULL,
};

typedef enum Holder { HOLDER_NONE, HOLDER_TOPIC, HOLDER_PARTITION } Holder;

static Holder holder_of(const NrdNode *node)
{
    if (node->partition)
        return S_ISLNK(node->info->mode) ? HOLDER_NONE : HOLDER_PARTITION;
    return node->info->kind == NRD_KIND_TOPIC ? HOLDER_TOPIC : HOLDER_NONE;
}

static char *decimal(uint64_t number)
{
    return g_strdup_printf("%" G_GUINT64_FORMAT, number);
}

static char *info_value(const NrdPartitionInfo *info, const char *name)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        { "hwm", info->hwm },
        { "poisoned", info->poisoned },
        { "oldest_offset", info->oldest_offset },
        { "next_offset", info->next_offset },
        { "frontier", info->frontier },
        { "lag", info->lag },
        { "in_flight", info->in_flight },
        { "acked_ahead", info->acked_ahead },
        { "segments", info->segments },
        { "size_bytes", info->size_bytes },
    };
    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++)
        if (strcmp(numbers[i].name, name) == 0)
            return decimal(numbers[i].value);
    return strcmp(name, "poison_reason") == 0 ? g_strdup(info->reason) : NULL;
}

static char *partition_value(NrdNode *node, const char *name)
{
    if (!g_strv_contains(partition_names, name))
        return NULL;
    if (strcmp(name, "incarnation") == 0)
        return g_strdup(nrd_topic_incarnation(node->topic));
    if (strcmp(name, "durability") == 0)
        return g_strdup("fsync");
    NrdPartitionInfo info;
    nrd_partition_info(node->partition, &info);
    char *value = info_value(&info, name);
    nrd_partition_info_clear(&info);
    return value;
}

static char *topic_value(NrdNode *node, const char *name)
{
    if (strcmp(name, "incarnation") == 0)
        return g_strdup(nrd_topic_incarnation(node->topic));
    return g_strv_contains(nrd_config_keys(), name) ? nrd_topic_config_value(node->topic, name) : NULL;
}

/* The value of a full name, or NULL. */
static char *value_of(NrdNode *node, const char *full_name)
{
    if (!g_str_has_prefix(full_name, PREFIX))
        return NULL;
    const char *name = full_name + strlen(PREFIX);
    switch (holder_of(node)) {
    case HOLDER_TOPIC:
        return topic_value(node, name);
    case HOLDER_PARTITION:
        return partition_value(node, name);
    default:
        return NULL;
    }
}

/* size 0 asks how large it is. */
static void reply_sized(fuse_req_t req, const char *data, size_t length, size_t size)
{
    if (size == 0)
        fuse_reply_xattr(req, length);
    else if (length > size)
        fuse_reply_err(req, ERANGE);
    else
        fuse_reply_buf(req, data, length);
}

void nrd_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    char *value = node ? value_of(node, name) : NULL;
    if (value)
        reply_sized(req, value, strlen(value), size);
    else
        fuse_reply_err(req, ENODATA);
    g_free(value);
}

static void append_names(GString *list, const char *const *names)
{
    for (; *names; names++) {
        g_string_append(list, PREFIX);
        g_string_append_len(list, *names, (gssize)strlen(*names) + 1);
    }
}

void nrd_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    static const char *const incarnation[] = { "incarnation", NULL };
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    Holder holder = node ? holder_of(node) : HOLDER_NONE;
    GString *list = g_string_new(NULL);
    if (holder == HOLDER_PARTITION)
        append_names(list, partition_names);
    if (holder == HOLDER_TOPIC) {
        append_names(list, nrd_config_keys());
        append_names(list, incarnation);
    }
    reply_sized(req, list->str, list->len, size);
    g_string_free(list, TRUE);
}

static int set_config(NrdNode *node, const char *key, const char *value, size_t size, int flags)
{
    if (flags & XATTR_CREATE)
        return -EEXIST;
    if (memchr(value, '\n', size) || memchr(value, '\0', size))
        return -EINVAL;
    GString *line = g_string_new(key);
    g_string_append_c(line, '=');
    g_string_append_len(line, value, (gssize)size);
    g_string_append_c(line, '\n');
    int error = nrd_topic_config_write(node->topic, line->str, line->len);
    g_string_free(line, TRUE);
    return error;
}

static int set_value(NrdNode *node, const char *full_name, const char *value, size_t size, int flags)
{
    if (holder_of(node) != HOLDER_TOPIC || !g_str_has_prefix(full_name, PREFIX))
        return -EPERM;
    const char *name = full_name + strlen(PREFIX);
    if (strcmp(name, "incarnation") == 0)
        return -EPERM;
    if (!g_strv_contains(nrd_config_keys(), name))
        return -EINVAL; /* an unknown setting */
    return set_config(node, name, value, size, flags);
}

void nrd_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    if (node && node->topic && !nrd_may_write(req, node->topic, "config"))
        nrd_reply_error(req, -EACCES); /* a setting by another name */
    else
        nrd_reply_error(req, node ? set_value(node, name, value, size, flags) : -ESTALE);
}

void nrd_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    char *value = node ? value_of(node, name) : NULL;
    fuse_reply_err(req, value ? EPERM : ENODATA);
    g_free(value);
}
