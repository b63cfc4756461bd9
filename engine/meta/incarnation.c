/* See incarnation.h. A marker is the file topics/<name>/incarnation: exactly the 16 digits, replaced atomically. */
#include "engine/meta/incarnation.h"

#include "engine/base/diag.h"
#include "engine/io/io.h"

#include <errno.h>
#include <string.h>

#define MARKER_MAX_BYTES ((size_t)4096)
#define STALE ".stale-"
/* Two random ids of 16 digits differ in about 28 of their 128 bits. Below this it is one id with a few bits flipped. */
#define NEAR_BITS 8

typedef enum Marker {
    MARKER_OURS,
    MARKER_NONE,    /* missing, empty, or a beginning of ours: a first write that a crash cut short */
    MARKER_FOREIGN, /* another whole id */
    MARKER_DAMAGED, /* none of these, or so near to ours that it is ours with flipped bits */
} Marker;

static NrdPlace place_of(const char *name)
{
    return (NrdPlace){ name, NRD_NO_PARTITION, NRD_NO_OFFSET };
}

static unsigned differing_bits(const char *a, const char *b)
{
    unsigned n = 0;
    for (size_t i = 0; i < NRD_INCARNATION_DIGITS; i++)
        n += (unsigned)__builtin_popcount((unsigned char)a[i] ^ (unsigned char)b[i]);
    return n;
}

/* Pure: what the bytes of a marker mean to a topic of incarnation id; ret_other takes the foreign id. */
static Marker judge(const char *data, size_t size, const char *id, char ret_other[NRD_INCARNATION_DIGITS + 1])
{
    if (size > 0 && data[size - 1] == '\n') /* written by hand with echo */
        size--;
    if (size < NRD_INCARNATION_DIGITS)
        return memcmp(data, id, size) == 0 ? MARKER_NONE : MARKER_DAMAGED;
    if (size > NRD_INCARNATION_DIGITS)
        return MARKER_DAMAGED;
    if (memcmp(data, id, size) == 0)
        return MARKER_OURS;
    char other[NRD_INCARNATION_DIGITS + 1] = { 0 };
    memcpy(other, data, size);
    if (!nrd_incarnation_valid(other) || differing_bits(other, id) <= NEAR_BITS)
        return MARKER_DAMAGED;
    memcpy(ret_other, other, sizeof other);
    return MARKER_FOREIGN;
}

static bool is_ours(const uint8_t *bytes, size_t size, void *id)
{
    char other[NRD_INCARNATION_DIGITS + 1];
    return judge(bytes ? (const char *)bytes : "", size, id, other) == MARKER_OURS;
}

/* Reads and judges the marker of folder topics/<name>. -ENOENT: there is no such folder. */
static int look(int root_fd, const char *name, const char *id, Marker *ret_marker,
                char ret_other[NRD_INCARNATION_DIGITS + 1], char **ret_why)
{
    g_autofree char *dir = g_strconcat("topics/", name, NULL);
    g_autofree char *path = g_strconcat(dir, "/incarnation", NULL);
    g_autoptr(GBytes) bytes = NULL;
    int fd = -1;
    int rc = nrd_io_open_dir(root_fd, dir, &fd);
    nrd_io_close(&fd);
    if (rc == -ENOENT)
        return rc;
    if (rc < 0) {
        *ret_why = g_strdup_printf("%s cannot be opened as a folder: %s", dir, g_strerror(-rc));
        return rc;
    }
    rc = nrd_io_read_checked(root_fd, path, MARKER_MAX_BYTES, is_ours, (void *)(uintptr_t)id, &bytes);
    if (rc == -ENOENT) {
        *ret_marker = MARKER_NONE;
        return 0;
    }
    if (rc < 0) {
        *ret_why = g_strdup_printf("%s cannot be read: %s", path,
                                   rc == -EINVAL ? "it is not a regular file" : g_strerror(-rc));
        return rc;
    }
    gsize size;
    const char *data = g_bytes_get_data(bytes, &size);
    *ret_marker = judge(data ? data : "", size, id, ret_other);
    if (*ret_marker != MARKER_DAMAGED)
        return 0;
    *ret_why = g_strdup_printf("%s is damaged; if the folder belongs to this topic, write %s into that file", path, id);
    return -EIO;
}

