/* One partition of a copy. See copy.h.
 *
 * Two streams of records are read side by side, each once: the source's, and the target's. First what the target has is
 * compared with what the source begins with, record by record; the target may end there, never the source. Then the rest of
 * the source is written to the target, and the target's stream reads on and meets what was written. In the end both tallies
 * are the same, or it was no copy. Nothing is remembered anywhere between two runs: what the target holds is where the next
 * one goes on, so it does not matter what was killed, and when. */
#include "ctl/copy.h"

#include "ctl/cli.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <unistd.h>

#define MAX_ROUNDS 10 /* after a source that is being produced to */
#define LOOK_EVERY_MS 200

void nrd_copy_part_init(NrdCopyPart *part, NrdCopyJob *job, unsigned number)
{
    *part = (NrdCopyPart){ .job = job, .number = number, .out_fd = -1 };
    part->from = g_strdup_printf("%s/p%05u", job->from.dir, number);
    part->to = g_strdup_printf("%s/p%05u", job->to.dir, number);
    part->gaps = g_array_new(FALSE, FALSE, sizeof(NrdCopyGap));
    part->batch = g_byte_array_new();
    part->batch_ends = g_array_new(FALSE, FALSE, sizeof(NrdCopyMark));
    nrd_copy_tally_init(&part->read);
    nrd_copy_tally_init(&part->there);
}

void nrd_copy_part_clear(NrdCopyPart *part)
{
    nrd_copy_stream_free(part->source);
    nrd_copy_stream_free(part->target);
    if (part->out_fd >= 0)
        close(part->out_fd);
    nrd_copy_tally_clear(&part->read);
    nrd_copy_tally_clear(&part->there);
    g_array_unref(part->gaps);
    g_byte_array_unref(part->batch);
    g_array_unref(part->batch_ends);
    g_free(part->from);
    g_free(part->to);
    g_free(part->why);
}

int nrd_copy_part_fail(NrdCopyPart *part, int error, char *why)
{
    g_free(part->why);
    part->why = why;
    return error;
}

static int fail_reading(NrdCopyPart *part, int error, const char *dir)
{
    if (error == -ENOENT && dir == part->from)
        return nrd_copy_part_fail(
            part, error,
            g_strdup_printf("%s/log.bin cannot be read: either retention has removed records that "
                            "were to be copied next, or its daemon is an older one, without "
                            "that file",
                            dir));
    return nrd_copy_part_fail(part, error, g_strdup_printf("%s/log.bin cannot be read: %s", dir, g_strerror(-error)));
}

/* To follow is to be interrupted in the end, and then to finish what is there. */
static int check_wanted(NrdCopyPart *part)
{
    if (atomic_load(&part->job->failed))
        return nrd_copy_part_fail(part, -ECANCELED, g_strdup("stopped, since another partition failed"));
    if (nrd_cli_interrupted() && !part->job->follow)
        return nrd_copy_part_fail(part, -EINTR, g_strdup("interrupted; run it again to go on"));
    return 0;
}

/* ---- reading ---- */

/* The next record of the source, if there is one now; what is missing before it is noted. */
static int next_of_source(NrdCopyPart *part, NrdCopyRecord *ret_record, bool *ret_found)
{
    int rc = nrd_copy_stream_next(part->source, ret_record, ret_found);
    if (rc < 0)
        return fail_reading(part, rc, part->from);
    if (!*ret_found)
        return 0;
    if (ret_record->offset > part->next_offset)
        g_array_append_val(part->gaps, ((NrdCopyGap){ part->next_offset, ret_record->offset - part->next_offset }));
    part->next_offset = ret_record->offset + 1;
    nrd_copy_tally_add(&part->read, ret_record);
    atomic_fetch_add(&part->job->n_done, 1);
    return 0;
}

