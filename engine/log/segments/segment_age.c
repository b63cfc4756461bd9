/* See segment_age.h. */
#include "engine/log/segments/segment_age.h"

#include "engine/log/segments/segment_private.h"

void nrd_segment_set_file_ms(NrdSegment *segment, int64_t file_ms)
{
    g_mutex_lock(&segment->lock);
    segment->file_ms = file_ms;
    g_mutex_unlock(&segment->lock);
}

int64_t nrd_segment_file_ms(NrdSegment *segment)
{
    g_mutex_lock(&segment->lock);
    int64_t file_ms = segment->file_ms;
    g_mutex_unlock(&segment->lock);
    return file_ms;
}

int64_t nrd_last_write_ms(int64_t commit_ms, int64_t file_ms, int64_t now_ms)
{
    /* commit_ms comes from the disk and may be any number */
    bool believed = commit_ms > 0 && (commit_ms <= now_ms || commit_ms - now_ms <= NRD_FUTURE_TOLERANCE_MS);
    return believed ? commit_ms : file_ms;
}

int64_t nrd_segment_last_write_ms(NrdSegment *segment, int64_t now_ms)
{
    g_mutex_lock(&segment->lock);
    int64_t commit_ms = segment->end_known ? segment->end.commit_ms : 0;
    int64_t file_ms = segment->file_ms;
    g_mutex_unlock(&segment->lock);
    return nrd_last_write_ms(commit_ms, file_ms, now_ms);
}

int64_t nrd_segment_first_ms(NrdSegment *segment)
{
    int64_t first_ms = 0;

    g_mutex_lock(&segment->lock);
    if (segment->index != NULL && segment->index->entries->len > 0)
        first_ms = g_array_index(segment->index->entries, NrdIndexEntry, 0).commit_ms;
    g_mutex_unlock(&segment->lock);
    return first_ms;
}

bool nrd_is_older(int64_t time_ms, int64_t now_ms, int64_t max_age_ms)
{
    return time_ms > 0 && time_ms < now_ms && now_ms - time_ms > max_age_ms;
}
