/* The counters of the process and a few gauges as Prometheus text (exposition format 0.0.4). What Narad counts keeps its
 * name. */
#include "engine/engine_private.h"

#include "engine/base/version.h"
#include "engine/log/segments/frame_cache.h"

typedef struct Row {
    NrdCounter counter;
    const char *name;
    const char *labels; /* with their braces, or "" */
    const char *help;   /* of the first row of a name; rows of one name stand together */
} Row;

#define STORAGE(kind) "{component=\"storage\",kind=\"" kind "\"}"
#define INGRESS(kind) "{component=\"ingress\",kind=\"" kind "\"}"
#define FANOUT(kind) "{component=\"fanout\",kind=\"" kind "\"}"
#define REASON(reason) "{reason=\"" reason "\"}"

static const Row rows[] = {
    { NRD_COUNTER_FSYNC_POISONED, "narad_errors_total", STORAGE("fsync_poisoned"), "Errors, by what failed." },
    { NRD_COUNTER_COMMIT_FAILED, "narad_errors_total", STORAGE("commit"), NULL },
    { NRD_COUNTER_OPEN_FAILED, "narad_errors_total", STORAGE("open"), NULL },
    { NRD_COUNTER_TAKEN_AWAY, "narad_errors_total", STORAGE("taken_away"), NULL },
    { NRD_COUNTER_UNREADABLE, "narad_errors_total", STORAGE("unreadable"), NULL },
    { NRD_COUNTER_RETENTION_UNLINK, "narad_errors_total", STORAGE("retention_unlink"), NULL },
    { NRD_COUNTER_PREALLOC_FAILED, "narad_errors_total", STORAGE("preallocation"), NULL },
    { NRD_COUNTER_INGRESS_FAILED, "narad_errors_total", INGRESS("append"), NULL },
    { NRD_COUNTER_INGRESS_SYNC_FAILED, "narad_errors_total", INGRESS("fsync"), NULL },
    { NRD_COUNTER_INGRESS_CHECKPOINT, "narad_errors_total", INGRESS("checkpoint"), NULL },
    { NRD_COUNTER_INGRESS_UNLINK, "narad_errors_total", INGRESS("unlink"), NULL },
    { NRD_COUNTER_INGRESS_COMMIT, "narad_errors_total", INGRESS("commit"), NULL },
    { NRD_COUNTER_INGRESS_DAMAGED, "narad_errors_total", INGRESS("damaged"), NULL },
    { NRD_COUNTER_INGRESS_LOST, "narad_errors_total", INGRESS("lost_record"), NULL },
    { NRD_COUNTER_FANOUT_FAILED, "narad_errors_total", FANOUT("pass"), NULL },
    { NRD_COUNTER_FANOUT_CURSOR, "narad_errors_total", FANOUT("cursor"), NULL },
    { NRD_COUNTER_INGRESS_ENTRIES, "narad_ingress_entries_total", "", "Batches acknowledged by the ingress WAL." },
    { NRD_COUNTER_INGRESS_SYNCS, "narad_ingress_syncs_total", "", "Syncs of the ingress WAL." },
    { NRD_COUNTER_INGRESS_DISPATCHED, "narad_ingress_dispatched_records_total", "",
      "Records committed to their partition from the ingress WAL." },
    { NRD_COUNTER_INGRESS_REROUTED, "narad_ingress_rerouted_records_total", "",
      "Records that went to another partition because theirs failed." },
    { NRD_COUNTER_INGRESS_DISCARDED, "narad_ingress_discarded_records_total", "",
      "Records discarded because their topic was deleted." },
    { NRD_COUNTER_INGRESS_REPLAYED, "narad_ingress_replayed_parts_total", "",
      "Parts of batches that an earlier run left in the ingress WAL." },
    { NRD_COUNTER_INGRESS_RECOGNIZED, "narad_ingress_recognized_parts_total", "",
      "... of which were in their partition already." },
    { NRD_COUNTER_FANOUT_COPIED, "narad_fanout_copied_records_total", "", "Records copied to children." },
    { NRD_COUNTER_FANOUT_DROPPED, "narad_fanout_child_dropped_messages", "",
      "Records that were never copied to a child: retention was faster, or they are damaged." },
    { NRD_COUNTER_COMMITS, "narad_commits_total", "", "Commits that became durable and visible." },
    { NRD_COUNTER_RECORDS, "narad_committed_records_total", "", "Records in them, copies in children too." },
    { NRD_COUNTER_PRODUCED, "narad_produced_records_total", "", "Records committed that are no copies." },
    { NRD_COUNTER_SETTLED, "narad_settled_records_total", "", "Records settled by consumers." },
    { NRD_COUNTER_CORRUPT_FRAMES, "narad_corrupt_frames_total", "", "Damaged frames met, each counted once." },
    { NRD_COUNTER_CORRUPT_SKIPPED, "narad_consumer_corrupt_skipped_total", "",
      "Records that consumers passed over because they can never be read." },
    { NRD_COUNTER_TORN_TAILS, "narad_torn_tails_total", "", "Torn tails cut at open." },
    { NRD_COUNTER_LEASES_EXPIRED, "narad_leases_expired_total", "", "Leases that ended without an ack." },
    { NRD_COUNTER_QUARANTINED, "narad_quarantined_total", "", "Folders of other incarnations set aside." },
    { NRD_COUNTER_RECLAIMED, "narad_reclaimed_total", "", "Folders of deleted topics removed." },
    { NRD_COUNTER_DELETED_BYTES + NRD_DELETE_AGE, "narad_retention_deleted_bytes_total", REASON("age"),
      "Bytes of segments deleted." },
    { NRD_COUNTER_DELETED_BYTES + NRD_DELETE_BYTES, "narad_retention_deleted_bytes_total", REASON("bytes"), NULL },
    { NRD_COUNTER_DELETED_BYTES + NRD_DELETE_TRIM, "narad_retention_deleted_bytes_total", REASON("trim"), NULL },
    { NRD_COUNTER_DELETED_RECORDS + NRD_DELETE_AGE, "narad_retention_deleted_messages_total", REASON("age"),
      "Records in segments deleted." },
    { NRD_COUNTER_DELETED_RECORDS + NRD_DELETE_BYTES, "narad_retention_deleted_messages_total", REASON("bytes"), NULL },
    { NRD_COUNTER_DELETED_RECORDS + NRD_DELETE_TRIM, "narad_retention_deleted_messages_total", REASON("trim"), NULL },
    { NRD_COUNTER_DELETED_SEGMENTS + NRD_DELETE_AGE, "narad_retention_deleted_segments_total", REASON("age"),
      "Segments deleted." },
    { NRD_COUNTER_DELETED_SEGMENTS + NRD_DELETE_BYTES, "narad_retention_deleted_segments_total", REASON("bytes"),
      NULL },
    { NRD_COUNTER_DELETED_SEGMENTS + NRD_DELETE_TRIM, "narad_retention_deleted_segments_total", REASON("trim"), NULL },
    { NRD_COUNTER_REAPER_RESTARTS, "narad_reaper_restarts", "", "Loops of the housekeeping replaced because stuck." },
    { NRD_COUNTER_COLD_SWEPT, "narad_cold_retention_swept_total", "", "Closed partitions opened for retention." },
    { NRD_COUNTER_COLD_FAILED, "narad_cold_retention_panics_total", "",
      "Closed partitions whose retention failed; each is left alone for 30 minutes." },
    { NRD_COUNTER_OPENED, "narad_partitions_opened_total", "", "Partitions opened." },
    { NRD_COUNTER_IDLE_CLOSED, "narad_partitions_idle_closed_total", "",
      "Partitions closed because nobody used them." },
    { NRD_COUNTER_ROLLED, "narad_segments_sealed_total", "", "Segments sealed." },
    { NRD_COUNTER_INDEX_REBUILT, "narad_index_rebuilt_total", "", "Side indexes made again from their segments." },
    { NRD_COUNTER_CACHE_HITS, "narad_frame_cache_hits_total", "", "Frames found in memory." },
    { NRD_COUNTER_CACHE_MISSES, "narad_frame_cache_misses_total", "", "Frames read and decoded." },
};

