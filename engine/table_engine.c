/* engine.h to the engine that an object belongs to: the engine as a whole. See table.h. */
#include "engine/table.h"

void nrd_engine_start(NrdEngine *engine)
{
    nrd_table_of(engine)->engine_start(engine);
}

void nrd_engine_stop(NrdEngine *engine)
{
    nrd_table_of(engine)->engine_stop(engine);
}

int nrd_engine_close(NrdEngine *engine)
{
    return nrd_table_of(engine)->engine_close(engine);
}

int nrd_engine_statvfs(NrdEngine *engine, struct statvfs *ret_st)
{
    return nrd_table_of(engine)->engine_statvfs(engine, ret_st);
}

bool nrd_engine_read_only(const NrdEngine *engine)
{
    return nrd_table_of(engine)->engine_read_only(engine);
}

const char *nrd_engine_durability(NrdEngine *engine)
{
    return nrd_table_of(engine)->engine_durability(engine);
}

void nrd_engine_summary(NrdEngine *engine, NrdSummary *ret_summary)
{
    nrd_table_of(engine)->engine_summary(engine, ret_summary);
}

char *nrd_engine_metrics(NrdEngine *engine)
{
    return nrd_table_of(engine)->engine_metrics(engine);
}
