/* The file of a cursor: reading, writing behind each batch, and making durable.
 *
 * The child has a batch durably before its cursor is written: after a kill at most the batch under way comes twice. A
 * write goes to the page cache; sync makes it durable, so a power cut repeats what was copied since the last sync. It
 * never loses the cursor: one slot, the anchor, is known durable, and writes go to the other one until a sync has made
 * that one the anchor. What an earlier process wrote may not be durable, whatever the page cache shows, so the first
 * write writes the recovered slot once more, with the bytes it has, and syncs it. A file without a valid slot is
 * replaced as a whole, durably, and so is what is no regular file: the name is taken from a link, whatever that points to
 * stays as it is. Only a folder cannot be replaced (-EISDIR).
 *
 * The file is open from a write to nrd_cursor_store_rest. Threads: one at a time. All but new, free and rest block. */
#ifndef NRD_FANOUT_CURSOR_STORE_H
#define NRD_FANOUT_CURSOR_STORE_H

#include "engine/fanout/cursor_file.h"

typedef struct NrdCursorStore {
    int root_fd; /* of the data directory; borrowed */
    char *path;
    NrdCursorOwner owner;
    int fd;               /* or -1 */
    unsigned anchor;      /* slot that is durable, when proven */
    NrdCursorSlot latest; /* sequence 0: the file has to be replaced. What the anchor holds, or the window above it */
    bool proven;
    bool dirty; /* the window holds something that no sync has covered */
} NrdCursorStore;

void nrd_cursor_store_init(NrdCursorStore *store, int root_fd, const char *parent, uint32_t partition,
                           const char *child, const NrdCursorOwner *owner);
void nrd_cursor_store_clear(NrdCursorStore *store); /* closes; writes nothing */

/* *ret_found says whether *ret_offset was set; a missing file is DAMAGED with *ret_missing. What is no regular
 * file is NO_FILE, and never followed. Errors: what the disk says when there is a file that it cannot read. */
int nrd_cursor_store_load(NrdCursorStore *store, NrdCursorFound *ret_found, uint64_t *ret_offset,
                          bool *ret_missing) NRD_MUST_CHECK;

/* After an error the cursor on disk is what it was, or this one; write again. */
int nrd_cursor_store_write(NrdCursorStore *store, uint64_t offset) NRD_MUST_CHECK;

/* What was written is durable. After an error write again before the next sync. */
int nrd_cursor_store_sync(NrdCursorStore *store) NRD_MUST_CHECK;

/* Closes the file. What was written may still be synced, or written again. */
void nrd_cursor_store_rest(NrdCursorStore *store);

/* Removes the file durably, if it is this owner's or nobody's. */
int nrd_cursor_store_remove(NrdCursorStore *store) NRD_MUST_CHECK;

/* Removes a cursor's file durably, whoever's it is. A missing one is success. */
int nrd_cursor_file_remove(int root_fd, const char *path) NRD_MUST_CHECK;

char *nrd_cursor_path(const char *parent, uint32_t partition, const char *child); /* g_free */

#endif