static void append_head(GString *text, const char *name, const char *type, const char *help)
{
    g_string_append_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void append_gauge(GString *text, const char *name, const char *help, uint64_t value)
{
    append_head(text, name, "gauge", help);
    g_string_append_printf(text, "%s %" G_GUINT64_FORMAT "\n", name, value);
}

/* Of a closed partition they tell what was true at its close, of one that nobody has used since the start nothing. */
static void append_partitions(GString *text, const NrdSummary *summary)
{
    append_gauge(text, "narad_topics", "Topics.", summary->n_topics);
    append_gauge(text, "narad_topics_out_of_service", "Topics out of service: `status` says why.",
                 summary->n_topics_out);
    append_gauge(text, "narad_partitions", "Partitions.", summary->n_partitions);
    append_gauge(text, "narad_partitions_open", "Partitions whose files are open.", summary->n_open);
    append_gauge(text, "narad_partitions_unknown", "Partitions not used since the start, which count in no sum.",
                 summary->n_unknown);
    append_gauge(text, "narad_partitions_poisoned", "Partitions that refuse writes until they are reopened.",
                 summary->n_poisoned);
    append_gauge(text, "narad_partitions_out_of_service", "Partitions that could not be opened.", summary->n_faulty);
    append_gauge(text, "narad_partitions_damaged", "Partitions with damaged frames or missing segments that are known.",
                 summary->n_damaged);
    append_gauge(text, "narad_partitions_unreadable",
                 "Partitions with segments that cannot be read: their readers get EIO there.", summary->n_unreadable);
    append_gauge(text, "narad_partitions_anew",
                 "Partitions that began anew because their folder was missing, until `reopen` says that it is known.",
                 summary->n_anew);
    append_gauge(text, "narad_lost_records", "Records lost in damaged frames and missing segments that are known.",
                 summary->n_lost);
    append_gauge(text, "narad_partitions_hiding_records",
                 "Partitions whose hwm file ends before their records: those behind it are not served.",
                 summary->n_hiding);
    append_gauge(text, "narad_partitions_unsaved",
                 "Partitions whose consumers' progress cannot be written: a crash would deliver records again.",
                 summary->n_unsaved);
    append_gauge(text, "narad_stored_bytes", "Bytes of segments.", summary->size_bytes);
    append_gauge(text, "narad_lag_records", "Records readable and not settled.", summary->lag);
    append_gauge(text, "narad_in_flight_records", "Records leased to consumers.", summary->in_flight);
}

/* The lag of a child with a delay is there by design; that of the others should be next to nothing. */
static void append_fan(GString *text, const NrdSummary *summary)
{
    append_gauge(text, "narad_fanout_children", "Topics attached to another one.", summary->n_children);
    append_head(text, "narad_fanout_lag_records", "gauge", "Records not copied to their children yet, due or not.");
    for (int delayed = 0; delayed < 2; delayed++)
        g_string_append_printf(text, "narad_fanout_lag_records{delayed=\"%s\"} %" G_GUINT64_FORMAT "\n",
                               delayed ? "yes" : "no", delayed ? summary->fan_lag_delayed : summary->fan_lag);
    append_gauge(text, "narad_fanout_failing_partitions",
                 "Partitions of parents whose last pass of copying failed, once for each child.",
                 summary->n_fan_failing);
}

/* What the daemon may use, without the blocks kept for root. A disk that cannot be asked has no line. */
static void append_disk(GString *text, NrdEngine *engine)
{
    struct statvfs st;
    if (nrd_engine_statvfs(engine, &st) < 0)
        return;
    append_gauge(text, "narad_disk_free_bytes", "Bytes free for naradfs on the disk of the data directory.",
                 (uint64_t)st.f_bavail * st.f_frsize);
    append_gauge(text, "narad_disk_size_bytes", "Size of that disk.", (uint64_t)st.f_blocks * st.f_frsize);
}

static void append_ingress(GString *text, const NrdSummary *summary)
{
    append_gauge(text, "narad_ingress_available", "1 when topics can be produced to as a whole.", summary->ingress);
    append_gauge(text, "narad_ingress_pending_parts", "Parts of batches not committed to their partition yet.",
                 summary->ingress_parts);
    append_gauge(text, "narad_ingress_waiting_partitions", "Partitions that wait after a failed commit.",
                 summary->ingress_stuck);
    append_gauge(text, "narad_ingress_refused_topics", "Topics whose last records were refused, as the next would be.",
                 summary->n_refused);
    append_gauge(text, "narad_ingress_wal_bytes", "Size of the ingress WAL.", summary->ingress_bytes);
}

static void append_counters(GString *text)
{
    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        if (rows[i].help)
            append_head(text, rows[i].name, "counter", rows[i].help);
        g_string_append_printf(text, "%s%s %" G_GUINT64_FORMAT "\n", rows[i].name, rows[i].labels,
                               nrd_counter_get(rows[i].counter));
    }
}

char *nrd_local_engine_metrics(NrdEngine *engine)
{
    GString *text = g_string_new(NULL);
    NrdSummary summary;
    append_head(text, "narad_build_info", "gauge", "Always 1; the version is a label.");
    g_string_append_printf(text, "narad_build_info{version=\"%s\"} 1\n", nrd_version);
    append_gauge(text, "narad_read_only", "1 when the mount is read-only.", nrd_engine_read_only(engine));
    append_counters(text);
    nrd_engine_summary(engine, &summary);
    append_partitions(text, &summary);
    append_ingress(text, &summary);
    append_fan(text, &summary);
    nrd_summary_clear(&summary);
    append_disk(text, engine);
    append_gauge(text, "narad_frame_cache_bytes", "Bytes of decoded frames in memory.", nrd_frame_cache_size());
    return g_string_free(text, FALSE);
}
