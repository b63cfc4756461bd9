/* See manifest.h. */
#include "ctl/manifest.h"

#include "engine/base/crc32c.h"
#include "engine/base/diag.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define TITLE "naradfs-export 1"
#define CRC_PREFIX "crc32c "
#define CRC_LINE_BYTES (sizeof CRC_PREFIX - 1 + 8 + 1)

NrdManifest *nrd_manifest_new(void)
{
    NrdManifest *manifest = g_new0(NrdManifest, 1);
    manifest->files = g_array_new(FALSE, TRUE, sizeof(NrdManifestFile));
    return manifest;
}

void nrd_manifest_free(NrdManifest *manifest)
{
    if (!manifest)
        return;
    g_free(manifest->topic);
    g_free(manifest->incarnation);
    g_array_unref(manifest->files);
    g_free(manifest);
}

void nrd_manifest_add(NrdManifest *manifest, const char *name, uint64_t size_bytes, uint32_t crc, int64_t mtime_ms)
{
    NrdManifestFile file = { .size_bytes = size_bytes, .crc = crc, .mtime_ms = mtime_ms };
    g_strlcpy(file.name, name, sizeof file.name);
    g_array_append_val(manifest->files, file);
}

GString *nrd_manifest_encode(const NrdManifest *m)
{
    GString *text = g_string_new(NULL);
    g_string_append_printf(text,
                           TITLE "\ntopic %s\npartition %" PRIu64 "\nincarnation %s\noldest %" PRIu64 "\nhwm %" PRIu64,
                           m->topic, m->partition, m->incarnation, m->oldest, m->hwm);
    g_string_append_printf(text, "\nrecords %" PRIu64 "\nfrontier %" PRIu64 "\nahead %" PRIu64 "\n", m->n_records,
                           m->frontier, m->n_ahead);
    for (guint i = 0; i < m->files->len; i++) {
        const NrdManifestFile *file = &g_array_index(m->files, NrdManifestFile, i);
        g_string_append_printf(text, "file %s %" PRIu64 " %08" PRIx32 " %" PRId64 "\n", file->name, file->size_bytes,
                               file->crc, file->mtime_ms);
    }
    uint32_t crc = nrd_crc32c(0, text->str, text->len);
    g_string_append_printf(text, CRC_PREFIX "%08" PRIx32 "\n", crc);
    return text;
}

/* ---- reading: the bytes are not trusted ---- */

static bool parse_hex32(const char *text, uint32_t *ret_value)
{
    if (strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8)
        return false;
    *ret_value = (uint32_t)g_ascii_strtoull(text, NULL, 16);
    return true;
}

/* Whether the last line is there and right; *ret_body: how much stands before it. */
static bool check_crc(const char *text, size_t size, size_t *ret_body)
{
    if (size < CRC_LINE_BYTES || text[size - 1] != '\n' || memchr(text, '\0', size))
        return false;
    size_t body = size - CRC_LINE_BYTES;
    g_autofree char *line = g_strndup(text + body, CRC_LINE_BYTES - 1);
    uint32_t crc;
    *ret_body = body;
    return g_str_has_prefix(line, CRC_PREFIX) && parse_hex32(line + strlen(CRC_PREFIX), &crc) &&
           crc == nrd_crc32c(0, text, body) && (body == 0 || text[body - 1] == '\n');
}

static bool parse_number(const char *line, const char *key, uint64_t *ret_number)
{
    size_t n = strlen(key);
    return line && strncmp(line, key, n) == 0 && line[n] == ' ' &&
           g_ascii_string_to_unsigned(line + n + 1, 10, 0, INT64_MAX, ret_number, NULL);
}

static bool parse_word(const char *line, const char *key, char **ret_word)
{
    size_t n = strlen(key);
    if (!line || strncmp(line, key, n) != 0 || line[n] != ' ' || line[n + 1] == '\0')
        return false;
    *ret_word = g_strdup(line + n + 1);
    return true;
}

static bool is_log(const char *name)
{
    return strspn(name, "0123456789") == 20 && strcmp(name + 20, ".log") == 0;
}

