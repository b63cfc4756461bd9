/* The verbs of `ctl`, as text. Pure. Strict: one space between words, decimal numbers without leading zeros. */
#ifndef NRD_FS_CTL_PARSE_H
#define NRD_FS_CTL_PARSE_H

#include "engine/base/macros.h"

#include <stddef.h>
#include <stdint.h>

typedef enum NrdCtlVerb {
    NRD_CTL_DELETE,     /* id */
    NRD_CTL_PARTITIONS, /* number */
    NRD_CTL_REOPEN,
    NRD_CTL_ROLL,
    NRD_CTL_TRIM, /* number: an offset */
    NRD_CTL_SEEK, /* number: an offset */
    NRD_CTL_SEEK_START,
    NRD_CTL_SEEK_END,
} NrdCtlVerb;

#define NRD_CTL_ID_SIZE 16 /* hexadecimal digits of an incarnation id */

typedef struct NrdCtlCommand {
    NrdCtlVerb verb;
    uint64_t number;
    char id[NRD_CTL_ID_SIZE + 1];
} NrdCtlCommand;

/* One line without its newline, of a topic's ctl or of a partition's. -EINVAL, and *ret_why (static) says why. */
int nrd_ctl_parse_topic(const char *line, size_t size, NrdCtlCommand *ret_command, const char **ret_why) NRD_MUST_CHECK;
int nrd_ctl_parse_partition(const char *line, size_t size, NrdCtlCommand *ret_command,
                            const char **ret_why) NRD_MUST_CHECK;

#endif
