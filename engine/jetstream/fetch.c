/* Records by offset and by time.
 *
 * One record is asked of any server that has a copy (a direct get); one that lags behind may not have it yet, so only the
 * leader's word counts that there is none. A reader asks for many at once. */
#include "engine/jetstream/fetch.h"

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

static const char *header(natsMsg *msg, const char *name)
{
    const char *value = NULL;
    return natsMsgHeader_Get(msg, name, &value) == NATS_OK ? value : NULL;
}

static int record_of_direct(natsMsg *msg, uint64_t sequence, NrdRecord *ret_record)
{
    const char *status = header(msg, "Status");
    if (status)
        return strcmp(status, "404") == 0 ? -ENOENT : -EAGAIN;
    guint64 said;
    const char *number = header(msg, "Nats-Sequence");
    if (!number || !g_ascii_string_to_unsigned(number, 10, 0, G_MAXUINT64, &said, NULL) || said != sequence)
        return -EAGAIN; /* no answer to this; the leader has the word */
    size_t size = (size_t)natsMsg_GetDataLength(msg);
    *ret_record = (NrdRecord){
        .offset = sequence - 1,
        .timestamp_ms = nrd_js_parse_time_ms(header(msg, "Nats-Time-Stamp")),
        .payload = g_memdup2(natsMsg_GetData(msg), size),
        .payload_size = size,
    };
    nrd_js_decode_key(header(msg, NRD_JS_KEY_HEADER), &ret_record->key, &ret_record->key_size);
    return 0;
}

/* The leader's word. */
static int record_of_leader(NrdPartition *partition, uint64_t sequence, NrdRecord *ret_record)
{
    NrdJsMessage message;
    g_autofree char *why = NULL;
    int rc = nrd_js_message_get(partition->topic->engine->conn, partition->stream, sequence, NULL, &message, &why);
    if (rc < 0) {
        if (rc == -EIO)
            nrd_diag(NRD_LEVEL_ERROR, (NrdPlace){ partition->topic->name, partition->number, (int64_t)sequence - 1 },
                     "the record could not be read: %s", why);
        return rc;
    }
    gsize size;
    const void *data = g_bytes_get_data(message.data, &size);
    *ret_record = (NrdRecord){
        .offset = sequence - 1,
        .timestamp_ms = message.time_ms,
        .payload = g_memdup2(data, size),
        .payload_size = size,
    };
    nrd_js_decode_key(message.headers ? g_hash_table_lookup(message.headers, NRD_JS_KEY_HEADER) : NULL,
                      &ret_record->key, &ret_record->key_size);
    nrd_js_message_clear(&message);
    return 0;
}

/* ---- several at once ---- */

static void on_record(void *user_data, int error, natsMsg *msg)
{
    NrdJsSlot *slot = user_data;
    slot->error = error < 0 ? error : record_of_direct(msg, slot->sequence, &slot->record);
    natsMsg_Destroy(msg);
    nrd_js_countdown_one(slot->countdown);
}

static void fetch_direct(NrdPartition *partition, NrdJsSlot *slots, guint n)
{
    NrdJsCountdown countdown;
    g_autofree char *subject = g_strdup_printf("$JS.API.DIRECT.GET.%s", partition->stream);
    nrd_js_countdown_init(&countdown, n);
    for (guint i = 0; i < n; i++) {
        char json[48];
        g_snprintf(json, sizeof json, "{\"seq\":%" G_GUINT64_FORMAT "}", slots[i].sequence);
        slots[i].countdown = &countdown;
        nrd_js_request(partition->topic->engine->conn, subject, NULL, json, strlen(json), GET_MS, on_record, &slots[i]);
    }
    nrd_js_countdown_wait(&countdown);
}

int nrd_js_fetch(NrdPartition *partition, uint64_t first, guint n, NrdJsSlot *slots)
{
    int rc = 0;
    for (guint i = 0; i < n; i++)
        slots[i] = (NrdJsSlot){ .sequence = first + i };
    fetch_direct(partition, slots, n);
    for (guint i = 0; i < n; i++) {
        if (slots[i].error < 0 && rc == 0)
            slots[i].error = record_of_leader(partition, slots[i].sequence, &slots[i].record);
        if (slots[i].error < 0 && slots[i].error != -ENOENT && rc == 0)
            rc = slots[i].error;
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
    return rc < 0 ? rc : slot.error;
}

/* ---- by time ---- */

/* The time of the first message from *sequence on that is there, and its sequence; past: there is none up to last. */
static int time_from(NrdPartition *partition, uint64_t *sequence, uint64_t last, int64_t *ret_ms)
{
    while (*sequence <= last) {
        NrdJsSlot slot;
        int rc = nrd_js_fetch(partition, *sequence, 1, &slot);
        if (rc < 0)
            return rc;
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
