/* Findings of a check, as text or as JSON. */
#include "ctl/check.h"
#include "ctl/cli.h"
#include "engine/io/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static void tell_json(NrdCheck *check, NrdSeverity severity, const NrdSpot *spot, const char *text)
{
    NrdJson *json = check->json;
    nrd_json_object(json, NULL);
    nrd_json_string(json, "severity", severity == NRD_ERROR ? "error" : "note");
    nrd_json_string(json, "kind", spot->kind);
    nrd_json_string(json, "path", spot->path);
    if (spot->has_range) {
        nrd_json_number(json, "pos", spot->pos);
        nrd_json_number(json, "end_pos", spot->end_pos);
    }
    if (spot->has_offsets) {
        nrd_json_number(json, "offset", spot->offset);
        nrd_json_number(json, "end_offset", spot->end_offset);
    }
    nrd_json_string(json, "message", text);
    nrd_json_object_end(json);
}

static void tell_text(NrdSeverity severity, const NrdSpot *spot, const char *text)
{
    fputs(severity == NRD_ERROR ? "error: " : "note: ", stdout);
    nrd_cli_print_plain(spot->path);
    fputs(": ", stdout);
    if (spot->has_range)
        printf("bytes %" PRIu64 " to %" PRIu64 ": ", spot->pos, spot->end_pos);
    nrd_cli_print_plain(text);
    if (spot->has_offsets && spot->end_offset > spot->offset)
        printf(" (offsets %" PRIu64 " to %" PRIu64 ")", spot->offset, spot->end_offset - 1);
    putchar('\n');
}

void nrd_check_tell(NrdCheck *check, NrdSeverity severity, const NrdSpot *spot, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    g_autofree char *text = g_strdup_vprintf(format, args);
    va_end(args);
    if (severity == NRD_ERROR)
        check->n_errors++;
    else
        check->n_notes++;
    if (check->quiet)
        return;
    nrd_progress_clear(&check->progress);
    if (check->json)
        tell_json(check, severity, spot, text);
    else
        tell_text(severity, spot, text);
    if (severity == NRD_ERROR) {
        check->exit |= NRD_CHECK_ERRORS;
        nrd_check_advise(check, spot->kind);
    }
}

static const char *kind_of(const NrdCheck *check, const char *path)
{
    struct stat st;
    return nrd_io_stat(check->root_fd, path, &st) < 0 ? "something else" : nrd_io_kind(st.st_mode);
}

void nrd_check_unreadable(NrdCheck *check, const char *path, const char *outcome, int error)
{
    switch (-error) {
    case ECANCELED:
    case EINTR:
        return;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EACCES:
    case EPERM:
        nrd_progress_clear(&check->progress);
        nrd_cli_say("%s could not be checked: %s", path, g_strerror(-error));
        check->exit |= NRD_CHECK_FAILED;
        return;
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENXIO:
    case ENODEV:
    case ENOTDIR:
        nrd_check_error(check, path, "read", "%s stands in its place: %s", kind_of(check, path), outcome);
        return;
    default:
        nrd_check_error(check, path, "read", "it cannot be read: %s: %s", g_strerror(-error), outcome);
    }
}

GPtrArray *nrd_check_list(NrdCheck *check, const char *dir, const char *missing)
{
    GPtrArray *names = NULL;
    int rc = nrd_io_list_dir(check->root_fd, dir, &names);
    if (rc < 0 && check->refused && rc != -EACCES && rc != -EPERM)
        return NULL; /* that is why, and has been told */
    if (rc == -ENOENT)
        nrd_check_note(check, dir, "folder", "%s", missing);
    else if (rc < 0)
        nrd_check_unreadable(check, dir, NRD_OUT_DAEMON, rc);
    return rc < 0 ? NULL : names;
}

bool nrd_check_going(const NrdCheck *check)
{
    return !nrd_cli_interrupted();
}

void nrd_check_stray(NrdCheck *check, const char *dir, const char *name)
{
    g_autofree char *path = dir[0] ? g_strconcat(dir, "/", name, NULL) : g_strdup(name);
    if (g_str_has_suffix(name, ".tmp"))
        nrd_check_note(check, path, "stray", "left by a replacement that a crash cut short; nothing reads it");
    else
        nrd_check_note(check, path, "stray", "no file of this layout; not checked");
}
