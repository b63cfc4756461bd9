/* Records by offset and by time.
 *
 * They are asked of the stream's leader alone. A direct get would cost half of that, but any server answers it from its own
 * copy, and copies may come to differ (docs/scale-out.md): two reads of a log would be two logs. A reader asks for many at
 * once. A record that is at the offset of another one that was acknowledged here is given to nobody (kept.c). */
#include "engine/jetstream/fetch.h"

#include "engine/jetstream/kept.h"
#include "engine/jetstream/partition.h"

#define GET_MS 2500

/* ---- one message ---- */

void nrd_js_decode_key(const char *header, uint8_t **ret_key, size_t *ret_size)
{
    gsize size = 0;
    uint8_t *key = header ? g_base64_decode(header, &size) : NULL;
    if (size == 0)
        g_clear_pointer(&key, g_free);
    *ret_key = key;
    *ret_size = size;
}

static void take_message(NrdPartition *partition, NrdJsSlot *slot, NrdJsMessage *message)
{
    GHashTable *headers = message->headers;
    gsize size;
    const void *data = g_bytes_get_data(message->data, &size);
    slot->agrees =
        nrd_js_kept_agrees(partition, slot->sequence, headers ? g_hash_table_lookup(headers, NRD_JS_ID_HEADER) : NULL);
    slot->record = (NrdRecord){
        .offset = slot->sequence - 1,
        .timestamp_ms = message->time_ms,
        .payload = g_memdup2(data, size),
        .payload_size = size,
    };
    nrd_js_decode_key(headers ? g_hash_table_lookup(headers, NRD_JS_KEY_HEADER) : NULL, &slot->record.key,
                      &slot->record.key_size);
    nrd_js_message_clear(message);
}

/* With patience, after the first try. */
static int ask_again(NrdPartition *partition, NrdJsSlot *slot)
{
    NrdJsMessage message;
    g_autofree char *why = NULL;
    int rc =
        nrd_js_message_get(partition->topic->engine->conn, partition->stream, slot->sequence, NULL, &message, &why);
    if (rc == -EIO)
        nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ partition->topic->name, partition->number, (int64_t)slot->sequence - 1 },
                 "the record could not be read: %s", why);
    if (rc == 0)
        take_message(partition, slot, &message);
    return rc;
}

/* ---- several at once ---- */

/* It is read on the thread that waits: others' answers come on this one. */
static void on_answer(void *user_data, int error, natsMsg *msg)
{
    NrdJsSlot *slot = user_data;
    slot->error = error;
    slot->answer = msg;
    nrd_js_countdown_one(slot->countdown);
}

void nrd_js_ask_for_record(NrdPartition *partition, const char *verb, uint64_t sequence, NrdJsReplyFn fn,
                           void *user_data)
{
    char json[48];
    g_autofree char *subject = g_strdup_printf("$JS.API.%s.%s", verb, partition->stream);
    g_snprintf(json, sizeof json, "{\"seq\":%" G_GUINT64_FORMAT "}", sequence);
    nrd_js_request(partition->topic->engine->conn, subject, NULL, json, strlen(json), GET_MS, fn, user_data);
}

static void ask_all(NrdPartition *partition, NrdJsSlot *slots, guint n)
{
    NrdJsCountdown countdown;
    nrd_js_countdown_init(&countdown, n);
    for (guint i = 0; i < n; i++) {
        slots[i].countdown = &countdown;
        nrd_js_ask_for_record(partition, "STREAM.MSG.GET", slots[i].sequence, on_answer, &slots[i]);
    }
    nrd_js_countdown_wait(&countdown);
}

static void take_answer(NrdPartition *partition, NrdJsSlot *slot)
{
    NrdJsMessage message;
    if (slot->error == 0)
        slot->error = nrd_js_read_message(natsMsg_GetData(slot->answer), (size_t)natsMsg_GetDataLength(slot->answer),
                                          &message, NULL);
    natsMsg_Destroy(slot->answer);
    slot->answer = NULL;
    if (slot->error < 0)
        return;
    if (message.sequence == slot->sequence) {
        take_message(partition, slot, &message);
    } else {
        nrd_js_message_clear(&message);
        slot->error = -EAGAIN; /* no answer to this */
    }
}

