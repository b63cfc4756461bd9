/* See frame_ahead.h.
 *
 * What is loaded has a reader of its own, which changes places with the one that asked when it is taken. While it is LOADING
 * it is the thread's, and what to load stays as it is; else it is touched under the lock.
 *
 * The segment is held from when who asks stands in line until the load is over, so that retention leaves the file there: it
 * must not look like one that others have taken away. */
#include "engine/log/reading/frame_ahead.h"

#include <errno.h>
#include <pthread.h>

#define WINDOW_BYTES ((size_t)NRD_MIB)
#define MAX_FRAME_BYTES ((size_t)8 * NRD_MIB)
#define MAX_SPARE_BYTES (MAX_FRAME_BYTES + NRD_MIB / 8) /* a buffer for such a frame, with its header, rounded */
#define MAX_HOLDERS 16
#define KEEP_MS 5000

/* Who waits longer loads by itself: about what a frame of 4 MiB takes, and a microsecond more for each KiB to unpack. */
#define LATE_US 1000
#define UNPACK_BYTES_PER_US 1024

#define LUCK_MAX 4 /* frames that lay ready, less twice those that came late; up to this */
#define RARELY 32  /* when there is none left: one window in so many */

typedef enum State {
    IDLE,
    IN_LINE,
    LOADING,
    READY, /* the reader holds it */
} State;

struct NrdFrameAhead {
    /* of who asks */
    uint64_t asked_pos; /* of the window behind which was looked last */
    int luck;
    unsigned n_skipped; /* windows, since luck ran out */

    /* guarded by ahead_lock, and see above */
    State state;
    NrdFrameReader reader;
    NrdLog *log;
    NrdSegment *segment; /* a reference, or NULL; a hold, when IN_LINE or LOADING */
    uint64_t version;
    NrdFrameWant want;
    GList in_line;
    GList holding;   /* among holders, when data is set */
    int64_t used_us; /* when something was asked for last */
};

typedef struct Loader {
    pthread_t thread;
    bool stop; /* guarded by ahead_lock */
} Loader;

static GMutex ahead_lock;
static GCond asked;  /* something is in line, there is a first holder, or the thread is to stop */
static GCond loaded; /* or could not be */
/* guarded by ahead_lock */
static GQueue line = G_QUEUE_INIT;    /* of NrdFrameAhead */
static GQueue holders = G_QUEUE_INIT; /* NrdFrameAhead whose reader may have memory; who used it last, last */
static Loader *loader;                /* as long as there are askers */
static unsigned n_askers;
static int64_t keep_us = (int64_t)KEEP_MS * 1000;

/* ---- who holds memory ---- */

static void stop_holding_locked(NrdFrameAhead *ahead)
{
    if (ahead->holding.data == NULL)
        return;
    g_queue_unlink(&holders, &ahead->holding);
    ahead->holding.data = NULL;
}

/* Whether there is room for it, as the one that used its memory last. */
static bool hold_locked(NrdFrameAhead *ahead)
{
    stop_holding_locked(ahead);
    if (holders.length >= MAX_HOLDERS)
        return false;
    ahead->holding.data = ahead;
    ahead->used_us = g_get_monotonic_time();
    g_queue_push_tail_link(&holders, &ahead->holding);
    return true;
}

/* Gives up what is in line or lies ready. It is not being loaded. */
static void drop_locked(NrdFrameAhead *ahead)
{
    if (ahead->state == IN_LINE) {
        g_queue_unlink(&line, &ahead->in_line);
        nrd_segment_release(ahead->segment);
    }
    ahead->state = IDLE;
}

/* The same, with its memory. */
static void let_go_locked(NrdFrameAhead *ahead)
{
    drop_locked(ahead);
    stop_holding_locked(ahead);
    nrd_frame_reader_clear(&ahead->reader);
}

/* ---- the thread ---- */

/* The size comes from the disk: no memory is asked for before it was looked at. */
static int check_size(NrdFrameAhead *ahead, const NrdFrameWant *want)
{
    const uint8_t *bytes;
    NrdFrameHeader h;
    size_t n;

    int r = nrd_frame_reader_peek(&ahead->reader, want, want->pos, NRD_FRAME_HEADER_BYTES, &bytes, &n);
    if (r < 0)
        return r;
    if (n < NRD_FRAME_HEADER_BYTES || !nrd_frame_header_plausible(bytes))
        return -EBADMSG;
    nrd_frame_decode(bytes, &h);
    return h.raw_bytes <= MAX_FRAME_BYTES && h.stored_bytes <= MAX_FRAME_BYTES ? 0 : -EFBIG;
}

/* Tells nobody of a failure: who needs the frame meets it. */
static bool load(NrdFrameAhead *ahead)
{
    NrdFrameWant want = ahead->want;

    if (nrd_log_is_closed(ahead->log) || nrd_segment_pin(ahead->segment, &want.fd) < 0)
        return false;
    int r = want.fd < 0 ? -ENOENT : check_size(ahead, &want);
    if (r == 0)
        r = nrd_frame_reader_load(&ahead->reader, &want);
    nrd_segment_unpin(ahead->segment);
    return r == 0;
}

