/* See on_topic.h. */
#include "ctl/on_topic.h"

#include "ctl/cli.h"

int nrd_on_topic(const char *given, const char *name, NrdOnTopicFn fn, void *user_data)
{
    NrdTreePlace place = { .mnt = NULL };
    g_autofree char *why = NULL;
    int rc = nrd_tree_find_topic(given, name, &place, &why);
    if (rc == 0)
        rc = fn(&place, user_data, &why);
    if (rc < 0)
        nrd_cli_say("%s", why);
    nrd_tree_place_clear(&place);
    return rc == 0 ? NRD_EXIT_GOOD : NRD_EXIT_FAILED;
}
