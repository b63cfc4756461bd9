/* engine.h: topics, and which of them are copied to which. */
#ifndef NRD_ENGINE_ENGINE_TOPIC_H
#define NRD_ENGINE_ENGINE_TOPIC_H

#include "engine/engine_types.h"

/* ---- topics ---- */

/* Owner, group and permission bits (07777) of a topic's folder or of a file below it. */
typedef struct NrdAttr {
    uint32_t uid;
    uint32_t gid;
    uint32_t mode;
} NrdAttr;

/* Names of all topics, sorted (char*; g_ptr_array_unref). Never waits for the disk. */
GPtrArray *nrd_engine_topic_names(NrdEngine *engine);

/* Finds a topic; the caller gives *ret_topic back with nrd_topic_unref. -ENOENT. Never waits for the disk. A topic that
 * is out of service (damaged record, its folder cannot be claimed) is found; nrd_topic_fault says why. */
int nrd_topic_find(NrdEngine *engine, const char *name, NrdTopic **ret_topic) NRD_MUST_CHECK;

/* Creates a topic durably, with the engine's defaults: -EINVAL/-ENAMETOOLONG bad name, -EEXIST, -EROFS, disk errors.
 * umask is what files below take their defaults from. *ret_topic as in find. Blocks. */
int nrd_topic_create(NrdEngine *engine, const char *name, const NrdAttr *attr, uint32_t umask,
                     NrdTopic **ret_topic) NRD_MUST_CHECK;

/* Removes a topic that retains no record and has no open handle: -ENOTEMPTY, -EBUSY (handles that are being released
 * are waited for, 200 ms at most). Blocks. */
int nrd_topic_remove(NrdTopic *topic) NRD_MUST_CHECK;

/* Deletes a topic with its records: -EINVAL when id is not its incarnation. Parked readers and open handles get -EIDRM.
 * Blocks. */
int nrd_topic_delete(NrdTopic *topic, const char *id) NRD_MUST_CHECK;

NrdTopic *nrd_topic_ref(NrdTopic *topic);
void nrd_topic_unref(NrdTopic *topic); /* takes NULL */

/* Counts open handles on files of the topic, which is what nrd_topic_remove respects. -EIDRM when deleted. */
int nrd_topic_hold(NrdTopic *topic) NRD_MUST_CHECK;
void nrd_topic_release(NrdTopic *topic);

const char *nrd_topic_name(const NrdTopic *topic);
const char *nrd_topic_incarnation(const NrdTopic *topic); /* "" when its record is damaged */
bool nrd_topic_deleted(NrdTopic *topic);
/* Why it is out of service, or NULL; g_free. Each use of one that is not lost tries again, and may end it. Memory only. */
char *nrd_topic_fault(NrdTopic *topic);
/* Why records for the topic as a whole were refused, and would be now: -ENOSPC (no room on the disk), -EAGAIN (too much
 * waits in the ingress WAL), -EIO (it could not be written); 0: they are taken. Asks the file system how much is free. */
int nrd_topic_produce_error(NrdTopic *topic);
bool nrd_topic_lost(NrdTopic *topic);             /* out of service until the restart. Memory only */
uint32_t nrd_topic_n_partitions(NrdTopic *topic); /* 0 when its record is damaged */
int64_t nrd_topic_created_ms(NrdTopic *topic);    /* for times of folders; 0 when unknown */

/* Owner, group and mode. path is relative to the topic: "" its folder, "config", "p00000", "p00000/produce",
 * "p00000/.streams/consume"; is_dir and base_mode (0666, 0444 or 0777) tell the default. Never waits for the disk. */
void nrd_topic_get_attr(NrdTopic *topic, const char *path, uint32_t base_mode, NrdAttr *ret_attr);

/* Persists those of the three that `what` names; the others stay. Blocks. */
enum { NRD_ATTR_UID = 1, NRD_ATTR_GID = 2, NRD_ATTR_MODE = 4 };
int nrd_topic_set_attr(NrdTopic *topic, const char *path, uint32_t base_mode, int what,
                       const NrdAttr *attr) NRD_MUST_CHECK;

