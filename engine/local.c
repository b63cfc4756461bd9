/* See local.h. */
#include "engine/local.h"

const NrdEngineTable nrd_local_table = {
#define NRD_ENTRY(name) .name = nrd_local_##name,
    NRD_ENGINE_FUNCTIONS(NRD_ENTRY)
#undef NRD_ENTRY
        .topic_keep_refusal = nrd_local_topic_keep_refusal,
    .topic_get_config = nrd_local_topic_get_config,
};
