/* Extended attributes, all under user.narad.: the numbers of a partition, on its folder and on everything in it but
 * symlinks; of a record its key, its time and its offset, too; the settings of a topic, on its folder, where they can be
 * set. The kernel asks for foreign names often:
 * those are refused before anything is looked up. */
#include "fs/defer.h"
#include "fs/node.h"

#include <errno.h>
#include <sys/xattr.h>

#define PREFIX "user.narad."

static const char *const partition_names[] = {
    "hwm", "incarnation", "poisoned",    "poison_reason", "oldest_offset", "next_offset", "frontier",
    "lag", "in_flight",   "acked_ahead", "segments",      "size_bytes",    "durability",  NULL,
};

static const char *const record_names[] = { "timestamp", "offset", "key", NULL }; /* the key last: not all have one */

typedef enum Holder { HOLDER_NONE, HOLDER_TOPIC, HOLDER_PARTITION, HOLDER_RECORD } Holder;

static Holder holder_of(const NrdNode *node)
{
    if (node->info->kind == NRD_KIND_RECORD)
        return HOLDER_RECORD;
    if (node->partition)
        return S_ISLNK(node->info->mode) ? HOLDER_NONE : HOLDER_PARTITION;
    return node->info->kind == NRD_KIND_TOPIC ? HOLDER_TOPIC : HOLDER_NONE;
}

/* The attribute's name without the prefix, or NULL when the node has none of that name. */
static const char *known_name(NrdNode *node, const char *full_name)
{
    if (!g_str_has_prefix(full_name, PREFIX))
        return NULL;
    const char *name = full_name + strlen(PREFIX);
    Holder holder = holder_of(node);
    bool there = false;
    if (holder == HOLDER_TOPIC)
        there = strcmp(name, "incarnation") == 0 || g_strv_contains(nrd_config_keys(), name);
    if (holder == HOLDER_PARTITION || holder == HOLDER_RECORD)
        there = g_strv_contains(partition_names, name);
    if (holder == HOLDER_RECORD && g_strv_contains(record_names, name))
        there = strcmp(name, "key") != 0 || nrd_node_seen(node).keyed;
    return there ? name : NULL;
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
    if (strcmp(name, "incarnation") == 0)
        return g_strdup(nrd_topic_incarnation(node->topic));
    NrdPartitionInfo info;
    nrd_partition_info(node->partition, &info);
    char *value = strcmp(name, "durability") != 0 ? info_value(&info, name)
                  : info.durability               ? g_strdup(info.durability)
                                                  : g_strdup(nrd_engine_durability(node->fs->engine));
    nrd_partition_info_clear(&info);
    return value;
}

/* The value of a known name but `key`; NULL: none after all. */
static char *value_of(NrdNode *node, const char *name)
{
    if (holder_of(node) == HOLDER_TOPIC && strcmp(name, "incarnation") != 0)
        return nrd_topic_config_value(node->topic, name);
    if (holder_of(node) == HOLDER_TOPIC)
        return g_strdup(nrd_topic_incarnation(node->topic));
    if (strcmp(name, "offset") == 0)
        return decimal(node->arg);
    if (strcmp(name, "timestamp") == 0)
        return decimal((uint64_t)nrd_node_seen(node).ms);
    return partition_value(node, name);
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

static void reply_value(NrdNode *node, fuse_req_t req, const char *name, size_t size)
{
    char *value = value_of(node, name);
    if (value)
        reply_sized(req, value, strlen(value), size);
    else
        fuse_reply_err(req, ENODATA);
    g_free(value);
}

/* Any bytes; read when asked for, since most who look at a record do not. */
static void reply_key(NrdNode *node, fuse_req_t req, size_t size)
{
    NrdRecord record;
    int error = nrd_partition_record(node->partition, node->arg, &record);
    if (error < 0) {
        nrd_reply_error(req, error == -EIDRM ? -ESTALE : error);
        return;
    }
    reply_sized(req, (const char *)record.key, record.key_size, size);
    nrd_record_clear(&record);
}

/* A GETXATTR that waits. */
typedef struct Asked {
    size_t size;
    char name[]; /* without prefix */
} Asked;

static void reply_value_later(NrdNode *node, fuse_req_t req, void *data, int error)
{
    Asked *asked = data;
    if (error == 0)
        error = nrd_node_learn(node);
    if (error < 0)
        nrd_reply_error(req, error == -EIDRM ? -ESTALE : error);
    else if (strcmp(asked->name, "key") == 0)
        reply_key(node, req, asked->size);
    else
        reply_value(node, req, asked->name, asked->size);
    g_free(asked);
}

void nrd_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *full_name, size_t size)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    const char *name = node ? known_name(node, full_name) : NULL;
    if (!name) {
        fuse_reply_err(req, ENODATA);
    } else if (nrd_node_unknown(node) || strcmp(name, "key") == 0) {
        Asked *asked = g_malloc(sizeof *asked + strlen(name) + 1);
        asked->size = size;
        memcpy(asked->name, name, strlen(name) + 1);
        nrd_defer(node, req, reply_value_later, asked);
    } else {
        reply_value(node, req, name, size);
    }
}

