/* What is refused of topics, and what one has refused last. Whoever writes to `config`, `ctl` and the like gets an errno; the
 * reason stands in the log, which not everybody can read, and in `status`, which shows the last one. Saying it is the same for
 * every engine; the local one keeps it in its topic. */
#include "engine/engine_private.h"

#include "engine/base/clock.h"

void nrd_topic_refuse(NrdTopic *topic, int64_t partition, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = g_strdup_vprintf(format, args);
    va_end(args);
    nrd_diag(NRD_LEVEL_WARNING, (NrdPlace){ nrd_topic_name(topic), partition, NRD_NO_OFFSET }, "%s", text);
    if (partition >= 0) {
        char *plain = text;
        text = g_strdup_printf("p%05u: %s", (unsigned)partition, plain);
        g_free(plain);
    }
    nrd_table_of(topic)->topic_keep_refusal(topic, text);
}

int nrd_topic_check_new(const NrdEngine *engine, const char *name)
{
    int rc = nrd_topic_name_check(name);
    if (rc < 0)
        nrd_diag(NRD_LEVEL_WARNING, NRD_NOWHERE,
                 "no topic can be named '%.300s': up to 200 of A-Z a-z 0-9 . _ -, not beginning with '.', without "
                 "'.stale-'",
                 name);
    return rc == 0 && nrd_engine_read_only(engine) ? -EROFS : rc;
}

void nrd_topic_refuse_removal(NrdTopic *topic, int error, const char *id)
{
    if (error == -ENOTEMPTY)
        nrd_topic_refuse(topic, NRD_NO_PARTITION,
                         "rmdir refused: the topic retains records; `delete %s` in its ctl deletes it with them", id);
    else if (error == -EBUSY)
        nrd_topic_refuse(topic, NRD_NO_PARTITION, "rmdir refused: files of the topic are open; close them first");
}

void nrd_local_topic_keep_refusal(NrdTopic *topic, char *text)
{
    pthread_mutex_lock(&topic->lock);
    char *old = topic->refusal;
    topic->refusal = text;
    topic->refused_ms = nrd_clock_wall_ms();
    pthread_mutex_unlock(&topic->lock);
    g_free(old);
}

char *nrd_local_topic_refusal(NrdTopic *topic, int64_t *ret_ms)
{
    pthread_mutex_lock(&topic->lock);
    char *text = g_strdup(topic->refusal);
    *ret_ms = topic->refused_ms;
    pthread_mutex_unlock(&topic->lock);
    return text;
}
