/* `ack`: lines `[ack|nack|extend] <receipt>` from whoever has the receipt. See lines.h for lines without newline. state
 * is an NrdLines, guarded by the handle's lock. */
#include "fs/lines.h"
#include "fs/source.h"
#include "fs/stream.h"

#include <errno.h>
#include <string.h>

#define RUN_MAX 512 /* lines that are settled together */

static int ack_open(NrdHandle *handle)
{
    handle->state = g_new0(NrdLines, 1);
    return 0;
}

static void ack_destroy(NrdHandle *handle)
{
    g_free(handle->state);
}

static void ack_read(NrdHandle *handle, fuse_req_t req, size_t size, off_t off, int flags)
{
    nrd_reply_empty(req);
}

/* A line without its newline. */
static int parse(const char *line, size_t size, NrdVerb *ret_verb, NrdHold *ret_hold)
{
    const char *receipt = line;
    size_t receipt_size = size;
    *ret_verb = NRD_VERB_ACK;
    if (nrd_word_match(line, size, "nack", &receipt, &receipt_size))
        *ret_verb = NRD_VERB_NACK;
    else if (nrd_word_match(line, size, "extend", &receipt, &receipt_size))
        *ret_verb = NRD_VERB_EXTEND;
    else
        nrd_word_match(line, size, "ack", &receipt, &receipt_size);
    return nrd_receipt_read(receipt, receipt_size, &ret_hold->partition, &ret_hold->offset, &ret_hold->nonce);
}

/* The line at the front of complete lines: its size with the newline, or 0 when it is malformed. */
static size_t parse_front(const char *lines, size_t size, NrdVerb *ret_verb, NrdHold *ret_hold)
{
    char line[NRD_LINE_MAX];
    size_t n;
    size_t length = (size_t)((const char *)memchr(lines, '\n', size) - lines);
    return nrd_line_tidy(lines, length, line, &n) == 0 && parse(line, n, ret_verb, ret_hold) == 0 ? length + 1 : 0;
}

/* Lines with one verb. */
typedef struct Run {
    NrdVerb verb;
    size_t n;
    NrdHold holds[RUN_MAX]; /* note: size of the line, its newline included */
    int parse_error;        /* of the line behind them; 0 */
} Run;

/* The size of the lines that are in the run. */
static size_t run_size(const Run *run, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += run->holds[i].note;
    return size;
}

/* Most lines are bare receipts. */
static void parse_run(const char *lines, size_t size, Run *run)
{
    run->n = nrd_receipt_read_lines(lines, size, run->holds, RUN_MAX);
    run->verb = NRD_VERB_ACK;
    run->parse_error = 0;
    for (size_t pos = run_size(run, run->n); pos < size && run->n < RUN_MAX;) {
        NrdHold *hold = &run->holds[run->n];
        NrdVerb verb;
        size_t line_size = parse_front(lines + pos, size - pos, &verb, hold);
        if (line_size == 0)
            run->parse_error = -EINVAL;
        if (line_size == 0 || (run->n > 0 && verb != run->verb))
            break;
        hold->note = (uint32_t)line_size;
        run->verb = verb;
        run->n++;
        pos += line_size;
    }
}

/* The bytes of the lines that took effect; lines[0..n_bytes): all of them, for the log. */
static size_t settle_run(NrdHandle *handle, const Run *run, const char *lines, size_t n_bytes, int *ret_error)
{
    NrdPlace place = nrd_handle_place(handle);
    int error = 0;
    size_t n_done = 0;
    if (run->n > 0)
        n_done = nrd_source_settle_many(handle, run->verb, run->holds, run->n, &error);
    size_t size = run_size(run, n_done);
    if (error < 0)
        place.offset = (int64_t)run->holds[n_done].offset;
    else
        error = run->parse_error;
    const char *newline = memchr(lines + size, '\n', n_bytes - size);
    nrd_log_settle_refused(place, lines + size, newline ? (size_t)(newline - lines) - size : n_bytes - size, error);
    *ret_error = error;
    return size;
}

static size_t run_lines(void *user_data, const char *lines, size_t size, int *ret_error)
{
    Run run;
    size_t pos = 0;
    int error = 0;
    while (pos < size && error == 0) {
        parse_run(lines + pos, size - pos, &run);
        pos += settle_run(user_data, &run, lines + pos, size - pos, &error);
    }
    *ret_error = error;
    return pos;
}

static int run_line(void *user_data, const char *line, size_t size)
{
    Run run = { .n = 1 };
    int error;
    if (parse(line, size, &run.verb, &run.holds[0]) < 0)
        run = (Run){ .parse_error = -EINVAL };
    (void)settle_run(user_data, &run, line, size, &error);
    return error;
}

/* A whole receipt behind other lines takes effect without its newline too: one that was cut matches no lease, so nothing is
 * done on doubt. What does not take effect stays kept, and is told of when it has ended. */
static void try_kept(NrdHandle *handle, NrdLines *lines)
{
    char line[NRD_LINE_MAX];
    size_t n;
    NrdVerb verb;
    NrdHold hold;
    int error;
    if (lines->kept_size == 0 || nrd_line_tidy(lines->kept, lines->kept_size, line, &n) < 0 ||
        parse(line, n, &verb, &hold) < 0 || nrd_source_settle_many(handle, verb, &hold, 1, &error) == 0)
        return;
    lines->kept_size = 0;
    lines->owes_newline = true;
}

/* Works on a copy of the state: see consume_write. */
static int feed(NrdHandle *handle, const char *buf, size_t size, size_t *ret_taken)
{
    g_mutex_lock(&handle->lock);
    NrdLines lines = *(NrdLines *)handle->state;
    g_mutex_unlock(&handle->lock);
    int error = buf ? nrd_lines_feed_many(&lines, buf, size, run_line, run_lines, handle, ret_taken)
                    : nrd_lines_flush(&lines, run_line, handle);
    if (error == 0 && buf)
        try_kept(handle, &lines);
    g_mutex_lock(&handle->lock);
    *(NrdLines *)handle->state = lines;
    g_mutex_unlock(&handle->lock);
    return error;
}

/* What to take of a request: all, or only its complete lines when the kernel may have cut it off from a larger write. The
 * rest of that write then comes again from the beginning of a line, and the count of bytes says which line failed. */
static size_t takable(const NrdHandle *handle, const char *buf, size_t size)
{
    const char *newline = nrd_may_be_cut(handle, size) ? memrchr(buf, '\n', size) : NULL;
    return newline ? (size_t)(newline - buf) + 1 : size;
}

static void ack_write(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, int flags)
{
    size_t taken;
    int error = feed(handle, buf, takable(handle, buf, size), &taken);
    if (error < 0)
        nrd_reply_error(req, error);
    else
        fuse_reply_write(req, taken);
}

/* Not at every close: a forked child closes its copy of the descriptor in the middle of a line. A receipt that was cut in
 * its number is nobody's, so a whole one without its newline is meant. */
static void ack_release(NrdHandle *handle, bool last)
{
    (void)!feed(handle, NULL, 0, NULL); /* nobody is there to be told; it was logged */
    nrd_handle_unref(handle);
}

static void ack_fsync(NrdHandle *handle, fuse_req_t req)
{
    nrd_stream_reply_synced(handle, req, feed(handle, NULL, 0, NULL));
}

const NrdFileOps nrd_ack_ops = {
    .open = ack_open,
    .read = ack_read,
    .write = ack_write,
    .fsync = ack_fsync,
    .release = ack_release,
    .destroy = ack_destroy,
};
