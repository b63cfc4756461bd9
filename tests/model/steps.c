/* See steps.h. */
#include "steps.h"

#include <stdio.h>
#include <string.h>

/* How often, in 1000, each is done. */
static const struct {
    const char *name;
    unsigned weight;
} kinds[N_STEP_KINDS] = {
    [STEP_CREATE] = { "create", 20 },
    [STEP_REMOVE] = { "remove", 6 },
    [STEP_DELETE] = { "delete", 5 },
    [STEP_ATTACH] = { "attach", 16 },
    [STEP_DETACH] = { "detach", 8 },
    [STEP_GROW] = { "grow", 5 },
    [STEP_CONFIG_SICK] = { "config-sick", 10 },
    [STEP_CONFIG] = { "config", 19 },
    [STEP_PRODUCE] = { "produce", 105 },
    [STEP_PRODUCE_TOPIC] = { "produce-topic", 50 },
    [STEP_PRODUCE_SICK] = { "produce-sick", 30 },
    [STEP_PRODUCE_TOPIC_SICK] = { "produce-topic-sick", 15 },
    [STEP_COPY_SICK] = { "copy-sick", 10 },
    [STEP_TAKE] = { "take", 140 },
    [STEP_TAKE_BATCH] = { "take-batch", 55 },
    [STEP_TAKE_TOPIC] = { "take-topic", 55 },
    [STEP_ACK] = { "ack", 148 },
    [STEP_NACK] = { "nack", 45 },
    [STEP_EXTEND] = { "extend", 30 },
    [STEP_LOOK] = { "look", 20 },
    [STEP_SETTLE_MANY] = { "settle-many", 25 },
    [STEP_SETTLE_DURABLY] = { "settle-durably", 25 },
    [STEP_SETTLE_SICK] = { "settle-sick", 15 },
    [STEP_SYNC] = { "sync", 10 },
    [STEP_WAIT] = { "wait", 20 },
    [STEP_SEEK] = { "seek", 12 },
    [STEP_ROLL] = { "roll", 20 },
    [STEP_TRIM] = { "trim", 22 },
    [STEP_EXPIRE] = { "expire", 10 },
    [STEP_EXPIRE_BYTES] = { "expire-bytes", 14 },
    [STEP_REOPEN] = { "reopen", 10 },
    [STEP_RESTART] = { "restart", 6 },
    [STEP_READ] = { "read", 19 },
};

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

Step step_of_seed(uint32_t seed, unsigned i)
{
    uint64_t state = ((uint64_t)seed << 32 | i) * UINT64_C(0x9E3779B97F4A7C15);
    (void)draw(&state);
    unsigned at = draw(&state) % 1000;
    Step step = { .kind = 0 };
    while (at >= kinds[step.kind].weight)
        at -= kinds[step.kind++].weight;
    step.topic = draw(&state) % 3;
    step.partition = draw(&state) % 4;
    step.n = draw(&state) % 1000;
    return step;
}

char *step_text(const Step *step)
{
    return g_strdup_printf("%s %u %u %u", kinds[step->kind].name, step->topic, step->partition, step->n);
}

gboolean step_parse(const char *text, Step *ret_step)
{
    char name[32];
    Step step = { .kind = 0 };
    if (sscanf(text, "%31s %u %u %u", name, &step.topic, &step.partition, &step.n) != 4)
        return FALSE;
    while (step.kind < N_STEP_KINDS && strcmp(kinds[step.kind].name, name) != 0)
        step.kind++;
    *ret_step = step;
    return step.kind < N_STEP_KINDS;
}
