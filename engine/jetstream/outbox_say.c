/* What an outbox has to say: to those who wait, and to the log. That is found out under its lock and said without it, since who
 * writes a log may be waited for. */
#include "engine/jetstream/outbox_private.h"
#include "engine/jetstream/partition.h"
#include "engine/jetstream/topic.h"

#include <stdarg.h>

/* ---- answering those who wait ---- */

void nrd_js_outbox_answer_locked(NrdJsOutbox *outbox, uint64_t number, int error)
{
    for (guint i = 0; i < outbox->waiters->len;) {
        NrdJsSyncWaiter waiter = g_array_index(outbox->waiters, NrdJsSyncWaiter, i);
        if (error == 0 && waiter.number > number) {
            i++;
            continue;
        }
        int told = error;
        if (error == 0 && waiter.own) {
            told = -outbox->lost_errno;
            outbox->lost_errno = 0;
        }
        nrd_js_done_later(outbox->topic->engine->conn, waiter.done, waiter.user_data, told);
        g_array_remove_index(outbox->waiters, i);
    }
}

void nrd_js_outbox_answer_others_locked(NrdJsOutbox *outbox)
{
    for (guint i = 0; i < outbox->waiters->len;) {
        NrdJsSyncWaiter waiter = g_array_index(outbox->waiters, NrdJsSyncWaiter, i);
        if (waiter.own) {
            i++;
            continue;
        }
        nrd_js_done_later(outbox->topic->engine->conn, waiter.done, waiter.user_data, 0);
        g_array_remove_index(outbox->waiters, i);
    }
}

/* ---- the log ---- */

/* A line of the log. */
typedef struct Saying {
    NrdLevel level;
    NrdTopic *topic; /* referenced: the outbox may be gone when it is said */
    NrdPlace place;
    char *text;
    bool keep; /* for the topic's status */
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

/* Of that partition; NULL: none, or nothing new is to be told of it. */
static const NrdJsOut *first_passed_locked(const NrdJsOutbox *outbox, const NrdPartition *partition, guint *ret_n)
{
    const NrdJsOut *first = NULL;
    bool news = false;
    *ret_n = 0;
    for (GList *link = outbox->records.head; link; link = link->next) {
        const NrdJsOut *record = link->data;
        if (!record->passed || record->partition != partition)
            continue;
        first = first ? first : record;
        news |= !record->told;
        (*ret_n)++;
    }
    return news ? first : NULL;
}

void nrd_js_outbox_say_passed_locked(NrdJsOutbox *outbox)
{
    uint32_t n_partitions = nrd_js_topic_n_partitions(outbox->topic);
    for (uint32_t number = 0; number < n_partitions; number++) {
        NrdPartition *partition = nrd_js_topic_partition(outbox->topic, number);
        guint n;
        const NrdJsOut *first = first_passed_locked(outbox, partition, &n);
        if (!first)
            continue;
        nrd_js_outbox_say_locked(
            outbox, NRD_LEVEL_ERROR, partition,
            "%u record%s that %s sent to this partition and not acknowledged, the first of them "
            "number %" G_GUINT64_FORMAT " of what its writer has written, may be stored here or not, and "
            "can go nowhere else: fsync says so (EIO) until reopen is written to the ctl of p%05u, "
            "which decides it, or the writer closes; what it wrote besides is stored",
            n, nrd_plural(n), n == 1 ? "was" : "were", first->number + 1, number);
        Saying *saying = outbox->sayings->pdata[outbox->sayings->len - 1];
        saying->keep = true;
    }
}

void nrd_js_outbox_unlock(NrdJsOutbox *outbox)
{
    g_autoptr(GPtrArray) sayings = g_steal_pointer(&outbox->sayings);
    g_mutex_unlock(&outbox->lock);
    for (guint i = 0; sayings && i < sayings->len; i++) {
        const Saying *saying = sayings->pdata[i];
        nrd_diag(saying->level, saying->place, "%s", saying->text);
        if (saying->keep)
            nrd_js_topic_keep_refusal(saying->topic,
                                      g_strdup_printf("p%05u: %s", (unsigned)saying->place.partition, saying->text));
    }
}
