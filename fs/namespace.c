/* Names: looking them up, making and removing topics, and refusing everything else that changes a directory. */
#include "fs/namespace.h"

#include "fs/node.h"

#include <errno.h>
#include <stdio.h>

/* How long the kernel may rely on names inside a topic; those of topics it asks for each time. */
#define NAME_SECONDS 1.0

/* What a name stands for; topic is referenced. */
typedef struct Found {
    const NrdKindInfo *info;
    NrdTopic *topic;
    NrdPartition *partition;
    const char *alias;
} Found;

NrdPartition *nrd_partition_by_name(NrdTopic *topic, const char *name)
{
    unsigned number = 0;
    if (name[0] != 'p' || strlen(name) != 6 || strspn(name + 1, "0123456789") != 5)
        return NULL;
    sscanf(name + 1, "%5u", &number);
    return nrd_topic_partition(topic, number);
}

static bool alias_valid(const char *alias)
{
    size_t length = strlen(alias);
    if (length == 0 || length > 200 || alias[0] == '.' || strstr(alias, ".stale-"))
        return false;
    for (size_t i = 0; i < length; i++)
        if (!g_ascii_isalnum(alias[i]) && !strchr("._-", alias[i]))
            return false;
    return true;
}

static bool out_of_service(NrdTopic *topic)
{
    char *why = nrd_topic_fault(topic);
    g_free(why);
    return why != NULL;
}

/* A fixed name below a topic or a partition, or a partition's folder. */
static int find_in_topic(NrdNode *dir, const char *name, Found *ret_found)
{
    Found found = { .topic = dir->topic, .partition = dir->partition };
    if (nrd_topic_deleted(dir->topic))
        return -ENOENT;
    found.info = nrd_kind_find(dir->info->kind, name, &found.alias);
    if (!found.info && dir->info->kind == NRD_KIND_TOPIC) {
        found.info = nrd_kind_info(NRD_KIND_PARTITION);
        found.partition = nrd_partition_by_name(dir->topic, name);
        if (!found.partition)
            return -ENOENT;
    }
    if (!found.info || (found.alias && !alias_valid(found.alias)))
        return -ENOENT;
    if (found.info->kind != NRD_KIND_TOPIC_STATUS && out_of_service(dir->topic))
        return -EIO;
    nrd_topic_ref(found.topic);
    *ret_found = found;
    return 0;
}

static int find(NrdNode *dir, const char *name, Found *ret_found)
{
    if (strlen(name) > 255)
        return -ENAMETOOLONG;
    if (dir->topic)
        return find_in_topic(dir, name, ret_found);
    Found found = { 0 };
    if (dir->info->kind == NRD_KIND_TOPICS) {
        int error = nrd_topic_find(dir->fs->engine, name, &found.topic);
        if (error < 0)
            return error == -EINVAL || error == -ENAMETOOLONG ? -ENOENT : error;
        found.info = nrd_kind_info(NRD_KIND_TOPIC);
    } else {
        found.info = nrd_kind_find(dir->info->kind, name, &found.alias);
        if (!found.info)
            return -ENOENT;
    }
    *ret_found = found;
    return 0;
}

void nrd_entry_fill(NrdNode *node, struct fuse_entry_param *ret_entry)
{
    *ret_entry = (struct fuse_entry_param){ .ino = node->id, .generation = 1 };
    ret_entry->attr_timeout = nrd_node_attr_timeout(node);
    if (!node->info->fresh && node->info->kind != NRD_KIND_TOPIC)
        ret_entry->entry_timeout = NAME_SECONDS;
    nrd_node_stat(node, &ret_entry->attr);
}

static void reply_entry(fuse_req_t req, NrdNode *node)
{
    NrdFs *fs = node->fs;
    uint64_t id = node->id;
    struct fuse_entry_param entry;
    nrd_entry_fill(node, &entry);
    if (fuse_reply_entry(req, &entry) < 0) /* interrupted: the kernel does not count it */
        nrd_nodes_forget(fs->nodes, id, 1);
}

void nrd_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    NrdFs *fs = nrd_req_fs(req);
    NrdNode *dir = nrd_nodes_get(fs->nodes, parent);
    Found found;
    int error = dir ? find(dir, name, &found) : -ESTALE;
    if (error < 0) {
        nrd_reply_error(req, error);
        return;
    }
    NrdNode *node = nrd_nodes_lookup(fs->nodes, found.info, found.topic, found.partition, found.alias);
    nrd_topic_unref(found.topic);
    reply_entry(req, node);
}

void nrd_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    nrd_nodes_forget(nrd_req_fs(req)->nodes, ino, nlookup);
    fuse_reply_none(req);
}

void nrd_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    for (size_t i = 0; i < count; i++)
        nrd_nodes_forget(nrd_req_fs(req)->nodes, forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(req);
}

void nrd_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    if (node && node->info->link)
        fuse_reply_readlink(req, node->info->link);
    else
        fuse_reply_err(req, EINVAL);
}

static int check_topics_dir(NrdFs *fs, fuse_ino_t ino)
{
    NrdNode *dir = nrd_nodes_get(fs->nodes, ino);
    if (!dir)
        return -ESTALE;
    if (dir->info->kind != NRD_KIND_TOPICS)
        return -EPERM;
    return nrd_engine_read_only(fs->engine) ? -EROFS : 0;
}

void nrd_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    NrdFs *fs = nrd_req_fs(req);
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    NrdAttr attr = { .uid = ctx->uid, .gid = ctx->gid, .mode = mode & 07777 & ~ctx->umask };
    NrdTopic *topic;
    int error = check_topics_dir(fs, parent);
    if (error == 0)
        error = nrd_topic_create(fs->engine, name, &attr, ctx->umask, &topic);
    if (error < 0) {
        nrd_reply_error(req, error);
        return;
    }
    NrdNode *node = nrd_nodes_lookup(fs->nodes, nrd_kind_info(NRD_KIND_TOPIC), topic, NULL, NULL);
    nrd_topic_unref(topic);
    reply_entry(req, node);
}

void nrd_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    NrdFs *fs = nrd_req_fs(req);
    NrdTopic *topic = NULL;
    int error = check_topics_dir(fs, parent);
    if (error == 0)
        error = nrd_topic_find(fs->engine, name, &topic);
    if (error == 0)
        error = nrd_topic_remove(topic);
    nrd_topic_unref(topic);
    nrd_reply_error(req, error);
}

void nrd_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    fuse_reply_err(req, EPERM);
}

void nrd_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    fuse_reply_err(req, EPERM);
}

void nrd_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    fuse_reply_err(req, EPERM);
}

void nrd_op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
    fuse_reply_err(req, EPERM);
}

void nrd_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char *newname,
                   unsigned int flags)
{
    fuse_reply_err(req, EPERM);
}

void nrd_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
    fuse_reply_err(req, EPERM);
}
