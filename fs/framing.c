/* See framing.h. */
#include "fs/framing.h"

#include "engine/base/endian.h"
#include "fs/jsonl_in.h"

#include <errno.h>
#include <string.h>

/* Requests that continue a record and begin with so many equal bytes are taken for the same one sent again. */
#define HEAD_BYTES ((size_t)4096)

#define BIN_HEADER_BYTES ((size_t)8)

void nrd_framing_init(NrdFraming *framing, NrdFramingKind kind, NrdPartialBudget *budget)
{
    *framing = (NrdFraming){ .kind = kind,
                             .budget = budget,
                             .max_key = NRD_KEY_MAX,
                             .partial = g_byte_array_new(),
                             .refused = g_byte_array_new() };
}

void nrd_framing_clear(NrdFraming *framing)
{
    nrd_partial_budget_give_back(framing->budget, &framing->n_charged);
    g_clear_pointer(&framing->partial, g_byte_array_unref);
    g_clear_pointer(&framing->refused, g_byte_array_unref);
}

/* A long record leaves its buffer behind only until the next one is done: many handles stay open for long. */
static void empty_partial(NrdFraming *framing)
{
    bool is_long = framing->partial->len > 4096;
    g_byte_array_set_size(framing->partial, 0);
    if (is_long) {
        g_byte_array_unref(framing->partial);
        framing->partial = g_byte_array_new();
    }
    nrd_partial_budget_give_back(framing->budget, &framing->n_charged);
}

static void set_why(NrdFraming *framing, const char *why)
{
    framing->why = why;
    framing->why_limit = false;
}

/* Keeps bytes of a record that they do not end. */
static int keep(NrdFraming *framing, const uint8_t *data, size_t size)
{
    int error = nrd_partial_budget_take(framing->budget, framing->partial->len + size, &framing->n_charged);
    if (error < 0)
        set_why(framing, "unfinished records take too much memory");
    else
        g_byte_array_append(framing->partial, data, (guint)size);
    return error;
}

/* ---- where a record ends ---- */

/* How much of some bytes belongs to the record that partial begins. */
typedef struct Piece {
    size_t size;     /* with its newline */
    size_t n_record; /* without */
    bool ends;       /* the record's last */
} Piece;

static int too_long(NrdFraming *framing, const char *why)
{
    set_why(framing, why);
    return -EMSGSIZE;
}

/* Its owner knows what that limit is called. */
static int record_too_long(NrdFraming *framing, const char *why)
{
    int error = too_long(framing, why);
    framing->why_limit = true;
    return error;
}

static int key_too_long(NrdFraming *framing)
{
    return too_long(framing, framing->max_key == NRD_KEY_MAX ? "its key is longer than 64 KiB"
                                                             : "its key is longer than what the servers have room for "
                                                               "(docs/scale-out.md)");
}

static int find_newline(NrdFraming *framing, const uint8_t *data, size_t size, size_t max, Piece *ret_piece)
{
    const uint8_t *newline = memchr(data, '\n', size);
    size_t length = newline ? (size_t)(newline - data) : size;
    if (framing->partial->len + length > max)
        return framing->kind == NRD_FRAMING_JSONL ? too_long(framing, "its line is too long")
                                                  : record_too_long(framing, "it is longer than a record may be");
    *ret_piece = (Piece){ length + (newline != NULL), length, newline != NULL };
    return 0;
}

/* The header of the binary record that partial and then data begin; false: not all of it is there. */
static bool bin_header(const NrdFraming *framing, const uint8_t *data, size_t size, uint32_t *ret_key,
                       uint32_t *ret_payload)
{
    uint8_t header[BIN_HEADER_BYTES];
    size_t kept = MIN(framing->partial->len, BIN_HEADER_BYTES);
    if (kept + size < BIN_HEADER_BYTES)
        return false;
    if (kept > 0)
        memcpy(header, framing->partial->data, kept);
    if (kept < BIN_HEADER_BYTES)
        memcpy(header + kept, data, BIN_HEADER_BYTES - kept);
    *ret_key = nrd_get_be32(header);
    *ret_payload = nrd_get_be32(header + 4);
    return true;
}

/* What is left of the binary record where data begins. */
static uint64_t bin_left(const NrdFraming *framing, const uint8_t *data, size_t size)
{
    uint32_t key = 0, payload = 0;
    (void)bin_header(framing, data, size, &key, &payload);
    return BIN_HEADER_BYTES + (uint64_t)key + payload - framing->partial->len;
}

static int find_bin_end(NrdFraming *framing, const uint8_t *data, size_t size, size_t max_record, Piece *ret_piece)
{
    uint32_t key, payload;
    if (!bin_header(framing, data, size, &key, &payload)) {
        *ret_piece = (Piece){ size, size, false };
        return 0;
    }
    if (key > framing->max_key)
        return key_too_long(framing);
    if (payload > max_record)
        return record_too_long(framing, nrd_jsonl_payload_too_long);
    uint64_t left = bin_left(framing, data, size);
    size_t n = (size_t)MIN(left, size);
    *ret_piece = (Piece){ n, n, left == n };
    return 0;
}

