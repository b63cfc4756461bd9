/* HELP at the root: the tree on one page. */
#include "fs/fs_private.h"

static const char help[] =
    "naradfs: a durable message broker. Topics, partitions and records are files.\n"
    "\n"
    "  HELP                       this page\n"
    "  status                     is all well, and if not, what to do\n"
    "  metrics                    counters, as Prometheus reads them\n"
    "  topics/<topic>/            mkdir makes a topic, rmdir removes one without records\n"
    "    config                   settings, key=value without blanks; write lines to change them\n"
    "    ctl                      read it for its verbs; deletes a topic with records, adds partitions\n"
    "    status                   the topic at a glance, and why a write to config or ctl was refused last\n"
    "    produce produce.jsonl produce.bin   append here and a partition is chosen: by key, or in turn\n"
    "    consume consume.jsonl consume.bin drain ack   as in a partition, over all of them\n"
    "    children/<child>/        mkdir attaches a topic: it gets a copy of every new record, after its "
    "fanout_delay_ms;\n"
    "                             rmdir detaches it. status: how far copying has come\n"
    "    p00000/                  a partition; more of them with partitions=<n> in config\n"
    "      produce                append lines: each is a record. fsync returns when they are durable\n"
    "      produce.jsonl          append objects, one a line: {\"key\":\"k\",\"payload\":...}; a payload may be any "
    "JSON,\n"
    "                             or base64 with \"payload_encoding\":\"base64\"\n"
    "      produce.bin            append u32 key length, u32 payload length (big-endian), key, payload\n"
    "      consume                read: one record a read; fsync settles what was read, close gives back the rest;\n"
    "                             opened for writing too, it takes lines: ack|nack|extend [offset]\n"
    "      consume.jsonl          the same as JSON objects, each with a receipt in \"handle\"\n"
    "      consume.bin            as many binary records as fit: u32 length, u32 partition, u64 offset, u64 nonce,\n"
    "                             u64 timestamp, u32 key length (big-endian), key, payload\n"
    "      ack                    write lines: [ack|nack|extend] <receipt>, which is partition:offset:nonce\n"
    "      drain                  read to the end: all that is there now; reading on settles what came before\n"
    "      log                    every committed record, a line each; tail -f works\n"
    "      log.jsonl              the same as JSON objects: exact, with partition, offset, time and key\n"
    "      log.bin                the same as consume.bin has it, the nonce 0; for programs, not listed\n"
    "      from/<offset>          like log from there on; from/start, from/end (what comes from now on)\n"
    "      records/<offset>       one record, exactly; its key and time: getfattr -d\n"
    "      by-time/<time>         leads to the first record committed at or after a time: 2026-01-31T12:00:00Z\n"
    "      segments/              the files of the log as they are on disk\n"
    "      ctl                    read it for its verbs: reopen, roll, trim, seek\n"
    "      status                 numbers of the partition, and what to do (numbers also: getfattr -d)\n"
    "\n"
    "  mkdir topics/orders\n"
    "  echo 'first order' >> topics/orders/p00000/produce\n"
    "  cat topics/orders/p00000/log\n"
    "  cat topics/orders/p00000/drain\n"
    "\n"
    "A record that is read is leased: nobody else gets it until it is settled, given back, or its lease runs out\n"
    "(visibility_timeout_ms in config). consume waits for records, drain does not. The consuming names are symlinks, "
    "so\n"
    "that grep -r and backups, which do not follow them, consume nothing. produce@<any name> is produce as well: one "
    "name\n"
    "for each of many writers opens faster.\n";

static char *help_text(NrdNode *node)
{
    return g_strdup(help);
}

const NrdFileOps nrd_help_ops = {
    .read = nrd_text_file_read,
    .destroy = nrd_text_file_destroy,
    .size = nrd_text_file_size,
    .text = help_text,
};
