/* Small attributes and constants shared by every floor. No code. */
#ifndef NRD_BASE_MACROS_H
#define NRD_BASE_MACROS_H

/* The result is an error code that the caller has to look at. */
#define NRD_MUST_CHECK __attribute__((warn_unused_result))

#define NRD_KIB ((uint64_t)1024)
#define NRD_MIB (1024 * NRD_KIB)
#define NRD_GIB (1024 * NRD_MIB)

#endif
