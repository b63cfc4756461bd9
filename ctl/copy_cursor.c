/* Where consumers of the copy go on: where those of the source are. See copy.h.
 *
 * What was settled in the source above its frontier cannot be told to the target: those records are delivered again. A
 * frontier of the target that is further already is its consumers' own, and stays. */
#include "ctl/copy.h"

#include <errno.h>
#include <inttypes.h>

uint64_t nrd_copy_index(const NrdCopyPart *part, uint64_t offset)
{
    uint64_t n_lost = 0;
    if (offset <= part->first_offset)
        return 0;
    for (guint i = 0; i < part->gaps->len; i++) {
        const NrdCopyGap *gap = &g_array_index(part->gaps, NrdCopyGap, i);
        if (gap->offset < offset)
            n_lost += MIN(gap->n, offset - gap->offset);
    }
    return MIN(offset - part->first_offset - n_lost, part->read.n);
}

static int fail(NrdCopyPart *part, int rc, const char *path, const char *what)
{
    return nrd_copy_part_fail(part, rc,
                              g_strdup_printf("the records are copied, but the frontier of %s cannot be %s: %s", path,
                                              what, g_strerror(-rc)));
}

static int seek(NrdCopyPart *part)
{
    g_autofree char *path = g_strconcat(part->to, "/ctl", NULL);
    g_autofree char *line = g_strdup_printf("seek %" PRIu64 "\n", part->frontier_there);
    int rc = nrd_tree_write(path, line);
    return rc < 0 ? fail(part, rc, part->to, "set") : 0;
}

int nrd_copy_cursor(NrdCopyPart *part)
{
    uint64_t there = 0;
    int rc = nrd_tree_number(part->from, "frontier", &part->frontier);
    if (rc == 0)
        rc = nrd_tree_number(part->from, "acked_ahead", &part->n_ahead);
    if (rc < 0)
        return fail(part, rc, part->from, "read");
    rc = nrd_tree_number(part->to, "frontier", &there);
    if (rc < 0)
        return fail(part, rc, part->to, "read");
    part->frontier_there = nrd_copy_index(part, part->frontier);
    part->is_ahead = there > part->frontier_there;
    if (!part->is_ahead && there < part->frontier_there)
        return seek(part);
    part->frontier_there = there;
    return 0;
}
