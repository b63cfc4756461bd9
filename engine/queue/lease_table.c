/* Pages of 32 leases, found through a ring of pointers that is indexed by page number.
 *
 * The order in which leases end is kept in a few lists. While the visibility timeout stays what it is, who is leased or
 * extended later ends later: that is one list, to whose end a lease is put in O(1). After the timeout was made shorter
 * new leases end before old ones: they begin a second list, and so on. With more than MAX_LISTS such steps within one
 * timeout a lease is sorted into the last list. */
#include "engine/queue/lease_table.h"

#define PAGE_LEASES 32
#define MIN_PAGES 8
#define KEEP_PAGES 1024 /* an emptied ring of at most this size keeps its memory */
#define MAX_LISTS 8

_Static_assert(sizeof(NrdLeaseEntry) == 32, "the bound on memory in the header counts on it");

typedef struct Page {
    uint32_t live; /* bit i: entries[i] is a lease */
    NrdLeaseEntry entries[PAGE_LEASES];
} Page;

/* Leases in the order in which they end; offsets. */
typedef struct List {
    uint64_t head, tail; /* NRD_LEASE_NONE: empty */
} List;

struct NrdLeaseTable {
    Page **pages;      /* capacity pointers; page number p stands at p % capacity; NULL: no lease in it */
    uint32_t capacity; /* a power of two or 0 */
    uint32_t n_pages;  /* that are there */
    uint32_t n;
    uint64_t low, high; /* every page is in [low, high), which is at most capacity wide */
    List lists[MAX_LISTS];
};

static void empty_lists(NrdLeaseTable *table)
{
    for (int i = 0; i < MAX_LISTS; i++)
        table->lists[i] = (List){ NRD_LEASE_NONE, NRD_LEASE_NONE };
}

NrdLeaseTable *nrd_lease_table_new(void)
{
    NrdLeaseTable *table = g_new0(NrdLeaseTable, 1);
    empty_lists(table);
    return table;
}

void nrd_lease_table_free(NrdLeaseTable *table)
{
    if (!table)
        return;
    nrd_lease_table_clear(table);
    g_free(table->pages);
    g_free(table);
}

uint32_t nrd_lease_table_count(const NrdLeaseTable *table)
{
    return table->n;
}

size_t nrd_lease_table_size_bytes(const NrdLeaseTable *table)
{
    return sizeof *table + table->capacity * sizeof *table->pages + table->n_pages * sizeof(Page);
}

/* ---- pages ---- */

static Page **slot_of(const NrdLeaseTable *table, uint64_t number)
{
    return &table->pages[number & (table->capacity - 1)];
}

static Page *page_of(const NrdLeaseTable *table, uint64_t offset)
{
    uint64_t number = offset / PAGE_LEASES;
    return number >= table->low && number < table->high ? *slot_of(table, number) : NULL;
}

/* The lease of an offset that has one. */
static NrdLeaseEntry *entry_of(const NrdLeaseTable *table, uint64_t offset)
{
    return &page_of(table, offset)->entries[offset % PAGE_LEASES];
}

/* Leaves out the pages at both ends of the window that are not there. Each page is passed once after it was put. */
static void narrow(NrdLeaseTable *table)
{
    while (table->low < table->high && !*slot_of(table, table->low))
        table->low++;
    while (table->low < table->high && !*slot_of(table, table->high - 1))
        table->high--;
}

static void grow(NrdLeaseTable *table, uint64_t width)
{
    uint64_t capacity = MAX(table->capacity, MIN_PAGES);
    while (capacity < width)
        capacity *= 2;
    g_assert(capacity <= UINT32_MAX / 2);
    Page **old = table->pages;
    uint32_t old_mask = table->capacity - 1;
    table->pages = g_new0(Page *, capacity);
    table->capacity = (uint32_t)capacity;
    for (uint64_t number = table->low; number < table->high; number++)
        *slot_of(table, number) = old[number & old_mask];
    g_free(old);
}

/* Makes the window hold page `number`. */
static void widen(NrdLeaseTable *table, uint64_t number)
{
    if (table->n_pages > 0 && (number < table->low || number >= table->high))
        narrow(table);
    if (table->n_pages == 0)
        table->low = table->high = number;
    uint64_t low = MIN(table->low, number), high = MAX(table->high, number + 1);
    if (high - low > table->capacity)
        grow(table, high - low);
    table->low = low;
    table->high = high;
}

static Page *make_page(NrdLeaseTable *table, uint64_t number)
{
    widen(table, number);
    Page **slot = slot_of(table, number);
    if (!*slot) {
        *slot = g_new(Page, 1);
        (*slot)->live = 0;
        table->n_pages++;
    }
    return *slot;
}

