/* See partial_budget.h. */
#include "fs/partial_budget.h"

#include <errno.h>

void nrd_partial_budget_init(NrdPartialBudget *budget, size_t limit_bytes)
{
    *budget = (NrdPartialBudget){ .limit_bytes = limit_bytes };
    g_mutex_init(&budget->lock);
}

void nrd_partial_budget_clear(NrdPartialBudget *budget)
{
    g_mutex_clear(&budget->lock);
}

int nrd_partial_budget_take(NrdPartialBudget *budget, size_t size, size_t *charged)
{
    size_t beyond = size > NRD_PARTIAL_SHARE_BYTES ? size - NRD_PARTIAL_SHARE_BYTES : 0;
    if (beyond <= *charged)
        return 0;
    size_t more = beyond - *charged;
    g_mutex_lock(&budget->lock);
    bool fits = more <= budget->limit_bytes - budget->used_bytes;
    if (fits)
        budget->used_bytes += more;
    g_mutex_unlock(&budget->lock);
    if (!fits)
        return -EAGAIN;
    *charged = beyond;
    return 0;
}

void nrd_partial_budget_give_back(NrdPartialBudget *budget, size_t *charged)
{
    if (*charged == 0)
        return;
    g_mutex_lock(&budget->lock);
    budget->used_bytes -= *charged;
    if (budget->used_bytes <= budget->limit_bytes / 2)
        budget->told = false;
    g_mutex_unlock(&budget->lock);
    *charged = 0;
}

bool nrd_partial_budget_tell(NrdPartialBudget *budget)
{
    g_mutex_lock(&budget->lock);
    bool news = !budget->told;
    budget->told = true;
    g_mutex_unlock(&budget->lock);
    return news;
}
