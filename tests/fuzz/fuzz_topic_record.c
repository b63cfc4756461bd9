/* A topic's record: what decodes is in range, and encodes to a record that says the same.
 * Input: flags (1: a right checksum line is put behind it), the text. */
#include "fuzz.h"

#include "engine/meta/topic_record.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1 };

static void check_range(const NrdTopicRecord *record)
{
    char *why = NULL;
    FUZZ_CHECK(nrd_incarnation_valid(record->id));
    FUZZ_CHECK(nrd_topic_config_check(&record->config, &why) == 0);
    FUZZ_CHECK(record->attr.mode <= 07777 && record->umask <= 0777);
    FUZZ_CHECK(record->children->len <= NRD_TOPIC_CHILDREN_MAX);
    FUZZ_CHECK(!record->parent || nrd_topic_name_check(record->parent) == 0);
    for (guint i = 0; i < record->children->len; i++) {
        const NrdChildRecord *child = record->children->pdata[i];
        FUZZ_CHECK(nrd_topic_name_check(child->name) == 0 && nrd_incarnation_valid(child->id));
        FUZZ_CHECK(nrd_topic_record_child(record, child->name) == child);
    }
}

static void check_text(const char *text, size_t size)
{
    NrdTopicRecord *record = NULL, *again = NULL;
    char *why = NULL;
    int rc = nrd_topic_record_decode("orders", text, size, &record, &why);
    FUZZ_CHECK(rc == 0 || ((rc == -EBADMSG || rc == -EINVAL) && why != NULL)); /* -EINVAL: of another topic */
    if (rc < 0) {
        g_free(why);
        return;
    }
    size_t n, n_again;
    check_range(record);
    g_autofree char *encoded = nrd_topic_record_encode(record, &n);
    FUZZ_CHECK(nrd_topic_record_decode("orders", encoded, n, &again, &why) == 0);
    g_autofree char *encoded_again = nrd_topic_record_encode(again, &n_again);
    FUZZ_CHECK(n == n_again && memcmp(encoded, encoded_again, n) == 0);
    FUZZ_CHECK(memcmp(&record->config, &again->config, sizeof record->config) == 0);
    FUZZ_CHECK(g_hash_table_size(record->file_attrs) == g_hash_table_size(again->file_attrs));
    FUZZ_CHECK(record->children->len == again->children->len && g_strcmp0(record->parent, again->parent) == 0);
    nrd_topic_record_free(again);
    FUZZ_CHECK(nrd_topic_record_decode("order", encoded, n, &again, &why) == -EINVAL); /* of another topic */
    g_clear_pointer(&why, g_free);
    encoded[n / 2] ^= 4;
    FUZZ_CHECK(nrd_topic_record_decode("orders", encoded, n, &again, &why) == -EBADMSG);
    g_free(why);
    nrd_topic_record_free(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    g_autoptr(GByteArray) text = g_byte_array_new();
    char line[32];
    if (in.size > 0)
        g_byte_array_append(text, in.data, (guint)in.size);
    if (flags & REPAIR) {
        int n = g_snprintf(line, sizeof line, "# crc32c %08x\n", fuzz_crc32c(0, text->data, text->len));
        g_byte_array_append(text, (const guint8 *)line, (guint)n);
    }
    check_text((const char *)text->data, text->len);
    return 0;
}
