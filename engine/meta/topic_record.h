/* A topic's record: meta/<topic>.topic, a GKeyFile with a checksum over everything before it.
 * The text form is described in topic_record.c. Pure but for nothing: reading and writing the file is metastore.c. */
#ifndef NRD_META_TOPIC_RECORD_H
#define NRD_META_TOPIC_RECORD_H

#include "engine/base/macros.h"
#include "engine/meta/topic_config.h"

#include <glib.h>
#include <stdint.h>
#include <sys/types.h>

#define NRD_TOPIC_NAME_MAX 200
#define NRD_INCARNATION_DIGITS 16

/* Owner, group and permission bits of one file. */
typedef struct NrdFileAttr {
    uint32_t uid;
    uint32_t gid;
    uint32_t mode; /* 07777 */
} NrdFileAttr;

#define NRD_TOPIC_CHILDREN_MAX 108

/* A fan-out child as its parent's record names it: the authority about who is whose child. */
typedef struct NrdChildRecord {
    char *name;
    char id[NRD_INCARNATION_DIGITS + 1]; /* the child's incarnation: another one of that name is no child */
    uint64_t epoch;                      /* random; cursors of another attachment have another one */
    int64_t attached_ms;                 /* Unix milliseconds */
} NrdChildRecord;

typedef struct NrdTopicRecord {
    char *name;
    char id[NRD_INCARNATION_DIGITS + 1]; /* incarnation, lower-case hex */
    int64_t created_ms;                  /* Unix milliseconds; 0: unknown */
    NrdTopicConfig config;
    NrdFileAttr attr;       /* of the topic folder */
    uint32_t umask;         /* of who created it; files take their defaults from it */
    GHashTable *file_attrs; /* char* path relative to the topic ("p00000/produce") -> NrdFileAttr*: what chown and chmod
                               changed */
    char *parent;        /* topic this one is a fan-out child of, or NULL; true only if that one's record says so too */
    GPtrArray *children; /* of NrdChildRecord*, by name in byte order, each name once */
} NrdTopicRecord;

/* 0; -EINVAL when name is not [A-Za-z0-9._-]+, begins with '.', or contains ".stale-"; -ENAMETOOLONG over 200 bytes. */
int nrd_topic_name_check(const char *name) NRD_MUST_CHECK;

/* Whether id is exactly 16 lower-case hex digits. */
bool nrd_incarnation_valid(const char *id);

NrdTopicRecord *nrd_topic_record_new(const char *name); /* defaults, a fresh random id */
/* One of a topic that is being made: with these settings, owner and mode, and the umask of who makes it. */
NrdTopicRecord *nrd_topic_record_make(const char *name, const NrdTopicConfig *config, NrdFileAttr attr, uint32_t umask);
NrdTopicRecord *nrd_topic_record_copy(const NrdTopicRecord *record);
void nrd_topic_record_free(NrdTopicRecord *record); /* takes NULL */

/* Owner and mode of the topic's folder (path "") or of a file below it, whose widest mode is base_mode; and sets them: whether
 * that changes the record. */
NrdFileAttr nrd_topic_record_attr(const NrdTopicRecord *record, const char *path, uint32_t base_mode);
bool nrd_topic_record_set_attr(NrdTopicRecord *record, const char *path, const NrdFileAttr *attr);

/* The entry of that name, owned by the record, or NULL. */
const NrdChildRecord *nrd_topic_record_child(const NrdTopicRecord *record, const char *name);

/* Adds a copy of child, which has no entry yet, or takes its entry away; whether there was one. */
void nrd_topic_record_add_child(NrdTopicRecord *record, const NrdChildRecord *child);
bool nrd_topic_record_remove_child(NrdTopicRecord *record, const char *name);

/* Whether it is of a fan-out child with a delay; record NULL: no. */
bool nrd_topic_record_is_delayed(const NrdTopicRecord *record);

NrdChildRecord *nrd_child_record_copy(const NrdChildRecord *child);
void nrd_child_record_free(NrdChildRecord *child); /* takes NULL */

/* The file's bytes (g_free text; *ret_size without the NUL). */
char *nrd_topic_record_encode(const NrdTopicRecord *record, size_t *ret_size);

/* With a sentence in *ret_why (g_free): -EBADMSG when the bytes are not a whole, unchanged record, -EINVAL when it is one of
 * a topic that is not called `name`. Values out of range are damage too. */
int nrd_topic_record_decode(const char *name, const void *data, size_t size, NrdTopicRecord **ret_record,
                            char **ret_why) NRD_MUST_CHECK;

#endif