/* Durable and atomic: a crash leaves the marker that was there (or none, in a folder that is adopted) or ours. */
static int write_marker(int root_fd, const char *name, const char *id)
{
    g_autofree char *path = g_strconcat("topics/", name, "/incarnation", NULL);
    return nrd_io_replace_file(root_fd, path, id, NRD_INCARNATION_DIGITS);
}

/* The folder first, then its marker: a crash between leaves an empty folder, which is adopted. */
static int make_fresh(int root_fd, const char *name, const char *id)
{
    g_autofree char *dir = g_strconcat("topics/", name, NULL);
    int rc = nrd_io_make_dir(root_fd, dir);
    return rc < 0 ? rc : write_marker(root_fd, name, id);
}

/* Renames topics/<name> out of the way and syncs topics/. A crash before the sync leaves the folder under either name:
 * quarantined or removed already, or to be so at the next start. Nothing is merged into a folder that has that name already. */
static int quarantine(int root_fd, const char *name, const char *other)
{
    g_autofree char *from = g_strconcat("topics/", name, NULL);
    g_autofree char *to = g_strconcat("topics/", name, STALE, other, NULL);
    return nrd_io_rename(root_fd, from, to, false);
}

static bool is_gone(int root_fd, const char *name)
{
    g_autofree char *dir = g_strconcat("topics/", name, NULL);
    struct stat st;
    return nrd_io_stat(root_fd, dir, &st) == -ENOENT;
}

static int replace_foreign(int root_fd, const char *name, const char *id, const char *other,
                           void (*after_rename)(void *), void *user_data, char **ret_why)
{
    int rc = quarantine(root_fd, name, other);
    /* Renamed, but the folder could not be synced: what memory holds of the old incarnation goes all the same, since the
     * next claim meets no folder and makes a fresh one. A crash in between brings the old folder back, to be quarantined
     * again. */
    if (rc < 0 && is_gone(root_fd, name) && after_rename)
        after_rename(user_data);
    if (rc < 0) {
        *ret_why = g_strdup_printf("its folder belongs to incarnation %s and could not be renamed to %s" STALE
                                   "%s: %s; nothing of it is served",
                                   other, name, other, g_strerror(-rc));
        return rc;
    }
    nrd_counter_add(NRD_COUNTER_QUARANTINED, 1);
    nrd_diag(NRD_LEVEL_ERROR, place_of(name),
             "topics/%s belonged to incarnation %s, the topic is incarnation %s: quarantined as %s" STALE "%s", name,
             other, id, name, other);
    if (after_rename)
        after_rename(user_data);
    return make_fresh(root_fd, name, id);
}

int nrd_incarnation_claim(int root_fd, const char *name, const char *id, void (*after_rename)(void *), void *user_data,
                          NrdClaim *ret_claim, char **ret_why)
{
    Marker marker;
    char other[NRD_INCARNATION_DIGITS + 1];
    NrdClaim claim = NRD_CLAIM_MATCH;
    char *why = NULL;
    int rc = look(root_fd, name, id, &marker, other, &why);
    if (rc == -ENOENT) {
        claim = NRD_CLAIM_CREATED;
        rc = make_fresh(root_fd, name, id);
    } else if (rc == 0 && marker == MARKER_NONE) {
        claim = NRD_CLAIM_ADOPTED;
        /* the folder's own name may not be durable: an earlier try may have failed there */
        rc = make_fresh(root_fd, name, id);
    } else if (rc == 0 && marker == MARKER_FOREIGN) {
        claim = NRD_CLAIM_QUARANTINED;
        rc = replace_foreign(root_fd, name, id, other, after_rename, user_data, &why);
    }
    if (rc < 0) {
        *ret_why =
            why ? why : g_strdup_printf("its folder topics/%s could not be made or stamped: %s", name, g_strerror(-rc));
        return rc;
    }
    *ret_claim = claim;
    return 0;
}

