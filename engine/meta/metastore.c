/* See metastore.h. One file a record, read once at open and written through.
 *
 * A record is replaced as a whole (nrd_io_replace_file): a crash leaves the old one or the new one, never neither. When a
 * change fails, memory keeps the old record and so does the disk: if the change got as far as its rename or unlink, the
 * old record is written back. If that fails as well, which is logged, the next start finds either.
 * Threads: any; `lock` guards the entries and covers the writes, with their syncs. */
#include "engine/meta/metastore.h"

#include "engine/base/diag.h"
#include "engine/base/errors.h"
#include "engine/base/names.h"
#include "engine/io/io.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define SUFFIX ".topic"
#define RECORD_MAX_BYTES ((size_t)1 << 20)

/* What is known of one name: a record, or why there is none. */
typedef struct Entry {
    NrdTopicRecord *record; /* NULL when damaged */
    char *why;
} Entry;

struct NrdMetastore {
    int root_fd;
    pthread_mutex_t lock; /* held across the write of a record */
    GHashTable *entries;  /* guarded by lock; name -> Entry* */
    /* guarded by lock; of the last look for what others have removed */
    struct timespec seen_mtime; /* of meta/ */
    bool folder_missing;
};

static void entry_free(gpointer data)
{
    Entry *entry = data;
    nrd_topic_record_free(entry->record);
    g_free(entry->why);
    g_free(entry);
}

static char *record_path(const char *name)
{
    return g_strconcat("meta/", name, SUFFIX, NULL);
}

static bool is_record(const uint8_t *bytes, size_t size, void *name)
{
    g_autofree char *why = NULL;
    NrdTopicRecord *record = NULL;
    int rc = nrd_topic_record_decode(name, bytes, size, &record, &why);
    nrd_topic_record_free(record);
    return rc == 0;
}

static int load(NrdMetastore *store, const char *name)
{
    g_autofree char *path = record_path(name);
    g_autoptr(GBytes) bytes = NULL;
    int rc = nrd_io_read_checked(store->root_fd, path, RECORD_MAX_BYTES, is_record, (void *)(uintptr_t)name, &bytes);
    if (nrd_error_is_shortage(rc))
        return rc; /* nothing is taken as damaged then */
    Entry *entry = g_new0(Entry, 1);
    if (rc < 0) {
        entry->why = g_strdup_printf("%s could not be read: %s", path,
                                     rc == -EINVAL ? "it is not a regular file" : g_strerror(-rc));
    } else {
        gsize size;
        const void *data = g_bytes_get_data(bytes, &size);
        g_autofree char *why = NULL;
        rc = nrd_topic_record_decode(name, data, size, &entry->record, &why);
        if (rc < 0)
            entry->why = g_strdup_printf("%s: %s%s", path, why, rc == -EINVAL ? "" : "; restore it from a backup");
    }
    if (entry->why)
        nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ name, NRD_NO_PARTITION, NRD_NO_OFFSET },
                 "%s; nothing of the topic is deleted", entry->why);
    g_hash_table_replace(store->entries, g_strdup(name), entry);
    return 0;
}

/* What a crash in the middle of a replacement left; never a record that anybody was promised. */
static void remove_stray(NrdMetastore *store, const char *file)
{
    g_autofree char *path = g_strconcat("meta/", file, NULL);
    int rc = nrd_io_unlink(store->root_fd, path);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE, "the stray file %s could not be removed: %s", path, g_strerror(-rc));
}

int nrd_metastore_open(int root_fd, bool read_only, NrdMetastore **ret_store, char **ret_why)
{
    g_autoptr(GPtrArray) files = NULL;
    int rc = nrd_io_list_dir(root_fd, "meta", &files);
    if (rc < 0) {
        *ret_why =
            g_strdup_printf("the topic records in meta/ cannot be listed: %s; nothing was changed", g_strerror(-rc));
        return rc;
    }
    NrdMetastore *store = g_new0(NrdMetastore, 1);
    store->root_fd = root_fd;
    pthread_mutex_init(&store->lock, NULL);
    store->entries = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, entry_free);
    for (guint i = 0; rc == 0 && i < files->len; i++) {
        const char *file = files->pdata[i];
        g_autofree char *name = g_str_has_suffix(file, SUFFIX) ? g_strndup(file, strlen(file) - strlen(SUFFIX)) : NULL;
        if (name && nrd_topic_name_check(name) == 0)
            rc = load(store, name);
        else if (!read_only && g_str_has_suffix(file, SUFFIX ".tmp"))
            remove_stray(store, file);
    }
    if (rc < 0) {
        *ret_why =
            g_strdup_printf("the topic records in meta/ cannot be read: %s; nothing was changed", g_strerror(-rc));
        nrd_metastore_free(store);
        return rc;
    }
    *ret_store = store;
    return 0;
}

