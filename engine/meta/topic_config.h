/* The settings of a topic: names, defaults, ranges, and the text form `key=value`. Pure.
 * The table in topic_config.c is the single source of names, defaults and ranges. */
#ifndef NRD_META_TOPIC_CONFIG_H
#define NRD_META_TOPIC_CONFIG_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct NrdTopicConfig {
    int64_t partitions;
    int64_t retention_ms;
    int64_t retention_bytes;
    int64_t segment_bytes;
    int64_t codec; /* 0 none, 1 zstd */
    int64_t zstd_level;
    int64_t linger_ms;
    int64_t visibility_timeout_ms;
    int64_t max_in_flight;
    int64_t max_acked_ahead;
    int64_t consume_wait_ms; /* -1: for ever */
    int64_t max_record_bytes;
    int64_t fanout_delay_ms;
} NrdTopicConfig;

/* The defaults of the contract. */
void nrd_topic_config_defaults(NrdTopicConfig *ret_config);

/* Names in table order, NULL-terminated, static. */
const char *const *nrd_topic_config_keys(void);

/* Sets one key in *config from text. -EINVAL: unknown key, not a number or name, out of range (then *ret_why, g_free,
 * is one sentence that says which and what is allowed). Cross-checks (retention_bytes >= segment_bytes) are made by
 * nrd_topic_config_check. ret_why may be NULL. *config is unchanged on failure. */
int nrd_topic_config_set(NrdTopicConfig *config, const char *key, const char *value, char **ret_why) NRD_MUST_CHECK;

/* What is allowed for a key, in words (g_free); NULL for an unknown key. */
char *nrd_topic_config_allowed(const char *key);

/* The rules between keys. -EINVAL with a sentence. */
int nrd_topic_config_check(const NrdTopicConfig *config, char **ret_why) NRD_MUST_CHECK;

/* The value of one key as text (g_free); NULL for an unknown key. */
char *nrd_topic_config_get(const NrdTopicConfig *config, const char *key);

/* Applies `key=value` lines (text[0..size), last newline optional, empty lines and lines that begin with # are skipped)
 * to *config, all or nothing, and checks the result. A NUL byte is malformed. */
int nrd_topic_config_apply(NrdTopicConfig *config, const char *text, size_t size, char **ret_why) NRD_MUST_CHECK;

/* Every key with its value, one `key=value` line each (g_free). */
char *nrd_topic_config_text(const NrdTopicConfig *config);

#endif
