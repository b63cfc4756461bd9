/* naradctl dump SEGMENT: what one segment file holds, frame by frame and record by record, whatever has happened to it.
 * The walk is that of recovery (scan.h): where there is damage it goes on where recovery would. */
#include "ctl/cli.h"
#include "ctl/json.h"
#include "ctl/verbs.h"
#include "engine/base/diag.h"
#include "engine/io/io.h"
#include "engine/log/frames/record.h"
#include "engine/log/index/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const NrdCliVerb verb = {
    .arguments = "SEGMENT",
    .summary =
        "Prints the frames and records of a segment file (<20 digits>.log) and where it is damaged. The file may\n"
        "be a copy, and it may be in use: what is written meanwhile is not shown.",
    .details = "Exit status: 0; 1 when the file is damaged or cannot be read; 2 usage.",
    .n_least = 1,
    .n_most = 1,
};

typedef struct Dump {
    NrdJson *json; /* NULL: text */
    bool payloads;
    int fd;
    uint64_t size_bytes;
    uint64_t n_frames;
    uint64_t n_records;
    uint64_t n_damaged;
} Dump;

static const char *codec_name(const NrdFrameHeader *header)
{
    return (header->flags & 7) == NRD_CODEC_ZSTD ? "zstd" : (header->flags & 7) == NRD_CODEC_NONE ? "none" : "unknown";
}

/* ---- good frames ---- */

static void put_header(NrdJson *json, const NrdFrameHeader *header)
{
    char crc[16];
    nrd_json_number(json, "offset", header->offset);
    nrd_json_number(json, "records", header->n_records);
    nrd_json_string(json, "codec", codec_name(header));
    nrd_json_number(json, "raw_bytes", header->raw_bytes);
    nrd_json_number(json, "stored_bytes", header->stored_bytes);
    g_snprintf(crc, sizeof crc, "%08x", header->crc);
    nrd_json_string(json, "crc", crc);
}

static void put_frame(Dump *dump, const NrdFrameReader *frame)
{
    const NrdFrameHeader *h = &frame->header;
    if (!dump->json) {
        printf("frame at %" PRIu64 ": offset %" PRIu64 ", %" PRIu32 " record%s, codec %s, %" PRIu32
               " bytes stored as %" PRIu32 ", crc %08x good\n",
               frame->pos, h->offset, h->n_records, nrd_plural(h->n_records), codec_name(h), h->raw_bytes,
               h->stored_bytes, h->crc);
        return;
    }
    nrd_json_object(dump->json, NULL);
    nrd_json_string(dump->json, "type", "frame");
    nrd_json_number(dump->json, "pos", frame->pos);
    nrd_json_number(dump->json, "end_pos", frame->end_pos);
    put_header(dump->json, h);
    nrd_json_bool(dump->json, "crc_good", true);
    nrd_json_object_end(dump->json);
}

static void put_record_text(const Dump *dump, const NrdRecordView *view)
{
    g_autofree char *when = nrd_cli_time(view->commit_ms);
    printf("  %" PRIu64 "  %s  ", view->offset, when);
    if (view->key_size > 0) {
        fputs("key \"", stdout);
        nrd_cli_print_escaped(view->key, view->key_size);
        fputs("\"  ", stdout);
    }
    printf("%zu byte%s", view->payload_size, nrd_plural(view->payload_size));
    if (dump->payloads) {
        fputs("  \"", stdout);
        nrd_cli_print_escaped(view->payload, view->payload_size);
        putchar('"');
    }
    putchar('\n');
}

static void put_record(Dump *dump, const NrdRecordView *view)
{
    if (!dump->json) {
        put_record_text(dump, view);
        return;
    }
    nrd_json_object(dump->json, NULL);
    nrd_json_string(dump->json, "type", "record");
    nrd_json_number(dump->json, "offset", view->offset);
    nrd_json_signed(dump->json, "timestamp", view->commit_ms);
    if (view->key_size > 0)
        nrd_json_bytes(dump->json, "key", view->key, view->key_size);
    nrd_json_number(dump->json, "size", view->payload_size);
    if (dump->payloads)
        nrd_json_bytes(dump->json, "payload", view->payload, view->payload_size);
    nrd_json_object_end(dump->json);
}

static void on_frame(void *data, const NrdFrameReader *frame)
{
    Dump *dump = data;
    NrdRecordView view = { .offset = 0 };
    const uint8_t *envelope;
    size_t pos = 0, size;
    uint64_t offset = frame->header.offset;
    put_frame(dump, frame);
    dump->n_frames++;
    dump->n_records += frame->header.n_records;
    while (nrd_frame_next_record(frame->payload, frame->payload_size, &pos, &envelope, &size) &&
           nrd_record_parse(envelope, size, &view) == 0) {
        view.offset = offset++;
        put_record(dump, &view);
    }
}

/* ---- damage ---- */

