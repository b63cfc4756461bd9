/* See api.h. */
#include "engine/jetstream/api.h"

#include "engine/base/clock.h"
#include "engine/jetstream/names.h"

#include <errno.h>
#include <string.h>

#define TRY_MS 5000
#define PAUSE_MS 250
#define STORED_MS 1500 /* in which a message that is published is stored, by a leader that is well */
#define MOST_NUDGES 6
#define NOBODY_MS 2000 /* a server that has just started may not know yet that others have JetStream */
#define MS_IN_NS INT64_C(1000000)
#define NAMES_ON_A_PAGE 1024
#define MAX_WAITING 4096 /* reads that are parked on one partition, over all mounts */

/* ---- asking ---- */

static int no_answer(NrdJsConn *conn, int64_t patience_ms, char **ret_why)
{
    int seconds = (int)(patience_ms / 1000);
    bool up = nrd_js_conn_is_up(conn);
    if (!ret_why || *ret_why)
        return -EIO;
    if (seconds == 0)
        *ret_why = g_strdup(up ? "the NATS servers give no answer" : "no NATS server can be reached");
    else
        *ret_why = g_strdup_printf(up ? "the NATS servers gave no answer within %d s: most of them may be down, or "
                                        "JetStream is off"
                                      : "no NATS server could be reached for %d s",
                                   seconds);
    return -EIO;
}

#define NEVER "4611686018427387904" /* 2^62: no stream ends there */

static const char *const never[] = { "Nats-Expected-Last-Sequence", NEVER, NULL };

void nrd_js_nudge(NrdJsConn *conn, const char *subject, unsigned n)
{
    for (; n > 0; n--)
        nrd_js_tell_headers(conn, subject, never);
}

/* What is asked until there is an answer. */
typedef struct Question {
    const char *subject;
    const char *const *headers; /* as of nrd_js_request */
    const void *data;
    size_t size;
    bool stores;       /* it is published to a stream */
    unsigned n_nudges; /* that were sent for it, each four times as much as the one before */
    bool open;         /* it may have come there without an answer */
    NrdJsReadFn *read;
    void *ret_value;
} Question;

static void nudge(NrdJsConn *conn, Question *question)
{
    if (question->stores && question->n_nudges < MOST_NUDGES)
        nrd_js_nudge(conn, question->subject, 1u << (2 * question->n_nudges++));
}

/* Until there is an answer, whatever it says, or no patience left. */
static int ask_for(NrdJsConn *conn, Question *question, int64_t patience_ms, char **ret_why)
{
    int64_t deadline_ms = nrd_clock_mono_ms() + patience_ms;
    int64_t try_ms = question->stores ? STORED_MS : TRY_MS;
    if (ret_why)
        g_clear_pointer(ret_why, g_free);
    for (;;) {
        natsMsg *msg = NULL;
        int64_t left_ms = deadline_ms - nrd_clock_mono_ms();
        int rc = nrd_js_ask(conn, question->subject, question->headers, question->data, question->size,
                            CLAMP(left_ms, 1, try_ms), &msg);
        if (rc == 0) {
            rc = question->read(natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg), question->ret_value, ret_why);
            natsMsg_Destroy(msg);
        }
        if (rc == -ETIMEDOUT || rc == -ENODEV)
            question->open = true;
        if (rc != -EAGAIN && rc != -ETIMEDOUT)
            return rc;
        if (rc == -ETIMEDOUT)
            nudge(conn, question);
        if (nrd_clock_mono_ms() + PAUSE_MS >= deadline_ms)
            return no_answer(conn, patience_ms, ret_why);
        if (!nrd_js_pause(conn, PAUSE_MS))
            return -ENODEV;
    }
}

static int ask_api(NrdJsConn *conn, const char *verb, const char *stream, const char *json, int64_t patience_ms,
                   NrdJsReadFn *read, void *ret_value, char **ret_why)
{
    g_autofree char *subject = g_strdup_printf("$JS.API.%s.%s", verb, stream);
    Question question = {
        .subject = subject, .data = json, .size = strlen(json), .read = read, .ret_value = ret_value
    };
    return ask_for(conn, &question, patience_ms, ret_why);
}

/* For requests whose answer says nothing but whether they succeeded. */
static int command(NrdJsConn *conn, const char *verb, const char *stream, const char *json, char **ret_why)
{
    return ask_api(conn, verb, stream, json, NRD_JS_PATIENCE_MS, nrd_js_read_success, NULL, ret_why);
}

/* ---- whether it is there ---- */

#define NO_JETSTREAM                                                                                                   \
    "turn it on (jetstream { store_dir: ... } in the configuration of nats-server, and jetstream: enabled for the "    \
    "account of this mount's user, where there are accounts), or name servers that have it"

/* By a question that each mount has to ask: others may not be allowed to it. -EAGAIN: nobody is there to answer it; *ret_why
 * (g_free): it is off by what they answer. What else they say is told by who asks next. */
