/* See sweep_site.h. */
#include "tests/sim/sweep_site.h"

#include <string.h>

static const char *const file_names[SITE_N_FILES] = {
    "data",   "lock",      "format", "meta",  "record",   "ingress", "wal",    "checkpoint", "topics", "topic",
    "marker", "partition", "log",    "index", "rendered", "hwm",     "offset", "ahead",      "cursor", "other",
};

const char *site_file_name(SiteFile file)
{
    return file_names[file];
}

bool site_parse(const char *call, const char *file, Site *ret_site)
{
    Site site = { SIM_N_CALLS, SITE_N_FILES };
    for (int i = 0; i < SIM_N_CALLS; i++) {
        if (strcmp(sim_call_name((SimCall)i), call) == 0)
            site.call = (SimCall)i;
    }
    for (int i = 0; i < SITE_N_FILES; i++) {
        if (strcmp(file_names[i], file) == 0)
            site.file = (SiteFile)i;
    }
    if (site.call == SIM_N_CALLS || site.file == SITE_N_FILES)
        return false;
    *ret_site = site;
    return true;
}

bool site_changes(SimCall call)
{
    switch (call) {
    case SIM_CREATE:
    case SIM_PWRITEV:
    case SIM_FDATASYNC:
    case SIM_FSYNC:
    case SIM_FSYNC_DIR:
    case SIM_FTRUNCATE:
    case SIM_PUNCH:
    case SIM_MKDIR:
    case SIM_RENAME:
    case SIM_UNLINK:
    case SIM_RMDIR:
        return true;
    default:
        return false;
    }
}

bool site_syncs(SimCall call)
{
    return call == SIM_FDATASYNC || call == SIM_FSYNC || call == SIM_FSYNC_DIR;
}

static SiteFile kind_in_partition(const char *name)
{
    static const struct {
        const char *end;
        SiteFile file;
    } ends[] = { { ".log", SITE_LOG }, { ".index", SITE_INDEX }, { ".rendered", SITE_RENDERED } };
    static const struct {
        const char *name;
        SiteFile file;
    } names[] = { { "hwm", SITE_HWM }, { "consumer.offset", SITE_OFFSET }, { "consumer.ahead", SITE_AHEAD } };
    for (size_t i = 0; i < G_N_ELEMENTS(ends); i++) {
        if (g_str_has_suffix(name, ends[i].end))
            return ends[i].file;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        if (strcmp(name, names[i].name) == 0)
            return names[i].file;
    }
    return g_str_has_prefix(name, "fanout-") ? SITE_CURSOR : SITE_OTHER;
}

static SiteFile kind_at_top(const char *name)
{
    static const struct {
        const char *name;
        SiteFile file;
    } known[] = { { "lock", SITE_LOCK },
                  { "format", SITE_FORMAT },
                  { "meta", SITE_META },
                  { "topics", SITE_TOPICS },
                  { "ingress", SITE_INGRESS } };
    for (size_t i = 0; i < G_N_ELEMENTS(known); i++) {
        if (strcmp(known[i].name, name) == 0)
            return known[i].file;
    }
    return SITE_OTHER;
}

SiteFile site_file(const char *path)
{
    size_t prefix = strlen(SIM_DATA);
    if (strncmp(path, SIM_DATA, prefix) != 0 || path[prefix] != '/' || path[prefix + 1] == '\0')
        return SITE_DATA;
    g_autofree char *plain = g_strdup(path + prefix + 1);
    size_t n = strlen(plain);
    if (plain[n - 1] == '/')
        plain[--n] = '\0';
    if (g_str_has_suffix(plain, ".tmp"))
        plain[n - 4] = '\0';
    g_auto(GStrv) parts = g_strsplit(plain, "/", -1);
    guint n_parts = g_strv_length(parts);
    if (n_parts == 1)
        return kind_at_top(parts[0]);
    if (strcmp(parts[0], "meta") == 0)
        return SITE_RECORD;
    if (strcmp(parts[0], "ingress") == 0)
        return g_str_has_suffix(parts[1], ".wal") ? SITE_WAL : SITE_CHECKPOINT;
    if (n_parts == 2)
        return SITE_TOPIC;
    if (n_parts == 3)
        return strcmp(parts[2], "incarnation") == 0 ? SITE_MARKER : SITE_PARTITION;
    return kind_in_partition(parts[3]);
}
