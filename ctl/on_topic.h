/* What verbs about one topic have in common: it is found, something is done with it, and why not is said. One thread. */
#ifndef NRD_CTL_ON_TOPIC_H
#define NRD_CTL_ON_TOPIC_H

#include "ctl/tree.h"

/* Negative errno with a sentence in *ret_why (g_free). */
typedef int (*NrdOnTopicFn)(const NrdTreePlace *place, void *user_data, char **ret_why);

/* given and name: as of nrd_tree_find_topic. The exit status. */
int nrd_on_topic(const char *given, const char *name, NrdOnTopicFn fn, void *user_data) NRD_MUST_CHECK;

#endif
