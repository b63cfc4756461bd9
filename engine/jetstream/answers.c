/* See answers.h. */
#include "engine/jetstream/answers.h"

#include "engine/jetstream/names.h"

#include <errno.h>
#include <string.h>
#include <yajl/yajl_tree.h>

#define NS_IN_MS 1000000
#define MAX_DEPTH 64 /* of JSON in JSON: the parser frees a tree by calling itself */
#define MAX_SAID 200 /* bytes of what a server says that are passed on */
#define AWAY_NS INT64_C(2000000000)
#define MAX_REPLICAS 5

/* ---- JSON ---- */

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

/* 0 also for what is below. */
static uint64_t get_count(yajl_val tree, const char *name)
{
    return (uint64_t)MAX(get_number(tree, name), 0);
}

static const char *get_string(yajl_val tree, const char *name)
{
    yajl_val value = child(tree, name, yajl_t_string);
    return value ? YAJL_GET_STRING(value) : NULL;
}

static bool is_true(yajl_val tree, const char *name)
{
    return YAJL_IS_TRUE(child(tree, name, yajl_t_any));
}

static bool is_too_deep(const char *text)
{
    unsigned depth = 0;
    bool in_string = false;
    for (const char *c = text; *c; c++) {
        if (in_string && *c == '\\' && c[1])
            c++;
        else if (*c == '"')
            in_string = !in_string;
        else if (!in_string && (*c == '[' || *c == '{') && ++depth > MAX_DEPTH)
            return true;
        else if (!in_string && (*c == ']' || *c == '}') && depth > 0)
            depth--;
    }
    return false;
}

/* ---- errors ---- */

enum {
    NOT_ENABLED = 10076,            /* JetStream is off; the code is 503, but waiting does not help */
    NOT_ENABLED_FOR_ACCOUNT = 10039 /* ... the same, for the account of who asks */
};

static int error_of(int64_t code, int64_t err_code)
{
    switch (err_code) {
    case 10005: /* no suitable peers: of servers that have just started */
    case 10008: /* temporarily unavailable */
    case 10009:
    case 10158: /* the first copy of a message that was sent again is still under way */
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
    case NOT_ENABLED:
    case NOT_ENABLED_FOR_ACCOUNT:
        return -EIO;
    default:
        return code == 404 ? -ENOENT : code == 503 ? -EAGAIN : -EIO;
    }
}

/* One line, and not a long one: it goes into logs and into `status`. */
static char *quote(const char *said)
{
    g_autofree char *text = g_strndup(said, MAX_SAID);
    char *valid = g_utf8_make_valid(text, -1); /* the last character may be cut */
    for (char *c = valid; *c; c++)
        if (g_ascii_iscntrl(*c))
            *c = '?';
    return valid;
}

static int refuse(const char *said, int error, char **ret_why)
{
    g_autofree char *quoted = quote(said);
    if (ret_why) {
        g_free(*ret_why);
        *ret_why = g_strdup_printf("the NATS servers answered: %s", quoted);
    }
    return error;
}

static yajl_val parse(const char *data, size_t size)
{
    g_autofree char *text = g_strndup(data, size);
    return is_too_deep(text) ? NULL : yajl_tree_parse(text, NULL, 0);
}

/* 0: it is no error, and *ret_tree is the caller's. */
static int parse_answer(const char *data, size_t size, yajl_val *ret_tree, char **ret_why)
{
    yajl_val tree = parse(data, size);
    yajl_val error = child(tree, "error", yajl_t_object);
    if (YAJL_IS_OBJECT(tree) && !error) {
        *ret_tree = tree;
        return 0;
    }
    const char *said = error ? get_string(error, "description") : NULL;
    int rc = refuse(said ? said : "something that is no JSON",
                    error ? error_of(get_number(error, "code"), get_number(error, "err_code")) : -EIO, ret_why);
    yajl_tree_free(tree);
    return rc;
}

/* ---- the answers ---- */

int nrd_js_read_success(const char *data, size_t size, void *ret_value, char **ret_why)
{
    yajl_val tree = NULL;
    int rc = parse_answer(data, size, &tree, ret_why);
    yajl_tree_free(tree);
    return rc;
}

