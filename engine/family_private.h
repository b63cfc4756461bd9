/* What family.c (links and their changes), family_attach.c (how one begins) and family_open.c (what a start makes of the records)
 * share. Engine admin is held
 * for changes, or nobody uses a topic yet; no guard. Changes of records block. */
#ifndef NRD_ENGINE_FAMILY_PRIVATE_H
#define NRD_ENGINE_FAMILY_PRIVATE_H

#include "engine/engine_private.h"

/* The parent's entry of that name, copied (nrd_child_record_free); NULL: none, or the record is damaged. */
NrdChildRecord *nrd_family_link(NrdTopic *parent, const char *child);

/* Whether parent lists child under its incarnation. */
bool nrd_family_lists(NrdTopic *parent, const NrdTopic *child);

guint nrd_family_count(NrdTopic *topic); /* of children */

/* False: the topic's record is damaged. */
bool nrd_family_has_record(NrdTopic *topic);

/* What the child's record names; parent NULL: none. anyway: in memory at least, whatever the disk says. */
int nrd_family_set_parent(NrdTopic *child, const char *parent, bool anyway) NRD_MUST_CHECK;

/* Takes the entry out of the parent's record; -ENOENT: there is none. anyway: likewise. */
int nrd_family_unlist(NrdTopic *parent, const char *child, bool anyway) NRD_MUST_CHECK;

/* The child has no parent any more: what its record says follows. A damaged record is put right by a later start. */
void nrd_family_orphan(NrdTopic *child);

#define NRD_FAMILY_RETENTION_MARGIN_MS ((int64_t)3600 * 1000)

/* Whether a parent that keeps records so long has them until a child with that delay has copied them. Pure. */
static inline bool nrd_family_retention_suffices(int64_t retention_ms, int64_t delay_ms)
{
    return retention_ms == 0 || retention_ms >= delay_ms + NRD_FAMILY_RETENTION_MARGIN_MS;
}

#endif