static int find_end(NrdFraming *framing, const uint8_t *data, size_t size, size_t max_record, Piece *ret_piece)
{
    switch (framing->kind) {
    case NRD_FRAMING_BIN:
        return find_bin_end(framing, data, size, max_record, ret_piece);
    case NRD_FRAMING_JSONL:
        return find_newline(framing, data, size, nrd_jsonl_line_max(max_record), ret_piece);
    default:
        return find_newline(framing, data, size, max_record, ret_piece);
    }
}

/* ---- complete records ---- */

#define N_GATHERED 64

/* Where records go. Those that lie in the request itself are gathered; one that lies in memory of its own goes alone. */
typedef struct Out {
    size_t max_record;
    NrdRecordsFn fn;
    void *user_data;
    size_t n_gathered;
    NrdNewRecord gathered[N_GATHERED];
} Out;

/* Field by field: the room for records need not be zeroed for every request. */
static void out_init(Out *out, size_t max_record, NrdRecordsFn fn, void *user_data)
{
    out->max_record = max_record;
    out->fn = fn;
    out->user_data = user_data;
    out->n_gathered = 0;
}

static void give_gathered(Out *out)
{
    if (out->n_gathered > 0)
        out->fn(out->user_data, out->gathered, out->n_gathered);
    out->n_gathered = 0;
}

static void gather(Out *out, NrdNewRecord record)
{
    if (out->n_gathered == N_GATHERED)
        give_gathered(out);
    out->gathered[out->n_gathered++] = record;
}

/* A record from its first byte to its last; what is gathered of it lies in data. */
static int emit_jsonl(NrdFraming *framing, const uint8_t *line, size_t size, Out *out)
{
    NrdJsonlLine parsed;
    int error = nrd_jsonl_parse(line, size, out->max_record, &parsed, &framing->why);
    framing->why_limit = error < 0 && framing->why == nrd_jsonl_payload_too_long;
    if (error < 0)
        return error;
    if (!parsed.blank && parsed.record.key_size > framing->max_key) {
        g_free(parsed.decoded);
        return key_too_long(framing);
    }
    if (!parsed.blank)
        gather(out, parsed.record);
    if (parsed.decoded) {
        give_gathered(out);
        g_free(parsed.decoded);
    }
    return 0;
}

static int emit_bytes(NrdFraming *framing, const uint8_t *data, size_t size, Out *out)
{
    if (framing->kind == NRD_FRAMING_JSONL)
        return emit_jsonl(framing, data, size, out);
    NrdNewRecord record = { .payload = data, .payload_size = size };
    if (framing->kind == NRD_FRAMING_BIN) {
        size_t key_size = nrd_get_be32(data);
        record = (NrdNewRecord){ data + BIN_HEADER_BYTES, key_size, data + BIN_HEADER_BYTES + key_size,
                                 size - BIN_HEADER_BYTES - key_size };
    }
    gather(out, record);
    return 0;
}

/* The record that partial begins and data ends. */
static int emit(NrdFraming *framing, const uint8_t *data, size_t size, Out *out)
{
    if (framing->partial->len == 0)
        return emit_bytes(framing, data, size, out);
    g_byte_array_append(framing->partial, data, (guint)size);
    int error = emit_bytes(framing, framing->partial->data, framing->partial->len, out);
    give_gathered(out);
    empty_partial(framing);
    return error;
}

/* ---- refusing ---- */

/* As much of a refused request as tells it from another one. */
static size_t head_size(size_t size)
{
    return MIN(size, HEAD_BYTES);
}

bool nrd_framing_resent(const NrdFraming *framing, const uint8_t *data, size_t size)
{
    const GByteArray *head = framing->refused;
    return head->len > 0 && size >= head->len && memcmp(head->data, data, head->len) == 0;
}

/* How many of the bytes belong to a refused record of which `left` are left; *left becomes what is left after them. */
static size_t pass_over(uint64_t *left, const uint8_t *data, size_t size)
{
    if (*left == NRD_TO_NEWLINE) {
        const uint8_t *newline = memchr(data, '\n', size);
        if (newline)
            *left = 0;
        return newline ? (size_t)(newline - data) + 1 : size;
    }
    size_t n = (size_t)MIN(*left, size);
    *left -= n;
    return n;
}

/* A request that begins in a record to be refused, of which `left` bytes are left there. */
typedef struct Refusal {
    uint64_t left;
    bool inside; /* the record began before it */
    bool hidden; /* the kernel may not tell the program of it */
    int error;
} Refusal;

static int refuse(NrdFraming *framing, NrdFramingRequest request, const Refusal *why)
{
    empty_partial(framing);
    framing->n_doomed = 0;
    framing->n_skip = why->left;
    framing->refused_left = why->left;
    framing->refused_error = why->error;
    (void)pass_over(&framing->n_skip, request.data, request.size);
    g_byte_array_set_size(framing->refused, 0);
    if (why->inside && (why->hidden || framing->n_skip == 0))
        g_byte_array_append(framing->refused, request.data, (guint)head_size(request.size));
    return why->error;
}

