/* What consumers have settled: consumer.offset and both slots of consumer.ahead. */
#include "ctl/check.h"
#include "engine/base/endian.h"
#include "engine/io/io.h"
#include "engine/queue/ahead.h"

#include <errno.h>

#define READ_MAX ((size_t)65536)
#define N_SLOTS 2
#define OFFSET_BYTES 8

/* NULL when there is nothing to judge; too large a file is cut to a size that none has. */
static GBytes *read_file(NrdCheck *check, const char *path)
{
    GBytes *bytes = NULL;
    int rc = nrd_io_read_file(check->root_fd, path, READ_MAX, &bytes);
    if (rc == -EFBIG)
        return g_bytes_new_take(g_malloc0(READ_MAX), READ_MAX);
    if (rc < 0 && rc != -ENOENT)
        nrd_check_unreadable(check, path, NRD_OUT_PARTITION, rc);
    if (rc == 0 && g_bytes_get_size(bytes) == 0)
        g_clear_pointer(&bytes, g_bytes_unref);
    return rc < 0 ? NULL : bytes;
}

/* ---- consumer.offset ---- */

/* The daemon takes nothing from a damaged one. told: consumer.ahead is whole, and fits the records. */
static void tell_offset(NrdCheck *check, const char *path, bool told, const char *what)
{
    if (told)
        nrd_check_note(check, path, "frontier",
                       "%s; it does not count: consumer.ahead tells what is settled, and nothing comes again", what);
    else
        nrd_check_error(check, path, "frontier", "%s; it does not count: what is settled may be delivered again", what);
}

static void check_offset(NrdCheck *check, const char *path, uint64_t end_offset, bool told)
{
    g_autoptr(GBytes) bytes = read_file(check, path);
    g_autofree char *what = NULL;
    gsize size;
    if (!bytes)
        return;
    const uint8_t *data = g_bytes_get_data(bytes, &size);
    if (size != OFFSET_BYTES)
        what = g_strdup("of another size than " G_STRINGIFY(OFFSET_BYTES) " bytes");
    else if (nrd_get_be64(data) >= end_offset)
        what = g_strdup_printf("it says that offset %" G_GUINT64_FORMAT
                               " is settled, but the records end at %" G_GUINT64_FORMAT
                               ": it is damaged, or records are lost",
                               nrd_get_be64(data), end_offset);
    if (what)
        tell_offset(check, path, told, what);
}

/* ---- consumer.ahead ---- */

/* Whether the slot is valid. */
static bool decode_slot(const uint8_t *slot, uint64_t *ret_sequence, uint64_t *ret_settled_below)
{
    g_autoptr(GArray) ahead = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    NrdFrontier state = { .frontier = 0, .ahead = ahead };
    if (nrd_ahead_decode(slot, &state, ret_sequence) < 0)
        return false;
    *ret_settled_below = ahead->len > 0 ? g_array_index(ahead, uint64_t, ahead->len - 1) + 1 : state.frontier;
    return true;
}

typedef struct Slots {
    int newest; /* the one that counts; -1: none is valid */
    uint64_t sequence;
    uint64_t settled_below;
    int torn; /* -1: none */
} Slots;

static Slots read_slots(const uint8_t *data, size_t size)
{
    Slots slots = { .newest = -1, .torn = -1 };
    for (int i = 0; i < N_SLOTS && (size_t)(i + 1) * NRD_AHEAD_SLOT_SIZE <= size; i++) {
        const uint8_t *slot = data + (size_t)i * NRD_AHEAD_SLOT_SIZE;
        uint64_t sequence, settled_below;
        if (!decode_slot(slot, &sequence, &settled_below)) {
            slots.torn = nrd_ahead_unwritten(slot) ? slots.torn : i;
            continue;
        }
        if (slots.newest >= 0 && sequence <= slots.sequence)
            continue;
        slots.newest = i;
        slots.sequence = sequence;
        slots.settled_below = settled_below;
    }
    return slots;
}

/* Whether it tells what is settled. */
static bool check_ahead(NrdCheck *check, const char *path, uint64_t end_offset)
{
    g_autoptr(GBytes) bytes = read_file(check, path);
    gsize size;
    if (!bytes)
        return false;
    const uint8_t *data = g_bytes_get_data(bytes, &size);
    Slots slots = read_slots(data, size);
    if (slots.newest < 0)
        nrd_check_error(check, path, "frontier", "no valid slot; what is settled may be delivered again");
    else if (slots.settled_below > end_offset)
        nrd_check_error(check, path, "frontier",
                        "slot %d says that offsets below %" G_GUINT64_FORMAT
                        " are settled, but the records end at %" G_GUINT64_FORMAT ": records are lost",
                        slots.newest, slots.settled_below, end_offset);
    else if (slots.torn >= 0)
        nrd_check_note(check, path, "frontier", "slot %d is torn; the other one counts", slots.torn);
    else if (size != (gsize)N_SLOTS * NRD_AHEAD_SLOT_SIZE)
        nrd_check_note(check, path, "frontier", "of another size than two slots have; a slot that is whole counts");
    return slots.newest >= 0 && slots.settled_below <= end_offset;
}

void nrd_check_frontier(NrdCheck *check, const char *dir, uint64_t end_offset)
{
    g_autofree char *offset = g_strconcat(dir, "/consumer.offset", NULL);
    g_autofree char *ahead = g_strconcat(dir, "/consumer.ahead", NULL);
    bool told = check_ahead(check, ahead, end_offset);
    check_offset(check, offset, end_offset, told);
}
