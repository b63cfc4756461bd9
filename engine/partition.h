/* Partitions, for the other files of the engine: how one opens and closes, what is known of one that is closed, its folder, its
 * configuration. */
#ifndef NRD_ENGINE_PARTITION_H
#define NRD_ENGINE_PARTITION_H

#include "engine/engine_private.h"

/* ---- life.c: a partition opens and closes ---- */

/* Makes the object; nothing is opened. */
NrdPartition *nrd_partition_new(NrdTopic *topic, uint32_t number);
void nrd_partition_free(NrdPartition *partition); /* closed or never opened */

/* A pin, if the partition is open. Memory only. */
bool nrd_partition_pin_if_open(NrdPartition *partition);

/* Whether its last open has failed, and not for want of descriptors or memory. Memory only. */
bool nrd_partition_is_out(NrdPartition *partition);

/* Gives a pin back that does not count as use: of housekeeping. */
void nrd_partition_unpin_quietly(NrdPartition *partition);

/* As nrd_partition_pin, by who has the topic's guard. */
int nrd_partition_pin_guarded(NrdPartition *partition) NRD_MUST_CHECK;

/* Closes it unless somebody has a pin, a lease is out, or it was used within idle_ms; with wait_guard false also when
 * the topic is busy. Writes frontier and high watermark, as every close. Returns whether it is closed now. Blocks. */
bool nrd_partition_close_idle(NrdPartition *partition, int64_t idle_ms, bool wait_guard);

/* Takes the committer role and keeps it: no commit can happen any more. Answers parked readers, writes the frontier and
 * the high watermark, closes the files. Guard held. Blocks. */
int nrd_partition_close(NrdPartition *partition) NRD_MUST_CHECK;

/* As a close, but writes nothing: the folder is not this incarnation's any more. Guard held. */
void nrd_partition_abandon(NrdPartition *partition);

/* ---- picture.c: what a closed partition is known by ---- */

/* As nrd_partition_learn, by who has the topic's guard. */
int nrd_partition_learn_guarded(NrdPartition *partition) NRD_MUST_CHECK;

/* A copy of the picture of a partition that is closed and known. */
bool nrd_partition_picture(NrdPartition *partition, NrdPicture *ret_picture);

/* The picture of an open one, new (g_free). Nobody has a pin and nobody can get one: nothing changes. */
NrdPicture *nrd_partition_take_picture(NrdPartition *partition);

/* Takes the picture over; NULL: nothing is known any more. */
void nrd_partition_set_picture(NrdPartition *partition, NrdPicture *picture);

/* ---- anew.c, survey.c: its folder ---- */

/* anew.c: the partition's folder is there, durably, and so are the names in it. Where it is missing it is made, after a note of
 * that was left beside it. What the disk says; -ENOENT when the topic's is gone. Guard held. Blocks. */
int nrd_partition_make_folder(NrdPartition *partition) NRD_MUST_CHECK;

/* anew.c: learns whether the folder is missing, or was, without an open. Guard held. Blocks. */
void nrd_partition_look_for_note(NrdPartition *partition);

/* anew.c: it is known to who was told: the note goes. Blocks. */
int nrd_partition_forget_note(NrdPartition *partition) NRD_MUST_CHECK;

/* survey.c: opens a partition that is not known when what lies in its folder looks as if records were lost or hidden, and
 * tells when the folder is missing. What cannot be looked at is left to the first use. Takes the topic's guard. Blocks. */
void nrd_partition_survey(NrdPartition *partition);

/* How many records from the frontier on are known to be lost (gaps: NrdGap of the partition's open log) and not settled: what
 * a consumer has passed over is. Queue lock held. */
uint64_t nrd_partition_lost_in_lag_locked(NrdPartition *partition, const GArray *gaps);

/* ---- partition.c ---- */

void nrd_partition_configure(NrdPartition *partition, const NrdTopicConfig *config);
NrdLogSettings nrd_partition_log_settings(const NrdPartition *partition, const NrdTopicConfig *config);

/* 0; -EIDRM when the topic is deleted, -ENODEV when the engine is stopping and the log closed, -EIO when the partition
 * could not be opened. Never blocks. */
int nrd_partition_usable(NrdPartition *partition) NRD_MUST_CHECK;

#endif
