/* What NATS servers answer, the subjects that settle, times, and lists of servers: nothing is believed that means nothing, and
 * what is passed on of an answer is one short line.
 * Input: which of them, the text. */
#include "fuzz.h"

#include "engine/base/url.h"
#include "engine/jetstream/answers.h"
#include "engine/jetstream/names.h"

#include <errno.h>
#include <string.h>

enum { STREAM, CONSUMER, MESSAGE, PUBLISHED, SUCCESS, ACK, TIME, SERVERS, N_KINDS };

#define UNTOUCHED 0x5a

static bool is_error(int rc)
{
    return rc == -ENOENT || rc == -EEXIST || rc == -EBUSY || rc == -ENOSPC || rc == -EAGAIN || rc == -EIO;
}

static void check_line(const char *why)
{
    FUZZ_CHECK(why && *why && strlen(why) < 1024 && g_utf8_validate(why, -1, NULL));
    for (const char *c = why; *c; c++)
        FUZZ_CHECK(!g_ascii_iscntrl(*c));
}

/* Reads it, and that is all that it does when it fails. Whether it was good. */
static bool reads(NrdJsReadFn *read, const uint8_t *text, size_t size, void *ret_value, size_t value_size)
{
    char *why = g_strdup("what was said before");
    memset(ret_value, UNTOUCHED, value_size);
    int rc = read((const char *)text, size, ret_value, &why);
    FUZZ_CHECK(rc == 0 || is_error(rc));
    if (rc < 0)
        check_line(why);
    for (size_t i = 0; rc < 0 && i < value_size; i++)
        FUZZ_CHECK(((const uint8_t *)ret_value)[i] == UNTOUCHED);
    g_free(why);
    return rc == 0;
}

/* The number stands in the text, digit by digit. */
static bool stands_in(uint64_t number, const uint8_t *text, size_t size)
{
    char digits[24];
    g_snprintf(digits, sizeof digits, "%" G_GUINT64_FORMAT, number);
    return memmem(text, size, digits, strlen(digits)) != NULL;
}

static void check_stream(const uint8_t *text, size_t size)
{
    NrdJsStreamInfo info;
    if (!reads(nrd_js_read_stream, text, size, &info, sizeof info))
        return;
    FUZZ_CHECK(info.replicas >= 1 && info.replicas <= 5 && stands_in((uint64_t)info.replicas, text, size));
    FUZZ_CHECK(memchr(info.created, 0, sizeof info.created) != NULL);
    FUZZ_CHECK(info.messages <= info.last_seq && info.last_seq <= INT64_MAX && info.bytes <= INT64_MAX);
    FUZZ_CHECK(info.last_seq == 0 || (info.first_seq <= info.last_seq + 1 && stands_in(info.last_seq, text, size)));
}

static void check_consumer(const uint8_t *text, size_t size)
{
    NrdJsConsumerInfo info;
    if (!reads(nrd_js_read_consumer, text, size, &info, sizeof info))
        return;
    FUZZ_CHECK(info.floor_seq <= INT64_MAX && info.pending <= INT64_MAX && info.ack_pending <= INT64_MAX);
    FUZZ_CHECK(info.start_seq == 0 || info.floor_seq >= info.start_seq - 1);
}

static void check_message(const uint8_t *text, size_t size)
{
    NrdJsMessage message;
    if (!reads(nrd_js_read_message, text, size, &message, sizeof message))
        return;
    FUZZ_CHECK(message.sequence > 0 && stands_in(message.sequence, text, size));
    FUZZ_CHECK(message.subject && message.data && g_bytes_get_size(message.data) <= size);
    nrd_js_message_clear(&message);
    FUZZ_CHECK(!message.subject && !message.data && !message.headers);
}

static void check_published(const uint8_t *text, size_t size)
{
    uint64_t sequence;
    if (reads(nrd_js_read_published, text, size, &sequence, sizeof sequence))
        FUZZ_CHECK(sequence > 0 && stands_in(sequence, text, size));
}

static void check_ack(const char *text)
{
    NrdJsAckSubject parts, again;
    int rc = nrd_js_parse_ack(text, &parts);
    FUZZ_CHECK(rc == 0 || rc == -EINVAL);
    if (rc < 0)
        return;
    g_autofree char *consumer = nrd_js_consumer_name(parts.generation);
    g_autofree char *plain =
        g_strdup_printf("$JS.ACK.narad_t_p%05u.%s.%" G_GUINT64_FORMAT ".%" G_GUINT64_FORMAT ".1.%" G_GINT64_FORMAT
                        ".%" G_GUINT64_FORMAT,
                        parts.partition, consumer, parts.n_delivered, parts.sequence, parts.time_ns, parts.n_pending);
    FUZZ_CHECK(g_str_has_prefix(text, "$JS.ACK."));
    FUZZ_CHECK(parts.sequence > 0 && parts.n_delivered > 0 && parts.time_ns >= 0);
    FUZZ_CHECK(nrd_js_parse_ack(plain, &again) == 0);
    FUZZ_CHECK(parts.partition == again.partition && parts.sequence == again.sequence);
    FUZZ_CHECK(parts.time_ns == again.time_ns && parts.n_delivered == again.n_delivered);
    FUZZ_CHECK(parts.n_pending == again.n_pending && parts.generation == again.generation);
}

/* What is taken is a list that is taken again, without whom it is for. */
static void check_servers(const char *text)
{
    NrdServers servers, again;
    char *why = NULL;
    int rc = nrd_servers_parse(text, &servers, &why);
    FUZZ_CHECK(rc == 0 || rc == -EINVAL);
    if (rc < 0) {
        check_line(why);
        g_free(why);
        return;
    }
    g_autofree char *plain = g_strjoinv(",", servers.addresses);
    FUZZ_CHECK(servers.addresses[0] && !strchr(plain, '@'));
    FUZZ_CHECK(!servers.password || servers.user);
    FUZZ_CHECK(nrd_servers_parse(plain, &again, &why) == 0 && !again.user && !again.tls);
    FUZZ_CHECK(g_strv_equal((const char *const *)servers.addresses, (const char *const *)again.addresses));
    nrd_servers_clear(&again);
    nrd_servers_clear(&servers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t kind = fuzz_u8(&in) % N_KINDS;
    size_t n;
    g_autofree uint8_t *text = fuzz_rest(&in, &n);
    g_autofree char *string = g_strndup((const char *)text, n);
    uint8_t nothing;
    switch (kind) {
    case STREAM:
        check_stream(text, n);
        break;
    case CONSUMER:
        check_consumer(text, n);
        break;
    case MESSAGE:
        check_message(text, n);
        break;
    case PUBLISHED:
        check_published(text, n);
        break;
    case SUCCESS:
        (void)reads(nrd_js_read_success, text, n, &nothing, sizeof nothing);
        break;
    case ACK:
        check_ack(string);
        break;
    case TIME:
        FUZZ_CHECK(nrd_js_parse_time_ms(string) < INT64_C(253402300800000)); /* the year 10000 */
        break;
    default:
        check_servers(string);
    }
    return 0;
}
