/* The fan-out, for the other files of the engine: who is whose child, and what the copying needs of topics and partitions. Behind
 * it: engine/fanout. */
#ifndef NRD_ENGINE_FAN_H
#define NRD_ENGINE_FAN_H

#include "engine/engine_private.h"

/* ---- family.c, family_attach.c, family_open.c: who is whose child ---- */

/* Brings the records of parents and children in line with each other and starts what they name as links; every topic is
 * loaded, the fan-out is open, nobody uses a topic yet. Nothing is written read-only. Blocks. */
void nrd_family_open(NrdEngine *engine);

/* The topic's record is durably gone: its children have no parent any more, and its parent no such child. Nothing of that
 * makes a deletion fail. Engine admin held, no guard. Blocks. */
void nrd_family_leave(NrdTopic *topic);

/* What being a child or a parent forbids of new settings: -EBUSY, -EINVAL, both told. Guard held. */
int nrd_family_check_config(NrdTopic *topic, const NrdTopicConfig *next) NRD_MUST_CHECK;

/* -EPERM, told: records of a delayed child come from its parent alone. partition: NRD_NO_PARTITION of the whole topic. */
int nrd_family_refuse_producer(NrdTopic *topic, int64_t partition) NRD_MUST_CHECK;

/* ---- fan.c: what is copied ---- */

/* Makes what copies. The ingress is open; then who keeps the records calls nrd_fan_start for every link that a parent's
 * record names, and nrd_fanout_start begins. -EAGAIN: the system gave no thread. */
int nrd_fan_open(NrdEngine *engine) NRD_MUST_CHECK;

/* Ends copying, if it was opened, and forgets every link; what is left goes on at the next start. Before the ingress is
 * closed; partitions are still open. Nobody prepares, starts or stops any more; commits may still be announced. Blocks. */
void nrd_fan_close(NrdEngine *engine);

/* Writes the cursors of a new link, durably, at the high watermarks of this moment; the link is not known yet. What it
 * leaves when it fails, or when the record is never written, has an epoch that no record names: it is ignored, and
 * removed by nrd_fan_forget. Guard of the parent held. Blocks. */
int nrd_fan_prepare(NrdTopic *parent, const NrdChildRecord *child) NRD_MUST_CHECK;

/* Copies from now on. The record names the link. Memory only (but for a read-only engine's: it reads the cursors). */
void nrd_fan_start(NrdTopic *parent, NrdTopic *child, const NrdChildRecord *link, int64_t delay_ms);

/* Copies no more when it returns; the link is forgotten and its cursors are removed. The record does not name the link
 * any more, or its topic is being deleted. No guard held, engine admin may be. Blocks until a pass under way has ended. */
void nrd_fan_stop(NrdTopic *parent, const char *child);

/* Removes cursor files of a link that never started. Failures are told. Blocks. */
void nrd_fan_forget(NrdTopic *parent, const char *child);

/* Records were committed to the partition, or it is new (its cursor is written then, before anything is committed to it).
 * Memory only; costs an atomic load when the topic has no child. */
void nrd_fan_committed(NrdPartition *partition);

/* The partition, a parent's or a child's, may be well again: what waits after a failure is tried now. Memory only. */
void nrd_fan_well(NrdPartition *partition);

#endif