static void drop_page(NrdLeaseTable *table, uint64_t number)
{
    g_clear_pointer(slot_of(table, number), g_free);
    table->n_pages--;
}

/* ---- lists ---- */

/* Puts leases that stand behind each other, from first to last, behind `before` (NRD_LEASE_NONE: to the front). */
static void link_behind(NrdLeaseTable *table, List *list, uint64_t before, uint64_t first, uint64_t last)
{
    uint64_t after = before == NRD_LEASE_NONE ? list->head : entry_of(table, before)->next;
    entry_of(table, first)->previous = before;
    entry_of(table, last)->next = after;
    if (before == NRD_LEASE_NONE)
        list->head = first;
    else
        entry_of(table, before)->next = first;
    if (after == NRD_LEASE_NONE)
        list->tail = last;
    else
        entry_of(table, after)->previous = last;
}

/* The list to whose end a lease that is over at that time belongs, or the last one with the place in it, which is behind
 * *ret_before. */
static List *find_list(NrdLeaseTable *table, int64_t expiry_ms, uint64_t *ret_before)
{
    for (int i = 0; i < MAX_LISTS; i++) {
        List *list = &table->lists[i];
        *ret_before = list->tail;
        if (list->tail == NRD_LEASE_NONE || entry_of(table, list->tail)->expiry_ms <= expiry_ms)
            return list;
    }
    while (*ret_before != NRD_LEASE_NONE && entry_of(table, *ret_before)->expiry_ms > expiry_ms)
        *ret_before = entry_of(table, *ret_before)->previous;
    return &table->lists[MAX_LISTS - 1];
}

/* The list at one of whose ends offset stands. */
static List *list_of_end(NrdLeaseTable *table, uint64_t offset)
{
    List *list = table->lists;
    while (list->head != offset && list->tail != offset)
        list++;
    g_assert(list < table->lists + MAX_LISTS);
    return list;
}

/* Takes leases that stand behind each other, from first to last, out of between previous and next. */
static void link_out(NrdLeaseTable *table, uint64_t previous, uint64_t next, uint64_t first, uint64_t last)
{
    List *list = previous == NRD_LEASE_NONE ? list_of_end(table, first)
                 : next == NRD_LEASE_NONE   ? list_of_end(table, last)
                                            : NULL;
    if (previous == NRD_LEASE_NONE)
        list->head = next;
    else
        entry_of(table, previous)->next = next;
    if (next == NRD_LEASE_NONE)
        list->tail = previous;
    else
        entry_of(table, next)->previous = previous;
}

/* ---- the table's interface ---- */

const NrdLeaseEntry *nrd_lease_table_find(const NrdLeaseTable *table, uint64_t offset)
{
    const Page *page = page_of(table, offset);
    return page && page->live >> offset % PAGE_LEASES & 1 ? &page->entries[offset % PAGE_LEASES] : NULL;
}

const NrdLeaseEntry *nrd_lease_table_find_run(const NrdLeaseTable *table, uint64_t offset, uint32_t *ret_n)
{
    const Page *page = page_of(table, offset);
    uint32_t index = offset % PAGE_LEASES;
    uint32_t others = page ? ~(page->live >> index) : UINT32_MAX; /* zeros come in from above: the page's end */
    *ret_n = others ? (uint32_t)__builtin_ctz(others) : PAGE_LEASES;
    return *ret_n > 0 ? &page->entries[index] : NULL;
}

uint64_t nrd_lease_table_soonest(const NrdLeaseTable *table)
{
    uint64_t soonest = NRD_LEASE_NONE;
    for (int i = 0; i < MAX_LISTS; i++) {
        uint64_t head = table->lists[i].head;
        if (head != NRD_LEASE_NONE &&
            (soonest == NRD_LEASE_NONE || entry_of(table, head)->expiry_ms < entry_of(table, soonest)->expiry_ms))
            soonest = head;
    }
    return soonest;
}

static uint32_t bits_of(uint64_t first, uint32_t n)
{
    return (n < PAGE_LEASES ? (UINT32_C(1) << n) - 1 : UINT32_MAX) << first % PAGE_LEASES;
}

/* The part of n leases from first on that lies in the page of the first. */
static uint32_t n_in_page(uint64_t first, uint32_t n)
{
    return MIN(n, PAGE_LEASES - (uint32_t)(first % PAGE_LEASES));
}

