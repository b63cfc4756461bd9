/* See url.h. */
#include "engine/base/url.h"

#include <glib.h>
#include <string.h>

char *nrd_url_without_secrets(const char *servers)
{
    g_auto(GStrv) list = g_strsplit(servers, ",", -1);
    for (char **server = list; *server; server++) {
        char *at = strrchr(*server, '@');
        char *scheme = strstr(*server, "://");
        char *host = scheme ? scheme + 3 : *server;
        if (at && at >= host)
            memmove(host, at + 1, strlen(at + 1) + 1);
    }
    return g_strjoinv(",", list);
}
