/* See api.h. */
#include "engine/jetstream/api.h"

#include "engine/base/clock.h"
#include "engine/jetstream/names.h"

#include <errno.h>
#include <string.h>
#include <yajl/yajl_tree.h>

#define TRY_MS 5000
#define PAUSE_MS 250
#define MS_IN_NS INT64_C(1000000)
#define DUPLICATES_MS INT64_C(120000) /* how long the servers know the id of a message that was published */
#define MAX_REPLICAS 5
#define MAX_WAITING 4096 /* reads that are parked on one partition, over all mounts */

/* ---- answers ---- */

static yajl_val child(yajl_val tree, const char *name, yajl_type type)
{
    const char *path[] = { name, NULL };
    return tree ? yajl_tree_get(tree, path, type) : NULL;
}

static int64_t get_number(yajl_val tree, const char *name)
{
    yajl_val value = child(tree, name, yajl_t_number);
    return value && YAJL_IS_INTEGER(value) ? YAJL_GET_INTEGER(value) : 0;
}

static const char *get_string(yajl_val tree, const char *name)
{
    yajl_val value = child(tree, name, yajl_t_string);
    return value ? YAJL_GET_STRING(value) : NULL;
}

static int error_of(int64_t code, int64_t err_code)
{
    switch (err_code) {
    case 10005: /* no suitable peers: of servers that have just started */
    case 10008: /* temporarily unavailable */
    case 10009:
        return -EAGAIN;
    case 10058: /* name in use */
        return -EEXIST;
    case 10071: /* wrong last sequence */
        return -EBUSY;
    case 10023: /* insufficient resources, and its like */
    case 10028:
    case 10047:
    case 10077:
        return -ENOSPC;
    case 10039: /* JetStream is off; the code is 503, but waiting does not help */
    case 10076:
        return -EIO;
    default:
        return code == 404 ? -ENOENT : code == 503 ? -EAGAIN : -EIO;
    }
}

/* 0: it is no error. The text need not end with a NUL. */
static int parse_answer(const char *data, size_t size, yajl_val *ret_tree, char **ret_why)
{
    g_autofree char *text = g_strndup(data, size);
    yajl_val tree = yajl_tree_parse(text, NULL, 0);
    yajl_val error = child(tree, "error", yajl_t_object);
    if (tree && !error) {
        *ret_tree = tree;
        return 0;
    }
    int rc = error ? error_of(get_number(error, "code"), get_number(error, "err_code")) : -EIO;
    const char *said = get_string(error, "description");
    if (ret_why) {
        g_free(*ret_why);
        *ret_why = g_strdup_printf("the NATS servers answered: %s", said ? said : "something that is no JSON");
    }
    yajl_tree_free(tree);
    return rc;
}

static int no_answer(NrdJsConn *conn, int64_t patience_ms, char **ret_why)
{
    if (ret_why && !*ret_why)
        *ret_why = g_strdup_printf(nrd_js_conn_is_up(conn)
                                       ? "the NATS servers gave no answer within %d s: most of them may be "
                                         "down, or JetStream is off"
                                       : "no NATS server could be reached for %d s",
                                   (int)(patience_ms / 1000));
    return -EIO;
}

/* Asks until there is an answer, whatever it says, or no patience left. */
static int ask_patiently(NrdJsConn *conn, const char *subject, const char *const *headers, const void *data,
                         size_t size, int64_t patience_ms, yajl_val *ret_tree, char **ret_why)
{
    int64_t deadline_ms = nrd_clock_mono_ms() + patience_ms;
    if (ret_why)
        g_clear_pointer(ret_why, g_free);
    for (;;) {
        natsMsg *msg = NULL;
        int64_t left_ms = deadline_ms - nrd_clock_mono_ms();
        int rc = nrd_js_ask(conn, subject, headers, data, size, CLAMP(left_ms, 1, TRY_MS), &msg);
        if (rc == 0) {
            rc = parse_answer(natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg), ret_tree, ret_why);
            natsMsg_Destroy(msg);
        }
        if (rc != -EAGAIN && rc != -ETIMEDOUT)
            return rc;
        if (nrd_clock_mono_ms() + PAUSE_MS >= deadline_ms)
            return no_answer(conn, patience_ms, ret_why);
        g_usleep(PAUSE_MS * 1000);
    }
}

