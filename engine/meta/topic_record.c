/* The text of meta/<topic>.topic (a GKeyFile, version 1):
 *
 *   [topic]
 *   version=1
 *   name=<the file's name without .topic>
 *   incarnation=<16 lower-case hex digits>
 *   created=<Unix milliseconds>
 *   uid=, gid=, mode= (octal), umask= (octal)
 *   parent=<topic>                 only on a fan-out child
 *   children=<child>;<child>;...   only on a parent: 1 to 108, by name, each name once, none the topic's own
 *
 *   a child: <topic>:<incarnation>:<epoch, 16 lower-case hex digits>:<attached, Unix milliseconds>
 *
 *   [config]
 *   <key>=<value>                  every setting; an unknown one is ignored, a missing one has its default
 *
 *   [files]
 *   <path>=<uid>:<gid>:<octal mode>
 *
 *   # crc32c <8 lower-case hex digits>     the last line: over every byte before it
 *
 * Valid when the last line is there, its CRC matches, the group [topic] is whole, and every value is in range. A later
 * version that a reader of this one must not take for its own changes `version`. */
#include "engine/meta/topic_record.h"

#include "engine/base/clock.h"
#include "engine/base/crc32c.h"
#include "engine/base/random.h"

#include <errno.h>
#include <string.h>

#define RECORD_VERSION 1
#define CRC_PREFIX "# crc32c "
#define CRC_LINE_BYTES (sizeof CRC_PREFIX - 1 + 8 + 1)

int nrd_topic_name_check(const char *name)
{
    size_t n = strlen(name);
    if (n > NRD_TOPIC_NAME_MAX)
        return -ENAMETOOLONG;
    bool plain = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == n;
    if (n == 0 || !plain || name[0] == '.' || strstr(name, ".stale-"))
        return -EINVAL;
    return 0;
}

bool nrd_incarnation_valid(const char *id)
{
    return strlen(id) == NRD_INCARNATION_DIGITS && strspn(id, "0123456789abcdef") == NRD_INCARNATION_DIGITS;
}

static void add_tables(NrdTopicRecord *record)
{
    record->file_attrs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    record->children = g_ptr_array_new_with_free_func((GDestroyNotify)nrd_child_record_free);
}

static NrdTopicRecord *record_alloc(const char *name)
{
    NrdTopicRecord *record = g_new0(NrdTopicRecord, 1);
    record->name = g_strdup(name);
    nrd_topic_config_defaults(&record->config);
    add_tables(record);
    return record;
}

NrdTopicRecord *nrd_topic_record_new(const char *name)
{
    NrdTopicRecord *record = record_alloc(name);
    g_snprintf(record->id, sizeof record->id, "%016" G_GINT64_MODIFIER "x", nrd_random_u64());
    record->created_ms = nrd_clock_wall_ms();
    record->attr.mode = 0755;
    record->umask = 022;
    return record;
}

NrdTopicRecord *nrd_topic_record_make(const char *name, const NrdTopicConfig *config, NrdFileAttr attr, uint32_t umask)
{
    NrdTopicRecord *record = nrd_topic_record_new(name);
    record->config = *config;
    record->attr = attr;
    record->umask = umask;
    return record;
}

NrdTopicRecord *nrd_topic_record_copy(const NrdTopicRecord *record)
{
    NrdTopicRecord *copy = g_memdup2(record, sizeof *record);
    copy->name = g_strdup(record->name);
    copy->parent = g_strdup(record->parent);
    add_tables(copy);
    GHashTableIter iter;
    gpointer path, attr;
    g_hash_table_iter_init(&iter, record->file_attrs);
    while (g_hash_table_iter_next(&iter, &path, &attr))
        g_hash_table_insert(copy->file_attrs, g_strdup(path), g_memdup2(attr, sizeof(NrdFileAttr)));
    for (guint i = 0; i < record->children->len; i++)
        g_ptr_array_add(copy->children, nrd_child_record_copy(record->children->pdata[i]));
    return copy;
}

void nrd_topic_record_free(NrdTopicRecord *record)
{
    if (!record)
        return;
    g_hash_table_unref(record->file_attrs);
    g_ptr_array_unref(record->children);
    g_free(record->parent);
    g_free(record->name);
    g_free(record);
}

