/* See store.h. */
#include "store.h"

#include "engine/base/diag.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

void store_init(Store *s)
{
    *s = (Store){ 0 };
    pthread_mutex_init(&s->lock, NULL);
    s->log = g_ptr_array_new_with_free_func(g_free);
    for (int i = 0; i < N_PARTITIONS; i++)
        s->records[i] = g_ptr_array_new_with_free_func(g_free);
}

void store_clear(Store *s)
{
    for (int i = 0; i < N_PARTITIONS; i++)
        g_ptr_array_unref(s->records[i]);
    g_ptr_array_unref(s->log);
    pthread_mutex_destroy(&s->lock);
}

static char *record_text(const NrdEntryRecord *record)
{
    return g_strndup((const char *)record->payload, record->payload_size);
}

static NrdIngressResult may_commit(Store *s, uint32_t partition)
{
    if (s->gone)
        return NRD_INGRESS_GONE;
    if (s->away || s->out[partition])
        return NRD_INGRESS_AWAY;
    if (s->full)
        return NRD_INGRESS_NO_ROOM;
    if (s->poisoned[partition])
        return NRD_INGRESS_POISONED;
    if (s->shut[partition])
        return NRD_INGRESS_FAILED;
    if (s->fail[partition] != 0) {
        s->fail[partition] -= s->fail[partition] > 0;
        return NRD_INGRESS_FAILED;
    }
    return NRD_INGRESS_DONE;
}

NrdIngressResult commit(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slices, size_t n_slices,
                        uint64_t *ret_first)
{
    Store *s = user_data;
    g_assert_cmpstr(target->topic, ==, "t");
    if (s->slow_us > 0)
        g_usleep((gulong)s->slow_us);
    while (atomic_load(&s->hangs) && strcmp(target->id, ID_A) == 0)
        g_usleep(500);
    pthread_mutex_lock(&s->lock);
    NrdIngressResult result = may_commit(s, target->partition);
    *ret_first = s->records[target->partition]->len;
    for (size_t i = 0; result == NRD_INGRESS_DONE && i < n_slices; i++) {
        NrdIngressSlice slice = slices[i];
        NrdEntryRecord record;
        while (nrd_entry_next_record(&slice.records, &slice.size, &record)) {
            g_ptr_array_add(s->records[target->partition], record_text(&record));
            g_ptr_array_add(s->log, record_text(&record));
        }
    }
    s->n_commits++;
    pthread_mutex_unlock(&s->lock);
    while (atomic_load(&s->lingers) && strcmp(target->id, ID_A) == 0)
        g_usleep(500);
    return result;
}

NrdIngressResult present(void *user_data, const NrdIngressTarget *target, const NrdIngressSlice *slice, uint64_t offset,
                         bool *ret_present)
{
    Store *s = user_data;
    NrdIngressSlice left = *slice;
    NrdEntryRecord record;
    bool same = true;
    if (s->slow_us > 0)
        g_usleep((gulong)s->slow_us);
    pthread_mutex_lock(&s->lock);
    NrdIngressResult result = may_commit(s, target->partition);
    if (result == NRD_INGRESS_POISONED || (s->readable && !s->shut[target->partition] && result == NRD_INGRESS_FAILED))
        result = NRD_INGRESS_DONE;
    const GPtrArray *records = s->records[target->partition];
    for (uint64_t at = offset; same && nrd_entry_next_record(&left.records, &left.size, &record); at++) {
        g_autofree char *text = record_text(&record);
        same = at < records->len && strcmp(records->pdata[at], text) == 0;
    }
    pthread_mutex_unlock(&s->lock);
    *ret_present = same;
    return result;
}

bool sibling(void *user_data, const NrdIngressTarget *target, uint32_t *ret_partition)
{
    Store *s = user_data;
    for (uint32_t i = 1; i < N_PARTITIONS; i++) {
        uint32_t partition = (target->partition + i) % N_PARTITIONS;
        if (s->poisoned[partition])
            continue;
        *ret_partition = partition;
        return true;
    }
    return false;
}

bool next_offset(void *user_data, const NrdIngressTarget *target, uint64_t *ret_offset)
{
    Store *s = user_data;
    pthread_mutex_lock(&s->lock);
    *ret_offset = s->records[target->partition]->len;
    bool known = !s->cold || s->warmed[target->partition];
    pthread_mutex_unlock(&s->lock);
    return known;
}