static int ask_whether(NrdJsConn *conn, char **ret_why)
{
    natsMsg *msg = NULL;
    int rc = nrd_js_ask(conn, "$JS.API.STREAM.INFO." NRD_JS_KV_STREAM, NULL, "", 0, TRY_MS, &msg);
    if (rc < 0)
        return rc == -EAGAIN && !nrd_js_conn_is_up(conn) ? -ETIMEDOUT : rc;
    const char *data = natsMsg_GetData(msg);
    size_t size = (size_t)natsMsg_GetDataLength(msg);
    if (nrd_js_says_not_enabled(data, size))
        rc = nrd_js_read_success(data, size, NULL, ret_why);
    natsMsg_Destroy(msg);
    return rc;
}

int nrd_js_check_jetstream(NrdJsConn *conn, char **ret_why)
{
    int64_t until_ms = nrd_clock_mono_ms() + NOBODY_MS;
    g_autofree char *why = NULL;
    int rc;
    while ((rc = ask_whether(conn, &why)) == -EAGAIN && nrd_clock_mono_ms() < until_ms)
        if (!nrd_js_pause(conn, PAUSE_MS))
            return -ENODEV;
    if (rc == -EAGAIN)
        *ret_why = g_strdup("the NATS servers run without JetStream: " NO_JETSTREAM);
    else if (why)
        *ret_why = g_strdup_printf("%s: " NO_JETSTREAM, why);
    return *ret_why ? -EIO : 0;
}

/* ---- streams ---- */

/* The servers want to know ids no longer than they keep messages. */
static char *stream_json(const char *stream, const char *subject, const NrdJsStreamConfig *config)
{
    int64_t max_age_ms = MIN(config->max_age_ms, INT64_MAX / MS_IN_NS); /* 292 years */
    int64_t duplicates_ms =
        config->max_age_ms > 0 ? MIN(config->max_age_ms, NRD_JS_DUPLICATES_MS) : NRD_JS_DUPLICATES_MS;
    return g_strdup_printf(
        "{\"name\":\"%s\",\"description\":\"%s\",\"subjects\":[\"%s\"],\"retention\":\"limits\","
        "\"storage\":\"%s\",\"discard\":\"old\",\"num_replicas\":%d,\"max_age\":%" G_GINT64_FORMAT
        ",\"max_bytes\":%" G_GINT64_FORMAT ",\"max_msgs\":-1,\"max_msg_size\":-1,\"max_consumers\":-1,"
        "\"duplicate_window\":%" G_GINT64_FORMAT ",\"allow_direct\":true,\"deny_delete\":true}",
        stream, config->description, subject, config->in_memory ? "memory" : "file", config->replicas,
        max_age_ms * MS_IN_NS, config->max_bytes > 0 ? config->max_bytes : -1, duplicates_ms * MS_IN_NS);
}

int nrd_js_stream_create(NrdJsConn *conn, const char *stream, const char *subject, const NrdJsStreamConfig *config,
                         char **ret_why)
{
    g_autofree char *json = stream_json(stream, subject, config);
    return command(conn, "STREAM.CREATE", stream, json, ret_why);
}

int nrd_js_stream_keep_copies(NrdJsConn *conn, const char *stream, NrdJsStreamConfig *config, char **ret_why)
{
    NrdJsStreamInfo info;
    int rc = nrd_js_stream_info(conn, stream, NRD_JS_PATIENCE_MS, &info, ret_why);
    if (rc < 0)
        return rc;
    config->replicas = info.replicas;
    config->in_memory = info.in_memory;
    return 0;
}

int nrd_js_stream_update(NrdJsConn *conn, const char *stream, const char *subject, const NrdJsStreamConfig *config,
                         char **ret_why)
{
    NrdJsStreamConfig own = *config;
    int rc = nrd_js_stream_keep_copies(conn, stream, &own, ret_why);
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
        replicas, NRD_JS_DUPLICATES_MS * MS_IN_NS);
    return command(conn, "STREAM.CREATE", NRD_JS_KV_STREAM, json, ret_why);
}

int nrd_js_stream_delete(NrdJsConn *conn, const char *stream, char **ret_why)
{
    return command(conn, "STREAM.DELETE", stream, "", ret_why);
}

int nrd_js_stream_info(NrdJsConn *conn, const char *stream, int64_t patience_ms, NrdJsStreamInfo *ret_info,
                       char **ret_why)
{
    return ask_api(conn, "STREAM.INFO", stream, "", patience_ms, nrd_js_read_stream, ret_info, ret_why);
}

/* ---- consumers ---- */