/* ---- owner and modes ---- */

NrdFileAttr nrd_topic_record_attr(const NrdTopicRecord *record, const char *path, uint32_t base_mode)
{
    const NrdFileAttr *own = path[0] == '\0' ? NULL : g_hash_table_lookup(record->file_attrs, path);
    bool is_topic = path[0] == '\0' || base_mode == 0777;
    if (own)
        return *own;
    return (NrdFileAttr){ record->attr.uid, record->attr.gid,
                          is_topic ? record->attr.mode : base_mode & ~record->umask };
}

bool nrd_topic_record_set_attr(NrdTopicRecord *record, const char *path, const NrdFileAttr *attr)
{
    NrdFileAttr *own = path[0] == '\0' ? &record->attr : g_hash_table_lookup(record->file_attrs, path);
    if (own && own->uid == attr->uid && own->gid == attr->gid && own->mode == attr->mode)
        return false;
    if (own)
        *own = *attr;
    else
        g_hash_table_insert(record->file_attrs, g_strdup(path), g_memdup2(attr, sizeof *attr));
    return true;
}

/* ---- children ---- */

NrdChildRecord *nrd_child_record_copy(const NrdChildRecord *child)
{
    NrdChildRecord *copy = g_memdup2(child, sizeof *child);
    copy->name = g_strdup(child->name);
    return copy;
}

void nrd_child_record_free(NrdChildRecord *child)
{
    if (!child)
        return;
    g_free(child->name);
    g_free(child);
}

/* Where the name stands, or would. */
static guint child_place(const NrdTopicRecord *record, const char *name)
{
    guint place = 0;
    while (place < record->children->len && strcmp(((NrdChildRecord *)record->children->pdata[place])->name, name) < 0)
        place++;
    return place;
}

const NrdChildRecord *nrd_topic_record_child(const NrdTopicRecord *record, const char *name)
{
    guint place = child_place(record, name);
    const NrdChildRecord *child = place < record->children->len ? record->children->pdata[place] : NULL;
    return child && strcmp(child->name, name) == 0 ? child : NULL;
}

void nrd_topic_record_add_child(NrdTopicRecord *record, const NrdChildRecord *child)
{
    g_assert(!nrd_topic_record_child(record, child->name));
    g_ptr_array_insert(record->children, (gint)child_place(record, child->name), nrd_child_record_copy(child));
}

bool nrd_topic_record_remove_child(NrdTopicRecord *record, const char *name)
{
    if (!nrd_topic_record_child(record, name))
        return false;
    g_ptr_array_remove_index(record->children, child_place(record, name));
    return true;
}

bool nrd_topic_record_is_delayed(const NrdTopicRecord *record)
{
    return record && record->parent && record->config.fanout_delay_ms > 0;
}

/* ---- writing ---- */

static void set_octal(GKeyFile *file, const char *key, uint32_t value)
{
    char text[16];
    g_snprintf(text, sizeof text, "%04o", value);
    g_key_file_set_string(file, "topic", key, text);
}

static void set_files(GKeyFile *file, const NrdTopicRecord *record)
{
    g_autoptr(GList) paths = g_list_sort(g_hash_table_get_keys(record->file_attrs), (GCompareFunc)strcmp);
    for (GList *l = paths; l; l = l->next) {
        const NrdFileAttr *attr = g_hash_table_lookup(record->file_attrs, l->data);
        g_autofree char *text = g_strdup_printf("%u:%u:%04o", attr->uid, attr->gid, attr->mode);
        g_key_file_set_string(file, "files", l->data, text);
    }
}

static void set_children(GKeyFile *file, const NrdTopicRecord *record)
{
    if (record->children->len == 0)
        return;
    g_autoptr(GPtrArray) texts = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < record->children->len; i++) {
        const NrdChildRecord *child = record->children->pdata[i];
        g_ptr_array_add(texts, g_strdup_printf("%s:%s:%016" G_GINT64_MODIFIER "x:%" G_GINT64_FORMAT, child->name,
                                               child->id, child->epoch, child->attached_ms));
    }
    g_key_file_set_string_list(file, "topic", "children", (const char *const *)texts->pdata, texts->len);
}