/* The next record of the target. It has to have the next offset: nothing of the target may be missing. */
static int next_of_target(NrdCopyPart *part, NrdCopyRecord *ret_record, bool *ret_found)
{
    int rc = nrd_copy_stream_next(part->target, ret_record, ret_found);
    if (rc < 0)
        return fail_reading(part, rc, part->to);
    if (*ret_found && ret_record->offset != part->there.n)
        return nrd_copy_part_fail(
            part, -EBADMSG,
            g_strdup_printf("%s begins or goes on at offset %" PRIu64 " where %" PRIu64
                            " was expected: what was copied is damaged, or retention has removed it. Delete the target "
                            "topic and begin again, with settings of retention that keep the records",
                            part->to, ret_record->offset, part->there.n));
    if (*ret_found) {
        nrd_copy_tally_add(&part->there, ret_record);
        atomic_fetch_add(&part->job->n_done, 1);
    }
    return 0;
}

/* ---- what is there already ---- */

static int fail_different(NrdCopyPart *part, const NrdCopyRecord *theirs, const NrdCopyRecord *ours)
{
    g_autofree char *ours_text = ours ? g_strdup_printf("that of offset %" PRIu64 " in the source", ours->offset)
                                      : g_strdup("in the source, which ends before it");
    return nrd_copy_part_fail(
        part, -EEXIST,
        g_strdup_printf(
            "the record at offset %" PRIu64 " of %s is not %s: the target has other records, or retention "
            "has removed the first ones from the source since the copy was begun. Nothing was changed; copy "
            "to a topic of another name, or delete the target and begin again",
            theirs->offset, part->to, ours_text));
}

/* Compares what the target holds with what the source begins with. */
static int match(NrdCopyPart *part)
{
    NrdCopyRecord theirs, ours;
    bool found = true;
    int rc = 0;
    while (rc == 0 && found && !nrd_cli_interrupted() && !atomic_load(&part->job->failed)) {
        bool ours_found = false;
        rc = next_of_target(part, &theirs, &found);
        if (rc == 0 && found)
            rc = next_of_source(part, &ours, &ours_found);
        if (rc == 0 && found && (!ours_found || !nrd_copy_record_same(&theirs, &ours)))
            rc = fail_different(part, &theirs, ours_found ? &ours : NULL);
        atomic_fetch_add(&part->job->n_compared, rc == 0 && found);
    }
    if (rc == 0 && found)
        rc = nrd_copy_part_fail(part, -EINTR, g_strdup("interrupted; run it again to go on"));
    part->n_stored = part->there.n;
    return rc;
}

/* ---- the rest ---- */

/* Records that can never be had lie before the high watermark that was seen before the end was. */
static void note_lost_end(NrdCopyPart *part, uint64_t hwm)
{
    if (hwm <= part->next_offset)
        return;
    g_array_append_val(part->gaps, ((NrdCopyGap){ part->next_offset, hwm - part->next_offset }));
    part->next_offset = hwm;
}

/* Up to what the source has now. */
static int catch_up(NrdCopyPart *part)
{
    NrdCopyRecord record;
    uint64_t hwm;
    bool found = true;
    int rc = nrd_tree_number(part->from, "hwm", &hwm);
    if (rc < 0)
        return fail_reading(part, rc, part->from);
    while (rc == 0 && found && part->next_offset < hwm) {
        rc = check_wanted(part);
        if (rc == 0)
            rc = next_of_source(part, &record, &found);
        if (rc == 0 && found)
            rc = nrd_copy_write(part, &record);
    }
    if (rc == 0 && !found)
        note_lost_end(part, hwm);
    return rc == 0 ? nrd_copy_write_commit(part) : rc;
}

