/* `ctl` of a topic and of a partition: one verb a line. A write is parsed whole before anything is done, so a malformed
 * line does nothing; a verb that fails after others took effect makes the write short. Every failure is logged. */
#include "fs/ctl_parse.h"
#include "fs/node.h"

#include <errno.h>
#include <stdio.h>

typedef int (*ParseFn)(const char *line, size_t size, NrdCtlCommand *ret_command, const char **ret_why);
typedef int (*RunFn)(NrdHandle *handle, const NrdCtlCommand *command);

static int run_topic(NrdHandle *handle, const NrdCtlCommand *command)
{
    char text[48];
    if (command->verb == NRD_CTL_DELETE) {
        int error = nrd_topic_delete(handle->topic, command->id);
        if (nrd_topic_deleted(handle->topic))
            nrd_nodes_drop_cached(handle->fs, handle->topic);
        return error;
    }
    if (command->number <= nrd_topic_n_partitions(handle->topic))
        return -EINVAL;
    int length = snprintf(text, sizeof text, "partitions=%" G_GUINT64_FORMAT "\n", command->number);
    return nrd_topic_config_write(handle->topic, text, (size_t)length);
}

static int run_partition(NrdHandle *handle, const NrdCtlCommand *command)
{
    NrdPartition *partition = handle->partition;
    switch (command->verb) {
    case NRD_CTL_REOPEN:
        return nrd_partition_reopen(partition);
    case NRD_CTL_ROLL:
        return nrd_partition_roll(partition);
    case NRD_CTL_TRIM:
        return nrd_partition_trim(partition, command->number);
    case NRD_CTL_SEEK:
        return nrd_partition_seek(partition, NRD_SEEK_OFFSET, command->number);
    case NRD_CTL_SEEK_START:
        return nrd_partition_seek(partition, NRD_SEEK_START, 0);
    case NRD_CTL_SEEK_END:
        return nrd_partition_seek(partition, NRD_SEEK_END, 0);
    default:
        return -EINVAL;
    }
}

static void log_refusal(NrdHandle *handle, const char *line, size_t size, const char *why)
{
    g_autofree char *text = nrd_quote(line, size);
    int64_t partition = handle->partition ? (int64_t)nrd_partition_number(handle->partition) : NRD_NO_PARTITION;
    nrd_topic_refuse(handle->topic, partition, "ctl: %s refused: %s", text, why);
}

/* g_free. Of a partition that is out of service there is a reason for whatever fails. */
static char *why_failed(NrdHandle *handle, const NrdCtlCommand *command, int error)
{
    NrdPartitionInfo info = { .reason = NULL };
    if (error == -EIO && handle->partition)
        nrd_partition_info(handle->partition, &info);
    char *reason = info.reason && *info.reason ? g_strdup_printf("%s: %s", g_strerror(-error), info.reason) : NULL;
    nrd_partition_info_clear(&info);
    if (reason)
        return reason;
    if (error != -EINVAL)
        return g_strdup(g_strerror(-error));
    switch (command->verb) {
    case NRD_CTL_DELETE:
        return g_strdup("that is not this topic's incarnation id; read the xattr user.narad.incarnation");
    case NRD_CTL_PARTITIONS:
        return g_strdup("the number of partitions only grows, to 1024 at most");
    default:
        return g_strdup("the offset is above the high watermark");
    }
}

/* A number of partitions that is a growth is a setting, whose refusal the engine has told; what it has not; why a record stays,
 * or what keeps a partition from being opened. */
static bool told_by_engine(NrdHandle *handle, const NrdCtlCommand *command, int error)
{
    if (error == -EOPNOTSUPP)
        return true;
    if (command->verb == NRD_CTL_REOPEN)
        return error == -EIO;
    if (command->verb == NRD_CTL_DELETE)
        return error == -EIO || error == -ENOSPC || error == -EDQUOT;
    return command->verb == NRD_CTL_PARTITIONS && command->number > nrd_topic_n_partitions(handle->topic);
}

static size_t line_length(const char *buf, size_t size)
{
    const char *newline = memchr(buf, '\n', size);
    return newline ? (size_t)(newline - buf) : size;
}

static int parse_all(NrdHandle *handle, const char *buf, size_t size, ParseFn parse)
{
    for (size_t pos = 0; pos < size;) {
        NrdCtlCommand command;
        const char *why;
        size_t length = line_length(buf + pos, size - pos);
        int error = parse(buf + pos, length, &command, &why);
        if (error < 0 && length > 0 && buf[pos + length - 1] == '\r')
            why = "it ends with a carriage return: lines end with a newline alone";
        if (error < 0) {
            log_refusal(handle, buf + pos, length, why);
            return error;
        }
        pos += length + 1;
    }
    return 0;
}

static void ctl_write(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, ParseFn parse, RunFn run)
{
    size_t pos = 0;
    int error = parse_all(handle, buf, size, parse);
    while (error == 0 && pos < size) {
        NrdCtlCommand command;
        const char *why;
        size_t length = line_length(buf + pos, size - pos);
        error = parse(buf + pos, length, &command, &why);
        if (error == 0)
            error = run(handle, &command);
        if (error < 0 && !told_by_engine(handle, &command, error)) {
            g_autofree char *reason = why_failed(handle, &command, error);
            log_refusal(handle, buf + pos, length, reason);
        }
        if (error == 0)
            pos = MIN(pos + length + 1, size);
    }
    if (error < 0 && pos == 0)
        nrd_reply_error(req, error);
    else
        fuse_reply_write(req, pos);
}

static void topic_ctl_write(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, int flags)
{
    ctl_write(handle, req, buf, size, nrd_ctl_parse_topic, run_topic);
}

static void partition_ctl_write(NrdHandle *handle, fuse_req_t req, const char *buf, size_t size, int flags)
{
    ctl_write(handle, req, buf, size, nrd_ctl_parse_partition, run_partition);
}

static char *topic_ctl_text(NrdNode *node)
{
    return g_strdup("delete <incarnation id>  delete this topic and every record in it\n"
                    "partitions <n>           grow to n partitions\n");
}

static char *partition_ctl_text(NrdNode *node)
{
    return g_strdup(
        "reopen                   close the log and recover it: files put back are served, poison is cleared\n"
        "roll                     seal the active segment and begin another\n"
        "trim <offset>            delete whole sealed segments below the offset\n"
        "seek <offset>|start|end  move where consumers go on; drops their leases\n");
}

const NrdFileOps nrd_topic_ctl_ops = {
    .read = nrd_text_file_read,
    .write = topic_ctl_write,
    .write_waits = true,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = topic_ctl_text,
};

const NrdFileOps nrd_partition_ctl_ops = {
    .read = nrd_text_file_read,
    .write = partition_ctl_write,
    .write_waits = true,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = partition_ctl_text,
};
