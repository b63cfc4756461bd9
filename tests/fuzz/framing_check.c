/* See framing_check.h.
 *
 * The program here does what a careful one would: what was not taken it sends again; of a refused record it sends no more
 * once its end was in the refused request. So exactly the good records have to arrive, whole, in order, once. */
#include "framing_check.h"

#include "fs/jsonl_in.h"
#include "fuzz.h"

#include "engine/base/endian.h"

#include <errno.h>
#include <string.h>

#define MAX_RECORD ((size_t)64)
enum { MAY_BE_CUT = 1, FLUSHES = 2 };

/* A record as the rules have it. */
typedef struct Reference {
    size_t start, end; /* with its newline or header */
    bool ends;         /* its end is there */
    bool good;
} Reference;

/* A run of records, so far. */
typedef struct Sum {
    unsigned n;
    uint32_t crc;
} Sum;

static void add_record(Sum *sum, const NrdNewRecord *record)
{
    uint64_t sizes[2] = { record->key_size, record->payload_size };
    FUZZ_CHECK(record->payload_size <= MAX_RECORD && record->key_size <= NRD_KEY_MAX);
    sum->n++;
    sum->crc = fuzz_crc32c(sum->crc, sizes, sizeof sizes);
    sum->crc = fuzz_crc32c(sum->crc, record->key, record->key_size);
    sum->crc = fuzz_crc32c(sum->crc, record->payload, record->payload_size);
}

static void add_records(void *user_data, const NrdNewRecord *records, size_t n_records)
{
    for (size_t i = 0; i < n_records; i++)
        add_record(user_data, &records[i]);
}

/* ---- the reference ---- */

static bool add_jsonl(const uint8_t *line, size_t size, Sum *sum)
{
    NrdJsonlLine parsed;
    const char *why;
    if (nrd_jsonl_parse(line, size, MAX_RECORD, &parsed, &why) < 0)
        return false;
    if (!parsed.blank)
        add_record(sum, &parsed.record);
    g_free(parsed.decoded);
    return true;
}

static Reference next_line(NrdFramingKind kind, const uint8_t *bytes, size_t size, size_t pos, Sum *sum)
{
    const uint8_t *newline = memchr(bytes + pos, '\n', size - pos);
    size_t n = newline ? (size_t)(newline - bytes) - pos : size - pos;
    Reference r = { pos, pos + n + (newline != NULL), newline != NULL, true };
    if (kind == NRD_FRAMING_JSONL)
        r.good = add_jsonl(bytes + pos, n, sum);
    else if (n > MAX_RECORD)
        r.good = false;
    else
        add_record(sum, &(NrdNewRecord){ .payload = bytes + pos, .payload_size = n });
    return r;
}

static Reference next_bin(const uint8_t *bytes, size_t size, size_t pos, Sum *sum)
{
    Reference r = { pos, size, false, false };
    if (size - pos < 8)
        return r;
    uint64_t key = nrd_get_be32(bytes + pos), payload = nrd_get_be32(bytes + pos + 4);
    r.ends = key + payload <= size - pos - 8;
    if (r.ends)
        r.end = pos + 8 + (size_t)(key + payload);
    r.good = r.ends && key <= NRD_KEY_MAX && payload <= MAX_RECORD;
    if (r.good)
        add_record(sum, &(NrdNewRecord){ bytes + pos + 8, key, bytes + pos + 8 + key, payload });
    return r;
}

static GArray *reference(NrdFramingKind kind, const uint8_t *bytes, size_t size, Sum *sum)
{
    GArray *records = g_array_new(FALSE, FALSE, sizeof(Reference));
    for (size_t pos = 0; pos < size;) {
        Reference r =
            kind == NRD_FRAMING_BIN ? next_bin(bytes, size, pos, sum) : next_line(kind, bytes, size, pos, sum);
        g_array_append_val(records, r);
        pos = r.end;
    }
    return records;
}

/* ---- the program ---- */

typedef struct Program {
    NrdFraming framing;
    NrdFramingKind kind;
    uint8_t flags;
    const uint8_t *bytes;
    size_t size;
    size_t pos;
    const GArray *records;
    guint at; /* the record that holds pos */
    bool all_good;
    Sum sum;
} Program;

static const Reference *record_at(Program *p)
{
    while (g_array_index(p->records, Reference, p->at).end <= p->pos)
        p->at++;
    return &g_array_index(p->records, Reference, p->at);
}

