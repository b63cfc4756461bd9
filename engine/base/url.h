/* Addresses of servers. Pure. */
#ifndef NRD_BASE_URL_H
#define NRD_BASE_URL_H

#include "engine/base/macros.h"

#include <stdbool.h>

/* A list of servers, `scheme://user:password@host:port,...`, for a person: without users, passwords and tokens (g_free). */
char *nrd_url_without_secrets(const char *servers);

/* A list of servers, taken apart. */
typedef struct NrdServers {
    char **addresses; /* `nats://host:port` each; ends with NULL */
    char *user;       /* decoded, one for all servers; NULL: nobody */
    char *password;   /* NULL: the user is a token, or there is none */
    bool tls;         /* one of them is `tls://` */
} NrdServers;

/* A list with commas of [nats:// or tls://][user:password@]host[:port], where octets of the user and of the password may be
 * percent-encoded, and a user stands with the first server or is the same with each. -EINVAL, and a sentence in *ret_why
 * (g_free) that quotes nothing of it, since what cannot be understood may be a secret. */
int nrd_servers_parse(const char *list, NrdServers *ret_servers, char **ret_why) NRD_MUST_CHECK;
void nrd_servers_clear(NrdServers *servers);

#endif
