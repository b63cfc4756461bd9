/* See partition_name.h. */
#include "ctl/partition_name.h"

#include <glib.h>

#define NUMBER_MAX 99999 /* of five digits */

bool nrd_partition_name_parse(const char *name, uint32_t *ret_number)
{
    guint64 number;
    if (!name || !g_ascii_string_to_unsigned(*name == 'p' ? name + 1 : name, 10, 0, NUMBER_MAX, &number, NULL))
        return false;
    *ret_number = (uint32_t)number;
    return true;
}
