/* A line of ctl: what is accepted is, written in the one way that there is, the line itself.
 * Input: the line. */
#include "fuzz.h"

#include "fs/ctl_parse.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static char *write_out(const NrdCtlCommand *c)
{
    switch (c->verb) {
    case NRD_CTL_DELETE:
        return g_strdup_printf("delete %s", c->id);
    case NRD_CTL_PARTITIONS:
        return g_strdup_printf("partitions %" PRIu64, c->number);
    case NRD_CTL_REOPEN:
        return g_strdup("reopen");
    case NRD_CTL_ROLL:
        return g_strdup("roll");
    case NRD_CTL_TRIM:
        return g_strdup_printf("trim %" PRIu64, c->number);
    case NRD_CTL_SEEK:
        return g_strdup_printf("seek %" PRIu64, c->number);
    case NRD_CTL_SEEK_START:
        return g_strdup("seek start");
    case NRD_CTL_SEEK_END:
        return g_strdup("seek end");
    }
    return NULL;
}

static void check(int rc, const NrdCtlCommand *command, const char *why, const char *line, size_t size)
{
    FUZZ_CHECK(rc == 0 || (rc == -EINVAL && why != NULL));
    if (rc < 0)
        return;
    g_autofree char *again = write_out(command);
    FUZZ_CHECK(again && strlen(again) == size && memcmp(again, line, size) == 0);
    FUZZ_CHECK(command->number <= INT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    NrdCtlCommand topic, partition;
    const char *why_topic = NULL, *why_partition = NULL;
    size_t n;
    char *line = (char *)fuzz_rest(&in, &n);
    int rc_topic = nrd_ctl_parse_topic(line, n, &topic, &why_topic);
    int rc_partition = nrd_ctl_parse_partition(line, n, &partition, &why_partition);
    check(rc_topic, &topic, why_topic, line, n);
    check(rc_partition, &partition, why_partition, line, n);
    FUZZ_CHECK(rc_topic < 0 || rc_partition < 0); /* no verb is both's */
    g_free(line);
    return 0;
}