/* Settings. Keys in order, NULL-terminated, static. */
const char *const *nrd_config_keys(void);
char *nrd_topic_config_value(NrdTopic *topic, const char *key); /* g_free; NULL: no such key */
char *nrd_topic_config_lines(NrdTopic *topic);                  /* every `key=value`; g_free */
/* Sets the keys named in `key=value` lines, all or nothing, durably, in force at once: -EINVAL, -EBUSY, -EIDRM, disk. Blocks. */
int nrd_topic_config_write(NrdTopic *topic, const char *text, size_t size) NRD_MUST_CHECK;
/* Logs a refusal, and keeps it for `status`. partition may be NRD_NO_PARTITION. Any thread; memory only. */
void nrd_topic_refuse(NrdTopic *topic, int64_t partition, const char *format, ...) G_GNUC_PRINTF(3, 4);
/* The last one since the start, in words (g_free), and when it was; NULL: there was none. Memory only. */
char *nrd_topic_refusal(NrdTopic *topic, int64_t *ret_ms);

/* One number of the settings, as a value in force; never blocks. */
int64_t nrd_topic_max_record_bytes(NrdTopic *topic);
int64_t nrd_topic_max_key_bytes(NrdTopic *topic);   /* what the engine has room for; INT64_MAX: any key */
int64_t nrd_topic_consume_wait_ms(NrdTopic *topic); /* -1: for ever */

/* ---- fan-out: a child gets a copy of every record that its parent commits ---- */

/* Attaches the topic of that name as a child, durably: from now on what is committed to any partition of parent is copied
 * to it (keyed records to the partition that their key chooses there, unkeyed ones in turn), no earlier than the child's
 * fanout_delay_ms after its commit. Nothing from before is copied, also when it was a child once. At least once: a crash
 * may repeat the last batch. The child's max_record_bytes does not bound copies.
 * -ENOENT no such topic; -EEXIST attached already; -EBUSY it has another parent; -EINVAL parent itself, a chain (one that
 * has a parent gets no children, one that has children gets no parent), or the parent's retention_ms is not 0 and below
 * the child's delay plus an hour; -EMLINK it would be the 109th; -EIDRM, -EIO out of service, -EROFS, disk. Blocks. */
int nrd_topic_attach(NrdTopic *parent, const char *child) NRD_MUST_CHECK;

/* Detaches it durably; returns when nothing more is copied. -ENOENT no child of that name; -EIDRM, -EIO, -EROFS, disk.
 * Blocks. */
int nrd_topic_detach(NrdTopic *parent, const char *child) NRD_MUST_CHECK;

/* Names of the children, sorted (char*; g_ptr_array_unref), and of the parent (g_free) or NULL. Memory only. */
GPtrArray *nrd_topic_children(NrdTopic *topic);
char *nrd_topic_parent(NrdTopic *topic);

/* Whether it is a child with a delay: producing to it is -EPERM. Memory only. */
bool nrd_topic_is_delayed(NrdTopic *topic);

#define NRD_MAX_CHILDREN 108

/* How far copying has come in one partition of the parent. */
typedef struct NrdChildRow {
    uint32_t partition; /* of the parent */
    uint64_t cursor;    /* the next offset to copy */
    uint64_t hwm;       /* of the parent's partition; what is not copied yet is below it */
    int64_t due_ms; /* of a delayed child: when the record at cursor may be copied, Unix milliseconds; 0: not known */
    uint32_t n_failed; /* passes in a row that failed; 0: well */
    int error;         /* of the last failed pass, negative; 0 */
} NrdChildRow;

typedef struct NrdChildInfo {
    int64_t delay_ms;
    int64_t attached_ms; /* Unix milliseconds */
    uint64_t lag;        /* records not copied yet, due or not, over all rows */
    uint64_t n_copied;   /* since the daemon's start or the attach */
    uint64_t n_dropped;  /* not copied for ever: the parent's retention was faster, or damage. Likewise */
    GArray *rows;        /* of NrdChildRow, by partition */
} NrdChildInfo;

/* -ENOENT no child of that name. Memory only. The caller gives it to nrd_child_info_clear. */
int nrd_topic_child_info(NrdTopic *parent, const char *child, NrdChildInfo *ret_info) NRD_MUST_CHECK;
void nrd_child_info_clear(NrdChildInfo *info);

#endif
