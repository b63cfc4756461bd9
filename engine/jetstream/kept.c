/* What was acknowledged to this daemon lately, and so has to be at which sequence: see kept.h. */
#include "engine/jetstream/kept.h"

bool nrd_js_kept_note_locked(NrdPartition *partition, uint64_t sequence, uint32_t hash)
{
    if (!partition->acked)
        partition->acked = nrd_js_acked_new();
    return nrd_js_acked_note(partition->acked, sequence, hash);
}

bool nrd_js_kept_agrees(NrdPartition *partition, uint64_t sequence, const char *id)
{
    g_mutex_lock(&partition->lock);
    uint32_t known = partition->acked ? nrd_js_acked_get(partition->acked, sequence) : 0;
    g_mutex_unlock(&partition->lock);
    return known == 0 || (id && known == nrd_js_acked_hash(id));
}

bool nrd_js_kept_gone(NrdPartition *partition, uint64_t sequence)
{
    g_mutex_lock(&partition->lock);
    bool old = partition->acked && nrd_js_acked_is_old(partition->acked, sequence);
    if (old)
        nrd_js_acked_let_go(partition->acked, sequence, sequence + 1);
    g_mutex_unlock(&partition->lock);
    return old;
}

void nrd_js_kept_forget_locked(NrdPartition *partition)
{
    g_clear_pointer(&partition->acked, nrd_js_acked_free);
    g_clear_pointer(&partition->apart, g_free);
    partition->compared[0] = '\0';
    partition->rounds_left = 0;
    partition->doubted = false;
}