/* Reads in the target what was written, and compares the tallies. */
static int verify(NrdCopyPart *part)
{
    NrdCopyRecord record;
    bool found = true;
    int rc = 0;
    while (rc == 0 && found && part->there.n < part->read.n) {
        rc = check_wanted(part);
        if (rc == 0)
            rc = next_of_target(part, &record, &found);
    }
    if (rc < 0)
        return rc;
    if (part->there.n < part->read.n)
        return nrd_copy_part_fail(part, -EBADMSG,
                                  g_strdup_printf("%s ends at offset %" PRIu64 " instead of %" PRIu64
                                                  ": what was acknowledged is not all there",
                                                  part->to, part->there.n, part->read.n));
    g_autofree char *ours = nrd_copy_tally_text(&part->read);
    g_autofree char *theirs = nrd_copy_tally_text(&part->there);
    if (g_str_equal(ours, theirs))
        return 0;
    return nrd_copy_part_fail(part, -EBADMSG,
                              g_strdup_printf("%s does not read back as what was copied: sha256 %s in the source, %s "
                                              "there, over %" PRIu64
                                              " record%s. Delete the target topic and begin again",
                                              part->to, ours, theirs, part->read.n, nrd_plural(part->read.n)));
}

/* Nobody else has added anything. */
static int check_end(NrdCopyPart *part)
{
    NrdCopyRecord record;
    bool found;
    int rc = next_of_target(part, &record, &found);
    return rc == 0 && found ? fail_different(part, &record, NULL) : rc;
}

static int look_for_more(NrdCopyPart *part)
{
    uint64_t hwm;
    int rc = nrd_tree_number(part->from, "hwm", &hwm);
    if (rc < 0)
        return fail_reading(part, rc, part->from);
    part->moved = hwm > part->next_offset;
    return 0;
}

/* Until there is more to copy, or nothing more is wanted. */
static int wait_for_more(NrdCopyPart *part)
{
    int rc = 0;
    while (rc == 0 && !part->moved && !nrd_cli_interrupted() && !atomic_load(&part->job->failed)) {
        (void)poll(NULL, 0, LOOK_EVERY_MS);
        rc = look_for_more(part);
    }
    return rc == 0 ? check_wanted(part) : rc;
}

static int copy_round(NrdCopyPart *part)
{
    int rc = catch_up(part);
    if (rc == 0)
        rc = verify(part);
    return rc == 0 ? look_for_more(part) : rc;
}

/* Rounds get shorter, since each copies what came during the one before; if not, the source is faster. */
static int copy(NrdCopyPart *part)
{
    uint64_t n_before = UINT64_MAX, n = 0;
    int rc = copy_round(part);
    for (int i = 1; rc == 0 && part->moved && i < MAX_ROUNDS && n < n_before; i++) {
        n_before = i == 1 ? UINT64_MAX : n;
        n = part->read.n;
        rc = copy_round(part);
        n = part->read.n - n;
    }
    return rc;
}

static int follow(NrdCopyPart *part)
{
    int rc = 0;
    for (bool last = false; rc == 0 && !last;) {
        last = nrd_cli_interrupted();
        rc = copy_round(part);
        if (rc == 0 && !last)
            rc = wait_for_more(part);
    }
    return rc;
}

/* The target's records are looked at after what an earlier run has left is committed. */
static int open_files(NrdCopyPart *part)
{
    int rc = nrd_copy_write_open(part);
    if (rc < 0)
        return rc;
    rc = nrd_copy_stream_open(part->to, &part->target);
    if (rc < 0)
        return fail_reading(part, rc, part->to);
    rc = nrd_tree_number(part->from, "oldest_offset", &part->first_offset);
    if (rc == 0)
        rc = nrd_copy_stream_open(part->from, &part->source);
    part->next_offset = part->first_offset;
    return rc < 0 ? fail_reading(part, rc, part->from) : 0;
}

void nrd_copy_part_run(NrdCopyPart *part)
{
    int rc = check_wanted(part);
    if (rc == 0)
        rc = open_files(part);
    atomic_fetch_add(&part->job->n_comparing, 1);
    if (rc == 0)
        rc = match(part);
    atomic_fetch_sub(&part->job->n_comparing, 1);
    if (rc == 0)
        rc = part->job->follow ? follow(part) : copy(part);
    if (rc == 0)
        rc = check_end(part);
    if (rc == 0)
        rc = nrd_copy_cursor(part);
    part->error = rc;
}
