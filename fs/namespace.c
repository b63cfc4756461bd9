/* Names: looking them up, making and removing topics, and refusing everything else that changes a directory. What children/
 * allows is in children.c. */
#include "fs/namespace.h"

#include "fs/defer.h"
#include "fs/lines.h"
#include "fs/node.h"
#include "fs/time_name.h"

#include <errno.h>
#include <stdio.h>

/* How long the kernel may rely on names inside a topic; those of topics it asks for each time. */
#define NAME_SECONDS 1.0

/* The longest name that a topic can have, and what follows the @ of `produce@`. */
#define NAME_MAX_BYTES 200

static bool is_partition_name(const char *name)
{
    return name[0] == 'p' && strlen(name) == 6 && strspn(name + 1, "0123456789") == 5;
}

NrdPartition *nrd_partition_by_name(NrdTopic *topic, const char *name)
{
    unsigned number = 0;
    if (!is_partition_name(name))
        return NULL;
    sscanf(name + 1, "%5u", &number);
    return nrd_topic_partition(topic, number);
}

/* Of a topic whose record is damaged nobody knows how many it has: none of them is told to be missing. */
static int find_partition(NrdTopic *topic, const char *name, NrdNodeKey *key)
{
    key->info = nrd_kind_info(NRD_KIND_PARTITION);
    key->partition = nrd_partition_by_name(topic, name);
    if (key->partition)
        return 0;
    return is_partition_name(name) && nrd_topic_lost(topic) ? -EIO : -ENOENT;
}

/* As for topics. */
static int check_alias(const char *alias)
{
    size_t length = strlen(alias);
    if (length > NAME_MAX_BYTES)
        return -ENAMETOOLONG;
    if (length == 0 || alias[0] == '.' || strstr(alias, ".stale-"))
        return -ENOENT;
    for (size_t i = 0; i < length; i++)
        if (!g_ascii_isalnum(alias[i]) && !strchr("._-", alias[i]))
            return -ENOENT;
    return 0;
}

/* What is plainly outside an open log is refused without looking at the disk. last: whether the high watermark itself is
 * meant too. */
static bool outside(NrdPartition *partition, uint64_t offset, bool last)
{
    NrdPartitionInfo info;
    nrd_partition_info(partition, &info);
    bool out = info.open && (offset < info.oldest_offset || offset > info.hwm || (offset == info.hwm && !last));
    nrd_partition_info_clear(&info);
    return out;
}

static int find_offset(NrdKind kind, const char *name, NrdNodeKey *key)
{
    key->info = nrd_kind_info(kind);
    if (nrd_number_parse(name, strlen(name), INT64_MAX, &key->arg) < 0)
        return -ENOENT;
    return outside(key->partition, key->arg, kind == NRD_KIND_FROM_OFFSET) ? -ENOENT : 0;
}

/* "<20 digits>.log" */
static int find_segment(const char *name, NrdNodeKey *key)
{
    key->info = nrd_kind_info(NRD_KIND_SEGMENT);
    if (strlen(name) != 24 || strspn(name, "0123456789") != 20 || strcmp(name + 20, ".log") != 0)
        return -ENOENT;
    size_t zeros = MIN(strspn(name, "0"), 19);
    return nrd_number_parse(name + zeros, 20 - zeros, INT64_MAX, &key->arg) < 0 ? -ENOENT : 0;
}

static int find_time(const char *name, NrdNodeKey *key)
{
    int64_t ms;
    key->info = nrd_kind_info(NRD_KIND_TIME_LINK);
    if (nrd_time_name_parse(name, &ms) < 0)
        return -ENOENT;
    key->arg = (uint64_t)ms;
    return 0;
}

/* key->child is referenced. */
static int find_child(NrdNode *dir, const char *name, NrdNodeKey *key)
{
    NrdTopic *child;
    if (nrd_topic_find(dir->fs->engine, name, &child) < 0)
        return -ENOENT;
    if (!nrd_is_child(dir->topic, child)) {
        nrd_topic_unref(child);
        return -ENOENT;
    }
    key->info = nrd_kind_info(NRD_KIND_CHILD);
    key->child = child;
    return 0;
}

/* Names that are not in the table of kinds. */
static int find_other(NrdNode *dir, const char *name, NrdNodeKey *key)
{
    switch (dir->info->kind) {
    case NRD_KIND_TOPIC:
        return find_partition(dir->topic, name, key);
    case NRD_KIND_CHILDREN:
        return find_child(dir, name, key);
    case NRD_KIND_FROM:
        return find_offset(NRD_KIND_FROM_OFFSET, name, key);
    case NRD_KIND_RECORDS:
        return find_offset(NRD_KIND_RECORD, name, key);
    case NRD_KIND_BY_TIME:
        return find_time(name, key);
    case NRD_KIND_SEGMENTS:
        return find_segment(name, key);
    default:
        return -ENOENT;
    }
}

