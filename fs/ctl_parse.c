/* See ctl_parse.h. */
#include "fs/ctl_parse.h"

#include "fs/lines.h"

#include <errno.h>
#include <string.h>

static int bad(const char *why, const char **ret_why)
{
    *ret_why = why;
    return -EINVAL;
}

/* An id is copied as it stands: the engine compares it, and a wrong one deletes nothing. */
static int parse_delete(const char *rest, size_t size, NrdCtlCommand *ret_command, const char **ret_why)
{
    if (size != NRD_CTL_ID_SIZE || memchr(rest, '\0', size))
        return bad("delete takes the topic's incarnation id, 16 hexadecimal digits", ret_why);
    *ret_command = (NrdCtlCommand){ .verb = NRD_CTL_DELETE };
    memcpy(ret_command->id, rest, size);
    return 0;
}

int nrd_ctl_parse_topic(const char *line, size_t size, NrdCtlCommand *ret_command, const char **ret_why)
{
    const char *rest;
    size_t rest_size;
    uint64_t number;

    if (nrd_word_match(line, size, "delete", &rest, &rest_size))
        return parse_delete(rest, rest_size, ret_command, ret_why);
    if (!nrd_word_match(line, size, "partitions", &rest, &rest_size))
        return bad("no such verb; a topic's ctl knows delete and partitions", ret_why);
    if (nrd_number_parse(rest, rest_size, UINT32_MAX, &number) < 0)
        return bad("partitions takes a decimal number", ret_why);
    *ret_command = (NrdCtlCommand){ .verb = NRD_CTL_PARTITIONS, .number = number };
    return 0;
}

static int parse_seek(const char *rest, size_t size, NrdCtlCommand *ret_command, const char **ret_why)
{
    uint64_t number = 0;
    NrdCtlVerb verb = NRD_CTL_SEEK;
    if (size == 5 && memcmp(rest, "start", 5) == 0)
        verb = NRD_CTL_SEEK_START;
    else if (size == 3 && memcmp(rest, "end", 3) == 0)
        verb = NRD_CTL_SEEK_END;
    else if (nrd_number_parse(rest, size, INT64_MAX, &number) < 0)
        return bad("seek takes an offset, start or end", ret_why);
    *ret_command = (NrdCtlCommand){ .verb = verb, .number = number };
    return 0;
}

int nrd_ctl_parse_partition(const char *line, size_t size, NrdCtlCommand *ret_command, const char **ret_why)
{
    const char *rest;
    size_t rest_size;
    uint64_t number = 0;

    if (nrd_word_match(line, size, "seek", &rest, &rest_size))
        return parse_seek(rest, rest_size, ret_command, ret_why);
    if (nrd_word_match(line, size, "trim", &rest, &rest_size)) {
        if (nrd_number_parse(rest, rest_size, INT64_MAX, &number) < 0)
            return bad("trim takes an offset", ret_why);
        *ret_command = (NrdCtlCommand){ .verb = NRD_CTL_TRIM, .number = number };
        return 0;
    }
    if (size == 6 && memcmp(line, "reopen", 6) == 0)
        *ret_command = (NrdCtlCommand){ .verb = NRD_CTL_REOPEN };
    else if (size == 4 && memcmp(line, "roll", 4) == 0)
        *ret_command = (NrdCtlCommand){ .verb = NRD_CTL_ROLL };
    else
        return bad("no such verb; a partition's ctl knows reopen, roll, trim and seek", ret_why);
    return 0;
}
