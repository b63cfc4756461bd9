/* A bar on standard error while a verb reads: share, bytes, rate, time left. Nothing when that is no terminal. One
 * thread. */
#ifndef NRD_CTL_PROGRESS_H
#define NRD_CTL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NrdProgress {
    bool shown;
    bool drawn; /* a bar stands on the line */
    uint64_t total_bytes;
    uint64_t done_bytes;
    uint64_t item_bytes; /* of the file being read */
    uint64_t item_done;
    int64_t start_us;
    int64_t drawn_us;
} NrdProgress;

void nrd_progress_init(NrdProgress *progress, bool shown);

/* A file of that size is read next; `read` bytes of it have been. What is read twice counts once. */
void nrd_progress_begin(NrdProgress *progress, uint64_t size_bytes);
void nrd_progress_read(NrdProgress *progress, size_t n_bytes);
void nrd_progress_end(NrdProgress *progress);

/* Takes the bar away, so that a line can be printed; the next step draws it again. */
void nrd_progress_clear(NrdProgress *progress);

/* The bar's text (g_free), width columns at most. Pure. */
char *nrd_progress_text(uint64_t done_bytes, uint64_t total_bytes, int64_t spent_us, unsigned width);

#endif