int nrd_incarnation_verify(int root_fd, const char *name, const char *id, char **ret_why)
{
    Marker marker;
    char other[NRD_INCARNATION_DIGITS + 1];
    int rc = look(root_fd, name, id, &marker, other, ret_why);
    if (rc == 0 && marker == MARKER_FOREIGN) {
        *ret_why =
            g_strdup_printf("its folder belongs to incarnation %s, not %s: the next start that may write sets it "
                            "aside and DELETES it with its records, unless another topic record carries that "
                            "incarnation; put the folder or meta/%s.topic right before that",
                            other, id, name);
        return -EIO;
    }
    return rc;
}

/* ---- reclaiming ---- */

/* Splits "<topic>.stale-<id>"; false when it is not of that form. */
static bool split_stale(const char *entry, const char **ret_id)
{
    const char *at = g_strrstr(entry, STALE);
    if (!at || !nrd_incarnation_valid(at + strlen(STALE)))
        return false;
    g_autofree char *topic = g_strndup(entry, (gsize)(at - entry));
    if (nrd_topic_name_check(topic) < 0)
        return false;
    *ret_id = at + strlen(STALE);
    return true;
}

static bool reclaim(int root_fd, const char *entry)
{
    g_autofree char *path = g_strconcat("topics/", entry, NULL);
    int rc = nrd_io_remove_tree(root_fd, path);
    if (rc < 0) {
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "%s, left by a deleted topic, could not be removed: %s", path,
                 g_strerror(-rc));
        return false;
    }
    nrd_counter_add(NRD_COUNTER_RECLAIMED, 1);
    nrd_diag(NRD_LEVEL_NOTICE, NRD_NOWHERE, "removed %s, left by a deleted topic", path);
    return true;
}

/* A folder of topics/ that has no record: an orphan of a deletion that a crash cut short. Its marker says which one;
 * without a whole marker it is not ours to judge. */
static NrdFate judge_orphan(int root_fd, const char *entry, NrdKnowsFn knows, void *user_data,
                            char ret_id[NRD_INCARNATION_DIGITS + 1], char **ret_why)
{
    static const char no_id[] = "----------------"; /* equal to no id, and far from all of them */
    Marker marker;
    g_autofree char *why = NULL;
    int rc = look(root_fd, entry, no_id, &marker, ret_id, &why);
    if (rc < 0 || marker != MARKER_FOREIGN) {
        bool damaged = rc == 0 || rc == -EIO; /* what look says of it names an id, and there is none */
        *ret_why = damaged || !why ? g_strdup("it has no whole marker") : g_steal_pointer(&why);
        return NRD_FATE_LEFT;
    }
    return knows(user_data, ret_id) ? NRD_FATE_KNOWN : NRD_FATE_REMOVED;
}

/* A quarantined folder is what its name says when it is a folder, and when its marker says the same, or is gone: a
 * removal that was cut short may have begun with it. Anything else somebody put there. */
static NrdFate judge_stale(int root_fd, const char *entry, NrdKnowsFn knows, void *user_data,
                           char ret_id[NRD_INCARNATION_DIGITS + 1], char **ret_why)
{
    Marker marker;
    char other[NRD_INCARNATION_DIGITS + 1];
    g_autofree char *why = NULL;
    if (knows(user_data, ret_id))
        return NRD_FATE_KNOWN;
    int rc = look(root_fd, entry, ret_id, &marker, other, &why);
    if (rc == 0 && marker != MARKER_FOREIGN)
        return NRD_FATE_REMOVED;
    *ret_why = why ? g_steal_pointer(&why) : g_strdup("it holds another incarnation");
    return NRD_FATE_LEFT;
}

