/* Topics whose producers hold something that nobody has synced yet: after linger_ms it goes to the ingress. */
#include "engine/produce.h"

#include "engine/base/clock.h"

/* The place of a topic in the line of those whose producers wait for linger_ms. */
typedef struct Linger {
    NrdTopic *topic; /* a reference */
    int64_t deadline_ms;
} Linger;

/* One timer for all topics: a topic may be freed by what its own timer does. */
struct NrdLingers {
    NrdTimers *timers;
    NrdTimer timer;
    pthread_mutex_t lock;
    GArray *waiting; /* of Linger; guarded by lock */
};

static void on_linger(void *user_data);

NrdLingers *nrd_lingers_new(NrdTimers *timers)
{
    NrdLingers *lingers = g_new0(NrdLingers, 1);
    lingers->timers = timers;
    lingers->waiting = g_array_new(FALSE, FALSE, sizeof(Linger));
    pthread_mutex_init(&lingers->lock, NULL);
    nrd_timer_init(&lingers->timer, on_linger, lingers, true);
    return lingers;
}

void nrd_lingers_free(NrdLingers *lingers)
{
    if (!lingers)
        return;
    nrd_timer_drain(lingers->timers, &lingers->timer);
    for (guint i = 0; i < lingers->waiting->len; i++) {
        NrdTopic *topic = g_array_index(lingers->waiting, Linger, i).topic;
        topic->lingering = false;
        nrd_topic_unref(topic);
    }
    g_array_unref(lingers->waiting);
    pthread_mutex_destroy(&lingers->lock);
    g_free(lingers);
}

/* Takes those that are due; returns when the next one is, or INT64_MAX. */
static int64_t take_due(NrdLingers *lingers, int64_t now_ms, GPtrArray *due)
{
    int64_t next_ms = INT64_MAX;
    pthread_mutex_lock(&lingers->lock);
    for (guint i = 0; i < lingers->waiting->len;) {
        Linger *linger = &g_array_index(lingers->waiting, Linger, i);
        if (linger->deadline_ms > now_ms) {
            next_ms = MIN(next_ms, linger->deadline_ms);
            i++;
            continue;
        }
        linger->topic->lingering = false;
        g_ptr_array_add(due, linger->topic);
        g_array_remove_index_fast(lingers->waiting, i);
    }
    pthread_mutex_unlock(&lingers->lock);
    return next_ms;
}

static void on_linger(void *user_data)
{
    NrdLingers *lingers = user_data;
    g_autoptr(GPtrArray) due = g_ptr_array_new();
    int64_t next_ms = take_due(lingers, nrd_clock_mono_ms(), due);
    if (next_ms != INT64_MAX)
        nrd_timer_set_earlier(lingers->timers, &lingers->timer, next_ms);
    for (guint i = 0; i < due->len; i++) {
        nrd_topic_flush(due->pdata[i]);
        nrd_topic_unref(due->pdata[i]);
    }
}

/* Lock held. */
static Linger *find_linger(NrdLingers *lingers, const NrdTopic *topic)
{
    for (guint i = 0; topic->lingering && i < lingers->waiting->len; i++) {
        Linger *linger = &g_array_index(lingers->waiting, Linger, i);
        if (linger->topic == topic)
            return linger;
    }
    return NULL;
}

void nrd_lingers_arm(NrdTopic *topic, int64_t delay_ms)
{
    NrdLingers *lingers = topic->engine->lingers;
    Linger linger = { topic, nrd_clock_mono_ms() + delay_ms };
    pthread_mutex_lock(&lingers->lock);
    Linger *armed = find_linger(lingers, topic);
    bool earlier = !armed || linger.deadline_ms < armed->deadline_ms;
    if (armed) {
        armed->deadline_ms = MIN(armed->deadline_ms, linger.deadline_ms);
    } else {
        topic->lingering = true;
        nrd_topic_ref(topic);
        g_array_append_val(lingers->waiting, linger);
    }
    pthread_mutex_unlock(&lingers->lock);
    if (earlier)
        nrd_timer_set_earlier(lingers->timers, &lingers->timer, linger.deadline_ms);
}
