/* Measures what preallocation is worth to a synced append on one disk.
 *
 * usage: prealloc FOLDER [SECONDS]     SECONDS: for each line, default 1
 * Every writer is a thread with a file of its own in FOLDER that writes at the end of its data and calls fdatasync:
 *   append      the file grows with every write
 *   unwritten   the blocks were allocated by fallocate, the size extended; nothing was written to them
 *   zeroed      zeros were written and synced before
 *   ahead N     zeros are written N bytes ahead when the tail reaches their end, under the same fdatasync
 * Prints one line for each mode, size and number of writers: median and 99th percentile of write + sync in
 * microseconds, syncs a second over all writers. Files start anew after 8 MiB. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES ((size_t)8 << 20)
#define MAX_SAMPLES 100000
#define MAX_WRITERS 64

typedef struct Mode {
    const char *name;
    bool unwritten;
    bool zeroed;
    size_t ahead_bytes;
} Mode;

static const Mode modes[] = {
    { "append", false, false, 0 },
    { "unwritten", true, false, 0 },
    { "zeroed", false, true, 0 },
    { "ahead 16K", false, false, (size_t)16 << 10 },
    { "ahead 64K", false, false, 64 << 10 },
    { "ahead 256K", false, false, 256 << 10 },
    { "ahead 1M", false, false, 1 << 20 },
};

typedef struct Writer {
    pthread_t thread;
    char path[4096];
    const Mode *mode;
    size_t size;
    int fd;
    size_t pos;
    size_t zero_end;
    uint32_t *micros;
    size_t n_samples;
} Writer;

static double seconds = 1;
static double deadline;
static pthread_barrier_t start;
static char zeros[1 << 20];

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void die(const char *what)
{
    fprintf(stderr, "prealloc: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void write_at(int fd, const void *bytes, size_t size, size_t pos)
{
    if (pwrite(fd, bytes, size, (off_t)pos) != (ssize_t)size)
        die("write");
}

static void begin_file(Writer *w)
{
    if (ftruncate(w->fd, 0) != 0)
        die("truncate");
    if (w->mode->unwritten && fallocate(w->fd, 0, 0, (off_t)FILE_BYTES) != 0)
        die("fallocate");
    for (size_t pos = 0; w->mode->zeroed && pos < FILE_BYTES; pos += sizeof zeros)
        write_at(w->fd, zeros, sizeof zeros, pos);
    if (fsync(w->fd) != 0)
        die("sync");
    w->pos = w->zero_end = 0;
}

static void append_once(Writer *w, const char *record)
{
    size_t ahead = w->mode->ahead_bytes;
    double begin = now_s();

    write_at(w->fd, record, w->size, w->pos);
    w->pos += w->size;
    if (ahead > 0 && w->pos > w->zero_end) {
        w->zero_end = (w->pos / ahead + 1) * ahead;
        write_at(w->fd, zeros, w->zero_end - w->pos, w->pos);
    }
    if (fdatasync(w->fd) != 0)
        die("sync");
    if (w->n_samples < MAX_SAMPLES)
        w->micros[w->n_samples++] = (uint32_t)((now_s() - begin) * 1e6);
}

static void *run(void *data)
{
    Writer *w = data;
    char *record = malloc(w->size);

    memset(record, 'r', w->size);
    begin_file(w);
    pthread_barrier_wait(&start); /* everybody is ready */
    pthread_barrier_wait(&start); /* the time is set */
    while (now_s() < deadline) {
        append_once(w, record);
        if (w->pos + w->size > FILE_BYTES)
            begin_file(w);
    }
    free(record);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static void report(const Writer *writers, int n, const Mode *mode, size_t size)
{
    static uint32_t all[MAX_SAMPLES];
    size_t total = 0, n_all = 0;

    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < writers[i].n_samples && n_all < MAX_SAMPLES; k++)
            all[n_all++] = writers[i].micros[k];
        total += writers[i].n_samples;
    }
    qsort(all, n_all, sizeof all[0], by_value);
    printf("%-12s %5zu bytes %3d writers  median %7u us  p99 %7u us  %8.0f syncs/s\n", mode->name, size, n,
           all[n_all / 2], all[n_all * 99 / 100], (double)total / seconds);
    fflush(stdout);
}

static void measure(const char *folder, const Mode *mode, size_t size, int n)
{
    static Writer writers[MAX_WRITERS];

    pthread_barrier_init(&start, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++) {
        Writer *w = &writers[i];
        *w = (Writer){ .mode = mode, .size = size, .micros = calloc(MAX_SAMPLES, sizeof(uint32_t)) };
        snprintf(w->path, sizeof w->path, "%s/prealloc.%d", folder, i);
        w->fd = open(w->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (w->fd < 0)
            die(w->path);
        if (pthread_create(&w->thread, NULL, run, w) != 0)
            die("thread");
    }
    pthread_barrier_wait(&start);
    deadline = now_s() + seconds;
    pthread_barrier_wait(&start);
    for (int i = 0; i < n; i++)
        pthread_join(writers[i].thread, NULL);
    report(writers, n, mode, size);
    for (int i = 0; i < n; i++) {
        close(writers[i].fd);
        unlink(writers[i].path);
        free(writers[i].micros);
    }
    pthread_barrier_destroy(&start);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 300, 4096 };
    static const int counts[] = { 1, 4, 16, 64 };

    if (argc < 2) {
        fprintf(stderr, "usage: prealloc FOLDER [SECONDS]\n");
        return 2;
    }
    if (argc > 2)
        seconds = atof(argv[2]);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++)
                measure(argv[1], &modes[m], sizes[s], counts[c]);
    return 0;
}