/* A name below a topic or a partition. */
static int find_in_topic(NrdNode *dir, const char *name, NrdNodeKey *ret_key)
{
    NrdNodeKey key = { .topic = dir->topic, .partition = dir->partition };
    if (nrd_topic_deleted(dir->topic) || (dir->child && !nrd_is_child(dir->topic, dir->child)))
        return -ENOENT;
    const char *alias = NULL; /* the same file, and the same st_ino */
    key.info = nrd_kind_find(dir->info->kind, name, &alias);
    int error = key.info ? 0 : find_other(dir, name, &key);
    if (error == 0 && alias)
        error = check_alias(alias);
    if (error == 0 && key.info->kind != NRD_KIND_TOPIC_STATUS && nrd_topic_lost(dir->topic))
        error = -EIO;
    if (error < 0) {
        nrd_topic_unref(key.child);
        return error;
    }
    nrd_topic_ref(key.topic);
    if (dir->child)
        key.child = nrd_topic_ref(dir->child);
    *ret_key = key;
    return 0;
}

/* key->topic and key->child are referenced. */
static int find(NrdNode *dir, const char *name, NrdNodeKey *ret_key)
{
    if (strlen(name) > 255)
        return -ENAMETOOLONG;
    if (dir->topic)
        return find_in_topic(dir, name, ret_key);
    NrdNodeKey key = { 0 };
    if (dir->info->kind == NRD_KIND_TOPICS) {
        if (strlen(name) > NAME_MAX_BYTES)
            return -ENAMETOOLONG;
        int error = nrd_topic_find(dir->fs->engine, name, &key.topic);
        if (error < 0)
            return error;
        key.info = nrd_kind_info(NRD_KIND_TOPIC);
    } else {
        const char *alias; /* nothing up here has one */
        key.info = nrd_kind_find(dir->info->kind, name, &alias);
        if (!key.info)
            return -ENOENT;
    }
    *ret_key = key;
    return 0;
}

void nrd_entry_fill(NrdNode *node, struct fuse_entry_param *ret_entry)
{
    *ret_entry = (struct fuse_entry_param){ .ino = node->id, .generation = 1 };
    ret_entry->attr_timeout = nrd_node_attr_timeout(node);
    if (!node->info->fresh && !node->info->brief)
        ret_entry->entry_timeout = NAME_SECONDS;
    nrd_node_stat(node, &ret_entry->attr);
}

void nrd_reply_entry(fuse_req_t req, NrdNode *node)
{
    NrdFs *fs = node->fs;
    uint64_t id = node->id;
    struct fuse_entry_param entry;
    nrd_entry_fill(node, &entry);
    if (fuse_reply_entry(req, &entry) < 0) /* interrupted: the kernel does not count it */
        nrd_nodes_forget(fs->nodes, id, 1);
}

/* A file that is measured for its size, which may take long, is not by a LOOKUP: the kernel holds its folder's lock then.
 * It may rely on nothing that the LOOKUP says of the file, and asks with a GETATTR at once. */
static bool is_measured(const NrdNode *node)
{
    return node->info->ops && node->info->ops->visit_open;
}

static void reply_entry_later(NrdNode *node, fuse_req_t req, void *data, int error)
{
    uint64_t id = node->id;
    if (error == 0)
        error = is_measured(node) ? nrd_node_learn(node) : nrd_node_visit(node);
    if (error == 0) {
        nrd_reply_entry(req, node);
        return;
    }
    nrd_reply_error(req, error == -EIDRM ? -ENOENT : error);
    nrd_nodes_forget(node->fs->nodes, id, 1);
}

/* A name whose file has to be visited may have gone since the last time: it is visited again. */
static bool lookup_waits(NrdNode *node)
{
    if (is_measured(node))
        return nrd_node_unknown(node);
    return (node->info->ops && node->info->ops->visit) || nrd_node_waits(node);
}

void nrd_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    NrdFs *fs = nrd_req_fs(req);
    NrdNode *dir = nrd_nodes_get(fs->nodes, parent);
    NrdNodeKey key;
    int error = dir ? find(dir, name, &key) : -ESTALE;
    if (error < 0) {
        nrd_reply_error(req, error);
        return;
    }
    NrdNode *node = nrd_nodes_lookup(fs->nodes, &key);
    nrd_topic_unref(key.topic);
    nrd_topic_unref(key.child);
    if (lookup_waits(node))
        nrd_defer(node, req, reply_entry_later, NULL);
    else
        nrd_reply_entry(req, node);
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