void nrd_metastore_free(NrdMetastore *store)
{
    if (!store)
        return;
    g_hash_table_unref(store->entries);
    pthread_mutex_destroy(&store->lock);
    g_free(store);
}

GPtrArray *nrd_metastore_names(NrdMetastore *store)
{
    pthread_mutex_lock(&store->lock);
    GPtrArray *names = nrd_names_sorted(store->entries);
    pthread_mutex_unlock(&store->lock);
    return names;
}

int nrd_metastore_get(NrdMetastore *store, const char *name, NrdTopicRecord **ret_record, char **ret_why)
{
    int rc = 0;
    pthread_mutex_lock(&store->lock);
    const Entry *entry = g_hash_table_lookup(store->entries, name);
    if (!entry)
        rc = -ENOENT;
    else if (!entry->record)
        rc = -EIO;
    else
        *ret_record = nrd_topic_record_copy(entry->record);
    if (rc == -EIO && ret_why)
        *ret_why = g_strdup(entry->why);
    pthread_mutex_unlock(&store->lock);
    return rc;
}

/* Makes the file hold the record in memory again, after a change of it failed. Lock held. */
static int put_back_locked(NrdMetastore *store, const char *name)
{
    const Entry *entry = g_hash_table_lookup(store->entries, name);
    g_autofree char *path = record_path(name);
    g_autoptr(GBytes) bytes = NULL;
    size_t size;
    g_autofree char *text = nrd_topic_record_encode(entry->record, &size);
    int rc = nrd_io_read_file(store->root_fd, path, RECORD_MAX_BYTES, &bytes);
    if (rc == 0 && g_bytes_get_size(bytes) == size && memcmp(g_bytes_get_data(bytes, NULL), text, size) == 0)
        return 0;
    rc = nrd_io_replace_file(store->root_fd, path, text, size);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ name, NRD_NO_PARTITION, NRD_NO_OFFSET },
                 "a change of %s failed and could not be taken back durably: %s; the next start may find it made", path,
                 g_strerror(-rc));
    return rc;
}

/* The record may be gone from the disk: then nothing of the topic may be acknowledged any more. Lock held. */
static void condemn_locked(NrdMetastore *store, const char *name)
{
    Entry *entry = g_hash_table_lookup(store->entries, name);
    g_clear_pointer(&entry->record, nrd_topic_record_free);
    entry->why = g_strdup_printf("meta/%s.topic could neither be removed nor put back; restart the daemon when the "
                                 "disk is well",
                                 name);
}

/* Writes the record and takes it into memory. Lock held. */
static int put_locked(NrdMetastore *store, const NrdTopicRecord *record)
{
    g_autofree char *path = record_path(record->name);
    size_t size;
    g_autofree char *text = nrd_topic_record_encode(record, &size);
    int rc =
        size > RECORD_MAX_BYTES ? -EFBIG : nrd_error_of_disk(nrd_io_replace_file(store->root_fd, path, text, size));
    if (rc < 0)
        return rc;
    Entry *entry = g_new0(Entry, 1);
    entry->record = nrd_topic_record_copy(record);
    g_hash_table_replace(store->entries, g_strdup(record->name), entry);
    return 0;
}

int nrd_metastore_create(NrdMetastore *store, const NrdTopicRecord *record)
{
    pthread_mutex_lock(&store->lock);
    int rc = g_hash_table_contains(store->entries, record->name) ? -EEXIST : put_locked(store, record);
    if (rc < 0 && rc != -EEXIST) {
        /* The name may stand already: a topic that was refused must not be there after the next start. */
        g_autofree char *path = record_path(record->name);
        int undo_rc = nrd_io_unlink(store->root_fd, path);
        if (undo_rc < 0)
            nrd_diag(NRD_LEVEL_ERROR, NRD_NOWHERE, "%s could not be taken back: %s", path, g_strerror(-undo_rc));
    }
    pthread_mutex_unlock(&store->lock);
    return rc;
}

/* 0, or -ENOENT, -EIO (damaged), -ESTALE (another incarnation). Lock held. */
static int check_id_locked(NrdMetastore *store, const char *name, const char *id)
{
    const Entry *entry = g_hash_table_lookup(store->entries, name);
    if (!entry)
        return -ENOENT;
    if (!entry->record)
        return -EIO;
    return strcmp(entry->record->id, id) == 0 ? 0 : -ESTALE;
}

int nrd_metastore_update(NrdMetastore *store, const NrdTopicRecord *record)
{
    pthread_mutex_lock(&store->lock);
    int rc = check_id_locked(store, record->name, record->id);
    if (rc == 0) {
        rc = put_locked(store, record);
        if (rc < 0)
            (void)!put_back_locked(store, record->name); /* either is whole, and it has said so */
    }
    pthread_mutex_unlock(&store->lock);
    return rc;
}