static void load_first_locked(void)
{
    NrdFrameAhead *ahead = g_queue_pop_head_link(&line)->data;

    ahead->state = LOADING;
    g_mutex_unlock(&ahead_lock);
    bool good = load(ahead);
    g_mutex_lock(&ahead_lock);
    nrd_segment_release(ahead->segment);
    ahead->state = good ? READY : IDLE;
    g_cond_broadcast(&loaded);
}

/* Nothing is in line, so nobody's memory is in use. */
static void wait_locked(void)
{
    NrdFrameAhead *oldest = g_queue_peek_head(&holders);

    if (oldest == NULL)
        g_cond_wait(&asked, &ahead_lock);
    else if (g_get_monotonic_time() >= oldest->used_us + keep_us)
        let_go_locked(oldest);
    else
        (void)g_cond_wait_until(&asked, &ahead_lock, oldest->used_us + keep_us);
}

static void *load_in_turn(void *data)
{
    Loader *self = data;

    pthread_setname_np(pthread_self(), "naradfs-ahead"); /* for who looks with top or a debugger */
    g_mutex_lock(&ahead_lock);
    while (!self->stop) {
        if (line.length > 0)
            load_first_locked();
        else
            wait_locked();
    }
    g_mutex_unlock(&ahead_lock);
    return NULL;
}

static bool start_locked(void)
{
    Loader *fresh = g_new0(Loader, 1);

    if (pthread_create(&fresh->thread, NULL, load_in_turn, fresh) == 0)
        loader = fresh;
    else
        g_free(fresh);
    return loader != NULL;
}

/* ---- who asks ---- */

/* NULL: there is no thread to be had. */
static NrdFrameAhead *ahead_new(void)
{
    g_mutex_lock(&ahead_lock);
    bool served = loader != NULL || start_locked();
    n_askers += served;
    g_mutex_unlock(&ahead_lock);
    if (!served)
        return NULL;
    NrdFrameAhead *ahead = g_new0(NrdFrameAhead, 1);
    ahead->in_line.data = ahead;
    ahead->asked_pos = UINT64_MAX;
    ahead->luck = LUCK_MAX / 2;
    return ahead;
}

void nrd_frame_ahead_rest(NrdFrameAhead *ahead)
{
    NrdSegment *segment = NULL;

    if (ahead == NULL)
        return;
    g_mutex_lock(&ahead_lock);
    if (ahead->state != LOADING) {
        let_go_locked(ahead);
        segment = g_steal_pointer(&ahead->segment);
    }
    g_mutex_unlock(&ahead_lock);
    nrd_segment_unref(segment);
}

/* Frees it and gives ahead_lock back. It is not being loaded. */
static void free_and_unlock(NrdFrameAhead *ahead)
{
    let_go_locked(ahead);
    Loader *last = --n_askers == 0 ? g_steal_pointer(&loader) : NULL;
    if (last != NULL) {
        last->stop = true;
        g_cond_broadcast(&asked);
    }
    g_mutex_unlock(&ahead_lock);
    if (last != NULL)
        pthread_join(last->thread, NULL);
    g_free(last);
    nrd_segment_unref(ahead->segment);
    g_free(ahead);
}

void nrd_frame_ahead_free(NrdFrameAhead *ahead)
{
    if (ahead == NULL)
        return;
    g_mutex_lock(&ahead_lock);
    while (ahead->state == LOADING)
        g_cond_wait(&loaded, &ahead_lock);
    free_and_unlock(ahead);
}

void nrd_frame_ahead_drop(NrdFrameAhead **ahead)
{
    if (*ahead == NULL)
        return;
    g_mutex_lock(&ahead_lock);
    if ((*ahead)->state == LOADING)
        g_mutex_unlock(&ahead_lock);
    else
        free_and_unlock(g_steal_pointer(ahead));
}

static bool is_of(const NrdFrameAhead *ahead, const NrdFrameSource *source)
{
    return ahead->segment == source->segment && ahead->version == source->version;
}

/* Whether nothing is on its way, nor lies ready that may still be wanted. */
static bool is_free_locked(const NrdFrameAhead *ahead, const NrdFrameSource *source, const NrdFrameReader *reader)
{
    if (ahead->state == IDLE)
        return true;
    return ahead->state != LOADING && !(is_of(ahead, source) && ahead->want.pos >= reader->end_pos &&
                                        ahead->want.pos <= reader->window_pos + reader->window_size);
}

static bool is_worth_it(NrdFrameAhead *ahead)
{
    if (ahead->luck > 0)
        return true;
    ahead->n_skipped = (ahead->n_skipped + 1) % RARELY;
    return ahead->n_skipped == 0;
}

