/* Writes and syncs as a producer does, for scripts/bench.
 *
 * usage: append turns RECORD-BYTES SECONDS HOW:FILE...            one process; the files take turns, a record each, so that
 *                                                                 they meet the same disk at the same moment
 *        append rate RECORD-BYTES SECONDS PROCESSES HOW:FILE...   processes side by side, each with a descriptor of its own;
 *                                                                 the files are dealt out to them in turns
 *        append bulk TOTAL-BYTES HOW:FILE LINES                   the lines of the file LINES over and over, in writes of up
 *                                                                 to 1 MiB that end with a line, each of them synced
 * HOW is fsync, fdatasync, or dsync (the file is opened with O_DSYNC, and a write is all).
 * Prints, of turns: for each file the median of write + sync in microseconds; of rate: records a second; of bulk: bytes and
 * seconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_SAMPLES 200000
#define MAX_FILES 64
#define BULK_BYTES ((size_t)1 << 20)

typedef struct Target {
    const char *path;
    enum { FSYNC, FDATASYNC, DSYNC } how;
    int fd;
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

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL)
        die("malloc", "");
    return memory;
}

static Target parse_target(const char *word)
{
    static const char *const names[] = { "fsync:", "fdatasync:", "dsync:" };
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(word, names[i], n) == 0)
            return (Target){ .path = word + n, .how = i, .fd = -1 };
    }
    fprintf(stderr, "append: %s: neither fsync:, fdatasync: nor dsync: before the name\n", word);
    exit(2);
}

static void open_target(Target *target)
{
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (target->how == DSYNC ? O_DSYNC : 0);
    target->fd = open(target->path, flags, 0600);
    if (target->fd < 0)
        die("open", target->path);
}

static void append_once(const Target *target, const char *bytes, size_t size)
{
    if (write(target->fd, bytes, size) != (ssize_t)size)
        die("write", target->path);
    if (target->how != DSYNC && (target->how == FSYNC ? fsync(target->fd) : fdatasync(target->fd)) != 0)
        die("sync", target->path);
}

static char *make_record(size_t size)
{
    char *record = allocate(size);
    memset(record, 'r', size);
    record[size - 1] = '\n';
    return record;
}

/* ---- one after the other ---- */

static void sample_once(Target *target, const char *record, size_t size)
{
    double start = now_s();
    append_once(target, record, size);
    if (target->n_samples < MAX_SAMPLES)
        target->micros[target->n_samples++] = (uint32_t)((now_s() - start) * 1e6);
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int turns(size_t size, double seconds, Target *targets, size_t n_targets)
{
    char *record = make_record(size);
    for (size_t i = 0; i < n_targets; i++) {
        targets[i].micros = allocate(sizeof(uint32_t) * MAX_SAMPLES);
        open_target(&targets[i]);
    }
    for (double end = now_s() + seconds; now_s() < end;)
        for (size_t i = 0; i < n_targets; i++)
            sample_once(&targets[i], record, size);
    for (size_t i = 0; i < n_targets; i++) {
        qsort(targets[i].micros, targets[i].n_samples, sizeof(uint32_t), compare);
        printf("%u\n", targets[i].n_samples > 0 ? targets[i].micros[targets[i].n_samples / 2] : 0);
    }
    return 0;
}

/* ---- side by side ---- */

typedef struct Shared {
    volatile bool go;
    volatile double end_s;
    size_t counts[];
} Shared;

static void child(Shared *shared, size_t number, Target *target, size_t size)
{
    char *record = make_record(size);
    open_target(target);
    while (!shared->go)
        usleep(100);
    while (now_s() < shared->end_s) {
        append_once(target, record, size);
        shared->counts[number]++;
    }
    _exit(0);
}

static int rate(size_t size, double seconds, size_t n_processes, Target *targets, size_t n_targets)
{
    size_t n_bytes = sizeof(Shared) + n_processes * sizeof(size_t);
    Shared *shared = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        die("mmap", "");
    for (size_t i = 0; i < n_processes; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork", "");
        if (pid == 0)
            child(shared, i, &targets[i % n_targets], size);
    }
    usleep(300000); /* all have opened theirs */
    double start = now_s();
    shared->end_s = start + seconds;
    shared->go = true;
    int failed = 0;
    for (int status; wait(&status) > 0;)
        failed |= status;
    size_t total = 0;
    for (size_t i = 0; i < n_processes; i++)
        total += shared->counts[i];
    printf("%.0f\n", (double)total / (now_s() - start));
    return failed != 0;
}

/* ---- much at once ---- */

/* The end of the last line in the first size bytes. */
static size_t whole_lines(const char *bytes, size_t size)
{
    const char *last = memrchr(bytes, '\n', size);
    return last ? (size_t)(last - bytes) + 1 : 0;
}

static int bulk(size_t total, Target *target, const char *lines_path)
{
    struct stat st;
    int fd = open(lines_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        die("open", lines_path);
    const char *lines = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (lines == MAP_FAILED)
        die("mmap", lines_path);
    size_t size = (size_t)st.st_size, pos = 0, written = 0;
    open_target(target);
    double start = now_s();
    while (written < total) {
        size_t n = whole_lines(lines + pos, size - pos < BULK_BYTES ? size - pos : BULK_BYTES);
        if (n == 0) {
            pos = 0;
            continue;
        }
        append_once(target, lines + pos, n);
        pos += n;
        written += n;
    }
    printf("%zu %.6f\n", written, now_s() - start);
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: append turns RECORD-BYTES SECONDS HOW:FILE...\n"
                    "       append rate RECORD-BYTES SECONDS PROCESSES HOW:FILE...\n"
                    "       append bulk TOTAL-BYTES HOW:FILE LINES\n");
    return 2;
}

static size_t parse_targets(char **words, int n, Target *targets)
{
    for (int i = 0; i < n; i++)
        targets[i] = parse_target(words[i]);
    return (size_t)n;
}

int main(int argc, char **argv)
{
    Target targets[MAX_FILES];
    if (argc < 5 || argc > 4 + MAX_FILES)
        return usage();
    size_t size = strtoul(argv[2], NULL, 10);
    if (size > 0 && strcmp(argv[1], "turns") == 0)
        return turns(size, strtod(argv[3], NULL), targets, parse_targets(argv + 4, argc - 4, targets));
    if (size > 0 && argc > 5 && strcmp(argv[1], "rate") == 0) {
        size_t n_processes = strtoul(argv[4], NULL, 10);
        return rate(size, strtod(argv[3], NULL), n_processes, targets, parse_targets(argv + 5, argc - 5, targets));
    }
    if (argc == 5 && strcmp(argv[1], "bulk") == 0) {
        parse_targets(argv + 3, 1, targets);
        return bulk(size, targets, argv[4]);
    }
    return usage();
}