/* A file that is gone already is success, and a folder that is gone is none: the record may be in it, wherever it is, and
 * come back with it. Lock held. */
static int remove_file_locked(NrdMetastore *store, const char *name)
{
    g_autofree char *file = g_strconcat(name, SUFFIX, NULL);
    int fd = -1;
    int rc = nrd_io_open_dir(store->root_fd, "meta", &fd);
    if (rc < 0)
        return nrd_error_of_disk(rc); /* nothing was touched */
    /* Unlinked but not synced, a crash could bring it back under a folder that is purged by then. */
    rc = nrd_error_of_disk(nrd_io_unlink(fd, file));
    nrd_io_close(&fd);
    if (rc < 0 && put_back_locked(store, name) < 0)
        condemn_locked(store, name);
    return rc;
}

int nrd_metastore_remove(NrdMetastore *store, const char *name, const char *id)
{
    pthread_mutex_lock(&store->lock);
    int rc = check_id_locked(store, name, id);
    if (rc == 0)
        rc = remove_file_locked(store, name);
    if (rc == 0)
        g_hash_table_remove(store->entries, name);
    pthread_mutex_unlock(&store->lock);
    return rc;
}

static int mend_one_locked(NrdMetastore *store, const NrdTopicRecord *record)
{
    g_autofree char *path = record_path(record->name);
    NrdPlace place = { .topic = record->name, .partition = NRD_NO_PARTITION, .offset = NRD_NO_OFFSET };
    struct stat st;
    if (nrd_io_stat(store->root_fd, path, &st) != -ENOENT)
        return 0;
    int rc = put_locked(store, record);
    if (rc == 0)
        nrd_diag(NRD_LEVEL_WARNING, place, "%s was gone, and was not removed by the daemon: written again", path);
    else
        nrd_diag(
            NRD_LEVEL_ERROR, place,
            "%s is gone, and was not removed by the daemon; it cannot be written again: %s. Without it the next start "
            "takes the topic for deleted: put it back from a backup before",
            path, g_strerror(-rc));
    return rc;
}

/* Whether meta/ is there; *ret_changed: others, or we, have changed it since the last time. */
static int look_at_folder_locked(NrdMetastore *store, bool *ret_changed)
{
    struct stat st = { 0 };
    int rc = nrd_io_stat(store->root_fd, "meta", &st);
    if (rc < 0 && !store->folder_missing)
        nrd_diag(
            NRD_LEVEL_ERROR, NRD_NOWHERE,
            "meta/ cannot be looked at: %s; topics can be neither made nor changed, and no daemon starts without it: "
            "put it back",
            g_strerror(-rc));
    store->folder_missing = rc < 0;
    *ret_changed = st.st_mtim.tv_sec != store->seen_mtime.tv_sec || st.st_mtim.tv_nsec != store->seen_mtime.tv_nsec;
    if (rc == 0)
        store->seen_mtime = st.st_mtim;
    return rc;
}

int nrd_metastore_mend(NrdMetastore *store, bool all)
{
    bool changed = false;
    GHashTableIter iter;
    gpointer value;
    pthread_mutex_lock(&store->lock);
    int rc = look_at_folder_locked(store, &changed);
    g_hash_table_iter_init(&iter, store->entries);
    while ((all || changed) && rc != -ENOENT && g_hash_table_iter_next(&iter, NULL, &value)) {
        const Entry *entry = value;
        int one = entry->record ? mend_one_locked(store, entry->record) : 0;
        rc = rc == 0 ? one : rc;
    }
    pthread_mutex_unlock(&store->lock);
    return rc;
}

bool nrd_metastore_may_know(NrdMetastore *store, const char *id)
{
    bool may = false;
    GHashTableIter iter;
    gpointer value;
    pthread_mutex_lock(&store->lock);
    g_hash_table_iter_init(&iter, store->entries);
    while (!may && g_hash_table_iter_next(&iter, NULL, &value)) {
        const Entry *entry = value;
        may = !entry->record || strcmp(entry->record->id, id) == 0;
    }
    pthread_mutex_unlock(&store->lock);
    return may;
}

char *nrd_metastore_why_not(NrdMetastore *store, const char *name, int error)
{
    g_autofree char *path = record_path(name);
    g_autofree char *kind = nrd_io_foreign_kind(store->root_fd, path);
    struct stat st;
    int rc = nrd_io_stat(store->root_fd, "meta", &st);
    if (rc == -ENOENT)
        return g_strdup_printf("%s cannot be changed: meta/ is missing in the data directory: put it back", path);
    if (rc == 0 && !S_ISDIR(st.st_mode))
        return g_strdup_printf("%s cannot be changed: meta/ in the data directory is no folder: put it back", path);
    return g_strdup_printf("%s in the data directory cannot be changed: %s", path, kind ? kind : g_strerror(-error));
}
