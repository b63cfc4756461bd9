/* What this daemon's own publishing tells of a stream: a record that was sent when a sequence was known to be there, and is
 * stored anew at that or below, proves that the servers have lost what they had acknowledged. Nobody needs to look for it. */
#include "engine/jetstream/kept.h"
#include "engine/jetstream/partition.h"

NrdJsEnd nrd_js_partition_end(NrdPartition *partition)
{
    g_mutex_lock(&partition->lock);
    uint64_t known = partition->known ? partition->info.last_seq : 0;
    NrdJsEnd end = { MAX(known, partition->published_seq), partition->n_reopened };
    g_mutex_unlock(&partition->lock);
    return end;
}

static void run_end_of_service(void *user_data)
{
    NrdPartition *partition = user_data;
    g_mutex_lock(&partition->lock);
    g_autofree char *why = g_strdup(partition->poison);
    g_mutex_unlock(&partition->lock);
    if (why)
        nrd_js_partition_end_service(partition, why);
    nrd_js_topic_unref(partition->topic);
}

void nrd_js_partition_published(NrdPartition *partition, uint64_t sequence, uint32_t hash, bool duplicate,
                                NrdJsEnd sent_after)
{
    g_mutex_lock(&partition->lock);
    bool current = sent_after.n_reopened == partition->n_reopened; /* else: what there is was accepted since */
    bool other = current && !nrd_js_kept_note_locked(partition, sequence, hash);
    bool rewound = current && !duplicate && sequence <= sent_after.sequence && !partition->poison;
    other = other && !rewound && !partition->poison;
    if (other)
        partition->poison = g_strdup_printf("the stream %s has acknowledged two records at offset %" G_GUINT64_FORMAT
                                            ": its servers have lost the first, or their copies have come to differ",
                                            partition->stream, sequence - 1);
    else if (rewound)
        partition->poison = g_strdup_printf("the stream %s has stored a new record at offset %" G_GUINT64_FORMAT
                                            ", and ended at %" G_GUINT64_FORMAT
                                            " before: the servers have lost records that they had acknowledged",
                                            partition->stream, sequence - 1, sent_after.sequence);
    else if (current)
        partition->published_seq = MAX(partition->published_seq, sequence);
    g_mutex_unlock(&partition->lock);
    nrd_js_partition_grew(partition, sequence, true);
    if (!rewound && !other)
        return;
    nrd_js_topic_ref(partition->topic);
    nrd_js_later(partition->topic->engine->conn, run_end_of_service, partition);
}
