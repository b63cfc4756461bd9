/* What consumers have settled: consumer.offset and both slots of consumer.ahead. */
#include "ctl/check.h"
#include "engine/base/diag.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"
#include "engine/queue/ahead.h"

#include <errno.h>

#define READ_MAX ((size_t)65536)
#define N_SLOTS 2

/* NULL when there is nothing to judge. */
static GBytes *read_file(NrdCheck *check, const char *path)
{
    GBytes *bytes = NULL;
    int rc = nrd_io_read_file(check->root_fd, path, READ_MAX, &bytes);
    if (rc == -EFBIG)
        nrd_check_error(check, path, "frontier", "far too large");
    else if (rc < 0 && rc != -ENOENT)
        nrd_check_unreadable(check, path, rc);
    if (rc == 0 && g_bytes_get_size(bytes) == 0)
        g_clear_pointer(&bytes, g_bytes_unref);
    return rc < 0 ? NULL : bytes;
}

static void check_offset(NrdCheck *check, const char *path, uint64_t end_offset)
{
    g_autoptr(GBytes) bytes = read_file(check, path);
    gsize size;
    if (!bytes)
        return;
    const uint8_t *data = g_bytes_get_data(bytes, &size);
    if (size != 8)
        nrd_check_error(check, path, "frontier", "%zu byte%s instead of 8; what is settled may be delivered again",
                        size, nrd_plural(size));
    else if (nrd_get_be64(data) >= end_offset)
        nrd_check_error(check, path, "frontier",
                        "it says that offset %" G_GUINT64_FORMAT
                        " is settled, but the records end at %" G_GUINT64_FORMAT
                        ": this file is damaged, or records are lost",
                        nrd_get_be64(data), end_offset);
}

/* Whether the slot is valid. */
static bool check_slot(NrdCheck *check, const char *path, const uint8_t *slot, int i, uint64_t end_offset)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    uint64_t sequence;
    if (nrd_ahead_decode(slot, &state, &sequence) < 0)
        return false;
    uint64_t highest = ahead->len > 0 ? g_array_index(ahead, uint64_t, ahead->len - 1) + 1 : state.frontier;
    if (highest > end_offset)
        nrd_check_error(check, path, "frontier",
                        "slot %d says that offsets below %" G_GUINT64_FORMAT
                        " are settled, but the records end at %" G_GUINT64_FORMAT ": records are lost",
                        i, highest, end_offset);
    return true;
}

static void check_ahead(NrdCheck *check, const char *path, uint64_t end_offset)
{
    g_autoptr(GBytes) bytes = read_file(check, path);
    gsize size;
    int n_valid = 0, bad = -1;
    if (!bytes)
        return;
    const uint8_t *data = g_bytes_get_data(bytes, &size);
    if (size != (gsize)N_SLOTS * NRD_AHEAD_SLOT_SIZE)
        nrd_check_error(check, path, "frontier", "%zu byte%s instead of %d", size, nrd_plural(size),
                        N_SLOTS * NRD_AHEAD_SLOT_SIZE);
    for (int i = 0; i < N_SLOTS && (gsize)(i + 1) * NRD_AHEAD_SLOT_SIZE <= size; i++) {
        const uint8_t *slot = data + (size_t)i * NRD_AHEAD_SLOT_SIZE;
        if (check_slot(check, path, slot, i, end_offset))
            n_valid++;
        else if (!nrd_ahead_unwritten(slot))
            bad = i;
    }
    if (n_valid == 0)
        nrd_check_error(check, path, "frontier", "no valid slot; what is settled may be delivered again");
    else if (bad >= 0)
        nrd_check_note(check, path, "frontier", "slot %d is torn; the other one counts", bad);
}

void nrd_check_frontier(NrdCheck *check, const char *dir, uint64_t end_offset)
{
    g_autofree char *offset = g_strconcat(dir, "/consumer.offset", NULL);
    g_autofree char *ahead = g_strconcat(dir, "/consumer.ahead", NULL);
    check_offset(check, offset, end_offset);
    check_ahead(check, ahead, end_offset);
}
