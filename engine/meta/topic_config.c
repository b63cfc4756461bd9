/* The one table of settings: names, defaults, ranges. Everything else here walks it. */
#include "engine/meta/topic_config.h"

#include "engine/base/diag.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define DAY_MS ((int64_t)24 * 60 * 60 * 1000)
#define N_KEYS 13

typedef struct Key {
    const char *name;
    size_t at; /* offsetof in NrdTopicConfig, an int64_t */
    int64_t initial;
    int64_t min;
    int64_t max;
    bool zero_too;            /* 0 is allowed below min: "no limit" */
    const char *const *words; /* values by name, 0, 1, ..., or NULL for numbers */
} Key;

static const char *const codec_words[] = { "none", "zstd", NULL };

#define AT(field) #field, offsetof(NrdTopicConfig, field)

static const Key keys[N_KEYS] = {
    { AT(partitions), 1, 1, 1024, false, NULL },
    { AT(retention_ms), 7 * DAY_MS, 1000, INT64_MAX, true, NULL },
    { AT(retention_bytes), 0, 64 * 1024, INT64_MAX, true, NULL }, /* see nrd_topic_config_check */
    { AT(segment_bytes), 64 << 20, 64 << 10, 1 << 30, false, NULL },
    { AT(codec), 0, 0, 1, false, codec_words },
    { AT(zstd_level), 3, 1, 19, false, NULL },
    { AT(linger_ms), 100, 0, 60000, false, NULL },
    { AT(visibility_timeout_ms), 30000, 100, 43200000, false, NULL },
    { AT(max_in_flight), 1024, 1, 1000000, false, NULL },
    { AT(max_acked_ahead), 1024, 1, 4096, false, NULL },
    { AT(consume_wait_ms), -1, -1, DAY_MS, false, NULL },
    { AT(max_record_bytes), 1 << 20, 1 << 20, 64 << 20, false, NULL },
    { AT(fanout_delay_ms), 0, 0, 365 * DAY_MS, false, NULL },
};

/* The names alone, in the order of the table; a test holds the two together. */
static const char *const key_names[N_KEYS + 1] = {
    "partitions",      "retention_ms",
    "retention_bytes", "segment_bytes",
    "codec",           "zstd_level",
    "linger_ms",       "visibility_timeout_ms",
    "max_in_flight",   "max_acked_ahead",
    "consume_wait_ms", "max_record_bytes",
    "fanout_delay_ms", NULL,
};

static int64_t *field(NrdTopicConfig *config, const Key *key)
{
    return (int64_t *)((char *)config + key->at);
}

static int64_t value_of(const NrdTopicConfig *config, const Key *key)
{
    return *(const int64_t *)((const char *)config + key->at);
}

static const Key *find_key(const char *name)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    }
    return NULL;
}

static void say(char **ret_why, char *why)
{
    if (ret_why)
        *ret_why = why;
    else
        g_free(why);
}

void nrd_topic_config_defaults(NrdTopicConfig *ret_config)
{
    for (size_t i = 0; i < N_KEYS; i++)
        *field(ret_config, &keys[i]) = keys[i].initial;
}

const char *const *nrd_topic_config_keys(void)
{
    return key_names;
}

/* Decimal, no sign but the minus of a negative number, no blanks, no leading zeros. */
static bool parse_number(const char *text, int64_t *ret_value)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    size_t n = strlen(digits);
    if (n == 0 || n > 19 || strspn(digits, "0123456789") != n || (digits[0] == '0' && (n > 1 || digits != text)))
        return false;
    errno = 0;
    gint64 value = g_ascii_strtoll(text, NULL, 10);
    if (errno != 0)
        return false;
    *ret_value = value;
    return true;
}

static bool parse_value(const Key *key, const char *text, int64_t *ret_value)
{
    if (!key->words)
        return parse_number(text, ret_value);
    for (int64_t i = 0; key->words[i]; i++) {
        if (strcmp(key->words[i], text) == 0) {
            *ret_value = i;
            return true;
        }
    }
    return false;
}