static void readlink_later(NrdNode *node, fuse_req_t req, void *data, int error)
{
    if (error < 0)
        nrd_reply_error(req, error);
    else
        nrd_time_link_read(node, req);
}

void nrd_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    if (node && node->info->kind == NRD_KIND_TIME_LINK)
        nrd_defer(node, req, readlink_later, NULL);
    else if (node && node->info->link)
        fuse_reply_readlink(req, node->info->link);
    else
        fuse_reply_err(req, EINVAL);
}

/* What is not allowed anywhere, whoever asks. */
static void refuse(fuse_req_t req, fuse_ino_t ino, const char *name, const char *call)
{
    const NrdNode *dir = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    if (dir && dir->topic && nrd_topic_deleted(dir->topic)) { /* as in every folder that is gone: a shell is in it */
        fuse_reply_err(req, ENOENT);
        return;
    }
    g_autofree char *quoted = nrd_quote(name, strlen(name));
    nrd_diag(NRD_LEVEL_NOTICE, dir ? nrd_node_place(dir) : NRD_NOWHERE,
             "%s of %s refused: mkdir and rmdir make and remove topics in topics/ and attachments in children/, and no "
             "other name is made, removed or changed",
             call, quoted);
    fuse_reply_err(req, EPERM);
}

static int check_topics_dir(NrdFs *fs, fuse_ino_t ino)
{
    NrdNode *dir = nrd_nodes_get(fs->nodes, ino);
    if (!dir)
        return -ESTALE;
    if (dir->info->kind != NRD_KIND_TOPICS && dir->info->kind != NRD_KIND_CHILDREN)
        return -EPERM;
    return nrd_engine_read_only(fs->engine) ? -EROFS : 0;
}

static bool changes_children(NrdFs *fs, fuse_ino_t ino)
{
    NrdNode *dir = nrd_nodes_get(fs->nodes, ino);
    return dir && dir->info->kind == NRD_KIND_CHILDREN && !nrd_engine_read_only(fs->engine);
}

void nrd_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    NrdFs *fs = nrd_req_fs(req);
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    NrdAttr attr = { .uid = ctx->uid, .gid = ctx->gid, .mode = mode & 07777 & ~ctx->umask };
    uint32_t file_umask = ~attr.mode & 0777; /* `mkdir -m 750` hides the umask, and means the files as well */
    NrdTopic *topic;
    if (changes_children(fs, parent)) {
        nrd_children_mkdir(nrd_nodes_get(fs->nodes, parent), req, name);
        return;
    }
    int error = check_topics_dir(fs, parent);
    if (error == -EPERM) {
        refuse(req, parent, name, "mkdir");
        return;
    }
    if (error == 0)
        error = nrd_topic_create(fs->engine, name, &attr, file_umask, &topic);
    if (error < 0) {
        nrd_reply_error(req, error);
        return;
    }
    NrdNode *node = nrd_nodes_lookup(fs->nodes, &(NrdNodeKey){ .info = nrd_kind_info(NRD_KIND_TOPIC), .topic = topic });
    nrd_topic_unref(topic);
    nrd_reply_entry(req, node);
}

void nrd_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    NrdFs *fs = nrd_req_fs(req);
    NrdTopic *topic = NULL;
    if (changes_children(fs, parent)) {
        nrd_children_rmdir(nrd_nodes_get(fs->nodes, parent), req, name);
        return;
    }
    int error = check_topics_dir(fs, parent);
    if (error == -EPERM) {
        refuse(req, parent, name, "rmdir");
        return;
    }
    if (error == 0)
        error = nrd_topic_find(fs->engine, name, &topic);
    if (error == 0)
        error = nrd_topic_remove(topic);
    nrd_topic_unref(topic);
    nrd_reply_error(req, error);
}

void nrd_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    refuse(req, parent, name, "mknod");
}

void nrd_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    refuse(req, parent, name, "creat");
}

void nrd_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    refuse(req, parent, name, "unlink");
}

void nrd_op_symlink(fuse_req_t req, const char *link, fuse_ino_t parent, const char *name)
{
    refuse(req, parent, name, "symlink");
}

void nrd_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char *newname,
                   unsigned int flags)
{
    refuse(req, parent, name, "rename");
}

void nrd_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
    refuse(req, newparent, newname, "link");
}