static int ask_api(NrdJsConn *conn, const char *verb, const char *stream, const char *json, int64_t patience_ms,
                   yajl_val *ret_tree, char **ret_why)
{
    g_autofree char *subject = g_strdup_printf("$JS.API.%s.%s", verb, stream);
    return ask_patiently(conn, subject, NULL, json, strlen(json), patience_ms, ret_tree, ret_why);
}

/* For requests whose answer says nothing but whether they succeeded. */
static int command(NrdJsConn *conn, const char *verb, const char *stream, const char *json, char **ret_why)
{
    yajl_val tree = NULL;
    int rc = ask_api(conn, verb, stream, json, NRD_JS_PATIENCE_MS, &tree, ret_why);
    yajl_tree_free(tree);
    return rc;
}

/* ---- streams ---- */

/* The servers want to know ids no longer than they keep messages. */
static char *stream_json(const char *stream, const char *subject, const NrdJsStreamConfig *config)
{
    int64_t duplicates_ms = config->max_age_ms > 0 ? MIN(config->max_age_ms, DUPLICATES_MS) : DUPLICATES_MS;
    return g_strdup_printf("{\"name\":\"%s\",\"description\":\"%s\",\"subjects\":[\"%s\"],\"retention\":\"limits\","
                           "\"storage\":\"file\",\"discard\":\"old\",\"num_replicas\":%d,\"max_age\":%" G_GINT64_FORMAT
                           ",\"max_bytes\":%" G_GINT64_FORMAT
                           ",\"max_msgs\":-1,\"max_msg_size\":-1,\"max_consumers\":-1,"
                           "\"duplicate_window\":%" G_GINT64_FORMAT ",\"allow_direct\":true,\"deny_delete\":true}",
                           stream, config->description, subject, config->replicas, config->max_age_ms * MS_IN_NS,
                           config->max_bytes > 0 ? config->max_bytes : -1, duplicates_ms * MS_IN_NS);
}

int nrd_js_stream_create(NrdJsConn *conn, const char *stream, const char *subject, const NrdJsStreamConfig *config,
                         char **ret_why)
{
    g_autofree char *json = stream_json(stream, subject, config);
    return command(conn, "STREAM.CREATE", stream, json, ret_why);
}

/* A stream keeps the number of copies that it has: this mount may know fewer servers than who made it. */
static int get_replicas(NrdJsConn *conn, const char *stream, int *ret_replicas, char **ret_why)
{
    yajl_val tree = NULL;
    int rc = ask_api(conn, "STREAM.INFO", stream, "", NRD_JS_PATIENCE_MS, &tree, ret_why);
    if (rc < 0)
        return rc;
    int64_t n = get_number(child(tree, "config", yajl_t_object), "num_replicas");
    yajl_tree_free(tree);
    if (n < 1 || n > MAX_REPLICAS)
        return -EIO;
    *ret_replicas = (int)n;
    return 0;
}

int nrd_js_stream_update(NrdJsConn *conn, const char *stream, const char *subject, const NrdJsStreamConfig *config,
                         char **ret_why)
{
    NrdJsStreamConfig own = *config;
    int rc = get_replicas(conn, stream, &own.replicas, ret_why);
    if (rc < 0)
        return rc;
    g_autofree char *json = stream_json(stream, subject, &own);
    return command(conn, "STREAM.UPDATE", stream, json, ret_why);
}

int nrd_js_bucket_create(NrdJsConn *conn, int replicas, char **ret_why)
{
    g_autofree char *json = g_strdup_printf(
        "{\"name\":\"" NRD_JS_KV_STREAM "\",\"subjects\":[\"" NRD_JS_KV_SUBJECT
        ">\"],\"retention\":\"limits\",\"storage\":\"file\","
        "\"discard\":\"new\",\"num_replicas\":%d,\"max_msgs_per_subject\":1,\"max_age\":0,\"max_bytes\":-1,\"max_"
        "msgs\":-1,"
        "\"max_msg_size\":-1,\"max_consumers\":-1,\"duplicate_window\":%" G_GINT64_FORMAT ",\"allow_direct\":true,"
        "\"allow_rollup_hdrs\":true,\"deny_delete\":true}",
        replicas, DUPLICATES_MS * MS_IN_NS);
    return command(conn, "STREAM.CREATE", NRD_JS_KV_STREAM, json, ret_why);
}

