/* Steps that change topics, their family and their settings, and those that concern all of them. */
#include "world.h"

#include "engine/base/clock.h"
#include "engine/engine_private.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static void create(World *w, int topic)
{
    Topic *model = &w->broker.topics[topic];
    NrdTopic *made = NULL;
    int rc = nrd_topic_create(w->engine, world_topic_name(topic), &(NrdAttr){ 0, 0, 0755 }, 022, &made);
    WORLD_SAME(w, rc, model->exists ? -EEXIST : 0);
    if (rc < 0)
        return;
    topic_init(model, nrd_topic_incarnation(made));
    nrd_topic_unref(made);
    world_open_topic(w, topic);
    WORLD_SAME(w, nrd_topic_config_write(w->topics[topic], WORLD_NO_RETENTION, strlen(WORLD_NO_RETENTION)), 0);
}

/* It is gone: who has a handle on it hears so, and its children are nobody's. */
static void forget(World *w, int topic)
{
    NrdPartition *partition = nrd_topic_partition(w->topics[topic], 0);
    NrdProducer *producer = NULL;
    WORLD_CHECK(w, nrd_topic_deleted(w->topics[topic]));
    WORLD_SAME(w, nrd_producer_open(partition, false, &producer),
               broker_is_delayed(&w->broker, topic) ? -EPERM : -EIDRM);
    world_close_topic(w, topic);
    for (int i = 0; i < N_TOPICS; i++)
        if (w->broker.topics[i].parent == topic)
            w->broker.topics[i].parent = NO_TOPIC; /* and what was not due yet never comes */
    topic_clear(&w->broker.topics[topic]);
}

static void remove_empty(World *w, int topic)
{
    bool empty = topic_is_empty(&w->broker.topics[topic]);
    WORLD_SAME(w, nrd_topic_remove(w->topics[topic]), empty ? 0 : -ENOTEMPTY);
    if (empty)
        forget(w, topic);
}

static void delete_whole(World *w, int topic)
{
    WORLD_SAME(w, nrd_topic_delete(w->topics[topic], "0000000000000000"), -EINVAL);
    if (w->step.n % 2 == 0)
        return;
    WORLD_SAME(w, nrd_topic_delete(w->topics[topic], w->broker.topics[topic].id), 0);
    forget(w, topic);
}

/* Half of the children get a delay first. */
static void choose_delay(World *w, int child)
{
    static const int64_t delays_ms[] = { 0, 650000, 0, 1950000 };
    Topic *model = &w->broker.topics[child];
    if (!model->exists || model->parent != NO_TOPIC)
        return;
    model->delay_ms = delays_ms[w->step.n % G_N_ELEMENTS(delays_ms)];
    g_autofree char *line = g_strdup_printf("fanout_delay_ms=%" G_GINT64_FORMAT "\n", model->delay_ms);
    WORLD_SAME(w, nrd_topic_config_write(w->topics[child], line, strlen(line)), 0);
}

/* Several rules may forbid it; any of their answers will do. */
static void attach(World *w, int topic)
{
    int child = (int)(w->step.partition % N_TOPICS);
    Topic *model = &w->broker.topics[child];
    choose_delay(w, child);
    int rc = nrd_topic_attach(w->topics[topic], world_topic_name(child));
    bool invalid =
        child == topic || w->broker.topics[topic].parent != NO_TOPIC || broker_has_children(&w->broker, child);
    bool attached = model->exists && model->parent == topic;
    bool busy = model->exists && model->parent != NO_TOPIC && !attached;
    if (!model->exists)
        WORLD_CHECK(w, rc == -ENOENT || (rc == -EINVAL && invalid));
    else if (invalid || attached || busy)
        WORLD_CHECK(w, (rc == -EINVAL && invalid) || (rc == -EEXIST && attached) || (rc == -EBUSY && busy));
    else
        WORLD_SAME(w, rc, 0);
    if (rc == 0)
        broker_attach(&w->broker, child, topic);
}

static void detach(World *w, int topic)
{
    int child = (int)(w->step.partition % N_TOPICS);
    bool attached = w->broker.topics[child].exists && w->broker.topics[child].parent == topic;
    WORLD_SAME(w, nrd_topic_detach(w->topics[topic], world_topic_name(child)), attached ? 0 : -ENOENT);
    if (attached)
        w->broker.topics[child].parent = NO_TOPIC;
}

static void grow(World *w, int topic)
{
    Topic *model = &w->broker.topics[topic];
    unsigned before = model->partitions->len, n = 1 + w->step.n % 4;
    g_autofree char *line = g_strdup_printf("partitions=%u\n", n);
    WORLD_SAME(w, nrd_topic_config_write(w->topics[topic], line, strlen(line)), n < before ? -EINVAL : 0);
    topic_grow(model, n);
    WORLD_SAME(w, nrd_topic_n_partitions(w->topics[topic]), model->partitions->len);
    for (uint32_t i = before; i < model->partitions->len; i++)
        WORLD_SAME(w, nrd_partition_pin(nrd_topic_partition(w->topics[topic], i)), 0);
}

