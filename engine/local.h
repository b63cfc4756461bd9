/* The local engine, whose records are files of a data directory: its functions, each as engine.h says of its namesake. */
#ifndef NRD_ENGINE_LOCAL_H
#define NRD_ENGINE_LOCAL_H

#include "engine/table.h"

extern const NrdEngineTable nrd_local_table;

/* As nrd_engine_open, for a data directory. */
typeof(nrd_engine_open) nrd_local_engine_open;

#define NRD_DECLARE(name) typeof(nrd_##name) nrd_local_##name;
NRD_ENGINE_FUNCTIONS(NRD_DECLARE)
#undef NRD_DECLARE

void nrd_local_topic_keep_refusal(NrdTopic *topic, char *text); /* see table.h */
bool nrd_local_topic_get_config(NrdTopic *topic, NrdTopicConfig *ret_config);

#endif