char *nrd_topic_record_encode(const NrdTopicRecord *record, size_t *ret_size)
{
    g_autoptr(GKeyFile) file = g_key_file_new();
    g_key_file_set_integer(file, "topic", "version", RECORD_VERSION);
    g_key_file_set_string(file, "topic", "name", record->name);
    g_key_file_set_string(file, "topic", "incarnation", record->id);
    g_key_file_set_int64(file, "topic", "created", record->created_ms);
    g_key_file_set_uint64(file, "topic", "uid", record->attr.uid);
    g_key_file_set_uint64(file, "topic", "gid", record->attr.gid);
    set_octal(file, "mode", record->attr.mode);
    set_octal(file, "umask", record->umask);
    if (record->parent)
        g_key_file_set_string(file, "topic", "parent", record->parent);
    set_children(file, record);
    for (const char *const *key = nrd_topic_config_keys(); *key; key++) {
        g_autofree char *value = nrd_topic_config_get(&record->config, *key);
        g_key_file_set_string(file, "config", *key, value);
    }
    set_files(file, record);
    gsize n = 0;
    g_autofree char *body = g_key_file_to_data(file, &n, NULL);
    char *text = g_strdup_printf("%s" CRC_PREFIX "%08x\n", body, nrd_crc32c(0, body, n));
    *ret_size = n + CRC_LINE_BYTES;
    return text;
}

/* ---- reading ---- */

static int damaged(char **ret_why, const char *what)
{
    *ret_why = g_strdup_printf("its record is damaged (%s)", what);
    return -EBADMSG;
}

/* The size of what stands before the checksum line, if that line is right. */
static bool check_crc(const char *data, size_t size, size_t *ret_body_size)
{
    if (size < CRC_LINE_BYTES)
        return false;
    size_t body_size = size - CRC_LINE_BYTES;
    char expected[CRC_LINE_BYTES + 1];
    g_snprintf(expected, sizeof expected, CRC_PREFIX "%08x\n", nrd_crc32c(0, data, body_size));
    if (memcmp(data + body_size, expected, CRC_LINE_BYTES) != 0)
        return false;
    *ret_body_size = body_size;
    return true;
}

static bool get_number(GKeyFile *file, const char *key, unsigned base, uint64_t max, uint32_t *ret_value)
{
    g_autofree char *text = g_key_file_get_string(file, "topic", key, NULL);
    guint64 value;
    if (!text || !g_ascii_string_to_unsigned(text, base, 0, max, &value, NULL))
        return false;
    *ret_value = (uint32_t)value;
    return true;
}

static bool read_child(const char *text, NrdTopicRecord *record)
{
    g_auto(GStrv) parts = g_strsplit(text, ":", -1);
    guint64 attached_ms;
    if (g_strv_length(parts) != 4 || nrd_topic_name_check(parts[0]) < 0 || strcmp(parts[0], record->name) == 0 ||
        !nrd_incarnation_valid(parts[1]) || !nrd_incarnation_valid(parts[2]) ||
        !g_ascii_string_to_unsigned(parts[3], 10, 0, INT64_MAX, &attached_ms, NULL))
        return false;
    NrdChildRecord *child = g_new0(NrdChildRecord, 1);
    child->name = g_strdup(parts[0]);
    g_strlcpy(child->id, parts[1], sizeof child->id);
    child->epoch = g_ascii_strtoull(parts[2], NULL, 16);
    child->attached_ms = (int64_t)attached_ms;
    bool ascending = child_place(record, child->name) == record->children->len;
    g_ptr_array_add(record->children, child);
    return ascending;
}

static bool read_family(GKeyFile *file, NrdTopicRecord *record)
{
    record->parent = g_key_file_get_string(file, "topic", "parent", NULL);
    if (!record->parent && g_key_file_has_key(file, "topic", "parent", NULL))
        return false;
    if (record->parent && (nrd_topic_name_check(record->parent) < 0 || strcmp(record->parent, record->name) == 0))
        return false;
    if (!g_key_file_has_key(file, "topic", "children", NULL))
        return true;
    g_auto(GStrv) children = g_key_file_get_string_list(file, "topic", "children", NULL, NULL);
    guint n = children ? g_strv_length(children) : 0;
    bool valid = n > 0 && n <= NRD_TOPIC_CHILDREN_MAX;
    for (guint i = 0; valid && i < n; i++)
        valid = read_child(children[i], record);
    return valid;
}

