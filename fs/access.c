/* Permissions that the kernel cannot check, because what is done is done through another file: settings changed through
 * attributes of the topic folder need write permission on `config`, records settled through `drain` or `consume` need it
 * on `ack`, records written to `produce.jsonl` or `produce.bin` need it on `produce`. */
#include "fs/fs_private.h"

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

bool nrd_may_write(fuse_req_t req, NrdTopic *topic, const char *path)
{
    uid_t uid = fuse_req_ctx(req)->uid;
    NrdAttr attr;
    if (uid == 0)
        return true;
    nrd_topic_get_attr(topic, path, 0666, &attr);
    if (uid == attr.uid)
        return attr.mode & 0200;
    return attr.mode & (in_group(req, attr.gid) ? 0020 : 0002);
}

static bool may_write_beside(fuse_req_t req, const NrdNode *node, const char *name)
{
    if (!node->partition)
        return nrd_may_write(req, node->topic, name);
    char *path = g_strdup_printf("p%05u/%s", nrd_partition_number(node->partition), name);
    bool may = nrd_may_write(req, node->topic, path);
    g_free(path);
    return may;
}

bool nrd_may_settle(fuse_req_t req, const NrdNode *node)
{
    return may_write_beside(req, node, "ack");
}

bool nrd_may_produce(fuse_req_t req, const NrdNode *node)
{
    return may_write_beside(req, node, "produce");
}
