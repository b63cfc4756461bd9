/* See servers.h. */
#include "mount/servers.h"

#include "engine/base/url.h"
#include "mount/secrets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(const char *sentence)
{
    fprintf(stderr, "naradfs: %s\n", sentence);
    return -EINVAL;
}

/* ---- addresses ---- */

void nrd_mount_servers_add(NrdMountOptions *options, const char *servers)
{
    if (!options->servers)
        options->servers = g_string_new(servers);
    else
        g_string_append_printf(options->servers, "%s%s", options->servers->len > 0 ? "," : "", servers);
}

bool nrd_mount_servers_include(const char *text)
{
    const char *colon = strchr(text, ':');
    return strchr(text, '@') || (colon && colon > text && !strchr(text, '=') && text[0] != '/');
}

/* A line each, or several with commas; empty lines and those that begin with # say nothing. */
static int read_url_file(NrdMountOptions *options)
{
    g_autofree char *text = NULL;
    int rc = nrd_secrets_read("url_file", options->url_file, NULL, &text);
    if (rc < 0)
        return rc;
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        g_strstrip(*line);
        if (**line && **line != '#')
            nrd_mount_servers_add(options, *line);
    }
    if (options->servers)
        return 0;
    fprintf(stderr, "naradfs: option url_file=%s: it names no server; a line nats://HOST:4222 does\n",
            options->url_file);
    return -EINVAL;
}

static int check_addresses(NrdMountOptions *options, bool *ret_user)
{
    NrdServers servers;
    g_autofree char *why = NULL;
    if (options->url_file && options->servers)
        return refuse("url= and url_file= both name servers; take one of them");
    int rc = options->url_file ? read_url_file(options) : 0;
    if (rc < 0)
        return rc;
    if (!options->servers || options->servers->len == 0)
        return refuse(
            "engine=jetstream: url=nats://HOST:4222[,HOST:4222...] or url_file=FILE is missing, which says where "
            "the NATS servers are");
    rc = nrd_servers_parse(options->servers->str, &servers, &why);
    if (rc < 0)
        return refuse(why);
    *ret_user = servers.user != NULL;
    nrd_servers_clear(&servers);
    return 0;
}

/* ---- files ---- */

static int check_tls(NrdMountOptions *options)
{
    g_autofree char *key = NULL;
    int rc = 0;
    if (!options->tls_cert != !options->tls_key)
        return refuse(
            "tls_cert= and tls_key= belong together: a certificate and its key, by which the servers know who "
            "this is");
    if (options->tls_ca)
        rc = nrd_secrets_check_public("tls_ca", options->tls_ca, &options->tls_ca_path);
    if (rc == 0 && options->tls_cert)
        rc = nrd_secrets_check_public("tls_cert", options->tls_cert, &options->tls_cert_path);
    if (rc == 0 && options->tls_key)
        rc = nrd_secrets_read("tls_key", options->tls_key, &options->tls_key_path, &key);
    if (rc == 0 && key && strstr(key, "ENCRYPTED")) /* the library would ask a terminal that is not there */
        rc = refuse("tls_key=: the key has a passphrase, which nobody can be asked for; write it without one, by "
                    "openssl pkey -in KEY -out FILE, with mode 600");
    return rc;
}

static bool is_nkey(const char *text, const char *prefix, size_t size)
{
    return g_str_has_prefix(text, prefix) && strlen(text) == size &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == size;
}

static int check_keys(NrdMountOptions *options)
{
    g_autofree char *creds = NULL;
    g_autofree char *seed = NULL;
    int rc = 0;
    if (!options->nkey != !options->nkey_seed)
        return refuse("nkey= and nkey_seed= belong together: a user's public key, U..., and the file with its seed");
    if (options->nkey && !is_nkey(options->nkey, "U", 56))
        return refuse("nkey=: a user's public key is expected, U and 55 more of A-Z and 2-7");
    if (options->creds)
        rc = nrd_secrets_read("creds", options->creds, &options->creds_path, &creds);
    if (rc == 0 && creds && !(strstr(creds, "BEGIN NATS USER JWT") && strstr(creds, "BEGIN USER NKEY SEED")))
        rc = refuse("creds=: the file is none of NATS credentials, with a user's JWT and seed");
    if (rc == 0 && options->nkey_seed)
        rc = nrd_secrets_read("nkey_seed", options->nkey_seed, &options->nkey_seed_path, &seed);
    if (rc == 0 && seed && !is_nkey(g_strstrip(seed), "SU", 58))
        rc = refuse("nkey_seed=: the file is none with the seed of a user, SU and 56 more of A-Z and 2-7");
    return rc;
}

int nrd_mount_servers_check(NrdMountOptions *options)
{
    bool user = false;
    int rc = check_addresses(options, &user);
    if (rc == 0 && user + (options->creds != NULL) + (options->nkey != NULL) > 1)
        rc = refuse("a user of the servers' address, creds= and nkey= each say who this is; take one of them");
    if (rc == 0)
        rc = check_tls(options);
    if (rc == 0)
        rc = check_keys(options);
    return rc;
}

bool nrd_mount_servers_given(const NrdMountOptions *options)
{
    return options->servers || options->url_file || options->tls_ca || options->tls_cert || options->tls_key ||
           options->tls_host || options->creds || options->nkey || options->nkey_seed;
}

void nrd_mount_servers_clear(NrdMountOptions *options)
{
    if (options->servers)
        g_string_free(options->servers, TRUE);
    free(options->url_file);
    free(options->tls_ca);
    free(options->tls_cert);
    free(options->tls_key);
    free(options->tls_host);
    free(options->creds);
    free(options->nkey);
    free(options->nkey_seed);
    g_free(options->tls_ca_path);
    g_free(options->tls_cert_path);
    g_free(options->tls_key_path);
    g_free(options->creds_path);
    g_free(options->nkey_seed_path);
}
