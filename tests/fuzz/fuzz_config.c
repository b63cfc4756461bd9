/* Settings as `key=value` lines: all or nothing, in range, and what is read back can be written again.
 * Input: the text. */
#include "fuzz.h"

#include "engine/meta/topic_config.h"

#include <errno.h>
#include <string.h>

static void check_applied(const NrdTopicConfig *config)
{
    NrdTopicConfig again;
    g_autofree char *text = nrd_topic_config_text(config);
    nrd_topic_config_defaults(&again);
    FUZZ_CHECK(nrd_topic_config_check(config, NULL) == 0);
    FUZZ_CHECK(nrd_topic_config_apply(&again, text, strlen(text), NULL) == 0);
    FUZZ_CHECK(memcmp(config, &again, sizeof again) == 0);
    for (const char *const *key = nrd_topic_config_keys(); *key; key++) {
        g_autofree char *value = nrd_topic_config_get(config, *key);
        FUZZ_CHECK(value && nrd_topic_config_set(&again, *key, value, NULL) == 0);
    }
    FUZZ_CHECK(memcmp(config, &again, sizeof again) == 0);
    FUZZ_CHECK(config->partitions >= 1 && config->partitions <= 1024);
    FUZZ_CHECK(config->max_record_bytes >= 1 << 20 && config->max_record_bytes <= 64 << 20);
    FUZZ_CHECK(config->segment_bytes >= 65536 && config->segment_bytes <= 1 << 30);
    FUZZ_CHECK(config->retention_ms == 0 || config->retention_ms >= 1000);
    FUZZ_CHECK(config->retention_bytes == 0 || config->retention_bytes >= config->segment_bytes);
    FUZZ_CHECK(config->max_acked_ahead >= 1 && config->max_acked_ahead <= 4096);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    NrdTopicConfig config, before;
    size_t n;
    char *text = (char *)fuzz_rest(&in, &n), *why = NULL;
    nrd_topic_config_defaults(&config);
    before = config;
    int rc = nrd_topic_config_apply(&config, text, n, &why);
    FUZZ_CHECK(rc == 0 || (rc == -EINVAL && why != NULL));
    if (rc == 0)
        check_applied(&config);
    else
        FUZZ_CHECK(memcmp(&config, &before, sizeof config) == 0);
    g_free(why);
    g_free(text);
    return 0;
}
