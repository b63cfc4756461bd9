/* What stands behind engine.h: a table of functions for each engine that there is.
 *
 * Every object of an engine begins with a pointer to its engine's table, and table_*.c hand each call on through it: who
 * includes engine.h need not know which engine he talks to, and pays one indirect call for that. A function of engine.h
 * without an object, such as those that clear a struct or read a receipt, is the same for every engine and in no table.
 *
 * The list below has every function of engine.h that is in the table, in its order, without the prefix nrd_. An engine
 * that calls itself X gives the function nrd_Y the name nrd_X_Y; its type is that of nrd_Y. */
#ifndef NRD_ENGINE_TABLE_H
#define NRD_ENGINE_TABLE_H

#include "engine/base/macros.h"
#include "engine/engine.h"
#include "engine/meta/topic_record.h"

#define NRD_ENGINE_FUNCTIONS(X)                                                                                        \
    X(engine_start)                                                                                                    \
    X(engine_stop)                                                                                                     \
    X(engine_close)                                                                                                    \
    X(engine_statvfs)                                                                                                  \
    X(engine_read_only)                                                                                                \
    X(engine_durability)                                                                                               \
    X(engine_summary)                                                                                                  \
    X(engine_topic_names)                                                                                              \
    X(topic_find)                                                                                                      \
    X(topic_create)                                                                                                    \
    X(topic_remove)                                                                                                    \
    X(topic_delete)                                                                                                    \
    X(topic_ref)                                                                                                       \
    X(topic_unref)                                                                                                     \
    X(topic_hold)                                                                                                      \
    X(topic_release)                                                                                                   \
    X(topic_name)                                                                                                      \
    X(topic_incarnation)                                                                                               \
    X(topic_deleted)                                                                                                   \
    X(topic_fault)                                                                                                     \
    X(topic_produce_error)                                                                                             \
    X(topic_lost)                                                                                                      \
    X(topic_n_partitions)                                                                                              \
    X(topic_created_ms)                                                                                                \
    X(topic_get_attr)                                                                                                  \
    X(topic_set_attr)                                                                                                  \
    X(topic_config_write)                                                                                              \
    X(topic_refusal)                                                                                                   \
    X(topic_max_key_bytes)                                                                                             \
    X(topic_max_record_bytes)                                                                                          \
    X(topic_consume_wait_ms)                                                                                           \
    X(topic_attach)                                                                                                    \
    X(topic_detach)                                                                                                    \
    X(topic_children)                                                                                                  \
    X(topic_parent)                                                                                                    \
    X(topic_is_delayed)                                                                                                \
    X(topic_child_info)                                                                                                \
    X(topic_partition)                                                                                                 \
    X(partition_pin)                                                                                                   \
    X(partition_unpin)                                                                                                 \
    X(partition_is_open)                                                                                               \
    X(partition_known)                                                                                                 \
    X(partition_learn)                                                                                                 \
    X(topic_learn)                                                                                                     \
    X(partition_info)                                                                                                  \
    X(partition_lost_ranges)                                                                                           \
    X(partition_number)                                                                                                \
    X(partition_reopen)                                                                                                \
    X(partition_roll)                                                                                                  \
    X(partition_trim)                                                                                                  \
    X(partition_seek)                                                                                                  \
    X(producer_open)                                                                                                   \
    X(producer_check)                                                                                                  \
    X(producer_add_many)                                                                                               \
    X(producer_add)                                                                                                    \
    X(producer_wrote)                                                                                                  \
    X(partition_flush)                                                                                                 \
    X(producer_sync)                                                                                                   \
    X(producer_ref)                                                                                                    \
    X(producer_unref)                                                                                                  \
    X(producer_read_ranges)                                                                                            \
    X(producer_close)                                                                                                  \
    X(topic_producer_open)                                                                                             \
    X(topic_producer_check)                                                                                            \
    X(topic_producer_add_many)                                                                                         \
    X(topic_producer_add)                                                                                              \
    X(topic_producer_wrote)                                                                                            \
    X(topic_flush)                                                                                                     \
    X(topic_producer_sync)                                                                                             \
    X(topic_producer_ref)                                                                                              \
    X(topic_producer_unref)                                                                                            \
    X(topic_producer_read_ranges)                                                                                      \
    X(topic_producer_close)                                                                                            \
    X(partition_take)                                                                                                  \
    X(partition_take_sure)                                                                                             \
    X(partition_take_batch)                                                                                            \
    X(waiter_cancel)                                                                                                   \
    X(partition_settle)                                                                                                \
    X(partition_settle_many)                                                                                           \
    X(partition_settle_durably)                                                                                        \
    X(partition_sync_frontier)                                                                                         \
    X(partition_readable)                                                                                              \
    X(watch_set)                                                                                                       \
    X(watch_clear)                                                                                                     \
    X(topic_consumer_open)                                                                                             \
    X(topic_consumer_close)                                                                                            \
    X(topic_take)                                                                                                      \
    X(topic_take_sure)                                                                                                 \
    X(topic_take_batch)                                                                                                \
    X(topic_take_cancel)                                                                                               \
    X(topic_readable)                                                                                                  \
    X(topic_watch_set)                                                                                                 \
    X(topic_watch_clear)                                                                                               \
    X(topic_settle)                                                                                                    \
    X(topic_settle_many)                                                                                               \
    X(topic_settle_durably)                                                                                            \
    X(topic_sync_frontiers)                                                                                            \
    X(reader_open)                                                                                                     \
    X(reader_size)                                                                                                     \
    X(reader_read)                                                                                                     \
    X(reader_close)                                                                                                    \
    X(reader_open_rendered)                                                                                            \
    X(reader_measure)                                                                                                  \
    X(reader_waits)                                                                                                    \
    X(partition_rendered_bytes)                                                                                        \
    X(partition_record)                                                                                                \
    X(partition_find_time)                                                                                             \
    X(partition_segments)                                                                                              \
    X(segment_reader_open)                                                                                             \
    X(segment_reader_view)                                                                                             \
    X(segment_reader_read)                                                                                             \
    X(segment_reader_close)                                                                                            \
    X(engine_metrics)

