/* Whether a topic is in service: its folder is claimed by comparing the incarnation marker with the record, at every open
 * of a partition. What fails takes the topic out of service until a claim succeeds; each use tries again. */
#include "engine/housekeeping.h"
#include "engine/partition.h"
#include "engine/topic.h"

#include "engine/base/errors.h"
#include "engine/meta/incarnation.h"

#include <errno.h>

/* ---- the fault ---- */

void nrd_topic_set_fault(NrdTopic *topic, const char *why, bool lost)
{
    if (topic->making)
        nrd_diag(NRD_LEVEL_ERROR, nrd_topic_place(topic), "the topic cannot be made: %s", why);
    else if (g_strcmp0(topic->fault, why) != 0)
        nrd_diag(NRD_LEVEL_ERROR, nrd_topic_place(topic), "the topic is out of service: %s; %s", why,
                 lost ? "it stays so until the daemon is started again" : "tried again at its next use");
    pthread_mutex_lock(&topic->lock);
    g_free(topic->fault);
    topic->fault = g_strdup(why);
    topic->lost = lost;
    pthread_mutex_unlock(&topic->lock);
}

static void clear_fault(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    g_clear_pointer(&topic->fault, g_free);
    pthread_mutex_unlock(&topic->lock);
    nrd_diag(NRD_LEVEL_NOTICE, nrd_topic_place(topic), "the topic is in service again");
}

char *nrd_local_topic_fault(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    char *fault = g_strdup(topic->fault);
    pthread_mutex_unlock(&topic->lock);
    return fault;
}

bool nrd_local_topic_lost(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    bool lost = topic->lost;
    pthread_mutex_unlock(&topic->lock);
    return lost;
}

/* ---- the marker ---- */

/* The folder is another incarnation's, or gone: whatever is open of it writes nothing any more, and its consumer state
 * goes with it, before a fresh folder exists that an ack could be written into (seed: The incarnation marker). Who has
 * handles on a retired partition gets -EIO. Guard held. */
static void retire_partitions(void *user_data)
{
    NrdTopic *topic = user_data;
    for (guint i = 0; i < topic->partitions->len; i++) {
        NrdPartition *old = topic->partitions->pdata[i];
        nrd_partition_abandon(old);
        pthread_mutex_lock(&topic->lock);
        topic->partitions->pdata[i] = nrd_partition_new(topic, (uint32_t)i);
        g_ptr_array_add(topic->retired, old);
        pthread_mutex_unlock(&topic->lock);
    }
}

static int fail_claim(NrdTopic *topic, int rc, const char *why)
{
    g_autofree char *plain = why ? NULL : g_strdup_printf("its folder could not be opened: %s", g_strerror(-rc));
    nrd_topic_set_fault(topic, why ? why : plain, false);
    return rc;
}

int nrd_topic_claim(NrdTopic *topic, bool *ret_fresh)
{
    NrdEngine *engine = topic->engine;
    g_autofree char *why = NULL;
    NrdClaim result = NRD_CLAIM_MATCH;
    int rc = engine->read_only ? nrd_incarnation_verify(engine->root_fd, topic->name, topic->id, &why)
                               : nrd_incarnation_claim(engine->root_fd, topic->name, topic->id, retire_partitions,
                                                       topic, &result, &why);
    if (nrd_error_is_shortage(rc))
        return rc; /* nothing is wrong with the topic */
    if (rc < 0)
        return fail_claim(topic, rc, why);
    if (result == NRD_CLAIM_QUARANTINED)
        nrd_housekeeping_note_leftovers(engine->housekeeping);
    *ret_fresh = result == NRD_CLAIM_CREATED;
    return 0;
}

int nrd_topic_check_marker(NrdTopic *topic)
{
    bool fresh = false;
    int rc = nrd_topic_claim(topic, &fresh);
    if (rc < 0)
        return nrd_error_is_shortage(rc) ? rc
                                         : -EIO; /* what it was has been told, and is the topic's, not the caller's */
    if (topic->fault) {
        clear_fault(topic);
        nrd_topic_add_partitions(topic, &topic->record->config); /* it may have got more meanwhile */
    }
    if (fresh) {
        nrd_diag(NRD_LEVEL_ERROR, nrd_topic_place(topic),
                 "the folder topics/%s was gone: made anew, and its records with it are gone too", topic->name);
        retire_partitions(topic);
    }
    return 0;
}

int nrd_topic_retry(NrdTopic *topic)
{
    pthread_mutex_lock(&topic->lock);
    bool out = topic->fault != NULL;
    bool lost = topic->lost;
    pthread_mutex_unlock(&topic->lock);
    if (!out || lost)
        return lost ? -EIO : 0;
    pthread_mutex_lock(&topic->guard);
    int rc = nrd_topic_deleted(topic) ? -EIDRM : topic->lost ? -EIO : topic->fault ? nrd_topic_check_marker(topic) : 0;
    pthread_mutex_unlock(&topic->guard);
    return rc;
}