/* Adds leases of one page, each of which stands between its neighbours by offset. */
static void add_in_page(NrdLeaseTable *table, uint64_t first, const uint64_t *nonces, uint32_t n, int64_t expiry_ms)
{
    Page *page = page_of(table, first);
    if (!page)
        page = make_page(table, first / PAGE_LEASES);
    g_assert((page->live & bits_of(first, n)) == 0);
    page->live |= bits_of(first, n);
    table->n += n;
    NrdLeaseEntry *entry = &page->entries[first % PAGE_LEASES];
    for (uint32_t i = 0; i < n; i++)
        entry[i] = (NrdLeaseEntry){ nonces[i], expiry_ms, first + i - 1, first + i + 1 };
}

void nrd_lease_table_add_run(NrdLeaseTable *table, uint64_t first, const uint64_t *nonces, uint32_t n,
                             int64_t expiry_ms)
{
    uint64_t before;
    List *list = find_list(table, expiry_ms, &before);
    g_assert(first + n > first); /* none is NRD_LEASE_NONE */
    for (uint32_t i = 0, n_some; i < n; i += n_some) {
        n_some = n_in_page(first + i, n - i);
        add_in_page(table, first + i, nonces + i, n_some, expiry_ms);
    }
    link_behind(table, list, before, first, first + n - 1);
}

void nrd_lease_table_add(NrdLeaseTable *table, uint64_t offset, uint64_t nonce, int64_t expiry_ms)
{
    nrd_lease_table_add_run(table, offset, &nonce, 1, expiry_ms);
}

void nrd_lease_table_set_expiry(NrdLeaseTable *table, uint64_t offset, int64_t expiry_ms)
{
    g_assert(nrd_lease_table_find(table, offset));
    NrdLeaseEntry *entry = entry_of(table, offset);
    uint64_t before;
    link_out(table, entry->previous, entry->next, offset, offset);
    entry->expiry_ms = expiry_ms;
    List *list = find_list(table, expiry_ms, &before);
    link_behind(table, list, before, offset, offset);
}

/* Removes leases of one page, which are in no list any more. */
static void remove_in_page(NrdLeaseTable *table, uint64_t first, uint32_t n)
{
    Page *page = page_of(table, first);
    page->live &= ~bits_of(first, n);
    if (page->live == 0)
        drop_page(table, first / PAGE_LEASES);
    table->n -= n;
    if (table->n == 0)
        nrd_lease_table_clear(table);
}

/* How many leases from offset on, at most n, are there and stand behind each other in one list. */
static uint32_t n_in_order(const NrdLeaseTable *table, uint64_t offset, uint32_t n)
{
    uint32_t i = 1;
    while (i < n && entry_of(table, offset + i - 1)->next == offset + i)
        i++;
    return i;
}

void nrd_lease_table_remove_run(NrdLeaseTable *table, uint64_t first, uint32_t n)
{
    for (uint32_t n_some; n > 0; first += n_some, n -= n_some) {
        g_assert(nrd_lease_table_find(table, first));
        n_some = n_in_order(table, first, n);
        uint64_t last = first + n_some - 1;
        link_out(table, entry_of(table, first)->previous, entry_of(table, last)->next, first, last);
        for (uint32_t i = 0, n_of_page; i < n_some; i += n_of_page) {
            n_of_page = n_in_page(first + i, n_some - i);
            remove_in_page(table, first + i, n_of_page);
        }
    }
}

void nrd_lease_table_remove(NrdLeaseTable *table, uint64_t offset)
{
    nrd_lease_table_remove_run(table, offset, 1);
}

static void remove_of_page(NrdLeaseTable *table, uint64_t number, uint64_t begin, uint64_t end)
{
    uint64_t first = MAX(begin, number * PAGE_LEASES);
    uint64_t last = MIN(end - 1, number * PAGE_LEASES + PAGE_LEASES - 1);
    for (uint64_t offset = first; offset <= last; offset++) {
        if (nrd_lease_table_find(table, offset))
            nrd_lease_table_remove(table, offset);
    }
}

void nrd_lease_table_remove_range(NrdLeaseTable *table, uint64_t begin, uint64_t end)
{
    if (begin >= end || table->n == 0)
        return;
    uint64_t high = MIN((end - 1) / PAGE_LEASES + 1, table->high);
    for (uint64_t number = MAX(begin / PAGE_LEASES, table->low); number < high && table->n > 0; number++) {
        if (*slot_of(table, number))
            remove_of_page(table, number, begin, end);
    }
}

void nrd_lease_table_clear(NrdLeaseTable *table)
{
    for (uint64_t number = table->low; number < table->high && table->n_pages > 0; number++) {
        if (*slot_of(table, number))
            drop_page(table, number);
    }
    if (table->capacity > KEEP_PAGES) {
        g_clear_pointer(&table->pages, g_free);
        table->capacity = 0;
    }
    table->low = table->high = 0;
    table->n = 0;
    empty_lists(table);
}
