/* Which engine is opened: the one place that knows how many there are. */
#include "engine/local.h"

int nrd_engine_open(const NrdEngineOptions *options, NrdEngine **ret_engine, char **ret_why)
{
    return nrd_local_engine_open(options, ret_engine, ret_why);
}
