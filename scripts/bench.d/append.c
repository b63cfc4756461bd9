/* Times append + sync of one record at a time, for scripts/bench.
 *
 * usage: append fsync|fdatasync RECORD-BYTES SECONDS PROCESSES FILE...
 *   with one process, the files take turns (one record each), so that they meet the same disk at the same moment; with
 *   more, every process writes to its own descriptor of the one file.
 * Prints, for each file: median microseconds of write + sync, and records a second over all processes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_SAMPLES 200000
#define MAX_FILES 4

typedef struct Target {
    const char *path;
    int fd;
    bool full_sync; /* fsync; else fdatasync */
    uint32_t *micros;
    size_t n_samples;
} Target;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void die(const char *what, const char *path)
{
    fprintf(stderr, "append: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static int open_target(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        die("open", path);
    return fd;
}

static void append_once(Target *target, const char *record, size_t size)
{
    double start = now_s();
    if (write(target->fd, record, size) != (ssize_t)size)
        die("write", target->path);
    if ((target->full_sync ? fsync(target->fd) : fdatasync(target->fd)) != 0)
        die("sync", target->path);
    if (target->n_samples < MAX_SAMPLES)
        target->micros[target->n_samples++] = (uint32_t)((now_s() - start) * 1e6);
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void report(const Target *target, double records_per_s)
{
    if (target->n_samples == 0) {
        fprintf(stderr, "append: no time for a single record\n");
        exit(1);
    }
    qsort(target->micros, target->n_samples, sizeof(uint32_t), compare);
    printf("%u %.0f\n", target->micros[target->n_samples / 2], records_per_s);
}

static void one_process(Target *targets, size_t n_targets, const char *record, size_t size, double seconds)
{
    double end = now_s() + seconds;
    while (now_s() < end)
        for (size_t i = 0; i < n_targets; i++)
            append_once(&targets[i], record, size);
    for (size_t i = 0; i < n_targets; i++) {
        double total = 0;
        for (size_t j = 0; j < targets[i].n_samples; j++)
            total += targets[i].micros[j];
        report(&targets[i], (double)targets[i].n_samples * 1e6 / (total + 1));
    }
}

static void many_processes(Target *target, int n_processes, const char *record, size_t size, double seconds)
{
    size_t *counts =
        mmap(NULL, sizeof(size_t) * (size_t)n_processes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED)
        die("mmap", "");
    double start = now_s();
    for (int i = 0; i < n_processes; i++) {
        if (fork() != 0)
            continue;
        target->fd = open_target(target->path);
        for (; now_s() < start + seconds; counts[i]++)
            append_once(target, record, size);
        _exit(0);
    }
    int failed = 0;
    for (int status; wait(&status) > 0;)
        failed |= status;
    size_t total = 0;
    for (int i = 0; i < n_processes; i++)
        total += counts[i];
    if (failed)
        exit(1);
    printf("0 %.0f\n", (double)total / (now_s() - start));
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc > 5 + MAX_FILES) {
        fprintf(stderr, "usage: append fsync|fdatasync RECORD-BYTES SECONDS PROCESSES FILE...\n");
        return 2;
    }
    bool full_sync = strcmp(argv[1], "fsync") == 0;
    size_t size = strtoul(argv[2], NULL, 10);
    double seconds = strtod(argv[3], NULL);
    int n_processes = atoi(argv[4]);
    size_t n_targets = (size_t)argc - 5;
    if (size == 0 || n_processes < 1)
        return 2;
    char *record = malloc(size);
    if (record == NULL)
        die("malloc", "");
    memset(record, 'r', size);
    record[size - 1] = '\n';

    Target targets[MAX_FILES] = { 0 };
    for (size_t i = 0; i < n_targets; i++) {
        targets[i].path = argv[5 + i];
        /* the plain file, given second, is measured at its best */
        targets[i].full_sync = full_sync && i == 0;
        targets[i].micros = malloc(sizeof(uint32_t) * MAX_SAMPLES);
        if (targets[i].micros == NULL)
            die("malloc", "");
        targets[i].fd = open_target(targets[i].path);
    }
    if (n_processes == 1)
        one_process(targets, n_targets, record, size, seconds);
    else
        many_processes(&targets[0], n_processes, record, size, seconds);
    return 0;
}