void warm(void *user_data, const NrdIngressTarget *target)
{
    Store *s = user_data;
    pthread_mutex_lock(&s->lock);
    s->warmed[target->partition] = true;
    pthread_mutex_unlock(&s->lock);
}

NrdIngress *start_with(Fixture *f, Store *s, uint64_t memory_bytes, uint64_t segment_bytes)
{
    NrdIngress *ingress = NULL;
    NrdIngressOptions options = {
        .root_fd = f->root_fd,
        .ops = { commit, warm, present, sibling, next_offset, s },
        .n_workers = 4,
        .checkpoint_ms = 5,
        .memory_bytes = memory_bytes,
        .segment_bytes = segment_bytes,
    };
    g_assert_cmpint(nrd_ingress_open(&options, &ingress), ==, 0);
    nrd_ingress_start(ingress);
    return ingress;
}

NrdIngress *start(Fixture *f, Store *s)
{
    return start_with(f, s, 0, 0);
}

static void store_error(void *user_data, int error)
{
    atomic_store((atomic_int *)user_data, error);
}

int put_draft_of(NrdIngress *ingress, NrdEntryDraft *draft, const char *id, const NrdIngressSink *sink)
{
    static const NrdIngressSink none = { 0 };
    atomic_int error = 1;
    nrd_ingress_append(ingress, draft, "t", id, sink ? sink : &none, store_error, &error);
    for (int i = 0; atomic_load(&error) == 1 && i < WAIT_MS * 5; i++)
        g_usleep(200);
    g_assert_cmpint(atomic_load(&error), !=, 1);
    nrd_entry_draft_free(draft);
    return atomic_load(&error);
}

int put_draft(NrdIngress *ingress, NrdEntryDraft *draft, const NrdIngressSink *sink)
{
    return put_draft_of(ingress, draft, ID_A, sink);
}

int put(NrdIngress *ingress, uint32_t partition, const char *payload)
{
    NrdEntryDraft *draft = nrd_entry_draft_new();
    nrd_entry_draft_add(draft, partition, NULL, 0, payload, strlen(payload));
    return put_draft(ingress, draft, NULL);
}

void wait_until_dispatched(NrdIngress *ingress)
{
    for (int i = 0; nrd_ingress_holds(ingress, ID_A) && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_false(nrd_ingress_holds(ingress, ID_A));
}

void assert_store(Store *s, uint32_t partition, const char *expected)
{
    g_autoptr(GString) text = g_string_new(NULL);
    pthread_mutex_lock(&s->lock);
    for (guint i = 0; i < s->records[partition]->len; i++)
        g_string_append_printf(text, "%s%s", i > 0 ? " " : "", (char *)s->records[partition]->pdata[i]);
    pthread_mutex_unlock(&s->lock);
    g_assert_cmpstr(text->str, ==, expected);
}

unsigned count(Store *s, const char *record)
{
    unsigned n = 0;
    for (int p = 0; p < N_PARTITIONS; p++) {
        for (guint i = 0; i < s->records[p]->len; i++)
            n += strcmp(s->records[p]->pdata[i], record) == 0;
    }
    return n;
}

void wait_for_failures(uint64_t n)
{
    uint64_t wanted = nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT) + n;
    for (int i = 0; nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT) < wanted && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_COMMIT), >=, wanted);
}

int at_in_log(Store *s, const char *record)
{
    for (guint i = 0; i < s->log->len; i++) {
        if (strcmp(s->log->pdata[i], record) == 0)
            return (int)i;
    }
    g_assert_not_reached();
}

void wait_rerouted(uint64_t before)
{
    for (int i = 0; nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED) == before && i < WAIT_MS; i++)
        g_usleep(1000);
    g_assert_cmpuint(nrd_counter_get(NRD_COUNTER_INGRESS_REROUTED), >, before);
}

void rig_set_up(Rig *rig, gconstpointer data)
{
    fixture_set_up(&rig->f);
    fixture_make(&rig->crashed);
    store_init(&rig->s);
}

void rig_tear_down(Rig *rig, gconstpointer data)
{
    store_clear(&rig->s);
    fixture_remove(&rig->crashed);
    fixture_tear_down(&rig->f);
}