/* What follows behind the window; false: nothing does. */
static bool find_next(const NrdFrameSource *source, const NrdFrameReader *reader, NrdFrameWant *ret_want)
{
    NrdIndexEnd end = nrd_segment_end(source->segment);
    uint64_t pos, offset;

    nrd_frame_reader_behind_window(reader, &pos, &offset);
    if (pos >= end.pos || offset >= end.offset)
        return false;
    *ret_want = (NrdFrameWant){ .pos = pos,
                                .limit_pos = MIN(end.pos, pos + NRD_FRAME_HEADER_BYTES + MAX_FRAME_BYTES),
                                .offset = offset,
                                .end_offset = end.offset,
                                .ahead_bytes = WINDOW_BYTES };
    return true;
}

/* It is free, and holds. The segment that it had before is left to the caller. */
static NrdSegment *stand_in_line_locked(NrdFrameAhead *ahead, const NrdFrameSource *source, const NrdFrameWant *want,
                                        const NrdFrameReader *reader)
{
    NrdSegment *old = ahead->segment;

    drop_locked(ahead);
    ahead->log = source->log;
    ahead->segment = nrd_segment_ref(source->segment);
    nrd_segment_hold(ahead->segment);
    ahead->version = source->version;
    ahead->want = *want;
    nrd_frame_reader_forget(&ahead->reader);
    ahead->reader.last_total = reader->last_total;
    ahead->state = IN_LINE;
    g_queue_push_tail_link(&line, &ahead->in_line);
    g_cond_signal(&asked);
    return old;
}

void nrd_frame_ahead_ask(NrdFrameAhead **ahead_at, const NrdFrameSource *source, const NrdFrameReader *reader)
{
    NrdFrameAhead *ahead = *ahead_at;
    NrdFrameWant want;
    NrdSegment *old = NULL;

    if ((ahead != NULL && ahead->asked_pos == reader->window_pos) || !find_next(source, reader, &want))
        return;
    if (ahead == NULL)
        *ahead_at = ahead = ahead_new();
    if (ahead == NULL)
        return;
    g_mutex_lock(&ahead_lock);
    bool is_free = is_free_locked(ahead, source, reader);
    if (is_free) {
        ahead->asked_pos = reader->window_pos;
        if (is_worth_it(ahead) && hold_locked(ahead))
            old = stand_in_line_locked(ahead, source, &want, reader);
        else
            drop_locked(ahead);
    }
    g_mutex_unlock(&ahead_lock);
    nrd_segment_unref(old);
}

static void wait_a_moment_locked(NrdFrameAhead *ahead, const NrdFrameReader *reader)
{
    int64_t until_us = g_get_monotonic_time() + LATE_US;

    if (reader->header.flags != 0) /* the next one is likely as long, and packed too */
        until_us += reader->header.raw_bytes / UNPACK_BYTES_PER_US;
    while (ahead->state == LOADING && g_cond_wait_until(&loaded, &ahead_lock, until_us))
        ;
}

/* The memory that comes back is used again, unless it was for a frame that is longer than any that is read ahead. */
static void swap_locked(NrdFrameAhead *ahead, NrdFrameReader *reader)
{
    NrdFrameReader other = *reader;

    *reader = ahead->reader;
    ahead->reader = other;
    if (other.window.capacity > MAX_SPARE_BYTES || other.decoded.capacity > MAX_SPARE_BYTES)
        nrd_frame_reader_clear(&ahead->reader);
}

bool nrd_frame_ahead_take(NrdFrameAhead *ahead, const NrdFrameSource *source, const NrdFrameWant *want,
                          NrdFrameReader *reader)
{
    if (ahead == NULL || !is_of(ahead, source) || ahead->want.pos != want->pos || ahead->want.offset != want->offset)
        return false;
    g_mutex_lock(&ahead_lock);
    if (ahead->state == LOADING)
        wait_a_moment_locked(ahead, reader);
    bool is_ready = ahead->state == READY;
    if (is_ready) {
        swap_locked(ahead, reader);
        ahead->luck = MIN(ahead->luck + 1, LUCK_MAX);
    } else if (ahead->state != IDLE) {
        ahead->luck = MAX(ahead->luck - 2, 0);
    }
    if (ahead->state != LOADING)
        drop_locked(ahead);
    g_mutex_unlock(&ahead_lock);
    return is_ready;
}

bool nrd_frame_ahead_settle(NrdFrameAhead *ahead)
{
    if (ahead == NULL)
        return false;
    g_mutex_lock(&ahead_lock);
    while (ahead->state == IN_LINE || ahead->state == LOADING)
        g_cond_wait(&loaded, &ahead_lock);
    bool is_ready = ahead->state == READY;
    g_mutex_unlock(&ahead_lock);
    return is_ready;
}

unsigned nrd_frame_ahead_n_holders(void)
{
    g_mutex_lock(&ahead_lock);
    unsigned n = holders.length;
    g_mutex_unlock(&ahead_lock);
    return n;
}

void nrd_frame_ahead_set_keep_ms(unsigned keep_ms)
{
    g_mutex_lock(&ahead_lock);
    keep_us = (int64_t)(keep_ms == 0 ? KEEP_MS : keep_ms) * 1000;
    g_cond_broadcast(&asked);
    g_mutex_unlock(&ahead_lock);
}
