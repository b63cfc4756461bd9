/* See conn_options.h. */
#include "engine/jetstream/conn_options.h"

#include "engine/base/pool.h"
#include "engine/base/url.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

#define CONNECT_MS 2000 /* the library's lock is held meanwhile, also against a close */
#define RECONNECT_WAIT_MS 250
#define PING_MS 2000
#define MAX_PINGS_OUT 2
#define WRITE_MS 3000
/* The client keeps nothing for when there is a connection again: by then what settles a lease may settle another's. */
#define RECONNECT_BUFFER 0

static natsStatus set_times(natsOptions *options)
{
    natsStatus s = natsOptions_SetTimeout(options, CONNECT_MS);
    /* A server that lost its power, or is cut off, closes no connection: by default it is waited for for minutes. */
    if (s == NATS_OK)
        s = natsOptions_SetPingInterval(options, PING_MS);
    if (s == NATS_OK)
        s = natsOptions_SetMaxPingsOut(options, MAX_PINGS_OUT);
    if (s == NATS_OK)
        s = natsOptions_SetWriteDeadline(options, WRITE_MS);
    if (s == NATS_OK)
        s = natsOptions_SetMaxReconnect(options, -1);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectWait(options, RECONNECT_WAIT_MS);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectBufSize(options, RECONNECT_BUFFER);
    return s;
}

/* ---- who this is ---- */

/* The library writes a user and a password into JSON as they are (3.4). Control characters are none of them: see url.h. */
static char *as_json(const char *text)
{
    GString *json = g_string_new(NULL);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            g_string_append_c(json, '\\');
        g_string_append_c(json, *c);
    }
    return g_string_free(json, FALSE);
}

/* Not as a part of the addresses: the library shows those, and decodes nothing in them. */
static natsStatus set_user(natsOptions *options, const NrdServers *servers)
{
    g_autofree char *user = servers->user ? as_json(servers->user) : NULL;
    g_autofree char *password = servers->password ? as_json(servers->password) : NULL;
    if (!user)
        return NATS_OK;
    return password ? natsOptions_SetUserInfo(options, user, password) : natsOptions_SetToken(options, user);
}

static natsStatus set_keys(natsOptions *options, const NrdEngineOptions *how)
{
    natsStatus s = NATS_OK;
    if (how->creds)
        s = natsOptions_SetUserCredentialsFromFiles(options, how->creds, NULL);
    if (s == NATS_OK && how->nkey)
        s = natsOptions_SetNKeyFromSeed(options, how->nkey, how->nkey_seed);
    return s;
}

/* Whoever names a thing of TLS wants nothing less: without SetSecure a server could talk the client out of it. */
static natsStatus set_tls(natsOptions *options, const NrdEngineOptions *how, bool tls)
{
    natsStatus s = NATS_OK;
    if (tls || how->tls_ca || how->tls_cert || how->tls_host)
        s = natsOptions_SetSecure(options, true);
    if (s == NATS_OK && how->tls_ca)
        s = natsOptions_LoadCATrustedCertificates(options, how->tls_ca);
    if (s == NATS_OK && how->tls_cert)
        s = natsOptions_LoadCertificatesChain(options, how->tls_cert, how->tls_key);
    if (s == NATS_OK && how->tls_host)
        s = natsOptions_SetExpectedHostname(options, how->tls_host);
    return s;
}

/* ---- all of it ---- */

static natsStatus set_all(natsOptions *options, const NrdEngineOptions *how, const NrdServers *servers)
{
    natsStatus s =
        natsOptions_SetServers(options, (const char **)servers->addresses, (int)g_strv_length(servers->addresses));
    if (s == NATS_OK)
        s = set_user(options, servers);
    if (s == NATS_OK)
        s = set_keys(options, how);
    if (s == NATS_OK)
        s = set_tls(options, how, servers->tls);
    if (s == NATS_OK)
        s = natsOptions_SetName(options, "naradfs");
    if (s == NATS_OK)
        s = set_times(options);
    if (s == NATS_OK)
        s = natsOptions_SetSendAsap(options, true);
    if (s == NATS_OK)
        s = natsOptions_UseGlobalMessageDelivery(options, true); /* else a thread for each subscription */
    return s;
}

