/* children/ of a topic: a folder in it is a fan-out child. mkdir attaches, rmdir detaches; both wait for the disk, so they
 * run on the threads of defer.c. `status` in a child's folder tells how far copying has come. */
#include "fs/defer.h"
#include "fs/namespace.h"
#include "fs/node.h"

#include <errno.h>

static bool lists(NrdTopic *parent, const char *name)
{
    GPtrArray *names = nrd_topic_children(parent);
    bool found = g_ptr_array_find_with_equal_func(names, name, g_str_equal, NULL);
    g_ptr_array_unref(names);
    return found;
}

bool nrd_is_child(NrdTopic *parent, NrdTopic *child)
{
    return !nrd_topic_deleted(child) && lists(parent, nrd_topic_name(child));
}

/* ---- attaching and detaching ---- */

/* Attaching shows the parent's records in the child: it takes what reading the ones and producing to the other take. */
static int check_attach(NrdNode *dir, fuse_req_t req, NrdTopic *child)
{
    const char *what = NULL;
    if (!nrd_may_reach_and_write(req, child, "produce"))
        what = "write its produce";
    else if (!nrd_may_read_all(req, dir->topic))
        what = "read the log of each partition here";
    if (!what)
        return 0;
    nrd_topic_refuse(dir->topic, NRD_NO_PARTITION, "%s was not attached: the caller may not %s", nrd_topic_name(child),
                     what);
    return -EACCES;
}

static int attach(NrdNode *dir, fuse_req_t req, const char *name, NrdTopic **ret_child)
{
    NrdTopic *child = NULL;
    int error = nrd_topic_find(dir->fs->engine, name, &child);
    if (error < 0) {
        g_autofree char *quoted = nrd_quote(name, strlen(name)); /* whatever mkdir was given */
        nrd_topic_refuse(dir->topic, NRD_NO_PARTITION, "%s was not attached: there is no such topic", quoted);
        return error;
    }
    if (!lists(dir->topic, name))
        error = check_attach(dir, req, child);
    if (error == 0)
        error = nrd_topic_attach(dir->topic, name);
    if (error == 0 && nrd_topic_deleted(child)) { /* what was attached may be another one, that nobody checked */
        (void)!nrd_topic_detach(dir->topic, name);
        error = -ENOENT;
    }
    if (error == 0)
        *ret_child = child;
    else
        nrd_topic_unref(child);
    return error;
}

static void mkdir_later(NrdNode *dir, fuse_req_t req, void *data, int error)
{
    char *name = data;
    NrdTopic *child = NULL;
    if (error == 0)
        error = attach(dir, req, name, &child);
    g_free(name);
    if (error < 0) {
        nrd_reply_error(req, error);
        return;
    }
    NrdNodeKey key = { .info = nrd_kind_info(NRD_KIND_CHILD), .topic = dir->topic, .child = child };
    NrdNode *node = nrd_nodes_lookup(dir->fs->nodes, &key);
    nrd_topic_unref(child);
    nrd_reply_entry(req, node);
}

void nrd_children_mkdir(NrdNode *dir, fuse_req_t req, const char *name)
{
    nrd_defer(dir, req, mkdir_later, g_strdup(name));
}

static void rmdir_later(NrdNode *dir, fuse_req_t req, void *data, int error)
{
    char *name = data;
    if (error == 0)
        error = nrd_topic_detach(dir->topic, name);
    nrd_reply_error(req, error);
    g_free(name);
}

void nrd_children_rmdir(NrdNode *dir, fuse_req_t req, const char *name)
{
    nrd_defer(dir, req, rmdir_later, g_strdup(name));
}

/* ---- status ---- */

static void append_row(GString *text, const NrdChildRow *row)
{
    uint64_t lag = row->hwm > row->cursor ? row->hwm - row->cursor : 0;
    g_string_append_printf(text, "p%05u  %12" G_GUINT64_FORMAT "  %12" G_GUINT64_FORMAT "  %10" G_GUINT64_FORMAT "  ",
                           row->partition, row->cursor, row->hwm, lag);
    GString *due = g_string_new(NULL);
    if (row->due_ms > 0)
        nrd_append_time(due, row->due_ms);
    g_string_append_printf(text, "%-20s  ", due->len > 0 ? due->str : "-");
    g_string_free(due, TRUE);
    if (row->n_failed > 0)
        g_string_append_printf(text, "failed %u time%s: %s\n", row->n_failed, nrd_plural(row->n_failed),
                               g_strerror(-row->error));
    else
        g_string_append(text, "ok\n");
}

static void append_info(GString *text, const NrdChildInfo *info)
{
    g_string_append_printf(text, "delay        %" G_GINT64_FORMAT " ms\nattached     ", info->delay_ms);
    nrd_append_time(text, info->attached_ms);
    g_string_append_printf(text, "\nlag          %-14" G_GUINT64_FORMAT " record%s not copied yet, due or not\n",
                           info->lag, nrd_plural(info->lag));
    g_string_append_printf(text, "copied       %-14" G_GUINT64_FORMAT " since the attach or the daemon's start\n",
                           info->n_copied);
    g_string_append_printf(text, "dropped      %-14" G_GUINT64_FORMAT " never copied: gone or damaged before\n\n",
                           info->n_dropped);
    g_string_append(text, "partition      cursor           hwm         lag  due                   state\n");
    for (guint i = 0; i < info->rows->len; i++)
        append_row(text, &g_array_index(info->rows, NrdChildRow, i));
}

static const char *state_of(NrdNode *node, bool known)
{
    if (!nrd_is_child(node->topic, node->child))
        return "detached";
    if (nrd_engine_read_only(node->fs->engine))
        return "nothing is copied: mounted read-only";
    return known ? "attached" : "nothing is copied: the child is out of service";
}

static char *child_status_text(NrdNode *node)
{
    GString *text = g_string_new(NULL);
    NrdChildInfo info;
    g_string_append_printf(text, "child        %s\nparent       %s\n", nrd_topic_name(node->child),
                           nrd_topic_name(node->topic));
    bool known = nrd_topic_child_info(node->topic, nrd_topic_name(node->child), &info) == 0;
    g_string_append_printf(text, "state        %s\n", state_of(node, known));
    if (known) {
        append_info(text, &info);
        nrd_child_info_clear(&info);
    }
    return g_string_free(text, FALSE);
}

const NrdFileOps nrd_child_status_ops = {
    .open = nrd_text_file_open,
    .read = nrd_text_file_read,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = child_status_text,
};
