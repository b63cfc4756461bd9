/* getattr and setattr: owner and modes from the topic's record, times from the last commit. */
#include "fs/defer.h"
#include "fs/node.h"

#include <errno.h>

/* How long the kernel may rely on attributes that change with chmod only, which it sees itself. */
#define STEADY_SECONDS 1.0

NrdSeen nrd_node_seen(NrdNode *node)
{
    g_mutex_lock(&node->lock);
    NrdSeen seen = node->seen;
    g_mutex_unlock(&node->lock);
    return seen;
}

void nrd_node_set_seen(NrdNode *node, const NrdSeen *seen)
{
    g_mutex_lock(&node->lock);
    node->seen = *seen;
    g_mutex_unlock(&node->lock);
}

double nrd_node_attr_timeout(NrdNode *node)
{
    bool sealed = node->info->kind == NRD_KIND_SEGMENT && nrd_node_seen(node).final;
    return node->info->steady || sealed ? STEADY_SECONDS : 0.0;
}

/* Whose owner and mode a node has: its own, but a link into .streams/, which is not listed, stands for the file that it
 * leads to. So `chown -R` finds that. */
static const NrdKindInfo *owned_kind(const NrdNode *node)
{
    const char *alias;
    if (!node->info->link)
        return node->info;
    return nrd_kind_find(node->partition ? NRD_KIND_STREAMS : NRD_KIND_TOPIC_STREAMS, node->info->name, &alias);
}

/* The key of the node's owner and mode in the topic's record, and the widest mode. NULL: it has none. */
static char *attr_path(const NrdNode *node, uint32_t *ret_base_mode)
{
    const NrdKindInfo *info = owned_kind(node);
    *ret_base_mode = info->mode & 07777;
    if (!info->path)
        return NULL;
    if (!node->partition)
        return g_strdup(info->path);
    return g_strdup_printf("p%05u%s", nrd_partition_number(node->partition), info->path);
}

/* Above the topics the options say it. Where others may make topics they take away none but their own, as in /tmp. */
static mode_t mode_above_topics(const NrdNode *node)
{
    mode_t mode = node->info->mode & ~(mode_t)node->fs->options.umask;
    return node->info->kind == NRD_KIND_TOPICS && (mode & S_IWOTH) ? mode | S_ISVTX : mode;
}

static void fill_owner(const NrdNode *node, struct stat *st)
{
    const NrdFsOptions *options = &node->fs->options;
    st->st_mode = node->info->mode;
    st->st_uid = options->uid;
    st->st_gid = options->gid;
    if (!node->topic) {
        st->st_mode = mode_above_topics(node);
        return;
    }
    NrdAttr attr;
    uint32_t base_mode;
    char *path = attr_path(node, &base_mode);
    nrd_topic_get_attr(node->topic, path ? path : "", base_mode, &attr);
    st->st_uid = attr.uid;
    st->st_gid = attr.gid;
    if (!S_ISLNK(st->st_mode)) /* a symlink's mode means nothing */
        st->st_mode = (st->st_mode & S_IFMT) | (attr.mode & 07777);
    g_free(path);
}

