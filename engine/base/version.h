/* The version of this build, as scripts/version tells it. */
#ifndef NRD_BASE_VERSION_H
#define NRD_BASE_VERSION_H

/* "0.1.0", or "0.1.0+5.g0123abc"; static. */
extern const char nrd_version[];

#endif