bool nrd_js_says_not_enabled(const char *data, size_t size)
{
    yajl_val tree = parse(data, size);
    int64_t err_code = get_number(child(tree, "error", yajl_t_object), "err_code");
    yajl_tree_free(tree);
    return err_code == NOT_ENABLED || err_code == NOT_ENABLED_FOR_ACCOUNT;
}

static void read_closed(yajl_val config, NrdJsStreamInfo *ret_info)
{
    yajl_val subjects = child(config, "subjects", yajl_t_array);
    const char *first = subjects && subjects->u.array.len > 0 ? YAJL_GET_STRING(subjects->u.array.values[0]) : NULL;
    const char *remover;
    ret_info->closed = first && nrd_js_parse_closed(first, &remover);
    if (ret_info->closed)
        g_strlcpy(ret_info->closed_by, remover, sizeof ret_info->closed_by);
}

/* One that is only busy is behind for a moment, too, and heard of. */
static bool is_away(yajl_val replica)
{
    return is_true(replica, "offline") || (!is_true(replica, "current") && get_number(replica, "active") >= AWAY_NS);
}

/* One server alone says nothing of a cluster. */
static void read_cluster(yajl_val cluster, NrdJsStreamInfo *ret_info)
{
    const char *leader = get_string(cluster, "leader");
    yajl_val replicas = child(cluster, "replicas", yajl_t_array);
    if (leader) {
        g_autofree char *quoted = quote(leader);
        g_strlcpy(ret_info->leader, quoted, sizeof ret_info->leader);
    }
    for (size_t i = 0; replicas && i < YAJL_GET_ARRAY(replicas)->len; i++)
        ret_info->lags |= is_away(YAJL_GET_ARRAY(replicas)->values[i]);
}

static int stream_of(yajl_val tree, NrdJsStreamInfo *ret_info)
{
    yajl_val state = child(tree, "state", yajl_t_object);
    yajl_val config = child(tree, "config", yajl_t_object);
    const char *created = get_string(tree, "created");
    const char *storage = get_string(config, "storage");
    int64_t replicas = get_number(config, "num_replicas");
    NrdJsStreamInfo info = {
        .first_seq = get_count(state, "first_seq"),
        .last_seq = get_count(state, "last_seq"),
        .messages = get_count(state, "messages"),
        .bytes = get_count(state, "bytes"),
        .duplicates_ms = (int64_t)(get_count(config, "duplicate_window") / NS_IN_MS),
        .replicas = (int)replicas,
        .in_memory = g_strcmp0(storage, "file") != 0,
    };
    if (!state || !created || strlen(created) >= sizeof info.created || replicas < 1 || replicas > MAX_REPLICAS ||
        (info.last_seq > 0 && info.first_seq > info.last_seq + 1) || info.messages > info.last_seq)
        return -EIO;
    g_strlcpy(info.created, created, sizeof info.created);
    read_closed(config, &info);
    read_cluster(child(tree, "cluster", yajl_t_object), &info);
    if (info.messages > 0)
        info.first_ms = nrd_js_parse_time_ms(get_string(state, "first_ts"));
    if (info.last_seq > 0)
        info.last_ms = nrd_js_parse_time_ms(get_string(state, "last_ts"));
    *ret_info = info;
    return 0;
}

int nrd_js_read_stream(const char *data, size_t size, void *ret_value, char **ret_why)
{
    yajl_val tree = NULL;
    int rc = parse_answer(data, size, &tree, ret_why);
    if (rc == 0 && stream_of(tree, ret_value) < 0)
        rc = refuse("something that describes no stream", -EIO, ret_why);
    yajl_tree_free(tree);
    return rc;
}