static void append_names(GString *list, const char *const *names)
{
    for (; *names; names++) {
        g_string_append(list, PREFIX);
        g_string_append_len(list, *names, (gssize)strlen(*names) + 1);
    }
}

static void append_record_names(GString *list, NrdNode *node)
{
    const char *names[G_N_ELEMENTS(record_names)];
    memcpy(names, record_names, sizeof names);
    if (!nrd_node_seen(node).keyed)
        names[G_N_ELEMENTS(names) - 2] = NULL;
    append_names(list, names);
}

void nrd_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    static const char *const incarnation[] = { "incarnation", NULL };
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    Holder holder = node ? holder_of(node) : HOLDER_NONE;
    GString *list = g_string_new(NULL);
    if (holder == HOLDER_PARTITION || holder == HOLDER_RECORD)
        append_names(list, partition_names);
    if (holder == HOLDER_RECORD)
        append_record_names(list, node);
    if (holder == HOLDER_TOPIC) {
        append_names(list, nrd_config_keys());
        append_names(list, incarnation);
    }
    reply_sized(req, list->str, list->len, size);
    g_string_free(list, TRUE);
}

static void log_refused(const NrdNode *node, const char *name, const char *why)
{
    g_autofree char *quoted = nrd_quote(name, strlen(name));
    if (!node->topic) {
        nrd_diag(NRD_LEVEL_WARNING, nrd_node_place(node), "changing the attribute %s refused: %s", quoted, why);
        return;
    }
    nrd_topic_refuse(node->topic, node->partition ? (int64_t)nrd_partition_number(node->partition) : NRD_NO_PARTITION,
                     "changing the attribute %s refused: %s", quoted, why);
}

static int set_config(NrdNode *node, const char *key, const char *value, size_t size, int flags)
{
    if (flags & XATTR_CREATE)
        return -EEXIST;
    if (memchr(value, '\n', size) || memchr(value, '\0', size)) {
        log_refused(node, key, "a value is one line without NUL bytes");
        return -EINVAL;
    }
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
    if (!g_str_has_prefix(full_name, PREFIX))
        return -EPERM; /* of programs that copy them: not worth a line */
    const char *name = full_name + strlen(PREFIX);
    if (holder_of(node) != HOLDER_TOPIC || strcmp(name, "incarnation") == 0) {
        log_refused(node, full_name, "it can only be read");
        return -EPERM;
    }
    if (g_strv_contains(nrd_config_keys(), name))
        return set_config(node, name, value, size, flags);
    log_refused(node, full_name, "there is no such setting; `config` lists them");
    return -EINVAL;
}

void nrd_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    if (node && node->topic && !nrd_may_write(req, node->topic, "config")) { /* a setting by another name */
        if (g_str_has_prefix(name, PREFIX))
            log_refused(node, name, "the caller may not write config");
        nrd_reply_error(req, -EACCES);
    } else {
        nrd_reply_error(req, node ? set_value(node, name, value, size, flags) : -ESTALE);
    }
}

void nrd_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    bool known = node && known_name(node, name);
    if (known)
        log_refused(node, name, "no attribute can be removed");
    nrd_reply_error(req, known ? -EPERM : -ENODATA);
}
