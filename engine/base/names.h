/* Sorted copies of names. Pure; the caller holds whatever guards the table. */
#ifndef NRD_BASE_NAMES_H
#define NRD_BASE_NAMES_H

#include <glib.h>

/* The keys (char*) of table, copied and in byte order; g_ptr_array_unref. */
GPtrArray *nrd_names_sorted(GHashTable *table);

#endif
