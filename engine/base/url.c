/* See url.h. */
#include "engine/base/url.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

#define PORT "4222"

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

/* ---- one server; what is returned is why it is none, or NULL ---- */

static const char *take_scheme(const char **text, bool *tls)
{
    const char *end = strstr(*text, "://");
    if (!end)
        return NULL;
    if (g_str_has_prefix(*text, "tls://"))
        *tls = true;
    else if (!g_str_has_prefix(*text, "nats://"))
        return "it begins with something other than nats:// and tls://";
    *text = end + 3;
    return NULL;
}

/* Without what could leave the line in which the client library sends it. */
static const char *decode(const char *text, const char *end, char **ret_text)
{
    g_autofree char *plain = g_uri_unescape_segment(text, end, NULL);
    if (!plain)
        return "a % in its user or password is not followed by two hexadecimal digits other than 00 (a % itself is "
               "%25)";
    if (!g_utf8_validate(plain, -1, NULL))
        return "its user or password is not UTF-8";
    for (const char *c = plain; *c; c++)
        if (g_ascii_iscntrl(*c))
            return "its user or password has a control character";
    if (!*plain)
        return "its user or password is empty";
    *ret_text = g_steal_pointer(&plain);
    return NULL;
}

static const char *take_user(const char **text, char **ret_user, char **ret_password)
{
    const char *at = strrchr(*text, '@');
    if (!at)
        return NULL;
    const char *colon = memchr(*text, ':', (size_t)(at - *text));
    const char *why = decode(*text, colon ? colon : at, ret_user);
    if (!why && colon)
        why = decode(colon + 1, at, ret_password);
    *text = at + 1;
    return why;
}

static const char *take_address(const char *text, char **ret_address)
{
    const char *v6_end = text[0] == '[' ? strchr(text, ']') : NULL;
    size_t n = v6_end ? (size_t)(v6_end - text) + 1 : strcspn(text, ":");
    const char *letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._";
    g_autofree char *host = g_strndup(text, n);
    g_autofree char *port = g_strdup(text[n] == ':' ? text + n + 1 : PORT);
    guint64 number;
    if (v6_end ? strspn(text + 1, "0123456789abcdefABCDEF:.%") != n - 2 : n == 0 || strspn(host, letters) != n)
        return "its host is no name and no address (a comma or an @ in a password is written %2C or %40)";
    if (g_str_has_suffix(port, "/"))
        port[strlen(port) - 1] = '\0';
    if ((text[n] != ':' && text[n] != '\0') || !g_ascii_string_to_unsigned(port, 10, 1, 65535, &number, NULL))
        return "its port is no number up to 65535 (a comma or an @ in a password is written %2C or %40)";
    *ret_address = g_strdup_printf("nats://%s:%s", host, port);
    return NULL;
}

/* ---- the list ---- */

static const char *join_user(NrdServers *servers, char *user, char *password, bool first)
{
    if (first) {
        servers->user = g_strdup(user);
        servers->password = g_strdup(password);
        return NULL;
    }
    bool same = g_strcmp0(user, servers->user) == 0 && g_strcmp0(password, servers->password) == 0;
    return !user || same ? NULL : "its user is another one than the first server's: they share one";
}

static const char *add_server(NrdServers *servers, GPtrArray *addresses, const char *text)
{
    g_autofree char *user = NULL;
    g_autofree char *password = NULL;
    char *address = NULL;
    const char *why = take_scheme(&text, &servers->tls);
    if (!why)
        why = take_user(&text, &user, &password);
    if (!why)
        why = join_user(servers, user, password, addresses->len == 0);
    if (!why)
        why = take_address(text, &address);
    if (!why)
        g_ptr_array_add(addresses, address);
    return why;
}

int nrd_servers_parse(const char *list, NrdServers *ret_servers, char **ret_why)
{
    NrdServers servers = { .user = NULL };
    GPtrArray *addresses = g_ptr_array_new();
    g_auto(GStrv) texts = g_strsplit(list, ",", -1);
    const char *why = texts[0] ? NULL : "there is none";
    for (char **text = texts; !why && *text; text++)
        why = add_server(&servers, addresses, g_strstrip(*text));
    guint n = addresses->len;
    g_ptr_array_add(addresses, NULL);
    servers.addresses = (char **)g_ptr_array_free(addresses, FALSE);
    if (!why) {
        *ret_servers = servers;
        return 0;
    }
    nrd_servers_clear(&servers);
    *ret_why = g_strdup_printf("the list of servers, its number %u: %s", n + 1, why);
    return -EINVAL;
}

void nrd_servers_clear(NrdServers *servers)
{
    g_clear_pointer(&servers->addresses, g_strfreev);
    g_clear_pointer(&servers->user, g_free);
    g_clear_pointer(&servers->password, g_free);
}
