/* Where a record goes. To a topic as a whole it goes to another partition when its own takes nothing, unless it was sent and
 * may be stored: then it goes nowhere, is passed over, and those behind it go on. What becomes of it a person decides, who
 * writes reopen: then it is looked for, or sent again under its id. */
#include "engine/jetstream/outbox_private.h"
#include "engine/jetstream/partition.h"

static bool is_well(NrdPartition *partition)
{
    return nrd_js_partition_usable(partition) == 0 && !nrd_js_partition_is_gone(partition);
}

/* A record that may be stored in its own partition, while others of its topic may take what is behind it. */
static bool may_be_passed(const NrdJsOutbox *outbox, const NrdJsOut *record)
{
    return !outbox->partition && record->doubtful;
}

bool nrd_js_outbox_find_place_locked(const NrdJsOutbox *outbox, NrdJsOut *record)
{
    NrdPartition *own = record->partition;
    uint32_t n = outbox->partition || record->doubtful ? 1 : nrd_js_topic_n_partitions(outbox->topic);
    for (uint32_t i = 0; i < n; i++) {
        NrdPartition *next = i == 0 ? own : nrd_js_topic_partition(outbox->topic, (own->number + i) % n);
        if (!is_well(next))
            continue;
        if (i > 0)
            nrd_counter_add(NRD_COUNTER_REROUTED, 1);
        record->partition = next;
        return true;
    }
    bool waits_in_vain = outbox->repeats && may_be_passed(outbox, record) && nrd_js_partition_is_gone(own);
    return nrd_js_partition_usable(own) == 0 && !waits_in_vain;
}

bool nrd_js_outbox_is_gone_locked(const NrdJsOutbox *outbox)
{
    NrdJsOut *first = outbox->records.head ? outbox->records.head->data : NULL;
    if (first && first->state == NRD_JS_OUT_HELD)
        (void)nrd_js_outbox_find_place_locked(outbox, first);
    return first && !may_be_passed(outbox, first) && nrd_js_partition_is_gone(first->partition);
}

bool nrd_js_outbox_pass_locked(NrdJsOutbox *outbox, NrdJsOut *record)
{
    if (!may_be_passed(outbox, record))
        return false;
    record->passed = true;
    outbox->n_passed++;
    outbox->next = record->link.next;
    return true;
}

bool nrd_js_outbox_tell_passed_locked(NrdJsOutbox *outbox)
{
    bool news = false;
    nrd_js_outbox_say_passed_locked(outbox);
    for (GList *link = outbox->records.head; link; link = link->next) {
        NrdJsOut *record = link->data;
        news |= record->passed && !record->told;
        record->told |= record->passed;
    }
    return news;
}