typedef struct NrdEngineTable {
#define NRD_ENTRY(name) typeof(nrd_##name) *name;
    NRD_ENGINE_FUNCTIONS(NRD_ENTRY)
#undef NRD_ENTRY
    /* For nrd_topic_refuse, which cannot be handed on: keeps the sentence (taken over) for nrd_topic_refusal. Memory only. */
    void (*topic_keep_refusal)(NrdTopic *topic, char *text);
    /* For those that show settings. False: the topic's record is damaged, and nothing is known of them. Memory only. */
    bool (*topic_get_config)(NrdTopic *topic, NrdTopicConfig *ret_config);
} NrdEngineTable;

/* Whether a topic of that name may be made: -EINVAL or -ENAMETOOLONG, which it logs; -EROFS of a read-only mount. */
int nrd_topic_check_new(const NrdEngine *engine, const char *name) NRD_MUST_CHECK;

/* Says why a topic was not removed: it has records (-ENOTEMPTY), or is in use (-EBUSY). id: of its incarnation. */
void nrd_topic_refuse_removal(NrdTopic *topic, int error, const char *id);

/* A file's owner, group and mode, as of nrd_topic_get_attr; record: NULL when it is damaged. Pure. */
NrdAttr nrd_attr_of_record(const NrdTopicRecord *record, const char *path, uint32_t base_mode);

/* Sets those that are named (as of nrd_topic_set_attr). False: they were the same. Pure. */
bool nrd_attr_change_record(NrdTopicRecord *record, const char *path, uint32_t base_mode, int what,
                            const NrdAttr *attr);

/* The table of an object of engine.h, whatever its type. */
static inline const NrdEngineTable *nrd_table_of(const void *object)
{
    return *(const NrdEngineTable *const *)object;
}

/* Where every engine puts a record with a key: FNV-1a 32 over the key, modulo the number of partitions. Pure. */
uint32_t nrd_key_partition(const void *key, size_t key_size, uint32_t n_partitions);

#endif
