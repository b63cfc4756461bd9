/* See progress.h. */
#include "ctl/progress.h"

#include "ctl/cli.h"

#include <glib.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_EVERY_US 100000
#define BAR_CELLS 24
#define RATE_AFTER_US 200000 /* before that a rate means nothing */

void nrd_progress_init(NrdProgress *progress, bool shown)
{
    *progress = (NrdProgress){ .shown = shown, .start_us = g_get_monotonic_time() };
}

char *nrd_progress_text(uint64_t done_bytes, uint64_t total_bytes, int64_t spent_us, unsigned width)
{
    double share = total_bytes > 0 ? (double)MIN(done_bytes, total_bytes) / (double)total_bytes : 1;
    unsigned filled = (unsigned)(share * BAR_CELLS);
    g_autofree char *done = nrd_cli_size(done_bytes);
    g_autofree char *total = nrd_cli_size(total_bytes);
    GString *text = g_string_new("[");
    for (unsigned i = 0; i < BAR_CELLS; i++)
        g_string_append_c(text, i < filled ? '#' : '.');
    g_string_append_printf(text, "] %3u%%  %s of %s", (unsigned)(share * 100), done, total);
    if (spent_us >= RATE_AFTER_US && done_bytes > 0) {
        double rate = (double)done_bytes * 1e6 / (double)spent_us;
        uint64_t left_s = (uint64_t)((double)(total_bytes - MIN(done_bytes, total_bytes)) / rate + 0.5);
        g_autofree char *per_second = nrd_cli_size((uint64_t)rate);
        g_string_append_printf(text, "  %s/s  ", per_second);
        if (left_s >= 3600)
            g_string_append_printf(text, "%" G_GUINT64_FORMAT ":", left_s / 3600);
        g_string_append_printf(text, "%02u:%02u left", (unsigned)(left_s / 60 % 60), (unsigned)(left_s % 60));
    }
    if (text->len > width)
        g_string_truncate(text, width);
    return g_string_free(text, FALSE);
}

static unsigned columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        return size.ws_col - 1U;
    return 79;
}

static void draw(NrdProgress *progress)
{
    int64_t now = g_get_monotonic_time();
    if (!progress->shown || progress->total_bytes == 0 || now - progress->drawn_us < DRAW_EVERY_US)
        return;
    uint64_t done = progress->done_bytes + progress->item_done;
    g_autofree char *text = nrd_progress_text(done, progress->total_bytes, now - progress->start_us, columns());
    fprintf(stderr, "\r%s\033[K", text);
    fflush(stderr);
    progress->drawn = true;
    progress->drawn_us = now;
}

void nrd_progress_begin(NrdProgress *progress, uint64_t size_bytes)
{
    progress->item_bytes = size_bytes;
    progress->item_done = 0;
    draw(progress);
}

void nrd_progress_read(NrdProgress *progress, size_t n_bytes)
{
    uint64_t left = progress->item_bytes - progress->item_done;
    progress->item_done += MIN(left, (uint64_t)n_bytes);
    draw(progress);
}

void nrd_progress_end(NrdProgress *progress)
{
    progress->done_bytes += progress->item_bytes;
    progress->item_bytes = progress->item_done = 0;
}

void nrd_progress_clear(NrdProgress *progress)
{
    if (!progress->drawn)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->drawn = false;
    progress->drawn_us = 0;
}