int nrd_js_stream_delete(NrdJsConn *conn, const char *stream, char **ret_why)
{
    return command(conn, "STREAM.DELETE", stream, "", ret_why);
}

int nrd_js_stream_info(NrdJsConn *conn, const char *stream, int64_t patience_ms, NrdJsStreamInfo *ret_info,
                       char **ret_why)
{
    yajl_val tree = NULL;
    int rc = ask_api(conn, "STREAM.INFO", stream, "", patience_ms, &tree, ret_why);
    if (rc < 0)
        return rc;
    yajl_val state = child(tree, "state", yajl_t_object);
    const char *created = get_string(tree, "created");
    NrdJsStreamInfo info = {
        .first_seq = (uint64_t)get_number(state, "first_seq"),
        .last_seq = (uint64_t)get_number(state, "last_seq"),
        .messages = (uint64_t)get_number(state, "messages"),
        .bytes = (uint64_t)get_number(state, "bytes"),
    };
    g_strlcpy(info.created, created ? created : "", sizeof info.created);
    if (info.messages > 0)
        info.first_ms = nrd_js_parse_time_ms(get_string(state, "first_ts"));
    if (info.last_seq > 0)
        info.last_ms = nrd_js_parse_time_ms(get_string(state, "last_ts"));
    yajl_tree_free(tree);
    *ret_info = info;
    return 0;
}

/* ---- consumers ---- */

int nrd_js_consumer_create(NrdJsConn *conn, const char *stream, const NrdJsConsumerConfig *config, char **ret_why)
{
    g_autofree char *start =
        config->start_seq == 0
            ? g_strdup("\"deliver_policy\":\"all\"")
            : g_strdup_printf("\"deliver_policy\":\"by_start_sequence\",\"opt_start_seq\":%" G_GUINT64_FORMAT,
                              config->start_seq);
    g_autofree char *json = g_strdup_printf(
        "{\"stream_name\":\"%s\",\"config\":{\"durable_name\":\"" NRD_JS_CONSUMER "\",%s,\"ack_policy\":\"explicit\","
        "\"ack_wait\":%" G_GINT64_FORMAT ",\"max_deliver\":-1,\"max_ack_pending\":%" G_GINT64_FORMAT
        ",\"max_waiting\":%d,\"replay_policy\":\"instant\"}}",
        stream, start, config->ack_wait_ms * MS_IN_NS, config->max_ack_pending, MAX_WAITING);
    g_autofree char *verb = g_strdup("CONSUMER.DURABLE.CREATE");
    g_autofree char *target = g_strdup_printf("%s." NRD_JS_CONSUMER, stream);
    return command(conn, verb, target, json, ret_why);
}

int nrd_js_consumer_delete(NrdJsConn *conn, const char *stream, char **ret_why)
{
    g_autofree char *target = g_strdup_printf("%s." NRD_JS_CONSUMER, stream);
    return command(conn, "CONSUMER.DELETE", target, "", ret_why);
}

int nrd_js_consumer_info(NrdJsConn *conn, const char *stream, int64_t patience_ms, NrdJsConsumerInfo *ret_info,
                         char **ret_why)
{
    yajl_val tree = NULL;
    g_autofree char *target = g_strdup_printf("%s." NRD_JS_CONSUMER, stream);
    int rc = ask_api(conn, "CONSUMER.INFO", target, "", patience_ms, &tree, ret_why);
    if (rc < 0)
        return rc;
    uint64_t floor_seq = (uint64_t)get_number(child(tree, "ack_floor", yajl_t_object), "stream_seq");
    uint64_t start_seq = (uint64_t)get_number(child(tree, "config", yajl_t_object), "opt_start_seq");
    *ret_info = (NrdJsConsumerInfo){
        .floor_seq = MAX(floor_seq, MAX(start_seq, 1) - 1), /* 0 until the first ack */
        .pending = (uint64_t)get_number(tree, "num_pending"),
        .ack_pending = (uint64_t)get_number(tree, "num_ack_pending"),
        .start_seq = start_seq,
    };
    yajl_tree_free(tree);
    return 0;
}