static char *allowed(const Key *key)
{
    if (key->words) {
        g_autofree char *words = g_strjoinv(" or ", (char **)key->words);
        return g_strdup(words);
    }
    const char *zero = key->zero_too ? "0 or " : "";
    if (key->max == INT64_MAX)
        return g_strdup_printf("%sa number from %" G_GINT64_FORMAT " up", zero, key->min);
    return g_strdup_printf("%sa number from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, zero, key->min, key->max);
}

char *nrd_topic_config_allowed(const char *key_name)
{
    const Key *key = find_key(key_name);
    return key ? allowed(key) : NULL;
}

int nrd_topic_config_set(NrdTopicConfig *config, const char *key_name, const char *value, char **ret_why)
{
    const Key *key = find_key(key_name);
    if (!key) {
        g_autofree char *quoted = nrd_quote(key_name, strlen(key_name));
        say(ret_why, g_strdup_printf("there is no setting %s; `config` lists them", quoted));
        return -EINVAL;
    }
    int64_t number;
    bool valid = parse_value(key, value, &number) &&
                 ((number >= key->min && number <= key->max) || (key->zero_too && number == 0));
    if (!valid) {
        g_autofree char *range = allowed(key);
        g_autofree char *quoted = nrd_quote(value, strlen(value));
        say(ret_why, g_strdup_printf("%s cannot be %s: %s is allowed", key_name, quoted, range));
        return -EINVAL;
    }
    *field(config, key) = number;
    return 0;
}

int nrd_topic_config_check(const NrdTopicConfig *config, char **ret_why)
{
    if (config->retention_bytes == 0 || config->retention_bytes >= config->segment_bytes)
        return 0;
    say(ret_why,
        g_strdup_printf("retention_bytes (%" G_GINT64_FORMAT ") cannot be less than segment_bytes (%" G_GINT64_FORMAT
                        "): whole segments are deleted",
                        config->retention_bytes, config->segment_bytes));
    return -EINVAL;
}

char *nrd_topic_config_get(const NrdTopicConfig *config, const char *key_name)
{
    const Key *key = find_key(key_name);
    if (!key)
        return NULL;
    int64_t value = value_of(config, key);
    return key->words ? g_strdup(key->words[value]) : g_strdup_printf("%" G_GINT64_FORMAT, value);
}

/* The usual reasons why a line that looks right is refused; NULL: none of them. */
static const char *odd_blank(const char *line, const char *equals)
{
    size_t n = strlen(line);
    if (n > 0 && line[n - 1] == '\r')
        return "ends with a carriage return: lines end with a newline alone";
    if (g_ascii_isspace(line[0]) || g_ascii_isspace(line[n - 1]) ||
        (equals && (equals == line || g_ascii_isspace(equals[-1]) || g_ascii_isspace(equals[1]))))
        return "is not key=value, without blanks";
    return NULL;
}

static int apply_line(NrdTopicConfig *config, const char *line, char **ret_why)
{
    if (line[0] == '\0' || line[0] == '#')
        return 0;
    const char *equals = strchr(line, '=');
    const char *odd = odd_blank(line, equals);
    if (odd) {
        g_autofree char *quoted = nrd_quote(line, strlen(line));
        say(ret_why, g_strdup_printf("%s %s", quoted, odd));
        return -EINVAL;
    }
    if (!equals) {
        g_autofree char *quoted = nrd_quote(line, strlen(line));
        say(ret_why, g_strdup_printf("%s is not key=value", quoted));
        return -EINVAL;
    }
    g_autofree char *key = g_strndup(line, (gsize)(equals - line));
    return nrd_topic_config_set(config, key, equals + 1, ret_why);
}

int nrd_topic_config_apply(NrdTopicConfig *config, const char *text, size_t size, char **ret_why)
{
    if (memchr(text, '\0', size)) {
        say(ret_why, g_strdup("a NUL byte is not part of a setting"));
        return -EINVAL;
    }
    g_autofree char *copy = g_strndup(text, size);
    g_auto(GStrv) lines = g_strsplit(copy, "\n", -1);
    NrdTopicConfig next = *config;
    int rc = 0;
    for (guint i = 0; rc == 0 && lines[i]; i++)
        rc = apply_line(&next, lines[i], ret_why);
    if (rc == 0)
        rc = nrd_topic_config_check(&next, ret_why);
    if (rc == 0)
        *config = next;
    return rc;
}

char *nrd_topic_config_text(const NrdTopicConfig *config)
{
    GString *text = g_string_new(NULL);
    for (size_t i = 0; i < N_KEYS; i++) {
        g_autofree char *value = nrd_topic_config_get(config, keys[i].name);
        g_string_append_printf(text, "%s=%s\n", keys[i].name, value);
    }
    return g_string_free(text, FALSE);
}
