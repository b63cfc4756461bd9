/* The text of meta/<topic>.topic (a GKeyFile, version 1):
 *
 *   [topic]
 *   version=1
 *   name=<the file's name without .topic>
 *   incarnation=<16 lower-case hex digits>
 *   created=<Unix milliseconds>
 *   uid=, gid=, mode= (octal), umask= (octal)
 *   parent=<topic>                 only on a fan-out child
 *   children=<topic>;<topic>;...   only on a parent
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

static NrdTopicRecord *record_alloc(const char *name)
{
    NrdTopicRecord *record = g_new0(NrdTopicRecord, 1);
    record->name = g_strdup(name);
    nrd_topic_config_defaults(&record->config);
    record->file_attrs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    record->children = g_ptr_array_new_with_free_func(g_free);
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

NrdTopicRecord *nrd_topic_record_copy(const NrdTopicRecord *record)
{
    NrdTopicRecord *copy = record_alloc(record->name);
    memcpy(copy->id, record->id, sizeof copy->id);
    copy->created_ms = record->created_ms;
    copy->config = record->config;
    copy->attr = record->attr;
    copy->umask = record->umask;
    copy->parent = g_strdup(record->parent);
    GHashTableIter iter;
    gpointer path, attr;
    g_hash_table_iter_init(&iter, record->file_attrs);
    while (g_hash_table_iter_next(&iter, &path, &attr))
        g_hash_table_insert(copy->file_attrs, g_strdup(path), g_memdup2(attr, sizeof(NrdFileAttr)));
    for (guint i = 0; i < record->children->len; i++)
        g_ptr_array_add(copy->children, g_strdup(record->children->pdata[i]));
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
    if (record->children->len > 0)
        g_key_file_set_string_list(file, "topic", "children", (const char *const *)record->children->pdata,
                                   record->children->len);
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

static bool names_valid(const NrdTopicRecord *record)
{
    bool valid = !record->parent || nrd_topic_name_check(record->parent) == 0;
    for (guint i = 0; valid && i < record->children->len; i++)
        valid = nrd_topic_name_check(record->children->pdata[i]) == 0;
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
    record->parent = g_key_file_get_string(file, "topic", "parent", NULL);
    g_auto(GStrv) children = g_key_file_get_string_list(file, "topic", "children", NULL, NULL);
    for (guint i = 0; children && children[i]; i++)
        g_ptr_array_add(record->children, g_strdup(children[i]));
    return names_valid(record) && get_number(file, "uid", 10, UINT32_MAX, &record->attr.uid) &&
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
    if (!check_crc(data, size, &body_size))
        return damaged(ret_why, "its checksum is wrong");
    g_autoptr(GKeyFile) file = g_key_file_new();
    if (!g_key_file_load_from_data(file, data, body_size, G_KEY_FILE_NONE, NULL))
        return damaged(ret_why, "it is not a key file");
    if (g_key_file_get_integer(file, "topic", "version", NULL) != RECORD_VERSION)
        return damaged(ret_why, "its version is not one that this program knows");
    NrdTopicRecord *record = record_alloc(name);
    if (!read_topic_group(file, record) || !read_config_group(file, record) || !read_files_group(file, record)) {
        nrd_topic_record_free(record);
        return damaged(ret_why, "a value is missing or out of range");
    }
    *ret_record = record;
    return 0;
}