/* The first record of the request is too long or malformed: see the last rule in framing.h. */
static int doom_or_refuse(NrdFraming *framing, NrdFramingRequest request, const Refusal *why, size_t *ret_taken)
{
    uint64_t n_doomed = why->left;
    (void)pass_over(&n_doomed, request.data, request.size);
    if (!request.may_be_cut || n_doomed == 0)
        return refuse(framing, request, why);
    empty_partial(framing);
    g_byte_array_set_size(framing->refused, 0); /* else a piece behind it that looks alike would count as that again */
    framing->n_skip = 0;
    framing->n_doomed = n_doomed;
    framing->doomed_error = why->error;
    *ret_taken = request.size;
    return 0;
}

/* ---- requests ---- */

static int take_piece(NrdFraming *framing, const uint8_t *data, size_t size, Out *out, size_t *ret_size)
{
    Piece piece;
    int error = find_end(framing, data, size, out->max_record, &piece);
    if (error == 0 && piece.ends)
        error = emit(framing, data, piece.n_record, out);
    else if (error == 0)
        error = keep(framing, data, piece.n_record);
    if (error == 0)
        *ret_size = piece.size;
    return error;
}

/* Takes records from pos on, until one is to be refused. That one's error is returned when it is the request's first,
 * else the request is taken up to it. */
static int take_records(NrdFraming *framing, NrdFramingRequest request, size_t pos, Out *out, size_t *ret_taken)
{
    int error = 0;
    while (pos < request.size && error == 0) {
        size_t n = 0;
        error = take_piece(framing, request.data + pos, request.size - pos, out, &n);
        if (error < 0 && pos == 0)
            return error;
        pos += n;
    }
    give_gathered(out);
    *ret_taken = pos;
    return 0;
}

int nrd_framing_feed(NrdFraming *framing, NrdFramingRequest request, size_t max_record, NrdRecordsFn fn,
                     void *user_data, size_t *ret_taken)
{
    Out out;
    bool hidden = framing->may_go_on;
    framing->may_go_on = request.may_be_cut;
    out_init(&out, max_record, fn, user_data);
    if (nrd_framing_resent(framing, request.data, request.size)) {
        Refusal again = { framing->refused_left, true, false, framing->refused_error };
        return doom_or_refuse(framing, request, &again, ret_taken);
    }
    if (framing->n_doomed > 0) {
        Refusal rest = { framing->n_doomed, true, hidden, framing->doomed_error };
        return doom_or_refuse(framing, request, &rest, ret_taken);
    }
    if (request.size > 0)
        g_byte_array_set_size(framing->refused, 0);
    size_t pos = framing->n_skip > 0 ? pass_over(&framing->n_skip, request.data, request.size) : 0;
    bool inside = framing->partial->len > 0;
    uint64_t left = NRD_TO_NEWLINE;
    if (framing->kind == NRD_FRAMING_BIN)
        left = bin_left(framing, request.data, request.size);
    int error = take_records(framing, request, pos, &out, ret_taken);
    if (error == 0 || error == -EAGAIN)
        return error;
    return doom_or_refuse(framing, request, &(Refusal){ left, inside, hidden, error }, ret_taken);
}

/* ---- ends that are not in the bytes ---- */

static int end_unfinished(NrdFraming *framing, NrdFramingEnd when)
{
    if (when == NRD_FRAMING_FLUSH)
        return 0;
    int error = framing->n_doomed > 0 ? framing->doomed_error : -EINVAL;
    if (when == NRD_FRAMING_CLOSE) {
        empty_partial(framing);
        framing->n_doomed = 0;
    }
    return error;
}

/* A whole object ends; another one stays, to be finished or to be refused with its newline. */
static int end_jsonl(NrdFraming *framing, NrdFramingEnd when, Out *out)
{
    const GByteArray *partial = framing->partial;
    int error = emit_jsonl(framing, partial->data, partial->len, out);
    give_gathered(out);
    if (error == 0)
        empty_partial(framing);
    else if (end_unfinished(framing, when) == 0)
        error = 0;
    return error;
}

int nrd_framing_end(NrdFraming *framing, NrdFramingEnd when, size_t max_record, NrdRecordsFn fn, void *user_data)
{
    Out out;
    out_init(&out, max_record, fn, user_data);
    if (framing->n_doomed > 0)
        return end_unfinished(framing, when);
    if (framing->partial->len == 0)
        return 0;
    if (framing->kind == NRD_FRAMING_JSONL)
        return end_jsonl(framing, when, &out);
    if (framing->kind == NRD_FRAMING_BIN)
        set_why(framing, "it is unfinished");
    if (framing->kind == NRD_FRAMING_BIN)
        return end_unfinished(framing, when);
    if (when == NRD_FRAMING_FLUSH)
        return 0;
    gather(&out, (NrdNewRecord){ .payload = framing->partial->data, .payload_size = framing->partial->len });
    give_gathered(&out);
    empty_partial(framing);
    return 0;
}