int nrd_js_read_consumer(const char *data, size_t size, void *ret_value, char **ret_why)
{
    yajl_val tree = NULL;
    int rc = parse_answer(data, size, &tree, ret_why);
    yajl_val config = child(tree, "config", yajl_t_object);
    yajl_val floor = child(tree, "ack_floor", yajl_t_object);
    if (rc == 0 && (!config || !floor))
        rc = refuse("something that describes no consumer", -EIO, ret_why);
    if (rc == 0) {
        uint64_t start_seq = get_count(config, "opt_start_seq");
        *(NrdJsConsumerInfo *)ret_value = (NrdJsConsumerInfo){
            .floor_seq = MAX(get_count(floor, "stream_seq"), MAX(start_seq, 1) - 1), /* 0 until the first ack */
            .pending = get_count(tree, "num_pending"),
            .ack_pending = get_count(tree, "num_ack_pending"),
            .start_seq = start_seq,
            .created_ms = nrd_js_parse_time_ms(get_string(tree, "created")),
            .ack_wait_ms = (int64_t)(get_count(config, "ack_wait") / NS_IN_MS),
            .max_ack_pending = get_number(config, "max_ack_pending"),
        };
    }
    yajl_tree_free(tree);
    return rc;
}

int nrd_js_read_names(const char *data, size_t size, void *ret_value, char **ret_why)
{
    yajl_val tree = NULL;
    int rc = parse_answer(data, size, &tree, ret_why);
    yajl_val names = child(tree, "consumers", yajl_t_array);
    for (size_t i = 0; names && i < YAJL_GET_ARRAY(names)->len; i++) {
        yajl_val name = YAJL_GET_ARRAY(names)->values[i];
        if (YAJL_IS_STRING(name))
            g_ptr_array_add(ret_value, g_strdup(YAJL_GET_STRING(name)));
    }
    yajl_tree_free(tree);
    return rc;
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

static void take_message(yajl_val tree, NrdJsMessage *ret_message)
{
    const char *headers = get_string(tree, "hdrs");
    *ret_message = (NrdJsMessage){
        .sequence = get_count(tree, "seq"),
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

int nrd_js_read_message(const char *data, size_t size, void *ret_value, char **ret_why)
{
    yajl_val tree = NULL;
    int rc = parse_answer(data, size, &tree, ret_why);
    yajl_val message = child(tree, "message", yajl_t_object);
    if (rc == 0 && (get_count(message, "seq") == 0 || !get_string(message, "subject")))
        rc = refuse("something that is no message", -EIO, ret_why);
    if (rc == 0)
        take_message(message, ret_value);
    yajl_tree_free(tree);
    return rc;
}

static int read_published(const char *data, size_t size, uint64_t *ret_sequence, bool *ret_duplicate, char **ret_why)
{
    yajl_val tree = NULL;
    int rc = parse_answer(data, size, &tree, ret_why);
    uint64_t sequence = get_count(tree, "seq");
    bool duplicate = is_true(tree, "duplicate");
    if (rc == 0 && sequence == 0 && duplicate)
        rc = refuse("a repetition of what is not stored yet", -EAGAIN, ret_why);
    if (rc == 0 && sequence == 0)
        rc = refuse("something that promises nothing", -EIO, ret_why);
    if (rc == 0) {
        *ret_sequence = sequence;
        *ret_duplicate = duplicate;
    }
    yajl_tree_free(tree);
    return rc;
}

#define WRONG_LAST "wrong last sequence: "

int nrd_js_read_wrong_last(const char *data, size_t size, void *ret_value, char **ret_why)
{
    yajl_val tree = NULL;
    g_autofree char *why = NULL;
    guint64 last;
    int rc = parse_answer(data, size, &tree, &why);
    yajl_tree_free(tree);
    const char *said = rc == -EBUSY ? strstr(why, WRONG_LAST) : NULL;
    if (said && g_ascii_string_to_unsigned(said + strlen(WRONG_LAST), 10, 0, G_MAXUINT64, &last, NULL)) {
        *(uint64_t *)ret_value = last;
        return 0;
    }
    if (ret_why) {
        g_free(*ret_why);
        *ret_why = why ? g_steal_pointer(&why) : g_strdup("the NATS servers stored what they were to refuse");
    }
    return rc == 0 || rc == -EBUSY ? -EIO : rc;
}

int nrd_js_read_published(const char *data, size_t size, void *ret_value, char **ret_why)
{
    bool duplicate;
    return read_published(data, size, ret_value, &duplicate, ret_why);
}

int nrd_js_parse_ack_reply(const char *data, size_t size, uint64_t *ret_sequence, bool *ret_duplicate, char **ret_why)
{
    return read_published(data, size, ret_sequence, ret_duplicate, ret_why);
}