/* Sends n bytes. */
static void send(Program *p, size_t n)
{
    size_t taken = 0;
    uint8_t *request = g_memdup2(p->bytes + p->pos, n); /* of exactly that size */
    const Reference *r = record_at(p);
    NrdFramingRequest what = { request, n, p->flags & MAY_BE_CUT && p->pos + n < p->size };
    int rc = nrd_framing_feed(&p->framing, what, MAX_RECORD, add_records, &p->sum, &taken);
    FUZZ_CHECK(rc == 0 || rc == -EMSGSIZE || rc == -EINVAL);
    FUZZ_CHECK(rc < 0 || (taken > 0 && taken <= n));
    if (rc < 0) {
        FUZZ_CHECK(!r->good && p->framing.why != NULL);
        p->pos = r->ends && r->end <= p->pos + n ? r->end : p->pos + n;
    } else {
        FUZZ_CHECK(taken == n || !p->all_good);
        p->pos += taken;
    }
    g_free(request);
}

/* A request that begins as the refused one did would be taken for it; a shorter one is not. 0: there is no other. */
static size_t unlike_refused(const Program *p, size_t n)
{
    if (!nrd_framing_resent(&p->framing, p->bytes + p->pos, n))
        return n;
    return p->framing.refused->len - 1;
}

static bool run(Program *p, FuzzCuts *cuts)
{
    while (p->pos < p->size) {
        size_t n = unlike_refused(p, cuts ? fuzz_cut(cuts, p->size - p->pos) : p->size - p->pos);
        if (n == 0)
            return false;
        send(p, n);
        /* a whole object ends there, which is the program's doing: only for framings in which nothing does */
        if (p->flags & FLUSHES && p->kind != NRD_FRAMING_JSONL)
            FUZZ_CHECK(nrd_framing_end(&p->framing, NRD_FRAMING_FLUSH, MAX_RECORD, add_records, &p->sum) == 0);
    }
    return true;
}

static void check_end(Program *p, const Sum *want)
{
    const Reference *last = p->records->len > 0 ? &g_array_index(p->records, Reference, p->records->len - 1) : NULL;
    int rc = nrd_framing_end(&p->framing, NRD_FRAMING_CLOSE, MAX_RECORD, add_records, &p->sum);
    FUZZ_CHECK(rc == 0 || rc == -EMSGSIZE || rc == -EINVAL);
    FUZZ_CHECK(rc == 0 || (last && !last->good));
    if (last && !last->ends && !last->good && p->all_good)
        FUZZ_CHECK(rc < 0); /* what was dropped is told */
    FUZZ_CHECK(p->framing.partial->len == 0);
    FUZZ_CHECK(p->sum.n == want->n && p->sum.crc == want->crc);
}

/* Whether every record whose end is there is good. */
static bool all_good(const GArray *records)
{
    bool good = true;
    for (guint i = 0; i < records->len; i++) {
        const Reference *r = &g_array_index(records, Reference, i);
        good = good && (r->good || !r->ends);
    }
    return good;
}

/* A header that says too much is refused at once, so an unfinished binary record is no good end either. */
static bool tail_is_harmless(NrdFramingKind kind, const uint8_t *bytes, const GArray *records)
{
    if (records->len == 0)
        return true;
    const Reference *last = &g_array_index(records, Reference, records->len - 1);
    if (last->ends || last->good)
        return true;
    if (kind == NRD_FRAMING_LINES)
        return false;
    return kind == NRD_FRAMING_JSONL || last->end - last->start < 8 ||
           (nrd_get_be32(bytes + last->start) <= NRD_KEY_MAX && nrd_get_be32(bytes + last->start + 4) <= MAX_RECORD);
}

void framing_check(NrdFramingKind kind, const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    FuzzCuts cuts = { fuzz_u16(&in) };
    NrdPartialBudget budget;
    Sum want = { 0 };
    size_t n;
    uint8_t *bytes = fuzz_rest(&in, &n);
    g_autoptr(GArray) records = reference(kind, bytes, n, &want);
    bool good = all_good(records) && tail_is_harmless(kind, bytes, records);
    nrd_partial_budget_init(&budget, NRD_PARTIAL_BYTES_DEFAULT);
    for (int whole = 0; whole < 2; whole++) {
        Program p = { .kind = kind, .flags = flags, .bytes = bytes, .size = n, .records = records, .all_good = good };
        nrd_framing_init(&p.framing, kind, &budget);
        if (run(&p, whole ? NULL : &cuts))
            check_end(&p, &want);
        nrd_framing_clear(&p.framing);
    }
    FUZZ_CHECK(budget.used_bytes == 0);
    nrd_partial_budget_clear(&budget);
    g_free(bytes);
}
