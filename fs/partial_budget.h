/* How many bytes of unfinished records the producing handles of a process keep together. A handle may always keep its
 * share; what it keeps beyond that counts, so that whoever may write to a topic cannot take all memory by beginning
 * records and not ending them. Any thread; memory only; the budget outlives its handles. */
#ifndef NRD_FS_PARTIAL_BUDGET_H
#define NRD_FS_PARTIAL_BUDGET_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>

#define NRD_PARTIAL_SHARE_BYTES ((size_t)65536)
#define NRD_PARTIAL_BYTES_DEFAULT ((size_t)256 << 20)

typedef struct NrdPartialBudget {
    GMutex lock; /* guards what follows */
    size_t limit_bytes;
    size_t used_bytes; /* beyond the shares */
    bool told;
} NrdPartialBudget;

void nrd_partial_budget_init(NrdPartialBudget *budget, size_t limit_bytes);
void nrd_partial_budget_clear(NrdPartialBudget *budget);

/* A handle is about to keep size bytes; *charged is what it has taken beyond its share, from 0 on. -EAGAIN: nothing is
 * taken, or left for it. */
int nrd_partial_budget_take(NrdPartialBudget *budget, size_t size, size_t *charged) NRD_MUST_CHECK;

/* The handle keeps nothing any more; *charged becomes 0. */
void nrd_partial_budget_give_back(NrdPartialBudget *budget, size_t *charged);

/* Whether a refusal is news: true once, and again when meanwhile half of the limit was free. */
bool nrd_partial_budget_tell(NrdPartialBudget *budget);

#endif
