/* See names.h. */
#include "engine/jetstream/names.h"

#include <errno.h>
#include <glib.h>
#include <stdbool.h>
#include <string.h>

char *nrd_js_encode_topic(const char *topic)
{
    return g_strdelimit(g_strdup(topic), ".", '=');
}

char *nrd_js_decode_topic(const char *text)
{
    return g_strdelimit(g_strdup(text), "=", '.');
}

char *nrd_js_stream_name(const char *topic, const char *id, uint32_t partition)
{
    g_autofree char *name = nrd_js_encode_topic(topic);
    return g_strdup_printf("narad_%s_%s_p%05u", name, id, partition);
}

char *nrd_js_subject(const char *topic, const char *id, uint32_t partition)
{
    g_autofree char *name = nrd_js_encode_topic(topic);
    return g_strdup_printf("narad.%s.%s.p%05u", name, id, partition);
}

char *nrd_js_consumer_name(uint64_t generation)
{
    return generation == 0 ? g_strdup(NRD_JS_CONSUMER)
                           : g_strdup_printf(NRD_JS_CONSUMER "_%" G_GUINT64_FORMAT, generation);
}

bool nrd_js_parse_consumer(const char *name, uint64_t *ret_generation)
{
    const char *rest = g_str_has_prefix(name, NRD_JS_CONSUMER) ? name + strlen(NRD_JS_CONSUMER) : NULL;
    guint64 generation = 0;
    if (!rest || (*rest != '\0' && *rest != '_') ||
        (*rest == '_' && !g_ascii_string_to_unsigned(rest + 1, 10, 1, G_MAXUINT64, &generation, NULL)))
        return false;
    *ret_generation = generation;
    return true;
}

#define CLOSED ".closed"

char *nrd_js_closed_subject(const char *subject, const char *remover)
{
    return g_strconcat(subject, CLOSED ".", remover, NULL);
}

/* A topic may be called "closed": it is the fifth word that counts. */
bool nrd_js_parse_closed(const char *subject, const char **ret_remover)
{
    const char *rest = subject;
    for (int i = 0; rest && i < 4; i++)
        rest = strchr(rest + (i > 0), '.');
    if (!rest || !g_str_has_prefix(rest, CLOSED) || (rest[strlen(CLOSED)] != '\0' && rest[strlen(CLOSED)] != '.'))
        return false;
    rest += strlen(CLOSED);
    *ret_remover = *rest == '.' ? rest + 1 : rest;
    return true;
}

static bool partition_of_stream(const char *stream, uint32_t *ret_partition)
{
    const char *end = strrchr(stream, '_');
    guint64 number;
    if (!end || end[1] != 'p' || !g_ascii_string_to_unsigned(end + 2, 10, 0, G_MAXUINT32, &number, NULL))
        return false;
    *ret_partition = (uint32_t)number;
    return true;
}

/* $JS ACK stream consumer delivered sequence consumer-sequence time pending, or $JS ACK domain account stream ... pending
 * and perhaps a random token. */
int nrd_js_parse_ack(const char *subject, NrdJsAckSubject *ret_parts)
{
    g_auto(GStrv) tokens = g_strsplit(subject, ".", -1);
    guint n = g_strv_length(tokens);
    if (n < 9 || n == 10 || strcmp(tokens[0], "$JS") != 0 || strcmp(tokens[1], "ACK") != 0)
        return -EINVAL;
    char **names = tokens + (n == 9 ? 2 : 4);
    uint32_t partition;
    uint64_t generation;
    guint64 delivered, sequence, time_ns, pending;
    if (!partition_of_stream(names[0], &partition) || !nrd_js_parse_consumer(names[1], &generation) ||
        !g_ascii_string_to_unsigned(names[2], 10, 1, G_MAXUINT64, &delivered, NULL) ||
        !g_ascii_string_to_unsigned(names[3], 10, 1, G_MAXUINT64, &sequence, NULL) ||
        !g_ascii_string_to_unsigned(names[5], 10, 0, G_MAXINT64, &time_ns, NULL) ||
        !g_ascii_string_to_unsigned(names[6], 10, 0, G_MAXUINT64, &pending, NULL))
        return -EINVAL;
    *ret_parts = (NrdJsAckSubject){ partition, generation, sequence, (int64_t)time_ns, delivered, pending };
    return 0;
}

int64_t nrd_js_parse_time_ms(const char *text)
{
    g_autoptr(GDateTime) time = text ? g_date_time_new_from_iso8601(text, NULL) : NULL;
    return time ? g_date_time_to_unix(time) * 1000 + g_date_time_get_microsecond(time) / 1000 : 0;
}
