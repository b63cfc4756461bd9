/* What a mount over JetStream costs beside libnats used directly: the same work either way, on the same stream.
 *
 *   jetstream direct URL SUBJECT STREAM WORK SECONDS
 *   jetstream mount PARTITION WORK SECONDS
 *
 * batch   100 records of 250 bytes, until all are acknowledged     median microseconds
 * ids     (direct) the same, each with a message id                median microseconds
 * one     one record                                               median microseconds
 * many    16 producers, one record after another each              records a second
 * cycle   one record taken, and its settling confirmed             median microseconds
 * drain   taken and settled until none is left, in batches         records a second */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <nats/nats.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RECORD_BYTES 250
#define BATCH 100
#define N_PRODUCERS 16
#define FETCH 500
#define WARM_UP 20
#define MAX_SAMPLES 1000000

_Noreturn static void fail(const char *what, const char *why)
{
    fprintf(stderr, "jetstream: %s: %s\n", what, why);
    exit(1);
}

static void check(natsStatus s, const char *what)
{
    if (s != NATS_OK)
        fail(what, natsStatus_GetText(s));
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- one side or the other ---- */

typedef struct Side {
    int argc;
    char **argv;
    double seconds;
    natsConnection *conn; /* direct */
    jsCtx *js;
    const char *subject, *stream;
    natsSubscription *sub;
    const char *part; /* mount */
    int fd;
    char record[RECORD_BYTES];
    unsigned long long n_ids;
} Side;

/* As each work is quickest: what is sent at once saves a single message the millisecond that the library's flusher takes to
 * wake up, and costs a batch a system call for each. */
static void open_direct(Side *side)
{
    jsOptions options;
    natsOptions *how = NULL;
    const char *work = side->argv[5];
    bool single = strcmp(work, "one") == 0 || strcmp(work, "many") == 0 || strcmp(work, "cycle") == 0;
    check(natsOptions_Create(&how), "options");
    check(natsOptions_SetURL(how, side->argv[2]), "URL");
    check(natsOptions_SetSendAsap(how, single), "options");
    check(natsConnection_Connect(&side->conn, how), "connect");
    natsOptions_Destroy(how);
    check(jsOptions_Init(&options), "options");
    options.PublishAsync.MaxPending = 4096;
    check(natsConnection_JetStream(&side->js, side->conn, &options), "JetStream");
    side->subject = side->argv[3];
    side->stream = side->argv[4];
}

static int open_file(const char *part, const char *name, int flags)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", part, name);
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        fail(path, strerror(errno));
    return fd;
}

/* ---- producing ---- */

static void publish_async(Side *side, int n, bool with_ids)
{
    char id[64];
    jsPubOptions options;
    check(jsPubOptions_Init(&options), "options");
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof id, "%p-%d-%llu", (void *)side, (int)getpid(), side->n_ids++);
        options.MsgId = id;
        check(js_PublishAsync(side->js, side->subject, side->record, RECORD_BYTES, with_ids ? &options : NULL),
              "publish");
    }
    options.MsgId = NULL;
    options.MaxWait = 30000;
    check(js_PublishAsyncComplete(side->js, &options), "acknowledgements");
    natsMsgList pending;
    if (js_PublishAsyncGetPendingList(&pending, side->js) == NATS_OK)
        fail("publish", "some records were not acknowledged");
}

static void direct_batch(Side *side)
{
    publish_async(side, BATCH, false);
}

static void direct_ids(Side *side)
{
    publish_async(side, BATCH, true);
}

static void direct_one(Side *side)
{
    jsPubAck *ack = NULL;
    check(js_Publish(&ack, side->js, side->subject, side->record, RECORD_BYTES, NULL, NULL), "publish");
    jsPubAck_Destroy(ack);
}

static void write_lines(Side *side, int n)
{
    static _Thread_local char lines[BATCH * (RECORD_BYTES + 1)];
    size_t size = 0;
    for (int i = 0; i < n; i++) {
        memcpy(lines + size, side->record, RECORD_BYTES);
        lines[size + RECORD_BYTES] = '\n';
        size += RECORD_BYTES + 1;
    }
    if (write(side->fd, lines, size) != (ssize_t)size || fsync(side->fd) < 0)
        fail("produce", strerror(errno));
}

static void mount_batch(Side *side)
{
    write_lines(side, BATCH);
}

static void mount_one(Side *side)
{
    write_lines(side, 1);
}

/* ---- consuming ---- */

static void subscribe(Side *side)
{
    jsSubOptions options;
    check(jsSubOptions_Init(&options), "options");
    options.Stream = side->stream;
    options.Config.MaxAckPending = 1000000;
    options.Config.AckPolicy = js_AckExplicit;
    check(js_PullSubscribe(&side->sub, side->js, side->subject, "direct", NULL, &options, NULL), "subscribe");
}

