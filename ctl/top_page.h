/* What `naradctl top` shows: samples of all topics, and a page made of two of them. The page is pure. */
#ifndef NRD_CTL_TOP_PAGE_H
#define NRD_CTL_TOP_PAGE_H

#include "ctl/tree.h"

#include <glib.h>

typedef struct NrdTopTopic {
    char *name;
    NrdTopicSums sums;
} NrdTopTopic;

typedef struct NrdTopSample {
    int64_t taken_us; /* monotonic */
    GArray *topics;   /* NrdTopTopic, by name */
} NrdTopSample;

/* Looks at every topic; waits for the daemon. */
int nrd_top_sample(const char *mnt, NrdTopSample *ret_sample) NRD_MUST_CHECK;
void nrd_top_sample_clear(NrdTopSample *sample);

/* The page (g_string_free): a line of sums, a head, and the topics, the busiest first, max_rows of them at most. Rates
 * are differences to `before`; a topic that is not in it has none. Lines are cut at `width` characters. */
GString *nrd_top_page(const NrdTopSample *before, const NrdTopSample *now, unsigned max_rows, unsigned width);

#endif
