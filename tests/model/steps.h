/* What is done to a broker, as a list that can be made from a seed, written down, read again and shortened. A step means
 * something whatever the state is: numbers are taken modulo what there is. */
#ifndef NRD_TESTS_MODEL_STEPS_H
#define NRD_TESTS_MODEL_STEPS_H

#include <glib.h>
#include <stdint.h>

typedef enum StepKind {
    STEP_CREATE,
    STEP_REMOVE,
    STEP_DELETE,
    STEP_ATTACH,
    STEP_DETACH,
    STEP_GROW,
    STEP_CONFIG_SICK,
    STEP_CONFIG,
    STEP_PRODUCE,
    STEP_PRODUCE_TOPIC,
    STEP_PRODUCE_SICK,
    STEP_PRODUCE_TOPIC_SICK,
    STEP_COPY_SICK,
    STEP_TAKE,
    STEP_TAKE_BATCH,
    STEP_TAKE_TOPIC,
    STEP_ACK,
    STEP_NACK,
    STEP_EXTEND,
    STEP_LOOK,
    STEP_SETTLE_MANY,
    STEP_SETTLE_DURABLY,
    STEP_SETTLE_SICK,
    STEP_SYNC,
    STEP_WAIT,
    STEP_SEEK,
    STEP_ROLL,
    STEP_TRIM,
    STEP_EXPIRE,
    STEP_EXPIRE_BYTES,
    STEP_REOPEN,
    STEP_RESTART,
    STEP_READ,
    N_STEP_KINDS
} StepKind;

typedef struct Step {
    StepKind kind;
    uint32_t topic;
    uint32_t partition;
    uint32_t n;
} Step;

/* Step number i of a seed's run; always the same. */
Step step_of_seed(uint32_t seed, unsigned i);

/* "<name> <topic> <partition> <n>", and back; false: it is no step. */
char *step_text(const Step *step);
gboolean step_parse(const char *text, Step *ret_step);

#endif