static int fetch(Side *side, int n, bool confirmed, int64_t wait_ms)
{
    natsMsgList list;
    natsStatus s = natsSubscription_Fetch(&list, side->sub, n, wait_ms, NULL);
    if (s == NATS_TIMEOUT)
        return 0;
    check(s, "fetch");
    for (int i = 0; i < list.Count; i++)
        check(confirmed ? natsMsg_AckSync(list.Msgs[i], NULL, NULL) : natsMsg_Ack(list.Msgs[i], NULL), "ack");
    if (!confirmed)
        check(natsConnection_Flush(side->conn), "flush");
    int count = list.Count;
    natsMsgList_Destroy(&list);
    return count;
}

static void direct_cycle(Side *side)
{
    if (fetch(side, 1, true, 30000) != 1)
        fail("fetch", "no record");
}

static void mount_cycle(Side *side)
{
    char record[4096];
    if (read(side->fd, record, sizeof record) <= 0 || fsync(side->fd) < 0)
        fail("consume", strerror(errno));
}

static double direct_drain(Side *side)
{
    double start = now_s(), end = start;
    long total = 0;
    for (int n; (n = fetch(side, FETCH, false, 300)) > 0; total += n)
        end = now_s(); /* the last one only waits */
    return (double)total / (end - start);
}

static double mount_drain(Side *side)
{
    static char bytes[128 * 1024];
    double start = now_s(), end = start;
    size_t total = 0;
    for (ssize_t n; (n = read(side->fd, bytes, sizeof bytes)) != 0; total += (size_t)n) {
        if (n < 0)
            fail("drain", strerror(errno));
        end = now_s();
    }
    return (double)total / (RECORD_BYTES + 1) / (end - start);
}

/* ---- measuring ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_us(Side *side, void (*once)(Side *side))
{
    double *samples = malloc(MAX_SAMPLES * sizeof *samples), end = 0;
    size_t n = 0;
    for (int i = 0; i < WARM_UP; i++)
        once(side);
    for (end = now_s() + side->seconds; n < MAX_SAMPLES && now_s() < end; n++) {
        double start = now_s();
        once(side);
        samples[n] = (now_s() - start) * 1e6;
    }
    qsort(samples, n, sizeof *samples, by_value);
    double median = n > 0 ? samples[n / 2] : 0;
    free(samples);
    return median;
}

typedef struct Producer {
    Side side;
    void (*once)(Side *side);
    unsigned long count;
    pthread_t thread;
} Producer;

static void *produce(void *data)
{
    Producer *producer = data;
    for (double end = now_s() + producer->side.seconds; now_s() < end; producer->count++)
        producer->once(&producer->side);
    return NULL;
}

static double many(const Side *side, void (*once)(Side *side))
{
    static Producer producers[N_PRODUCERS];
    unsigned long total = 0;
    for (int i = 0; i < N_PRODUCERS; i++) {
        producers[i] = (Producer){ .side = *side, .once = once };
        if (side->part)
            producers[i].side.fd = open_file(side->part, "produce", O_WRONLY);
        else
            open_direct(&producers[i].side); /* each a connection of its own, as programs have */
    }
    double start = now_s();
    for (int i = 0; i < N_PRODUCERS; i++)
        if (pthread_create(&producers[i].thread, NULL, produce, &producers[i]) != 0)
            fail("many", "no thread");
    for (int i = 0; i < N_PRODUCERS; i++) {
        pthread_join(producers[i].thread, NULL);
        total += producers[i].count;
    }
    return (double)total / (now_s() - start);
}

static double direct(Side *side, const char *work)
{
    open_direct(side);
    if (strcmp(work, "batch") == 0)
        return median_us(side, direct_batch);
    if (strcmp(work, "ids") == 0)
        return median_us(side, direct_ids);
    if (strcmp(work, "one") == 0)
        return median_us(side, direct_one);
    if (strcmp(work, "many") == 0)
        return many(side, direct_one);
    subscribe(side);
    return strcmp(work, "cycle") == 0 ? median_us(side, direct_cycle) : direct_drain(side);
}

static double mount(Side *side, const char *work)
{
    side->part = side->argv[2];
    bool cycle = strcmp(work, "cycle") == 0, drain = strcmp(work, "drain") == 0;
    side->fd = cycle   ? open_file(side->part, "consume", O_RDWR)
               : drain ? open_file(side->part, "drain", O_RDONLY)
                       : open_file(side->part, "produce", O_WRONLY);
    if (strcmp(work, "batch") == 0)
        return median_us(side, mount_batch);
    if (strcmp(work, "one") == 0)
        return median_us(side, mount_one);
    if (strcmp(work, "many") == 0)
        return many(side, mount_one);
    return cycle ? median_us(side, mount_cycle) : mount_drain(side);
}

int main(int argc, char **argv)
{
    Side side = { .argc = argc, .argv = argv, .fd = -1 };
    memset(side.record, 'r', sizeof side.record);
    bool is_direct = argc == 7 && strcmp(argv[1], "direct") == 0;
    if (!is_direct && !(argc == 5 && strcmp(argv[1], "mount") == 0)) {
        fprintf(stderr, "usage: jetstream direct URL SUBJECT STREAM WORK SECONDS | mount PARTITION WORK SECONDS\n");
        return 2;
    }
    side.seconds = strtod(argv[argc - 1], NULL);
    printf("%.0f\n", is_direct ? direct(&side, argv[5]) : mount(&side, argv[3]));
    return 0;
}
