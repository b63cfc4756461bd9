/* See place.h. */
#include "ctl/place.h"

#include "ctl/partition_name.h"
#include "engine/base/diag.h"

#include "engine/io/io.h"
#include "engine/meta/incarnation.h"

#include <errno.h>
#include <string.h>

#define RECORD_MAX_BYTES ((size_t)1 << 20)

/* "TOPIC/pNNNNN", or a shorter form of it. */
static bool split(const char *name, char **ret_topic, uint32_t *ret_number)
{
    const char *slash = strrchr(name, '/');
    if (!slash || slash == name || !nrd_partition_name_parse(slash + 1, ret_number))
        return false;
    *ret_topic = g_strndup(name, (gsize)(slash - name));
    return true;
}

static int load_record(NrdPlaceInData *place, const char *topic, char **ret_why)
{
    g_autofree char *path = g_strconcat("meta/", topic, ".topic", NULL);
    g_autofree char *why = NULL;
    g_autoptr(GBytes) bytes = NULL;
    gsize size;
    int rc = nrd_topic_name_check(topic);
    if (rc == 0)
        rc = nrd_io_read_file(place->root_fd, path, RECORD_MAX_BYTES, &bytes);
    if (rc < 0) {
        *ret_why = rc == -ENOENT ? g_strdup_printf("there is no topic %s", topic)
                                 : g_strdup_printf("the topic %s cannot be used: %s", topic, g_strerror(-rc));
        return rc;
    }
    const void *text = g_bytes_get_data(bytes, &size);
    rc = nrd_topic_record_decode(topic, text ? text : "", size, &place->record, &why);
    if (rc < 0)
        *ret_why = g_strdup_printf("%s: %s", path, why);
    return rc;
}

static int find(NrdPlaceInData *place, const char *name, char **ret_why)
{
    g_autofree char *topic = NULL;
    struct stat st;
    if (!split(name, &topic, &place->number)) {
        *ret_why = g_strdup_printf("\"%s\" names no partition; TOPIC/p00000 does", name);
        return -EINVAL;
    }
    int rc = load_record(place, topic, ret_why);
    if (rc < 0)
        return rc;
    if (place->number >= (uint64_t)place->record->config.partitions) {
        *ret_why = g_strdup_printf(
            "%s has %d partition%s, the last one is p%05d", topic, (int)place->record->config.partitions,
            nrd_plural((uint64_t)place->record->config.partitions), (int)place->record->config.partitions - 1);
        return -ENOENT;
    }
    rc = nrd_incarnation_verify(place->root_fd, topic, place->record->id, ret_why);
    place->topic_dir = g_strconcat("topics/", topic, NULL);
    place->dir = g_strdup_printf("topics/%s/p%05u", topic, place->number);
    if (rc == 0) {
        rc = nrd_io_stat(place->root_fd, place->dir, &st);
        place->missing = rc == -ENOENT;
        if (place->missing)
            rc = 0;
        else if (rc == 0 && !S_ISDIR(st.st_mode))
            rc = -ENOTDIR;
    }
    if (rc < 0 && !*ret_why)
        *ret_why = g_strdup_printf("%s cannot be used: %s", place->dir, g_strerror(-rc));
    return rc;
}

int nrd_place_open(const char *data, const char *name, NrdPlaceInData *ret_place, char **ret_why)
{
    NrdPlaceInData place = { .root_fd = -1 };
    char *damage = NULL;
    int rc = nrd_data_dir_inspect(data, &place.data, &damage, ret_why);
    if (rc == -EBUSY) {
        g_autofree char *why = g_steal_pointer(ret_why);
        *ret_why = g_strconcat(why, "; unmount it first", NULL);
    }
    if (rc < 0)
        return rc;
    if (damage) {
        *ret_why = damage;
        nrd_data_dir_close(place.data);
        return -EIO;
    }
    place.root_fd = nrd_data_dir_fd(place.data);
    *ret_why = NULL;
    rc = find(&place, name, ret_why);
    if (rc < 0) {
        nrd_place_close(&place);
        return rc;
    }
    *ret_place = place;
    return 0;
}

void nrd_place_close(NrdPlaceInData *place)
{
    nrd_topic_record_free(place->record);
    g_free(place->topic_dir);
    g_free(place->dir);
    nrd_data_dir_close(place->data);
}

int nrd_place_verb(const NrdCliVerb *verb, int argc, char **argv, bool (*check)(const char *file), NrdPlaceFn run)
{
    gboolean quiet = FALSE;
    const GOptionEntry entries[] = {
        { "quiet", 'q', 0, G_OPTION_ARG_NONE, &quiet, "Print nothing when all is well", NULL },
        G_OPTION_ENTRY_NULL,
    };
    NrdPlaceInData place;
    g_autofree char *why = NULL;
    if (!nrd_cli_parse(verb, entries, &argc, &argv) || (check && !check(argv[3])))
        return NRD_EXIT_USAGE;
    nrd_cli_catch_interrupts();
    if (nrd_place_open(argv[1], argv[2], &place, &why) < 0) {
        nrd_cli_say("%s", why);
        return NRD_EXIT_FAILED;
    }
    int rc = run(&place, argv[3], quiet);
    nrd_place_close(&place);
    return nrd_cli_flush() && rc == 0 ? NRD_EXIT_GOOD : NRD_EXIT_FAILED;
}
