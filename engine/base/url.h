/* Addresses of servers. Pure. */
#ifndef NRD_BASE_URL_H
#define NRD_BASE_URL_H

/* A list of servers, `scheme://user:password@host:port,...`, for a person: without users, passwords and tokens (g_free). */
char *nrd_url_without_secrets(const char *servers);

#endif