int nrd_js_fetch_as_it_is(NrdPartition *partition, uint64_t first, guint n, NrdJsSlot *slots)
{
    int rc = 0;
    for (guint i = 0; i < n; i++)
        slots[i] = (NrdJsSlot){ .sequence = first + i };
    ask_all(partition, slots, n);
    for (guint i = 0; i < n; i++) {
        take_answer(partition, &slots[i]);
        if (slots[i].error < 0 && slots[i].error != -ENOENT && rc == 0)
            slots[i].error = ask_again(partition, &slots[i]);
        if (slots[i].error < 0 && slots[i].error != -ENOENT && rc == 0)
            rc = slots[i].error;
    }
    return rc;
}

/* Whether the servers may have deleted it: no record from `sequence` on is that old. */
static bool is_deleted(NrdPartition *partition, uint64_t sequence)
{
    NrdJsStreamInfo info;
    int rc = nrd_js_stream_info(partition->topic->engine->conn, partition->stream, NRD_JS_GLANCE_MS, &info, NULL);
    return rc == 0 && sequence < info.first_seq;
}

/* What is not there is not passed over as if it never was, when it was acknowledged here. */
static bool is_right(NrdPartition *partition, const NrdJsSlot *slot)
{
    if (slot->error == 0)
        return slot->agrees;
    return nrd_js_kept_agrees(partition, slot->sequence, NULL) || is_deleted(partition, slot->sequence);
}

int nrd_js_fetch(NrdPartition *partition, uint64_t first, guint n, NrdJsSlot *slots)
{
    int rc = nrd_js_fetch_as_it_is(partition, first, n, slots);
    for (guint i = 0; i < n && rc == 0; i++) {
        if (is_right(partition, &slots[i]))
            continue;
        nrd_diag(NRD_LEVEL_ERROR,
                 (NrdPlace){ partition->topic->name, partition->number, (int64_t)slots[i].sequence - 1 },
                 "the servers %s, and have acknowledged another record at this offset: it is not served, and what else "
                 "they have acknowledged is compared",
                 slots[i].error == 0 ? "give a record" : "have none");
        nrd_js_kept_doubt(partition);
        rc = -EIO;
    }
    return rc;
}

void nrd_js_slots_clear(NrdJsSlot *slots, guint n)
{
    for (guint i = 0; i < n; i++)
        if (slots[i].error == 0)
            nrd_record_clear(&slots[i].record);
}

int nrd_js_partition_record(NrdPartition *partition, uint64_t offset, NrdRecord *ret_record)
{
    uint64_t first, last;
    NrdJsSlot slot;
    int rc = nrd_js_partition_last(partition, false, &first, &last);
    if (rc == 0 && offset >= last)
        rc = nrd_js_partition_last(partition, true, &first, &last);
    if (rc < 0)
        return rc;
    if (offset >= last || offset + 1 < first)
        return -ENOENT;
    rc = nrd_js_fetch(partition, offset + 1, 1, &slot);
    if (rc == 0 && slot.error == 0)
        *ret_record = slot.record;
    else
        nrd_js_slots_clear(&slot, 1);
    return rc < 0 ? rc : slot.error;
}

/* ---- by time ---- */

/* The time of the first message from *sequence on that is there, and its sequence; past: there is none up to last. */
static int time_from(NrdPartition *partition, uint64_t *sequence, uint64_t last, int64_t *ret_ms)
{
    while (*sequence <= last) {
        NrdJsSlot slot;
        int rc = nrd_js_fetch(partition, *sequence, 1, &slot);
        if (rc < 0) {
            nrd_js_slots_clear(&slot, 1);
            return rc;
        }
        if (slot.error == 0) {
            *ret_ms = slot.record.timestamp_ms;
            nrd_record_clear(&slot.record);
            return 0;
        }
        (*sequence)++;
    }
    *ret_ms = INT64_MAX;
    return 0;
}

int nrd_js_partition_find_time(NrdPartition *partition, int64_t time_ms, uint64_t *ret_offset)
{
    uint64_t first, last;
    int rc = nrd_js_partition_last(partition, true, &first, &last);
    if (rc < 0)
        return rc;
    uint64_t low = first, high = last + 1; /* the answer is in [low, high] */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t found = middle;
        int64_t ms;
        rc = time_from(partition, &found, last, &ms);
        if (rc < 0)
            return rc;
        if (ms >= time_ms)
            high = middle;
        else
            low = found + 1;
    }
    *ret_offset = low - 1;
    return 0;
}
