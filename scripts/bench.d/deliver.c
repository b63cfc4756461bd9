/* Reads, consumes and settles records as fast as it can, for scripts/bench.
 *
 * usage: deliver log|drain FILE SIZE          reads of SIZE bytes up to the end of file
 *        deliver bin FILE ACK SIZE            likewise of consume.bin, each read's receipts written to ACK in one write
 *        deliver consume FILE N               N records, one a read, settled 512 at a time
 *        deliver trips FILE N                 N reads that are answered with nothing
 *        deliver wake PARTITION PLAIN N       in turns, N times: an append and fdatasync to PLAIN; a read that is answered
 *                                             with nothing; a write and fsync of as much, up to the return of a read that
 *                                             waited for it. Each after a rest
 *        deliver hold FILE N SIZE             reads of SIZE bytes until N records are leased, then holds them
 *        deliver park N_THREADS               opens the files named on standard input; so many threads wait in a read of
 *                                             one each, the others wait in one poll
 * Prints, of the first four: records or reads, and seconds; of trips and wake medians in
 * microseconds (wake: from the fsync, from the write, the append, the read); hold and park say
 * so when they have come so far, and end with standard input. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_EVERY 512
#define BIN_HEAD_BYTES 36
#define RECEIPT_BYTES 60 /* the longest receipt with its newline, and what put_number writes behind it */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void die(const char *what, const char *path)
{
    fprintf(stderr, "deliver: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static int open_or_die(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        die("open", path);
    return fd;
}

static size_t read_or_die(int fd, char *buf, size_t size, const char *path)
{
    ssize_t n = read(fd, buf, size);
    if (n < 0)
        die("read", path);
    return (size_t)n;
}

static void write_or_die(int fd, const char *buf, size_t size, const char *path)
{
    if (write(fd, buf, size) != (ssize_t)size)
        die("write", path);
}

static void sync_or_die(int fd, const char *path)
{
    if (fsync(fd) != 0)
        die("fsync", path);
}

static size_t count_lines(const char *buf, size_t size)
{
    size_t n = 0;
    for (const char *at = buf; (at = memchr(at, '\n', size - (size_t)(at - buf))); at++)
        n++;
    return n;
}

/* Counting lines costs the same on both files that are compared so. */
static int lines(const char *path, size_t size)
{
    char *buf = malloc(size);
    int fd = open_or_die(path, O_RDONLY);
    size_t n, n_records = 0;
    double start = now_s();
    while ((n = read_or_die(fd, buf, size, path)) > 0)
        n_records += count_lines(buf, n);
    printf("%zu %.6f\n", n_records, now_s() - start);
    close(fd);
    free(buf);
    return 0;
}

/* Eight digits, all at once: fours, then pairs, then digits, each in a lane of its own. */
static uint64_t eight_digits(uint64_t number)
{
    uint64_t fours = number / 10000 | (number % 10000) << 32;
    uint64_t hundreds = ((fours * 10486) >> 20) & UINT64_C(0x0000007f0000007f);
    uint64_t pairs = ((fours - 100 * hundreds) << 16) + hundreds;
    uint64_t tens = ((pairs * 103) >> 10) & UINT64_C(0x000f000f000f000f);
    return htole64(((pairs - 10 * tens) << 8) + tens + UINT64_C(0x3030303030303030));
}

/* Quick, so that the figures are not about this program. */
static char *put_number(char *at, uint64_t number)
{
    if (number < 10) {
        *at = (char)('0' + number);
        return at + 1;
    }
    if (number >= 100000000) {
        at = put_number(at, number / 100000000);
        uint64_t digits = eight_digits(number % 100000000);
        memcpy(at, &digits, 8);
        return at + 8;
    }
    uint64_t digits = le64toh(eight_digits(number)), others = digits ^ UINT64_C(0x3030303030303030);
    unsigned zeros = others ? (unsigned)__builtin_ctzll(others) / 8 : 7;
    digits = htole64(digits >> 8 * zeros);
    memcpy(at, &digits, 8); /* what is behind the number is written over */
    return at + (8 - zeros);
}

static uint64_t get_be64(const char *at)
{
    uint64_t number;
    memcpy(&number, at, sizeof number);
    return be64toh(number);
}

static uint32_t get_be32(const char *at)
{
    uint32_t number;
    memcpy(&number, at, sizeof number);
    return be32toh(number);
}

/* The receipts of the records in buf as lines for `ack`; their size. */
static size_t put_receipts(const char *buf, size_t size, char *receipts, size_t *n_records)
{
    char *at = receipts;
    for (size_t pos = 0; pos + BIN_HEAD_BYTES <= size; pos += 4 + get_be32(buf + pos)) {
        at = put_number(at, get_be32(buf + pos + 4));
        *at++ = ':';
        at = put_number(at, get_be64(buf + pos + 8));
        *at++ = ':';
        at = put_number(at, get_be64(buf + pos + 16));
        *at++ = '\n';
        (*n_records)++;
    }
    return (size_t)(at - receipts);
}

static int bin(const char *path, const char *ack_path, size_t size)
{
    char *buf = malloc(size);
    char *receipts = malloc((size / BIN_HEAD_BYTES + 1) * RECEIPT_BYTES);
    int fd = open_or_die(path, O_RDONLY | O_NONBLOCK);
    int ack = open_or_die(ack_path, O_WRONLY);
    size_t n_records = 0;
    double start = now_s();
    for (ssize_t n; (n = read(fd, buf, size)) > 0;)
        write_or_die(ack, receipts, put_receipts(buf, (size_t)n, receipts, &n_records), ack_path);
    if (errno != EAGAIN)
        die("read", path);
    printf("%zu %.6f\n", n_records, now_s() - start);
    close(fd);
    close(ack);
    free(buf);
    free(receipts);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return values[n / 2];
}

static int consume(const char *path, size_t n_records)
{
    char buf[4096];
    int fd = open_or_die(path, O_RDWR);
    double start = now_s();
    for (size_t i = 1; i <= n_records; i++) {
        (void)read_or_die(fd, buf, sizeof buf, path);
        if (i % SETTLE_EVERY == 0 || i == n_records)
            write_or_die(fd, "ack\n", 4, path);
    }
    printf("%zu %.6f\n", n_records, now_s() - start);
    close(fd);
    return 0;
}

static int trips(const char *path, size_t n_trips)
{
    char buf[4096];
    double *micros = malloc(n_trips * sizeof *micros);
    int fd = open_or_die(path, O_RDWR);
    double start = now_s();
    for (size_t i = 0; i < n_trips; i++) {
        double before = now_s();
        (void)read_or_die(fd, buf, sizeof buf, path);
        micros[i] = (now_s() - before) * 1e6;
    }
    double seconds = now_s() - start;
    printf("%zu %.6f %.2f\n", n_trips, seconds, median(micros, n_trips));
    close(fd);
    free(micros);
    return 0;
}

/* ---- wake ---- */

/* The reader's side. */
typedef struct Sleeper {
    const char *path;
    size_t n;
    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_begun, n_woken;
    double woken_s;
} Sleeper;

static void *sleep_and_wake(void *user_data)
{
    Sleeper *sleeper = user_data;
    char buf[4096];
    int fd = open_or_die(sleeper->path, O_RDWR);
    for (size_t i = 0; i < sleeper->n; i++) {
        pthread_mutex_lock(&sleeper->lock);
        sleeper->n_begun++;
        pthread_cond_signal(&sleeper->changed);
        pthread_mutex_unlock(&sleeper->lock);
        (void)read_or_die(fd, buf, sizeof buf, sleeper->path);
        double woken_s = now_s();
        write_or_die(fd, "ack\n", 4, sleeper->path);
        pthread_mutex_lock(&sleeper->lock);
        sleeper->woken_s = woken_s;
        sleeper->n_woken++;
        pthread_cond_signal(&sleeper->changed);
        pthread_mutex_unlock(&sleeper->lock);
    }
    close(fd);
    return NULL;
}

static void wait_until(Sleeper *sleeper, const size_t *counter, size_t value)
{
    pthread_mutex_lock(&sleeper->lock);
    while (*counter < value)
        pthread_cond_wait(&sleeper->changed, &sleeper->lock);
    pthread_mutex_unlock(&sleeper->lock);
}

/* Each of the three things that are timed begins so: what was just done keeps no processor awake for it. */
static double begin_rested(void)
{
    usleep(2000);
    return now_s();
}

static double append_plain(int fd, const char *record, size_t size, const char *path)
{
    double start = begin_rested();
    write_or_die(fd, record, size, path);
    if (fdatasync(fd) != 0)
        die("fdatasync", path);
    return (now_s() - start) * 1e6;
}

static double bare_trip(int fd, const char *path)
{
    char buf[4096];
    double start = begin_rested();
    (void)read_or_die(fd, buf, sizeof buf, path);
    return (now_s() - start) * 1e6;
}

/* From before the fsync that commits a record to the return of the read that waits for it; *ret_with_write: from before
 * the write of the record. */
static double commit_and_wake(int fd, const char *record, size_t size, const char *path, Sleeper *sleeper, size_t n,
                              double *ret_with_write)
{
    double start = begin_rested(); /* it waits by now */
    write_or_die(fd, record, size, path);
    double written = now_s();
    sync_or_die(fd, path);
    wait_until(sleeper, &sleeper->n_woken, n);
    *ret_with_write = (sleeper->woken_s - start) * 1e6;
    return (sleeper->woken_s - written) * 1e6;
}

static int wake(const char *folder, const char *plain_path, size_t n)
{
    static char record[100];
    char produce_path[4096], consume_path[4096], ack_path[4096];
    snprintf(produce_path, sizeof produce_path, "%s/produce", folder);
    snprintf(consume_path, sizeof consume_path, "%s/consume", folder);
    snprintf(ack_path, sizeof ack_path, "%s/ack", folder);
    Sleeper sleeper = { .path = consume_path, .n = n };
    double *woken = malloc(n * sizeof *woken), *with_write = malloc(n * sizeof *with_write);
    double *plain = malloc(n * sizeof *plain), *trip = malloc(n * sizeof *trip);
    pthread_t thread;
    memset(record, 'w', sizeof record - 1);
    record[sizeof record - 1] = '\n';
    pthread_mutex_init(&sleeper.lock, NULL);
    pthread_cond_init(&sleeper.changed, NULL);
    int fd = open_or_die(produce_path, O_WRONLY), ack_fd = open_or_die(ack_path, O_RDWR);
    int plain_fd = open_or_die(plain_path, O_WRONLY | O_CREAT | O_APPEND);
    if (pthread_create(&thread, NULL, sleep_and_wake, &sleeper) != 0)
        die("thread for", consume_path);
    for (size_t i = 0; i < n; i++) {
        wait_until(&sleeper, &sleeper.n_begun, i + 1);
        plain[i] = append_plain(plain_fd, record, sizeof record, plain_path);
        trip[i] = bare_trip(ack_fd, ack_path);
        woken[i] = commit_and_wake(fd, record, sizeof record, produce_path, &sleeper, i + 1, &with_write[i]);
    }
    pthread_join(thread, NULL);
    printf("%.2f %.2f %.2f %.2f\n", median(woken, n), median(with_write, n), median(plain, n), median(trip, n));
    return 0; /* the rest goes with the process */
}

/* ---- hold and park ---- */

static void say_and_wait(const char *what)
{
    printf("%s\n", what);
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

static size_t count_records(const char *buf, size_t size, bool binary)
{
    size_t n = 0;
    if (!binary)
        return count_lines(buf, size);
    for (size_t pos = 0; pos + BIN_HEAD_BYTES <= size; pos += 4 + get_be32(buf + pos))
        n++;
    return n;
}

static int hold(const char *path, size_t n_records, size_t size)
{
    char *buf = malloc(size);
    bool binary = strstr(path, ".bin") != NULL;
    int fd = open_or_die(path, O_RDONLY);
    for (size_t n = 0; n < n_records;)
        n += count_records(buf, read_or_die(fd, buf, size, path), binary);
    say_and_wait("held");
    close(fd);
    free(buf);
    return 0;
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        die("limit of", "descriptors");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        die("raise the limit of", "descriptors");
}

static struct pollfd *open_named(size_t *ret_n)
{
    char path[4096];
    struct pollfd *fds = NULL;
    size_t n = 0;
    while (fgets(path, sizeof path, stdin) && path[0] != '\n') {
        path[strcspn(path, "\n")] = '\0';
        fds = realloc(fds, (n + 1) * sizeof *fds);
        fds[n++] = (struct pollfd){ .fd = open_or_die(path, O_RDWR), .events = POLLIN };
    }
    *ret_n = n;
    return fds;
}

static void *wait_in_read(void *user_data)
{
    char buf[4096];
    ssize_t n = read(*(int *)user_data, buf, sizeof buf);
    printf("read %zd\n", n);
    fflush(stdout);
    return NULL;
}

typedef struct Polled {
    struct pollfd *fds;
    size_t n;
} Polled;

static void *wait_in_poll(void *user_data)
{
    Polled *polled = user_data;
    int n = poll(polled->fds, polled->n, -1);
    printf("poll %d\n", n);
    fflush(stdout);
    return NULL;
}

static void start(void *(*run)(void *), void *user_data)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 * 1024);
    if (pthread_create(&thread, &attr, run, user_data) != 0)
        die("thread", "");
    pthread_detach(thread);
}