static bool read_topic_group(GKeyFile *file, NrdTopicRecord *record)
{
    g_autofree char *name = g_key_file_get_string(file, "topic", "name", NULL);
    g_autofree char *id = g_key_file_get_string(file, "topic", "incarnation", NULL);
    if (!name || strcmp(name, record->name) != 0 || !id || !nrd_incarnation_valid(id))
        return false;
    g_strlcpy(record->id, id, sizeof record->id);
    record->created_ms = g_key_file_get_int64(file, "topic", "created", NULL); /* missing: 0 */
    return read_family(file, record) && get_number(file, "uid", 10, UINT32_MAX, &record->attr.uid) &&
           get_number(file, "gid", 10, UINT32_MAX, &record->attr.gid) &&
           get_number(file, "mode", 8, 07777, &record->attr.mode) && get_number(file, "umask", 8, 0777, &record->umask);
}

static bool read_config_group(GKeyFile *file, NrdTopicRecord *record)
{
    for (const char *const *key = nrd_topic_config_keys(); *key; key++) {
        g_autofree char *value = g_key_file_get_string(file, "config", *key, NULL);
        if (value && nrd_topic_config_set(&record->config, *key, value, NULL) < 0)
            return false;
    }
    return nrd_topic_config_check(&record->config, NULL) == 0;
}

static bool read_files_group(GKeyFile *file, NrdTopicRecord *record)
{
    g_auto(GStrv) paths = g_key_file_get_keys(file, "files", NULL, NULL);
    for (guint i = 0; paths && paths[i]; i++) {
        g_autofree char *text = g_key_file_get_string(file, "files", paths[i], NULL);
        g_auto(GStrv) parts = g_strsplit(text ? text : "", ":", -1);
        guint64 uid, gid, mode;
        if (g_strv_length(parts) != 3 || !g_ascii_string_to_unsigned(parts[0], 10, 0, UINT32_MAX, &uid, NULL) ||
            !g_ascii_string_to_unsigned(parts[1], 10, 0, UINT32_MAX, &gid, NULL) ||
            !g_ascii_string_to_unsigned(parts[2], 8, 0, 07777, &mode, NULL))
            return false;
        NrdFileAttr attr = { (uint32_t)uid, (uint32_t)gid, (uint32_t)mode };
        g_hash_table_replace(record->file_attrs, g_strdup(paths[i]), g_memdup2(&attr, sizeof attr));
    }
    return true;
}

int nrd_topic_record_decode(const char *name, const void *data, size_t size, NrdTopicRecord **ret_record,
                            char **ret_why)
{
    size_t body_size;
    if (size == 0)
        return damaged(ret_why, "it is empty");
    if (!check_crc(data, size, &body_size))
        return damaged(ret_why, "its checksum is wrong");
    g_autoptr(GKeyFile) file = g_key_file_new();
    if (!g_key_file_load_from_data(file, data, body_size, G_KEY_FILE_NONE, NULL))
        return damaged(ret_why, "it is not a key file");
    if (g_key_file_get_integer(file, "topic", "version", NULL) != RECORD_VERSION)
        return damaged(ret_why, "its version is not one that this program knows");
    g_autofree char *own = g_key_file_get_string(file, "topic", "name", NULL);
    if (own && nrd_topic_name_check(own) == 0 && strcmp(own, name) != 0) {
        *ret_why = g_strdup_printf("it is the record of the topic %s, under another name: give it its own back", own);
        return -EINVAL;
    }
    NrdTopicRecord *record = record_alloc(name);
    if (!read_topic_group(file, record) || !read_config_group(file, record) || !read_files_group(file, record)) {
        nrd_topic_record_free(record);
        return damaged(ret_why, "a value is missing or out of range");
    }
    *ret_record = record;
    return 0;
}
