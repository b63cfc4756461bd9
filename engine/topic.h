/* Topics, for the other files of the engine: their life, their records, and the folder that is theirs. */
#ifndef NRD_ENGINE_TOPIC_H
#define NRD_ENGINE_TOPIC_H

#include "engine/engine_private.h"

/* ---- topic.c ---- */

/* A topic for a record (owned from now on), or, record NULL, one that is out of service for the reason `fault` (taken
 * over). One reference, the caller's. */
NrdTopic *nrd_topic_new(NrdEngine *engine, const char *name, NrdTopicRecord *record, char *fault);

/* Claims the topic's folder and lists its partitions, which are opened when they are used; with make_folders theirs are
 * made too. An error is about the topic, which then is out of service. Blocks. */
int nrd_topic_open(NrdTopic *topic, bool make_folders) NRD_MUST_CHECK;

/* Lists partitions up to the number in config; each is opened when it is used. Guard held (or nobody knows the topic). */
void nrd_topic_add_partitions(NrdTopic *topic, const NrdTopicConfig *config);

/* Takes a topic back that has just been made: its partitions are closed and its folder purged. Blocks. */
void nrd_topic_unmake(NrdTopic *topic);

/* Closes all partitions: with commit, what producers hold is committed first. Blocks. Returns the first error. */
int nrd_topic_close(NrdTopic *topic, bool commit) NRD_MUST_CHECK;

/* Wakes every parked reader of the topic to look at what has changed (deleted, stopping). */
void nrd_topic_interrupt(NrdTopic *topic);

/* Folders for partitions to come, up to the number in config. What can fail for want of space or descriptors comes before
 * the record is changed; empty folders harm nobody. Guard held (or nobody knows the topic). Blocks. */
int nrd_topic_make_folders(NrdTopic *topic, const NrdTopicConfig *config) NRD_MUST_CHECK;

/* ---- topic_settings.c ---- */

/* A copy of the record to change; -EROFS, -EIDRM, or -EIO when it is damaged. Topic guard held. */
int nrd_topic_copy_record(NrdTopic *topic, NrdTopicRecord **ret_record) NRD_MUST_CHECK;

/* Puts next (taken over) in the place of the record, durably; on failure the old one stands. Topic guard held. Blocks. */
int nrd_topic_replace_record(NrdTopic *topic, NrdTopicRecord *next) NRD_MUST_CHECK;

/* The same in memory alone: the disk keeps what it has until the next change. Topic guard held. */
void nrd_topic_swap_record(NrdTopic *topic, NrdTopicRecord *next);

/* ---- claim.c ---- */

/* Takes the topic out of service, or says another reason why it is; lost: until the restart. The same again is not told
 * again. Guard held (or nobody knows the topic): who has it may look at the fault without the lock. */
void nrd_topic_set_fault(NrdTopic *topic, const char *why, bool lost);

/* Makes the folder the record's; *ret_fresh: it was made anew. Failures as of nrd_topic_check_marker, with their own
 * errno. Guard held (or nobody knows the topic). Blocks. */
int nrd_topic_claim(NrdTopic *topic, bool *ret_fresh) NRD_MUST_CHECK;

/* Compares the folder's marker with the record once more; a folder that belongs to another incarnation, or is gone,
 * retires the partitions that are open and is replaced by a fresh one. What fails takes the topic out of service until
 * this is called again and succeeds (told once each): -EIO; too few descriptors or too little memory takes nothing out of
 * service. Not for a topic that is lost. Guard held. Blocks. */
int nrd_topic_check_marker(NrdTopic *topic) NRD_MUST_CHECK;

/* The next use of a topic that is out of service: looks whether what was the matter has passed. 0: it is in service;
 * else -EIO, -EIDRM, -EMFILE, -ENFILE, -ENOMEM. Costs a lock when it is in service, else blocks. No lock held but engine
 * admin. */
int nrd_topic_retry(NrdTopic *topic) NRD_MUST_CHECK;

#endif
