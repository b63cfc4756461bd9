/* The same work for naradfs and for queues that somebody would run instead, for scripts/bench peers.
 *
 * usage: peers PEER ADDRESS one QUEUE SECONDS         puts records of 250 bytes, one at a time: median microseconds
 *        peers PEER ADDRESS many QUEUE SECONDS N      N processes do so on one queue: records a second
 *        peers PEER ADDRESS bulk QUEUE SECONDS        puts records of 100 bytes by the thousand: records a second
 *        peers PEER ADDRESS cycle QUEUE SECONDS       leases one and settles it: median microseconds
 *        peers PEER ADDRESS cycles QUEUE SECONDS      by the thousand: records a second
 *        peers PEER ADDRESS wake QUEUE SECONDS        from a put to the return of a take that waited: median microseconds
 *        peers PEER ADDRESS fill QUEUE N              one record in each of the queues QUEUE0 to QUEUE(N-1) */
#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ONE_BYTES 250
#define BULK_BYTES 100
#define MAX_SAMPLES 1000000

static const Peer *const peers[] = { &peer_naradfs, &peer_redis,      &peer_beanstalkd,
                                     &peer_nats,    &peer_postgresql, &peer_sqlite };

void fail(const char *what, const char *why)
{
    fprintf(stderr, "peers: %s: %s\n", what, why);
    exit(1);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fill_payload(char *payload, size_t size)
{
    memset(payload, 'r', size);
}

/* ---- samples ---- */

typedef struct Samples {
    double *micros;
    size_t n;
} Samples;

static Samples samples_new(void)
{
    Samples samples = { malloc(MAX_SAMPLES * sizeof(double)), 0 };
    if (!samples.micros)
        fail("samples", "no memory");
    return samples;
}

static void samples_add(Samples *samples, double seconds)
{
    if (samples->n < MAX_SAMPLES)
        samples->micros[samples->n++] = seconds * 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_median(Samples *samples)
{
    qsort(samples->micros, samples->n, sizeof(double), compare);
    printf("%.1f\n", samples->n > 0 ? samples->micros[samples->n / 2] : 0);
    free(samples->micros);
}

/* ---- the works ---- */

typedef struct Job {
    const Peer *peer;
    const char *address, *queue;
    double seconds;
} Job;

static Connection *ready(const Job *job)
{
    Connection *connection = job->peer->open(job->address);
    job->peer->make(connection, job->queue);
    return connection;
}

static void one(const Job *job)
{
    char payload[ONE_BYTES];
    Samples samples = samples_new();
    Connection *connection = ready(job);
    fill_payload(payload, sizeof payload);
    for (double end = now_s() + job->seconds, start; (start = now_s()) < end;) {
        job->peer->put(connection, job->queue, payload, sizeof payload, 1);
        samples_add(&samples, now_s() - start);
    }
    print_median(&samples);
}

typedef struct Shared {
    volatile bool go;
    volatile double end_s;
    volatile size_t counts[];
} Shared;

static void put_until_end(const Job *job, Shared *shared, size_t number)
{
    char payload[ONE_BYTES];
    Connection *connection = job->peer->open(job->address);
    fill_payload(payload, sizeof payload);
    while (!shared->go)
        usleep(100);
    while (now_s() < shared->end_s) {
        job->peer->put(connection, job->queue, payload, sizeof payload, 1);
        shared->counts[number]++;
    }
    _exit(0);
}

static void many(const Job *job, size_t n)
{
    Shared *shared =
        mmap(NULL, sizeof(Shared) + n * sizeof(size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t total = 0;
    (void)ready(job);
    for (size_t i = 0; i < n; i++) {
        if (fork() == 0)
            put_until_end(job, shared, i);
    }
    sleep(1); /* all are connected */
    double start = now_s();
    shared->end_s = start + job->seconds;
    shared->go = true;
    for (int status; wait(&status) > 0;) {
        if (status != 0)
            fail(job->peer->name, "a producer failed");
    }
    for (size_t i = 0; i < n; i++)
        total += shared->counts[i];
    printf("%.0f\n", (double)total / (now_s() - start));
}

static void bulk(const Job *job)
{
    char payload[BULK_BYTES];
    size_t total = 0;
    Connection *connection = ready(job);
    fill_payload(payload, sizeof payload);
    double start = now_s();
    for (; now_s() < start + job->seconds; total += MAX_BATCH)
        job->peer->put(connection, job->queue, payload, sizeof payload, MAX_BATCH);
    printf("%.0f\n", (double)total / (now_s() - start));
}

/* Enough is there beforehand for `limit` records, put in batches. */
static Connection *with_records(const Job *job, size_t limit)
{
    char payload[BULK_BYTES];
    Connection *connection = ready(job);
    fill_payload(payload, sizeof payload);
    for (size_t n = 0; n < limit; n += MAX_BATCH)
        job->peer->put(connection, job->queue, payload, sizeof payload, MAX_BATCH);
    return connection;
}

static void cycle(const Job *job)
{
    const size_t limit = 20000;
    Samples samples = samples_new();
    Connection *connection = with_records(job, limit);
    double end = now_s() + job->seconds, start;
    for (size_t n = 0; n < limit && (start = now_s()) < end; n++) {
        job->peer->take(connection, job->queue, 1);
        job->peer->settle(connection, job->queue);
        samples_add(&samples, now_s() - start);
    }
    print_median(&samples);
}

static void cycles(const Job *job)
{
    const size_t limit = 300000;
    Connection *connection = with_records(job, limit);
    size_t total = 0;
    double start = now_s(), end = start + job->seconds;
    while (total < limit && now_s() < end) {
        total += job->peer->take(connection, job->queue, MAX_BATCH);
        job->peer->settle(connection, job->queue);
    }
    printf("%.0f\n", (double)total / (now_s() - start));
}

/* ---- from a put to a take that waits ---- */

typedef struct Wake {
    const Job *job;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool asks; /* the taker is about to wait */
    bool over;
    double returned_s; /* when its take came back; 0: not yet */
} Wake;

static void *taker(void *data)
{
    Wake *wake = data;
    const Job *job = wake->job;
    Connection *connection = job->peer->open(job->address);
    for (bool over = false; !over;) {
        pthread_mutex_lock(&wake->lock);
        wake->asks = true;
        pthread_cond_broadcast(&wake->change);
        pthread_mutex_unlock(&wake->lock);
        job->peer->take(connection, job->queue, 1);
        double returned_s = now_s();
        job->peer->settle(connection, job->queue);
        pthread_mutex_lock(&wake->lock);
        wake->returned_s = returned_s;
        over = wake->over;
        pthread_cond_broadcast(&wake->change);
        pthread_mutex_unlock(&wake->lock);
    }
    return NULL;
}

/* Seconds from the put to the taker's return. */
static double wake_once(Wake *wake, Connection *connection, bool last)
{
    const Job *job = wake->job;
    char payload[BULK_BYTES];
    fill_payload(payload, sizeof payload);
    pthread_mutex_lock(&wake->lock);
    while (!wake->asks)
        pthread_cond_wait(&wake->change, &wake->lock);
    wake->asks = false;
    wake->over = last;
    wake->returned_s = 0;
    pthread_mutex_unlock(&wake->lock);
    usleep(3000); /* it waits by now */
    double start = now_s();
    job->peer->put(connection, job->queue, payload, sizeof payload, 1);
    pthread_mutex_lock(&wake->lock);
    while (wake->returned_s == 0)
        pthread_cond_wait(&wake->change, &wake->lock);
    double seconds = wake->returned_s - start;
    pthread_mutex_unlock(&wake->lock);
    return seconds;
}

static void wake(const Job *job)
{
    Wake wake = { .job = job, .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };
    Samples samples = samples_new();
    pthread_t thread;
    Connection *connection = ready(job);
    if (pthread_create(&thread, NULL, taker, &wake) != 0)
        fail("wake", "no thread");
    for (double end = now_s() + job->seconds; now_s() < end;)
        samples_add(&samples, wake_once(&wake, connection, false));
    wake_once(&wake, connection, true);
    pthread_join(thread, NULL);
    print_median(&samples);
}

static void fill(const Job *job, size_t n)
{
    char queue[MAX_QUEUE];
    Connection *connection = job->peer->open(job->address);
    for (size_t i = 0; i < n; i++) {
        snprintf(queue, sizeof queue, "%s%zu", job->queue, i);
        job->peer->make(connection, queue);
        job->peer->put(connection, queue, "record", 6, 1);
    }
}

/* ---- the command line ---- */

static const Peer *find_peer(const char *name)
{
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        if (strcmp(peers[i]->name, name) == 0)
            return peers[i];
    }
    fail(name, "no such peer");
}

int main(int argc, char **argv)
{
    if (argc < 6 || strlen(argv[4]) > MAX_QUEUE / 2) {
        fprintf(stderr, "usage: peers PEER ADDRESS one|many|bulk|cycle|cycles|wake|fill QUEUE SECONDS|N [PROCESSES]\n");
        return 2;
    }
    Job job = { find_peer(argv[1]), argv[2], argv[4], strtod(argv[5], NULL) };
    const struct {
        const char *name;
        void (*run)(const Job *job);
    } works[] = { { "one", one }, { "bulk", bulk }, { "cycle", cycle }, { "cycles", cycles }, { "wake", wake } };
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        if (strcmp(argv[3], works[i].name) == 0) {
            works[i].run(&job);
            return 0;
        }
    }
    if (strcmp(argv[3], "many") == 0 && argc == 7)
        many(&job, strtoul(argv[6], NULL, 10));
    else if (strcmp(argv[3], "fill") == 0)
        fill(&job, strtoul(argv[5], NULL, 10));
    else
        fail(argv[3], "no such work");
    return 0;
}
