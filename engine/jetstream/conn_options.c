/* See conn_options.h. */
#include "engine/jetstream/conn_options.h"

#include "engine/base/url.h"

#include <errno.h>
#include <glib.h>

#define CONNECT_MS 3000
#define RECONNECT_WAIT_MS 250
#define PING_MS 2000
#define MAX_PINGS_OUT 2
#define WRITE_MS 3000
#define RECONNECT_BUFFER (64 * 1024 * 1024)

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

static natsStatus set_all(natsOptions *options, const NrdEngineOptions *how)
{
    g_auto(GStrv) servers = g_strsplit(how->url, ",", -1);
    natsStatus s = natsOptions_SetServers(options, (const char **)servers, (int)g_strv_length(servers));
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
    natsStatus s = natsOptions_Create(&options);
    if (s == NATS_OK)
        s = set_all(options, how);
    if (s == NATS_OK) {
        *ret_options = options;
        return 0;
    }
    *ret_why = nrd_js_conn_options_why(how, s);
    natsOptions_Destroy(options);
    return -EINVAL;
}

char *nrd_js_conn_options_why(const NrdEngineOptions *how, natsStatus status)
{
    g_autofree char *shown = nrd_url_without_secrets(how->url);
    return g_strdup_printf("none of the NATS servers %s could be used: %s; name one that runs, with JetStream", shown,
                           natsStatus_GetText(status));
}