int nrd_js_conn_options_new(const NrdEngineOptions *how, natsOptions **ret_options, char **ret_why)
{
    natsOptions *options = NULL;
    NrdServers servers;
    int rc = nrd_servers_parse(how->url, &servers, ret_why);
    if (rc < 0)
        return rc;
    natsStatus s = natsOptions_Create(&options);
    if (s == NATS_OK)
        s = set_all(options, how, &servers);
    nrd_servers_clear(&servers);
    if (s == NATS_OK) {
        *ret_options = options;
        return 0;
    }
    const char *last = nats_GetLastError(NULL); /* there is none when the library itself has not begun */
    *ret_why = last ? g_strdup_printf("the NATS client cannot be set up: %s", last)
                    : nrd_pool_why_none("the NATS client", NRD_START_THREADS);
    natsOptions_Destroy(options);
    return last ? -EINVAL : -EAGAIN;
}

/* ---- why not ---- */

static const char *todo_of_tls(const char *said)
{
    if (strstr(said, "mismatch"))
        return "name the server in the URL as its certificate does, or say with tls_host= which name that is";
    if (strstr(said, "expired") || strstr(said, "not yet valid"))
        return "its certificate has to be renewed, or this machine's clock is wrong";
    if (strstr(said, "issuer") || strstr(said, "self") || strstr(said, "trust"))
        return "tls_ca= names the certificate of who has signed the server's";
    if (strstr(said, "alert"))
        return "the server refuses what this side shows: tls_cert= and tls_key= name a certificate that it knows";
    return "see what tls_ca=, tls_cert= and tls_key= name";
}

static const char todo_run[] = "name one that runs, with JetStream";
/* TLS 1.3 refuses a client's certificate after the handshake, and the client hears nothing of it. */
static const char todo_ended[] =
    "the server has ended the connection, and its log says why; if it wants to see a certificate, "
    "tls_cert= and tls_key= name one that it knows";

static const char todo_silent[] =
    "a server takes the connection and goes on with nothing: it hangs, or is no NATS server; name one that runs, with "
    "JetStream";

static const char *todo_of(natsStatus status, const char *said)
{
    switch (status) {
    case NATS_SSL_ERROR:
        return todo_of_tls(said);
    case NATS_SECURE_CONNECTION_WANTED:
        return "it speaks without TLS: nothing was told to it; turn its TLS on, or leave tls:// and tls_...= out";
    case NATS_SECURE_CONNECTION_REQUIRED:
        return "it speaks TLS only: name it tls://, or who vouches for it with tls_ca=";
    case NATS_CONNECTION_AUTH_FAILED:
    case NATS_NOT_PERMITTED:
        return "the servers know another user, password, token or key: see url=, url_file=, creds=, nkey=";
    case NATS_PROTOCOL_ERROR:
    case NATS_CONNECTION_CLOSED:
        return todo_ended;
    case NATS_TIMEOUT:
        return said[0] ? todo_silent : todo_run;
    case NATS_IO_ERROR:
        return strstr(said, "SSL") ? todo_ended : todo_run;
    default:
        return todo_run;
    }
}

char *nrd_js_conn_options_why(const NrdEngineOptions *how, natsStatus status, const char *last, natsStatus of)
{
    g_autofree char *shown = nrd_url_without_secrets(how->url);
    const char *place = last && last[0] == '(' ? strstr(last, "): ") : NULL; /* in the library's source */
    const char *said = !last || of != status ? "" : place ? place + strlen("): ") : last;
    const char *text = natsStatus_GetText(status);
    bool twice = strstr(said, text) != NULL; /* the library says it itself, with or without more */
    return g_strdup_printf("none of the NATS servers %s could be used: %s%s%s; %s", shown, twice ? "" : text,
                           twice || !*said ? "" : ": ", said, todo_of(status, said));
}
