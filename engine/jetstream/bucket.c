/* The bucket of topics: whether there is one, and whether it is still the one that was here. A bucket that is gone, was made anew
 * or has gone back is a fault, by which no topic is made, changed or removed: what was in it is not known any more. */
#include "engine/jetstream/store.h"

#include "engine/base/clock.h"

#define BACK_MS 5000

int nrd_js_bucket_ensure(NrdEngine *engine, char **ret_why)
{
    NrdJsStreamInfo info;
    int rc = nrd_js_stream_info(engine->conn, NRD_JS_KV_STREAM, NRD_JS_PATIENCE_MS, &info, ret_why);
    if (rc != -ENOENT)
        return rc;
    g_clear_pointer(ret_why, g_free);
    if (engine->read_only) {
        *ret_why = g_strdup("the NATS servers have no topics of naradfs yet (no bucket " NRD_JS_BUCKET
                            "), and a read-only mount makes none");
        return -EROFS;
    }
    rc = nrd_js_bucket_create(engine->conn, engine->replicas, ret_why);
    return rc == -EEXIST ? 0 : rc; /* somebody else was faster */
}

char *nrd_js_bucket_fault(NrdEngine *engine)
{
    g_mutex_lock(&engine->topics_lock);
    char *fault = g_strdup(engine->bucket_fault);
    g_mutex_unlock(&engine->topics_lock);
    return fault;
}

static void set_fault(NrdEngine *engine, const char *fault)
{
    g_mutex_lock(&engine->topics_lock);
    bool news = g_strcmp0(engine->bucket_fault, fault) != 0;
    g_free(engine->bucket_fault);
    engine->bucket_fault = g_strdup(fault);
    g_mutex_unlock(&engine->topics_lock);
    if (news)
        nrd_diag(fault ? NRD_LEVEL_ERROR : NRD_LEVEL_NOTICE, NRD_NOWHERE, "%s",
                 fault ? fault : "the bucket of topics is there again");
}

/* Whether it has ended before what was seen of it for a while: a new leader may be behind for a moment. Then that stays: when it
 * has grown as far again what was lost is something else. */
static bool has_gone_back(NrdEngine *engine, const NrdJsStreamInfo *info)
{
    int64_t now_ms = nrd_clock_mono_ms();
    if (engine->bucket_back_ms < 0)
        return true;
    if (info->last_seq >= engine->followed)
        engine->bucket_back_ms = 0;
    else if (engine->bucket_back_ms == 0)
        engine->bucket_back_ms = now_ms;
    bool back = engine->bucket_back_ms > 0 && now_ms - engine->bucket_back_ms >= BACK_MS;
    if (back)
        engine->bucket_back_ms = -1;
    return back;
}

int nrd_js_bucket_look_admin_held(NrdEngine *engine, int64_t patience_ms, char **ret_why)
{
    NrdJsStreamInfo info;
    const char *fault = NULL;
    int rc = nrd_js_stream_info(engine->conn, NRD_JS_KV_STREAM, patience_ms, &info, NULL);
    if (rc < 0 && rc != -ENOENT)
        return 0;
    if (rc == 0 && engine->bucket_created[0] == '\0')
        g_strlcpy(engine->bucket_created, info.created, sizeof engine->bucket_created);
    if (rc == -ENOENT)
        fault = NRD_JS_BUCKET_IS_GONE;
    else if (strcmp(engine->bucket_created, info.created) != 0)
        fault = "the bucket of topics (" NRD_JS_KV_STREAM ") was made anew: start this mount again, which then has the "
                "topics of that one; until then no topic can be made, changed or removed";
    else if (has_gone_back(engine, &info))
        fault =
            "the bucket of topics (" NRD_JS_KV_STREAM ") ends before what was in it: the servers have lost changes of "
            "topics; start this mount again, which then has what is there; until then no topic can be made, changed or "
            "removed";
    set_fault(engine, fault);
    if (fault && ret_why) {
        g_free(*ret_why);
        *ret_why = g_strdup(fault);
    }
    return fault ? -EIO : 0;
}

int nrd_js_bucket_usable(NrdEngine *engine, char **ret_why)
{
    g_autofree char *fault = nrd_js_bucket_fault(engine);
    if (fault && ret_why) {
        g_free(*ret_why);
        *ret_why = g_strdup(fault);
    }
    return fault ? -EIO : 0;
}