static const char *fault_name(NrdFrameFault fault)
{
    static const char *const names[] = {
        [NRD_FRAME_GOOD] = "good",
        [NRD_FRAME_CUT] = "cut",
        [NRD_FRAME_BAD_HEADER] = "no header",
        [NRD_FRAME_BAD_CRC] = "bad crc",
        [NRD_FRAME_WRONG_OFFSET] = "wrong offset",
        [NRD_FRAME_BAD_RECORDS] = "bad records",
    };
    return names[fault];
}

/* What the damaged bytes claim, if they begin like a frame. */
static bool read_header(const Dump *dump, uint64_t pos, NrdFrameHeader *ret_header)
{
    uint8_t bytes[NRD_FRAME_HEADER_BYTES];
    size_t n = 0;
    if (nrd_io_pread_full(dump->fd, bytes, sizeof bytes, (int64_t)pos, &n) < 0 || n < sizeof bytes ||
        !nrd_frame_header_plausible(bytes))
        return false;
    nrd_frame_decode(bytes, ret_header);
    return true;
}

static void put_damage_text(const NrdGap *gap, const char *reason, const NrdFrameHeader *header)
{
    printf("DAMAGE at %" PRIu64 " to %" PRIu64 ": %s", gap->pos, gap->end_pos, reason);
    if (gap->end_offset > gap->offset)
        printf("; offsets %" PRIu64 " to %" PRIu64 " are lost", gap->offset, gap->end_offset - 1);
    if (header)
        printf("; its header says offset %" PRIu64 ", %" PRIu32 " record%s, codec %s, %" PRIu32
               " bytes stored as %" PRIu32 ", crc %08x",
               header->offset, header->n_records, nrd_plural(header->n_records), codec_name(header), header->raw_bytes,
               header->stored_bytes, header->crc);
    putchar('\n');
}

static void put_damage(Dump *dump, const NrdGap *gap, const char *reason)
{
    NrdFrameHeader header;
    bool has_header = gap->end_pos > gap->pos && read_header(dump, gap->pos, &header);
    dump->n_damaged++;
    if (!dump->json) {
        put_damage_text(gap, reason, has_header ? &header : NULL);
        return;
    }
    nrd_json_object(dump->json, NULL);
    nrd_json_string(dump->json, "type", "damage");
    nrd_json_string(dump->json, "reason", reason);
    nrd_json_number(dump->json, "pos", gap->pos);
    nrd_json_number(dump->json, "end_pos", gap->end_pos);
    nrd_json_number(dump->json, "lost_offset", gap->offset);
    nrd_json_number(dump->json, "lost_end_offset", gap->end_offset);
    if (has_header) {
        nrd_json_object(dump->json, "header");
        put_header(dump->json, &header);
        nrd_json_object_end(dump->json);
    }
    nrd_json_object_end(dump->json);
}

static void on_lost(void *data, const NrdGap *gap, NrdFrameFault fault)
{
    put_damage(data, gap, fault_name(fault));
}

static void put_zeros(Dump *dump, uint64_t pos)
{
    if (!dump->json) {
        printf("zeros at %" PRIu64 " to %" PRIu64 ": written ahead of the tail\n", pos, dump->size_bytes);
        return;
    }
    nrd_json_object(dump->json, NULL);
    nrd_json_string(dump->json, "type", "zeros");
    nrd_json_number(dump->json, "pos", pos);
    nrd_json_number(dump->json, "end_pos", dump->size_bytes);
    nrd_json_object_end(dump->json);
}

static void put_end(Dump *dump, const NrdIndexEnd *end, const NrdScanTail *tail)
{
    NrdGap rest = { end->pos, dump->size_bytes, end->offset, end->offset };
    if (tail->torn && tail->only_zeros)
        put_zeros(dump, end->pos);
    else if (tail->torn)
        put_damage(dump, &rest, tail->misnamed ? "frames of other offsets than the file's name says" : "tail");
    if (!dump->json) {
        if (dump->size_bytes == 0)
            puts("the file is empty: a segment that nothing was written to yet, or that somebody has emptied");
        printf("%" PRIu64 " frame%s, %" PRIu64 " record%s, %" PRIu64 " damaged place%s; the next offset is %" PRIu64
               "\n",
               dump->n_frames, nrd_plural(dump->n_frames), dump->n_records, nrd_plural(dump->n_records),
               dump->n_damaged, nrd_plural(dump->n_damaged), end->offset);
        return;
    }
    nrd_json_object(dump->json, NULL);
    nrd_json_string(dump->json, "type", "end");
    nrd_json_number(dump->json, "frames", dump->n_frames);
    nrd_json_number(dump->json, "records", dump->n_records);
    nrd_json_number(dump->json, "damaged", dump->n_damaged);
    nrd_json_number(dump->json, "next_offset", end->offset);
    nrd_json_object_end(dump->json);
}

/* ---- the file ---- */

