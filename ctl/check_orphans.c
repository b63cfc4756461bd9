/* Folders in topics/ that no topic record names: what the next start makes of them, as its sweep judges it. */
#include "ctl/check.h"
#include "engine/base/diag.h"
#include "engine/meta/incarnation.h"

#include <inttypes.h>
#include <string.h>

typedef struct Orphan {
    const char *name;
    const char *dir;
    NrdOrphanHolds holds;
    char id[NRD_INCARNATION_DIGITS + 1];
    char *why;
} Orphan;

static bool is_carried(void *user_data, const char *id)
{
    const NrdCheck *check = user_data;
    return check->record_damaged || nrd_check_topic_of(check, id);
}

const char *nrd_check_topic_of(const NrdCheck *check, const char *id)
{
    GHashTableIter iter;
    gpointer name, record;
    g_hash_table_iter_init(&iter, check->records);
    while (g_hash_table_iter_next(&iter, &name, &record)) {
        if (strcmp(((const NrdTopicRecord *)record)->id, id) == 0)
            return name;
    }
    return NULL;
}

/* "12 records", "what is damaged in it", both (g_free). */
static char *contents(const Orphan *orphan)
{
    uint64_t n = orphan->holds.n_records;
    if (n == 0)
        return g_strdup("what is damaged in it");
    return g_strdup_printf("its %" PRIu64 " record%s%s", n, nrd_plural(n),
                           orphan->holds.damaged ? ", and what is damaged in it" : "");
}

/* How to keep them; a quarantined folder belongs to no name that a record could have. */
static char *remedy(const Orphan *orphan)
{
    if (strstr(orphan->name, ".stale-"))
        return g_strdup("move the folder out of the data directory first");
    return g_strdup_printf("put meta/%s.topic back from a backup first, or move the folder out of the data directory",
                           orphan->name);
}

static void tell_removed(NrdCheck *check, const Orphan *orphan, bool holds)
{
    g_autofree char *what = contents(orphan);
    g_autofree char *how = remedy(orphan);
    if (holds)
        nrd_check_error(check, orphan->dir, "orphan",
                        "no topic record, as a deletion leaves it: the next start DELETES it with %s; to keep them %s",
                        what, how);
    else
        nrd_check_note(check, orphan->dir, "orphan",
                       "no topic record, as a deletion leaves it, and no record in it: the next start removes it");
}

/* The sweep removes nothing as long as it cannot tell whose folder it is. */
static void tell_waiting(NrdCheck *check, const Orphan *orphan, bool holds)
{
    g_autofree char *what = contents(orphan);
    g_autofree char *how = remedy(orphan);
    if (holds)
        nrd_check_error(check, orphan->dir, "orphan",
                        "no topic record; a start leaves it alone while a topic record is damaged, and the first one "
                        "after that DELETES it with %s; to keep them %s",
                        what, how);
    else
        nrd_check_note(check, orphan->dir, "orphan",
                       "no topic record, and no record in it; a start leaves it alone while a topic record is damaged, "
                       "and the first one after that removes it");
}

static void tell_known(NrdCheck *check, const Orphan *orphan, bool holds)
{
    const char *topic = nrd_check_topic_of(check, orphan->id);
    if (check->record_damaged && !topic)
        tell_waiting(check, orphan, holds);
    else /* what a daemon has set aside itself, and keeps, is nobody's mistake */
        nrd_check_tell(check, holds && !strstr(orphan->dir, ".stale-") ? NRD_ERROR : NRD_NOTE,
                       &(NrdSpot){ .path = orphan->dir, .kind = "orphan" },
                       "it is marked as the folder of the topic %s, which is served from topics/%s: a start leaves it "
                       "alone, and nobody reads it; give it that name%s, or move it away",
                       topic, topic, holds ? " if its records are missing there" : "");
}

static void tell_left(NrdCheck *check, const Orphan *orphan, bool holds)
{
    g_autofree char *what = contents(orphan);
    g_autofree char *how = remedy(orphan);
    if (holds)
        nrd_check_error(
            check, orphan->dir, "orphan",
            "no topic record, and %s: a start leaves it alone, and nobody reads %s; to have that served, or "
            "out of the way, %s",
            orphan->why, what, how);
    else
        nrd_check_note(check, orphan->dir, "orphan",
                       "no topic record, and %s: a start leaves it alone; it may be removed", orphan->why);
}

void nrd_check_orphan(NrdCheck *check, const char *name, const NrdOrphanHolds *holds)
{
    g_autofree char *dir = g_strconcat("topics/", name, NULL);
    Orphan orphan = { .name = name, .dir = dir, .holds = *holds };
    bool any = holds->n_records > 0 || holds->damaged;
    switch (nrd_incarnation_fate(check->root_fd, name, is_carried, check, orphan.id, &orphan.why)) {
    case NRD_FATE_REMOVED:
        tell_removed(check, &orphan, any);
        break;
    case NRD_FATE_KNOWN:
        tell_known(check, &orphan, any);
        break;
    case NRD_FATE_LEFT:
        tell_left(check, &orphan, any);
        break;
    }
    g_free(orphan.why);
}
