/* What an outbox has to say to the log: found out under its lock, said without it, since who writes a log may be waited for. */
#include "engine/jetstream/outbox_private.h"

#include <stdarg.h>

/* A line of the log. */
typedef struct Saying {
    NrdLevel level;
    NrdTopic *topic; /* referenced: the outbox may be gone when it is said */
    NrdPlace place;
    char *text;
} Saying;

static void free_saying(void *data)
{
    Saying *saying = data;
    nrd_js_topic_unref(saying->topic);
    g_free(saying->text);
    g_free(saying);
}

void nrd_js_outbox_say_locked(NrdJsOutbox *outbox, NrdLevel level, const NrdPartition *partition, const char *format,
                              ...)
{
    Saying *saying = g_new(Saying, 1);
    va_list arguments;
    *saying = (Saying){
        .level = level,
        .topic = nrd_js_topic_ref(outbox->topic),
        .place = partition ? nrd_js_partition_place(partition) : nrd_js_topic_place(outbox->topic),
    };
    va_start(arguments, format);
    saying->text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    if (!outbox->sayings)
        outbox->sayings = g_ptr_array_new_with_free_func(free_saying);
    g_ptr_array_add(outbox->sayings, saying);
}

void nrd_js_outbox_unlock(NrdJsOutbox *outbox)
{
    g_autoptr(GPtrArray) sayings = g_steal_pointer(&outbox->sayings);
    g_mutex_unlock(&outbox->lock);
    for (guint i = 0; sayings && i < sayings->len; i++) {
        const Saying *saying = sayings->pdata[i];
        nrd_diag(saying->level, saying->place, "%s", saying->text);
    }
}
