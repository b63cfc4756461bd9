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

void nrd_check_cursor(NrdCheck *check, const char *path, uint64_t end_offset)
{
    g_autoptr(GBytes) bytes = NULL;
    NrdCursorSlot newest = { .sequence = 0 };
    gsize size;
    int rc = nrd_io_read_file(check->root_fd, path, (size_t)2 * NRD_CURSOR_FILE_BYTES, &bytes);
    if (rc < 0 && rc != -EFBIG) {
        nrd_check_unreadable(check, path, rc);
        return;
    }
    const uint8_t *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    if (!data || !find_newest(data, size, &newest))
        nrd_check_error(check, path, "cursor", "no valid slot; what was copied since the attach may be copied again");
    else if (newest.offset > end_offset)
        nrd_check_error(check, path, "cursor",
                        "it says that offsets below %" PRIu64 " were copied, but the records end at %" PRIu64
                        ": records are lost",
                        newest.offset, end_offset);
}