static int park(size_t n_threads)
{
    size_t n;
    raise_descriptor_limit();
    struct pollfd *fds = open_named(&n);
    n_threads = n_threads < n ? n_threads : n;
    Polled polled = { fds + n_threads, n - n_threads };
    for (size_t i = 0; i < n_threads; i++)
        start(wait_in_read, &fds[i].fd);
    start(wait_in_poll, &polled);
    say_and_wait("parked");
    _exit(0); /* the others wait still */
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    if (argc == 4 && (strcmp(verb, "log") == 0 || strcmp(verb, "drain") == 0))
        return lines(argv[2], strtoul(argv[3], NULL, 10));
    if (argc == 5 && strcmp(verb, "bin") == 0)
        return bin(argv[2], argv[3], strtoul(argv[4], NULL, 10));
    if (argc == 4 && strcmp(verb, "consume") == 0)
        return consume(argv[2], strtoul(argv[3], NULL, 10));
    if (argc == 4 && strcmp(verb, "trips") == 0)
        return trips(argv[2], strtoul(argv[3], NULL, 10));
    if (argc == 5 && strcmp(verb, "wake") == 0)
        return wake(argv[2], argv[3], strtoul(argv[4], NULL, 10));
    if (argc == 5 && strcmp(verb, "hold") == 0)
        return hold(argv[2], strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
    if (argc == 3 && strcmp(verb, "park") == 0)
        return park(strtoul(argv[2], NULL, 10));
    fprintf(stderr, "usage: see the head of deliver.c\n");
    return 2;
}
