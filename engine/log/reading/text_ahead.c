/* Reading ahead of who reads a text in order: while the kernel hands over one answer and the program looks at it, the
 * thread that answered renders the next one. What lies ready is checked like every read, and counts only as long as no
 * text has moved since. One answer is kept, only while reads go on from each other, never across the end. */
#include "engine/log/reading/text_private.h"

/* Reads that went on from each other before it is done for the next one: a look at a place reads no more than that. */
#define IN_ORDER 2

void nrd_text_drop_ahead(NrdText *text)
{
    g_clear_pointer(&text->ahead, g_free);
}

bool nrd_text_take_ahead(NrdText *text, uint64_t pos, void **buf, size_t size)
{
    if (text->ahead == NULL)
        return false;
    bool good =
        text->next == pos && text->size == size && text->ahead_version == nrd_load(&text->log->home.text_version);
    if (good) {
        g_free(*buf);
        *buf = g_steal_pointer(&text->ahead);
    }
    nrd_text_drop_ahead(text);
    return good;
}

void nrd_text_note_order(NrdText *text, uint64_t pos, size_t size, bool full)
{
    bool goes_on = full && text->next == pos && text->size == size;

    text->n_in_order = goes_on ? text->n_in_order + 1 : 0;
    text->next = full ? pos + size : UINT64_MAX;
    text->size = size;
}

void nrd_text_read_ahead(NrdText *text)
{
    size_t n = 0;

    g_mutex_lock(&text->io_lock);
    if (text->n_in_order >= IN_ORDER && text->ahead == NULL && !nrd_log_is_closed(text->log) &&
        text->next + text->size <= nrd_text_size(text)) {
        text->ahead_version = nrd_load(&text->log->home.text_version); /* before: a change since shows */
        text->ahead = g_try_malloc(text->size);
        if (text->ahead != NULL &&
            (nrd_text_read_locked(text, text->next, text->ahead, text->size, &n) < 0 || n < text->size))
            nrd_text_drop_ahead(text); /* the read itself will meet it again */
    }
    g_mutex_unlock(&text->io_lock);
}