/* The name may follow those before it. */
static bool name_fits(const NrdManifest *manifest, const char *name)
{
    static const char *const others[] = { "hwm", "consumer.offset", "consumer.ahead", NULL };
    bool log = is_log(name);
    if (!log && !g_strv_contains(others, name))
        return false;
    for (guint i = manifest->files->len; i-- > 0;) {
        const char *before = g_array_index(manifest->files, NrdManifestFile, i).name;
        if (log)
            return is_log(before) && strcmp(before, name) < 0;
        if (is_log(before) || strcmp(before, name) == 0)
            return is_log(before);
    }
    return true;
}

static bool parse_file(NrdManifest *manifest, const char *line)
{
    g_auto(GStrv) words = g_strsplit(line, " ", -1);
    guint64 size;
    gint64 mtime;
    uint32_t crc;
    if (g_strv_length(words) != 5 || strcmp(words[0], "file") != 0 || !name_fits(manifest, words[1]) ||
        !g_ascii_string_to_unsigned(words[2], 10, 0, INT64_MAX, &size, NULL) || !parse_hex32(words[3], &crc) ||
        !g_ascii_string_to_signed(words[4], 10, INT64_MIN / 2, INT64_MAX / 2, &mtime, NULL))
        return false;
    nrd_manifest_add(manifest, words[1], size, crc, mtime);
    return true;
}

static bool parse(NrdManifest *m, char **lines)
{
    guint n = g_strv_length(lines); /* the last one is empty: what follows the last newline */
    bool good = n >= 10 && strcmp(lines[0], TITLE) == 0 && parse_word(lines[1], "topic", &m->topic) &&
                parse_number(lines[2], "partition", &m->partition) &&
                parse_word(lines[3], "incarnation", &m->incarnation) && parse_number(lines[4], "oldest", &m->oldest) &&
                parse_number(lines[5], "hwm", &m->hwm) && parse_number(lines[6], "records", &m->n_records) &&
                parse_number(lines[7], "frontier", &m->frontier) && parse_number(lines[8], "ahead", &m->n_ahead);
    for (guint i = 9; good && i + 1 < n; i++)
        good = parse_file(m, lines[i]);
    return good && m->frontier <= m->hwm;
}

/* No other text says the same: numbers have no leading zero and no plus. */
static bool is_canonical(const NrdManifest *manifest, const char *text, size_t size)
{
    g_autoptr(GString) again = nrd_manifest_encode(manifest);
    return again->len == size && memcmp(again->str, text, size) == 0;
}

int nrd_manifest_decode(const char *text, size_t size, NrdManifest **ret_manifest)
{
    size_t body;
    if (size > NRD_MANIFEST_MAX_BYTES || !check_crc(text, size, &body))
        return -EBADMSG;
    g_autofree char *copy = g_strndup(text, body);
    g_auto(GStrv) lines = g_strsplit(copy, "\n", -1);
    NrdManifest *manifest = nrd_manifest_new();
    if (!parse(manifest, lines) || !is_canonical(manifest, text, size)) {
        nrd_manifest_free(manifest);
        return -EBADMSG;
    }
    *ret_manifest = manifest;
    return 0;
}

bool nrd_manifest_same_content(const NrdManifest *a, const NrdManifest *b)
{
    bool same = a->oldest == b->oldest && a->hwm == b->hwm && a->n_records == b->n_records &&
                a->frontier == b->frontier && a->n_ahead == b->n_ahead && a->files->len == b->files->len;
    for (guint i = 0; same && i < a->files->len; i++) {
        const NrdManifestFile *left = &g_array_index(a->files, NrdManifestFile, i);
        const NrdManifestFile *right = &g_array_index(b->files, NrdManifestFile, i);
        same = strcmp(left->name, right->name) == 0 && left->size_bytes == right->size_bytes && left->crc == right->crc;
    }
    return same;
}

char *nrd_manifest_in_words(const NrdManifest *manifest)
{
    if (manifest->hwm == manifest->oldest)
        return g_strdup_printf("no record, the next offset is %" PRIu64, manifest->hwm);
    return g_strdup_printf("%" PRIu64 " record%s, offsets %" PRIu64 " to %" PRIu64, manifest->n_records,
                           nrd_plural(manifest->n_records), manifest->oldest, manifest->hwm - 1);
}
