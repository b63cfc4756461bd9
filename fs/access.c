/* Permissions that the kernel cannot check, because what is done is done through another file: settings changed through
 * attributes of the topic folder need write permission on `config`, records settled through `drain` or `consume` need it
 * on `ack`, and a fan-out child, which is attached by its name, needs what reading the parent's records and producing to the
 * child by hand would. And who may not write `produce` produces through none of its siblings, who may not read `consume` consumes
 * through none. */
#include "fs/fs_private.h"

#include <fcntl.h>

#define MAX_GROUPS 65536 /* NGROUPS_MAX of Linux */

static bool in_group(fuse_req_t req, gid_t gid)
{
    if (fuse_req_ctx(req)->gid == gid)
        return true;
    int n = fuse_req_getgroups(req, 0, NULL);
    if (n <= 0 || n > MAX_GROUPS)
        return false;
    gid_t *groups = g_new0(gid_t, (gsize)n);
    int got = fuse_req_getgroups(req, n, groups);
    bool found = false;
    for (int i = 0; i < MIN(got, n) && !found; i++)
        found = groups[i] == gid;
    g_free(groups);
    return found;
}

#define READ 04
#define WRITE 02
#define ENTER 01 /* a folder */

/* bits: as of others. */
static bool may(fuse_req_t req, NrdTopic *topic, const char *path, uint32_t base_mode, uint32_t bits)
{
    uid_t uid = fuse_req_ctx(req)->uid;
    NrdAttr attr;
    if (uid == 0)
        return true;
    nrd_topic_get_attr(topic, path, base_mode, &attr);
    if (uid == attr.uid)
        return attr.mode & (bits << 6);
    return attr.mode & (in_group(req, attr.gid) ? bits << 3 : bits);
}

/* path: below the folder that the node's file is used in, a topic's or a partition's. */
static bool may_beside(fuse_req_t req, const NrdNode *node, const char *path, uint32_t bits)
{
    if (!node->partition)
        return may(req, node->topic, path, 0666, bits);
    char *whole = g_strdup_printf("p%05u/%s", nrd_partition_number(node->partition), path);
    bool allowed = may(req, node->topic, whole, 0666, bits);
    g_free(whole);
    return allowed;
}

bool nrd_may_write(fuse_req_t req, NrdTopic *topic, const char *path)
{
    return may(req, topic, path, 0666, WRITE);
}

bool nrd_may_reach_and_write(fuse_req_t req, NrdTopic *topic, const char *path)
{
    return may(req, topic, "", 0777, ENTER) && nrd_may_write(req, topic, path);
}

bool nrd_may_read_all(fuse_req_t req, NrdTopic *topic)
{
    uint32_t n = nrd_topic_n_partitions(topic);
    bool allowed = true;
    for (uint32_t i = 0; i < n && allowed; i++) {
        char *folder = g_strdup_printf("p%05u", i);
        char *log = g_strdup_printf("p%05u/log", i);
        allowed = may(req, topic, folder, 0777, ENTER) && may(req, topic, log, 0444, READ);
        g_free(folder);
        g_free(log);
    }
    return allowed;
}

bool nrd_may_settle(fuse_req_t req, const NrdNode *node)
{
    return may_beside(req, node, "ack", WRITE);
}

bool nrd_may_open_sibling(fuse_req_t req, const NrdNode *node, int flags)
{
    int access = flags & O_ACCMODE;
    if (node->info->ops == &nrd_produce_ops && access != O_RDONLY)
        return may_beside(req, node, "produce", WRITE);
    if (node->info->ops->takes && access != O_WRONLY)
        return may_beside(req, node, ".streams/consume", READ);
    return true;
}