/* ---- messages ---- */

void nrd_js_message_clear(NrdJsMessage *message)
{
    g_clear_pointer(&message->subject, g_free);
    g_clear_pointer(&message->headers, g_hash_table_unref);
    g_clear_pointer(&message->data, g_bytes_unref);
}

/* NATS/1.0\r\nname: value\r\n...\r\n\r\n */
static GHashTable *parse_headers(const char *text)
{
    GHashTable *headers = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    g_auto(GStrv) lines = g_strsplit(text, "\r\n", -1);
    for (char **line = lines[0] ? lines + 1 : lines; *line; line++) {
        char *colon = strchr(*line, ':');
        if (colon)
            g_hash_table_insert(headers, g_strndup(*line, (gsize)(colon - *line)), g_strstrip(g_strdup(colon + 1)));
    }
    return headers;
}

static GBytes *from_base64(const char *text)
{
    gsize size = 0;
    guchar *bytes = text ? g_base64_decode(text, &size) : NULL;
    return g_bytes_new_take(bytes, size);
}

static void read_message(yajl_val tree, NrdJsMessage *ret_message)
{
    const char *headers = get_string(tree, "hdrs");
    *ret_message = (NrdJsMessage){
        .sequence = (uint64_t)get_number(tree, "seq"),
        .time_ms = nrd_js_parse_time_ms(get_string(tree, "time")),
        .subject = g_strdup(get_string(tree, "subject")),
        .data = from_base64(get_string(tree, "data")),
    };
    if (headers) {
        g_autoptr(GBytes) text = from_base64(headers);
        g_autofree char *copy = g_strndup(g_bytes_get_data(text, NULL), g_bytes_get_size(text));
        ret_message->headers = parse_headers(copy);
    }
}

int nrd_js_message_get(NrdJsConn *conn, const char *stream, uint64_t sequence, const char *subject,
                       NrdJsMessage *ret_message, char **ret_why)
{
    yajl_val tree = NULL;
    g_autofree char *json =
        subject ? g_strdup_printf("{\"seq\":%" G_GUINT64_FORMAT ",\"next_by_subj\":\"%s\"}", sequence, subject)
                : g_strdup_printf("{\"seq\":%" G_GUINT64_FORMAT "}", sequence);
    int rc = ask_api(conn, "STREAM.MSG.GET", stream, json, NRD_JS_PATIENCE_MS, &tree, ret_why);
    if (rc == 0)
        read_message(child(tree, "message", yajl_t_object), ret_message);
    yajl_tree_free(tree);
    return rc;
}

int nrd_js_put(NrdJsConn *conn, const char *subject, const void *data, size_t size, bool tombstone, uint64_t expected,
               uint64_t *ret_sequence, char **ret_why)
{
    yajl_val tree = NULL;
    char number[24];
    g_snprintf(number, sizeof number, "%" G_GUINT64_FORMAT, expected);
    g_autofree char *id = g_uuid_string_random(); /* a repetition is the same publish */
    const char *headers[] = {
        "Nats-Msg-Id", id, "Nats-Expected-Last-Subject-Sequence", number, tombstone ? "KV-Operation" : NULL, "DEL", NULL
    };
    int rc = ask_patiently(conn, subject, headers, data, size, NRD_JS_PATIENCE_MS, &tree, ret_why);
    if (rc == 0)
        *ret_sequence = (uint64_t)get_number(tree, "seq");
    yajl_tree_free(tree);
    return rc;
}

int nrd_js_parse_ack_reply(const char *data, size_t size, uint64_t *ret_sequence, char **ret_why)
{
    yajl_val tree = NULL;
    int rc = parse_answer(data, size, &tree, ret_why);
    if (rc == 0 && get_number(tree, "seq") > 0)
        *ret_sequence = (uint64_t)get_number(tree, "seq");
    else if (rc == 0)
        rc = -EIO;
    yajl_tree_free(tree);
    return rc;
}