/* Timeouts and the steps of wait lie so that no sum of the latter comes near one of the former. */
static void configure(World *w, int topic)
{
    static const char *const lines[] = { "max_in_flight=2",
                                         "max_in_flight=5",
                                         "max_in_flight=1000",
                                         "max_acked_ahead=1",
                                         "max_acked_ahead=3",
                                         "max_acked_ahead=1000",
                                         "codec=zstd",
                                         "codec=none",
                                         "linger_ms=1",
                                         "max_in_flight=0\ncodec=zstd",
                                         "visibility_timeout_ms=1000000",
                                         "visibility_timeout_ms=3000000",
                                         "fanout_delay_ms=0",
                                         "fanout_delay_ms=650000",
                                         "fanout_delay_ms=650000",
                                         "fanout_delay_ms=1950000" };
    Topic *model = &w->broker.topics[topic];
    const char *line = lines[w->step.n % G_N_ELEMENTS(lines)];
    bool bad = strstr(line, "=0\n") != NULL;
    int64_t value = g_ascii_strtoll(strchr(line, '=') + 1, NULL, 10);
    bool is_delay = g_str_has_prefix(line, "fanout_delay_ms");
    bool busy = is_delay && model->parent != NO_TOPIC && value != model->delay_ms;
    WORLD_SAME(w, nrd_topic_config_write(w->topics[topic], line, strlen(line)), bad ? -EINVAL : busy ? -EBUSY : 0);
    if (bad || busy)
        return;
    if (is_delay)
        model->delay_ms = value;
    if (g_str_has_prefix(line, "max_in_flight"))
        model->max_in_flight = value;
    if (g_str_has_prefix(line, "max_acked"))
        model->max_acked_ahead = value;
    if (g_str_has_prefix(line, "visibility"))
        model->visibility_timeout_ms = value;
}

static void check_config(World *w, int topic)
{
    const Topic *model = &w->broker.topics[topic];
    g_autofree char *in_flight = nrd_topic_config_value(w->topics[topic], "max_in_flight");
    g_autofree char *ahead = nrd_topic_config_value(w->topics[topic], "max_acked_ahead");
    g_autofree char *timeout = nrd_topic_config_value(w->topics[topic], "visibility_timeout_ms");
    WORLD_SAME(w, g_ascii_strtoll(in_flight, NULL, 10), model->max_in_flight);
    WORLD_SAME(w, g_ascii_strtoll(ahead, NULL, 10), model->max_acked_ahead);
    WORLD_SAME(w, g_ascii_strtoll(timeout, NULL, 10), model->visibility_timeout_ms);
}

static void on_nudge(void *user_data)
{
    atomic_store((atomic_int *)user_data, 1);
}

/* Leases that are over are given back by the engine's own threads. */
static void await_leases(World *w, int topic)
{
    for (uint32_t i = 0; i < w->broker.topics[topic].partitions->len; i++) {
        const Partition *p = w->broker.topics[topic].partitions->pdata[i];
        NrdPartitionInfo info = { .in_flight = UINT64_MAX };
        for (int tries = 0; info.in_flight != partition_count(p, LEASED) && tries < PATIENCE_MS * 10; tries++) {
            if (tries > 0)
                g_usleep(100);
            nrd_partition_info(nrd_topic_partition(w->topics[topic], i), &info);
            nrd_partition_info_clear(&info);
        }
    }
}

/* Time passes, and the timer thread is made to look at its clock. */
static void wait_a_while(World *w)
{
    NrdTimer nudge;
    atomic_int nudged = 0;
    int64_t ms = w->step.n % 2 ? 400000 : 1700000;
    nrd_clock_shift_mono_ms(ms);
    w->broker.now_ms += ms;
    w->mono_ms += ms;
    w->wall_ms += ms;
    nrd_clock_shift_wall_ms(ms);
    nrd_timer_init(&nudge, on_nudge, &nudged, false);
    nrd_timer_set(w->engine->timers, &nudge, 0); /* before all others: else the thread sleeps on */
    for (int i = 0; i < N_TOPICS; i++)
        for (guint k = 0; w->broker.topics[i].exists && k < w->broker.topics[i].partitions->len; k++)
            partition_expire(w->broker.topics[i].partitions->pdata[k], w->broker.now_ms);
    for (int tries = 0; atomic_load(&nudged) == 0 && tries < PATIENCE_MS * 10; tries++)
        g_usleep(100);
    nrd_timer_drain(w->engine->timers, &nudge);
    for (int i = 0; i < N_TOPICS; i++)
        if (w->broker.topics[i].exists)
            await_leases(w, i);
    learn_all_copies(w);
}

void do_topic_step(World *w, int topic)
{
    w->done[w->step.kind]++;
    switch (w->step.kind) {
    case STEP_CREATE:
        create(w, topic);
        break;
    case STEP_REMOVE:
        remove_empty(w, topic);
        break;
    case STEP_DELETE:
        delete_whole(w, topic);
        break;
    case STEP_ATTACH:
        attach(w, topic);
        break;
    case STEP_DETACH:
        detach(w, topic);
        break;
    case STEP_GROW:
        grow(w, topic);
        break;
    case STEP_CONFIG:
        configure(w, topic);
        check_config(w, topic);
        break;
    case STEP_CONFIG_SICK:
        configure_on_a_sick_disk(w, topic);
        learn_all_copies(w); /* of what the others got meanwhile */
        check_config(w, topic);
        break;
    case STEP_WAIT:
        wait_a_while(w);
        break;
    default:
        world_restart(w);
    }
}