int nrd_js_consumer_create(NrdJsConn *conn, const char *stream, const char *consumer, const NrdJsConsumerConfig *config,
                           char **ret_why)
{
    g_autofree char *start =
        config->start_seq == 0
            ? g_strdup("\"deliver_policy\":\"all\"")
            : g_strdup_printf("\"deliver_policy\":\"by_start_sequence\",\"opt_start_seq\":%" G_GUINT64_FORMAT,
                              config->start_seq);
    g_autofree char *json =
        g_strdup_printf("{\"stream_name\":\"%s\",\"config\":{\"durable_name\":\"%s\",%s,\"ack_policy\":\"explicit\","
                        "\"ack_wait\":%" G_GINT64_FORMAT ",\"max_deliver\":-1,\"max_ack_pending\":%" G_GINT64_FORMAT
                        ",\"max_waiting\":%d,\"replay_policy\":\"instant\"}}",
                        stream, consumer, start, config->ack_wait_ms * MS_IN_NS, config->max_ack_pending, MAX_WAITING);
    g_autofree char *target = g_strdup_printf("%s.%s", stream, consumer);
    return command(conn, "CONSUMER.DURABLE.CREATE", target, json, ret_why);
}

int nrd_js_consumer_delete(NrdJsConn *conn, const char *stream, const char *consumer, char **ret_why)
{
    g_autofree char *target = g_strdup_printf("%s.%s", stream, consumer);
    return command(conn, "CONSUMER.DELETE", target, "", ret_why);
}

int nrd_js_consumer_info(NrdJsConn *conn, const char *stream, const char *consumer, int64_t patience_ms,
                         NrdJsConsumerInfo *ret_info, char **ret_why)
{
    g_autofree char *target = g_strdup_printf("%s.%s", stream, consumer);
    return ask_api(conn, "CONSUMER.INFO", target, "", patience_ms, nrd_js_read_consumer, ret_info, ret_why);
}

/* Page by page. */
int nrd_js_consumer_names(NrdJsConn *conn, const char *stream, int64_t patience_ms, GPtrArray **ret_names,
                          char **ret_why)
{
    g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
    guint before;
    int rc;
    do {
        g_autofree char *json = g_strdup_printf("{\"offset\":%u}", names->len);
        before = names->len;
        rc = ask_api(conn, "CONSUMER.NAMES", stream, json, patience_ms, nrd_js_read_names, names, ret_why);
    } while (rc == 0 && names->len - before >= NAMES_ON_A_PAGE);
    if (rc == 0)
        *ret_names = g_steal_pointer(&names);
    return rc;
}

/* ---- messages ---- */

int nrd_js_message_get(NrdJsConn *conn, const char *stream, uint64_t sequence, const char *subject,
                       NrdJsMessage *ret_message, char **ret_why)
{
    g_autofree char *json =
        subject ? g_strdup_printf("{\"seq\":%" G_GUINT64_FORMAT ",\"next_by_subj\":\"%s\"}", sequence, subject)
                : g_strdup_printf("{\"seq\":%" G_GUINT64_FORMAT "}", sequence);
    NrdJsMessage message;
    int rc = ask_api(conn, "STREAM.MSG.GET", stream, json, NRD_JS_PATIENCE_MS, nrd_js_read_message, &message, ret_why);
    if (rc < 0)
        return rc;
    if (message.sequence < sequence || (!subject && message.sequence > sequence)) {
        if (ret_why)
            g_free(*ret_why);
        if (ret_why)
            *ret_why = g_strdup("the NATS servers answered with another message than the one that was asked for");
        nrd_js_message_clear(&message);
        return -EIO;
    }
    *ret_message = message;
    return 0;
}

int nrd_js_put(NrdJsConn *conn, const char *subject, const void *data, size_t size, const NrdJsPut *how,
               uint64_t *ret_sequence, bool *ret_open, char **ret_why)
{
    char number[24];
    const char *headers[11] = { NULL };
    int n = 0;
    g_snprintf(number, sizeof number, "%" G_GUINT64_FORMAT, how->last_seq);
    g_autofree char *id = g_uuid_string_random(); /* a repetition is the same publish */
    headers[n++] = NRD_JS_ID_HEADER;
    headers[n++] = id;
    headers[n++] = "Nats-Expected-Last-Sequence";
    headers[n++] = number;
    if (how->first) {
        headers[n++] = "Nats-Expected-Last-Subject-Sequence";
        headers[n++] = "0";
    }
    if (how->tombstone) {
        headers[n++] = "KV-Operation";
        headers[n++] = "DEL";
    }
    Question question = { .subject = subject,
                          .headers = headers,
                          .data = data,
                          .size = size,
                          .stores = true,
                          .read = nrd_js_read_published,
                          .ret_value = ret_sequence };
    int rc = ask_for(conn, &question, NRD_JS_PATIENCE_MS, ret_why);
    *ret_open |= question.open;
    return rc;
}

int nrd_js_probe_last(NrdJsConn *conn, const char *subject, int64_t patience_ms, unsigned *n_nudges, uint64_t *ret_last,
                      char **ret_why)
{
    Question question = { .subject = subject,
                          .headers = never,
                          .data = "",
                          .stores = true,
                          .n_nudges = *n_nudges,
                          .read = nrd_js_read_wrong_last,
                          .ret_value = ret_last };
    int rc = ask_for(conn, &question, patience_ms, ret_why);
    *n_nudges = question.n_nudges;
    return rc;
}