static void fill_time(NrdNode *node, struct stat *st)
{
    int64_t ms = nrd_node_seen(node).ms;
    if (ms == 0 && node->partition) {
        NrdPartitionInfo info;
        nrd_partition_info(node->partition, &info);
        ms = info.last_commit_ms;
        nrd_partition_info_clear(&info);
    }
    if (ms == 0 && node->topic)
        ms = nrd_topic_created_ms(node->topic);
    if (ms == 0)
        ms = node->fs->mounted_ms;
    st->st_mtim = (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    st->st_atim = st->st_ctim = st->st_mtim;
}

/* Two, and one for each folder that is listed in it: find and others go by that. */
static nlink_t count_links_by_kind(NrdKind parent)
{
    nlink_t n = 2;
    for (NrdKind kind = NRD_KIND_ROOT + 1; kind < NRD_N_KINDS; kind++) {
        const NrdKindInfo *info = nrd_kind_info(kind);
        n += info->parent == parent && info->listed && info->name && S_ISDIR(info->mode);
    }
    return n;
}

static nlink_t count_links(const NrdNode *node)
{
    switch (node->info->kind) {
    case NRD_KIND_TOPICS: {
        GPtrArray *names = nrd_engine_topic_names(node->fs->engine);
        nlink_t n = 2 + names->len;
        g_ptr_array_unref(names);
        return n;
    }
    case NRD_KIND_TOPIC:
        return count_links_by_kind(NRD_KIND_TOPIC) + nrd_topic_n_partitions(node->topic);
    case NRD_KIND_CHILDREN: {
        GPtrArray *names = nrd_topic_children(node->topic);
        nlink_t n = 2 + names->len;
        g_ptr_array_unref(names);
        return n;
    }
    default:
        return S_ISDIR(node->info->mode) ? count_links_by_kind(node->info->kind) : 1;
    }
}

static uint64_t size_of(NrdNode *node)
{
    if (node->info->link)
        return strlen(node->info->link);
    if (node->info->kind == NRD_KIND_TIME_LINK)
        return nrd_node_seen(node).size_bytes;
    return node->info->ops && node->info->ops->size ? node->info->ops->size(node) : 0;
}

void nrd_node_stat(NrdNode *node, struct stat *ret_st)
{
    struct stat st = { .st_ino = node->ino, .st_blksize = 65536, .st_nlink = count_links(node) };
    fill_owner(node, &st);
    st.st_size = (off_t)size_of(node); /* before the time: an open file learns both */
    fill_time(node, &st);
    st.st_blocks = (st.st_size + 511) / 512;
    *ret_st = st;
}

static void reply_attr(NrdNode *node, fuse_req_t req)
{
    struct stat st;
    nrd_node_stat(node, &st);
    fuse_reply_attr(req, &st, nrd_node_attr_timeout(node));
}

static void reply_attr_later(NrdNode *node, fuse_req_t req, void *data, int error)
{
    if (error == 0)
        error = nrd_node_visit(node);
    if (error == 0)
        reply_attr(node, req);
    else
        nrd_reply_error(req, error == -EIDRM ? -ESTALE : error);
}

static void reply_attr_when_known(NrdNode *node, fuse_req_t req)
{
    if (nrd_node_waits(node))
        nrd_defer(node, req, reply_attr_later, NULL);
    else
        reply_attr(node, req);
}

void nrd_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    if (node)
        reply_attr_when_known(node, req);
    else
        fuse_reply_err(req, ESTALE);
}

/* The kernel has checked that the caller may. */
static int set_owner_and_mode(NrdNode *node, const struct stat *wanted, int to_set)
{
    uint32_t base_mode;
    char *path = attr_path(node, &base_mode);
    if (!node->topic || !path || node->child) { /* of a child's folder they are those of children/ and of `status` */
        g_free(path);
        nrd_diag(NRD_LEVEL_WARNING, nrd_node_place(node),
                 "a change of owner or mode was refused: it is for topics and what is in them%s",
                 node->child ? "; of a child they are those of children/" : "");
        return -EPERM;
    }
    NrdAttr attr = { wanted->st_uid, wanted->st_gid, wanted->st_mode & 07777 };
    int what = (to_set & FUSE_SET_ATTR_UID ? NRD_ATTR_UID : 0) | (to_set & FUSE_SET_ATTR_GID ? NRD_ATTR_GID : 0) |
               (to_set & FUSE_SET_ATTR_MODE ? NRD_ATTR_MODE : 0);
    int error = nrd_topic_set_attr(node->topic, path, base_mode, what, &attr);
    g_free(path);
    return error;
}

static int set_attr(NrdNode *node, const struct stat *wanted, int to_set)
{
    if (nrd_engine_read_only(node->fs->engine))
        return -EROFS;
    if ((to_set & FUSE_SET_ATTR_SIZE) && !node->info->truncate)
        return nrd_refuse_writing(node, "truncated");
    if (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
        return set_owner_and_mode(node, wanted, to_set);
    return 0; /* times are the last commit's; `touch` is harmless */
}

static void set_attr_and_reply(NrdNode *node, fuse_req_t req, const struct stat *wanted, int to_set)
{
    int error = set_attr(node, wanted, to_set);
    if (error < 0)
        nrd_reply_error(req, error);
    else
        reply_attr_when_known(node, req);
}

/* A SETATTR that waits. */
typedef struct Setting {
    struct stat wanted;
    int to_set;
} Setting;

static void set_attr_later(NrdNode *node, fuse_req_t req, void *data, int error)
{
    Setting *setting = data;
    if (error < 0)
        nrd_reply_error(req, error);
    else
        set_attr_and_reply(node, req, &setting->wanted, setting->to_set);
    g_free(setting);
}

void nrd_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
    NrdNode *node = nrd_nodes_get(nrd_req_fs(req)->nodes, ino);
    if (!node) {
        fuse_reply_err(req, ESTALE);
    } else if (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)) {
        Setting setting = { *attr, to_set };
        nrd_defer(node, req, set_attr_later, g_memdup2(&setting, sizeof setting));
    } else {
        set_attr_and_reply(node, req, attr, to_set);
    }
}
