/* Which engine is opened: the one place that knows how many there are. */
#include "engine/local.h"

#ifdef NRD_WITH_JETSTREAM
#    include "engine/jetstream/jetstream.h"
#endif

#include <errno.h>
#include <string.h>

int nrd_engine_open(const NrdEngineOptions *options, NrdEngine **ret_engine, char **ret_why)
{
    if (!options->engine || strcmp(options->engine, "local") == 0)
        return nrd_local_engine_open(options, ret_engine, ret_why);
#ifdef NRD_WITH_JETSTREAM
    if (strcmp(options->engine, "jetstream") == 0)
        return nrd_js_engine_open(options, ret_engine, ret_why);
#endif
    *ret_why = g_strdup_printf("engine=%s: this naradfs was built without it", options->engine);
    return -EINVAL;
}
