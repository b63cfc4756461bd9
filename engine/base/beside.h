/* One piece of work in parts: some of them on other threads, where processors are idle, the rest on the caller's. Nobody waits
 * for a thread to come: the caller does whatever has not been begun, and all of it where the system gives no thread. */
#ifndef NRD_ENGINE_BASE_BESIDE_H
#define NRD_ENGINE_BASE_BESIDE_H

#define NRD_BESIDE_MAX 4 /* threads that work on one, and on all beside their callers */

typedef void (*NrdBesideFn)(void *user_data, unsigned part);

/* How many parts can be worked on at a time: the processors, at most NRD_BESIDE_MAX. */
unsigned nrd_beside_n(void);

/* Calls fn once for each part of 0 to n_parts - 1, from this thread and others at the same time; returns when all are done.
 * Holds no lock while fn runs. Any thread; not from fn. */
void nrd_beside_run(NrdBesideFn fn, void *user_data, unsigned n_parts);

#endif
