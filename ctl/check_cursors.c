/* How far copying to fan-out children has come: fanout-<child>.offset, two slots. */
#include "ctl/check.h"
#include "engine/fanout/cursor_file.h"
#include "engine/io/io.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define PREFIX "fanout-"
#define SUFFIX ".offset"

bool nrd_check_is_cursor(const char *name)
{
    size_t n = strlen(name);
    if (n <= strlen(PREFIX SUFFIX) || !g_str_has_prefix(name, PREFIX) || !g_str_has_suffix(name, SUFFIX))
        return false;
    g_autofree char *child = g_strndup(name + strlen(PREFIX), n - strlen(PREFIX SUFFIX));
    return nrd_topic_name_check(child) == 0;
}

/* Whether there is a valid slot; *ret_newest is the one that counts. */
static bool find_newest(const uint8_t *bytes, size_t size, NrdCursorSlot *ret_newest)
{
    bool found = false;
    for (size_t pos = 0; pos + NRD_CURSOR_SLOT_BYTES <= size && pos <= NRD_CURSOR_SLOT_GAP;
         pos += NRD_CURSOR_SLOT_GAP) {
        NrdCursorSlot slot;
        if (nrd_cursor_slot_decode(bytes + pos, &slot) < 0 || (found && slot.sequence <= ret_newest->sequence))
            continue;
        *ret_newest = slot;
        found = true;
    }
    return found;
}

/* Whether a slot was written and is not whole: of two, the one that counts may be the older one then. */
static bool has_damaged_slot(const uint8_t *bytes, size_t size)
{
    static const uint8_t unwritten[NRD_CURSOR_SLOT_BYTES];
    for (size_t pos = 0; pos <= NRD_CURSOR_SLOT_GAP; pos += NRD_CURSOR_SLOT_GAP) {
        NrdCursorSlot slot;
        size_t n = size > pos ? MIN(size - pos, NRD_CURSOR_SLOT_BYTES) : 0;
        bool whole = n == NRD_CURSOR_SLOT_BYTES && nrd_cursor_slot_decode(bytes + pos, &slot) == 0;
        if (!whole && n > 0 && memcmp(bytes + pos, unwritten, n) != 0)
            return true;
    }
    return false;
}

void nrd_check_missing_cursors(NrdCheck *check, const char *dir, const NrdTopicRecord *record)
{
    for (guint i = 0; i < record->children->len; i++) {
        const NrdChildRecord *child = record->children->pdata[i];
        g_autofree char *path = g_strdup_printf("%s/" PREFIX "%s" SUFFIX, dir, child->name);
        struct stat st;
        if (nrd_io_stat(check->root_fd, path, &st) == -ENOENT)
            nrd_check_note(check, path, "cursor",
                           "it is missing; what was committed here since the attach is copied again");
    }
}

void nrd_check_cursor(NrdCheck *check, const char *path, uint64_t end_offset)
{
    g_autoptr(GBytes) bytes = NULL;
    NrdCursorSlot newest = { .sequence = 0 };
    gsize size;
    int rc = nrd_io_read_file(check->root_fd, path, (size_t)2 * NRD_CURSOR_FILE_BYTES, &bytes);
    if (rc < 0 && rc != -EFBIG) {
        nrd_check_unreadable(check, path, NRD_OUT_CURSOR, rc);
        return;
    }
    const uint8_t *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    if (!data || !find_newest(data, size, &newest))
        nrd_check_error(check, path, "cursor", "no valid slot; what was committed since the attach is copied again");
    else if (newest.offset > end_offset)
        nrd_check_error(check, path, "cursor",
                        "it says that offsets below %" PRIu64 " were copied, but the records end at %" PRIu64
                        ": records are lost; what was committed since the attach is copied again",
                        newest.offset, end_offset);
    else if (has_damaged_slot(data, size) || size < NRD_CURSOR_FILE_BYTES)
        nrd_check_note(check, path, "cursor",
                       "one slot is damaged or cut off; if it was the newer one, what was copied last is copied again");
}