NrdFate nrd_incarnation_fate(int root_fd, const char *entry, NrdKnowsFn knows, void *user_data,
                             char ret_id[NRD_INCARNATION_DIGITS + 1], char **ret_why)
{
    const char *id;
    if (split_stale(entry, &id)) {
        g_strlcpy(ret_id, id, NRD_INCARNATION_DIGITS + 1);
        return judge_stale(root_fd, entry, knows, user_data, ret_id, ret_why);
    }
    ret_id[0] = '\0';
    if (nrd_topic_name_check(entry) < 0) {
        *ret_why = g_strdup("its name is none that a topic can have");
        return NRD_FATE_LEFT;
    }
    return judge_orphan(root_fd, entry, knows, user_data, ret_id, ret_why);
}

/* The name first, so that a topic of that name that is made meanwhile never meets it. */
static bool reclaim_orphan(int root_fd, const char *entry, const char *id)
{
    int rc = quarantine(root_fd, entry, id);
    if (rc < 0) {
        nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "topics/%s, left by a deleted topic, could not be renamed: %s", entry,
                 g_strerror(-rc));
        return false;
    }
    g_autofree char *stale = g_strconcat(entry, STALE, id, NULL);
    return reclaim(root_fd, stale);
}

static bool may_know(void *store, const char *id)
{
    return nrd_metastore_may_know(store, id);
}

static bool is_of_a_topic(NrdMetastore *store, const char *entry)
{
    NrdTopicRecord *record = NULL;
    int rc = nrd_metastore_get(store, entry, &record, NULL);
    nrd_topic_record_free(record);
    return rc != -ENOENT;
}

static bool sweep_entry(int root_fd, NrdMetastore *store, const char *entry)
{
    char id[NRD_INCARNATION_DIGITS + 1];
    g_autofree char *why = NULL;
    const char *stale_id;
    bool stale = split_stale(entry, &stale_id);
    if (!stale && (nrd_topic_name_check(entry) < 0 || is_of_a_topic(store, entry)))
        return false;
    switch (nrd_incarnation_fate(root_fd, entry, may_know, store, id, &why)) {
    case NRD_FATE_KNOWN:
        return false;
    case NRD_FATE_REMOVED:
        return stale ? reclaim(root_fd, entry) : reclaim_orphan(root_fd, entry, id);
    case NRD_FATE_LEFT:
        break;
    }
    nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "topics/%s %s: %s: left alone", entry,
             stale ? "is not what its name says" : "belongs to no topic", why);
    return false;
}

int nrd_incarnation_sweep(int root_fd, NrdMetastore *store)
{
    g_autoptr(GPtrArray) entries = NULL;
    int rc = nrd_io_list_dir(root_fd, "topics", &entries);
    if (rc < 0)
        return rc;
    /* No id can be ruled out while one record is unreadable: may_know then says yes to every id, also to one that no
     * topic can have. */
    if (nrd_metastore_may_know(store, ""))
        return 0;
    int n_removed = 0;
    for (guint i = 0; i < entries->len; i++)
        n_removed += sweep_entry(root_fd, store, entries->pdata[i]);
    return n_removed;
}

int nrd_incarnation_purge(int root_fd, const char *name, const char *id)
{
    Marker marker;
    char other[NRD_INCARNATION_DIGITS + 1];
    g_autofree char *why = NULL;
    int rc = look(root_fd, name, id, &marker, other, &why);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return rc;
    if (marker == MARKER_FOREIGN)
        return 0;
    rc = quarantine(root_fd, name, id);
    if (rc < 0)
        return rc;
    g_autofree char *path = g_strconcat("topics/", name, STALE, id, NULL);
    return nrd_io_remove_tree(root_fd, path);
}