static int open_segment(const char *path, Dump *dump)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int rc = -errno;
        nrd_io_close(&fd);
        return rc;
    }
    if (!S_ISREG(st.st_mode)) {
        nrd_io_close(&fd);
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    }
    dump->fd = fd;
    dump->size_bytes = (uint64_t)st.st_size;
    return 0;
}

/* What begins with these bytes is another file of the layout. NULL: who knows. */
static const char *other_kind(const Dump *dump)
{
    static const struct {
        const char *magic;
        const char *what;
    } kinds[] = {
        { "NRDX", "the side index of a segment" },           { "NRDR", "what log.jsonl knows of a segment" },
        { "NRDE", "a segment of the ingress WAL" },          { "NRDAHEAD", "a consumer.ahead" },
        { "NRDCHKPT", "the checkpoint of the ingress WAL" }, { "NRDFANCU", "the cursor of a fan-out child" },
    };
    char bytes[16] = { 0 };
    if (pread(dump->fd, bytes, sizeof bytes, 0) < 4)
        return NULL;
    for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
        if (strncmp(bytes, kinds[i].magic, strlen(kinds[i].magic)) == 0)
            return kinds[i].what;
    }
    return NULL;
}

/* In words why the file cannot be dumped. */
static const char *why_not(int error)
{
    switch (-error) {
    case EISDIR:
        return "Is a directory; name a file in it: <20 digits>.log";
    case EINVAL:
        return "it is not a regular file";
    default:
        return g_strerror(-error);
    }
}

/* The first offset: as the option says, as the name says, or as the first frame does. */
static bool find_base(const Dump *dump, const char *path, const char *option, uint64_t *ret_base)
{
    g_autofree char *name = g_path_get_basename(path);
    NrdFrameHeader header;
    if (option)
        return g_ascii_string_to_unsigned(option, 10, 0, INT64_MAX, ret_base, NULL);
    *ret_base = 0;
    if (strspn(name, "0123456789") == 20 && strcmp(name + 20, ".log") == 0)
        *ret_base = g_ascii_strtoull(name, NULL, 10);
    else if (read_header(dump, 0, &header))
        *ret_base = header.offset;
    return *ret_base <= INT64_MAX;
}

static int walk(Dump *dump, uint64_t base)
{
    NrdScanWatch watch = { .frame = on_frame, .lost = on_lost, .data = dump };
    NrdScanWant want = { dump->fd, base, dump->size_bytes, UINT64_MAX };
    NrdScanTail tail = { .torn = false };
    NrdIndex *index = NULL;
    int rc = nrd_scan_segment_watched(&want, &watch, &index, &tail);
    if (rc < 0)
        return rc;
    put_end(dump, &index->end, &tail);
    if (!dump->json && dump->n_frames == 0 && dump->n_damaged > 0)
        puts("no whole frame is in it: cut within the first one, or no segment (<20 digits>.log) at all");
    nrd_index_free(index);
    return 0;
}

int nrd_verb_dump(int argc, char **argv)
{
    gboolean json = FALSE, payloads = FALSE;
    g_autofree char *option = NULL;
    const GOptionEntry entries[] = {
        { "json", 'j', 0, G_OPTION_ARG_NONE, &json, "A JSON object a line: frames, records, damage, the end", NULL },
        { "payload", 'p', 0, G_OPTION_ARG_NONE, &payloads, "The payloads too", NULL },
        { "base", 0, 0, G_OPTION_ARG_STRING, &option, "The first offset, when neither name nor first frame tells",
          "OFFSET" },
        G_OPTION_ENTRY_NULL,
    };
    Dump dump = { .fd = -1 };
    uint64_t base = 0;
    if (!nrd_cli_parse(&verb, entries, &argc, &argv))
        return NRD_EXIT_USAGE;
    dump.payloads = payloads;
    int rc = open_segment(argv[1], &dump);
    const char *other = rc == 0 ? other_kind(&dump) : NULL;
    if (other) {
        nrd_cli_say("%s is no segment but %s; segments are named <20 digits>.log", argv[1], other);
        nrd_io_close(&dump.fd);
        return NRD_EXIT_FAILED;
    }
    if (rc == 0 && !find_base(&dump, argv[1], option, &base)) {
        nrd_cli_say("%s is no first offset", option ? option : argv[1]);
        nrd_io_close(&dump.fd);
        return NRD_EXIT_USAGE;
    }
    dump.json = json ? nrd_json_new() : NULL;
    if (rc == 0)
        rc = walk(&dump, base);
    nrd_json_free(dump.json);
    nrd_io_close(&dump.fd);
    if (rc < 0)
        nrd_cli_say("%s cannot be read: %s", argv[1], why_not(rc));
    return nrd_cli_flush() && rc == 0 && dump.n_damaged == 0 ? NRD_EXIT_GOOD : NRD_EXIT_FAILED;
}
