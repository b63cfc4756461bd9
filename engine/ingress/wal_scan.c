/* See wal_scan.h. */
#include "engine/ingress/wal_scan.h"

#include <string.h>

/* Where the next header with its mark stands, from pos on; the size when there is none. Linear, whatever the bytes. */
static size_t find_header(const NrdWalScan *scan, size_t pos)
{
    NrdEntryHead head;
    while (pos + NRD_ENTRY_HEADER_BYTES <= scan->size) {
        const uint8_t *at = memmem(scan->bytes + pos, scan->size - pos, "NRDE", 4);
        if (!at)
            break;
        pos = (size_t)(at - scan->bytes);
        if (pos + NRD_ENTRY_HEADER_BYTES <= scan->size && nrd_entry_decode_head(at, scan->salt + pos, &head) == 0)
            return pos;
        pos++;
    }
    return scan->size;
}

/* Behind the damage at pos: past the entry when its header tells its size, else at the next header. */
static size_t pass_over(const NrdWalScan *scan, size_t pos)
{
    NrdEntryHead head;
    if (scan->size - pos >= NRD_ENTRY_HEADER_BYTES &&
        nrd_entry_decode_head(scan->bytes + pos, scan->salt + pos, &head) == 0) {
        if (head.size > scan->size - pos)
            return scan->size;
        return find_header(scan, pos + head.size);
    }
    return find_header(scan, pos + 1);
}

static bool all_zeros(const uint8_t *bytes, size_t size)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

bool nrd_wal_scan_next(NrdWalScan *scan, NrdWalPiece *ret_piece)
{
    NrdWalPiece piece = { .pos = scan->pos };
    if (scan->pos >= scan->size)
        return false;
    int rc = nrd_entry_decode(scan->bytes + piece.pos, scan->size - piece.pos, scan->salt + piece.pos, &piece.view);
    if (rc == 0 && piece.view.head.sequence >= scan->least) {
        piece.is_entry = true;
        scan->least = piece.view.head.sequence + 1;
        piece.end = piece.pos + piece.view.head.size;
    } else {
        piece.end = pass_over(scan, piece.pos);
        piece.is_zeros = all_zeros(scan->bytes + piece.pos, piece.end - piece.pos);
    }
    scan->pos = piece.end;
    *ret_piece = piece;
    return true;
}
