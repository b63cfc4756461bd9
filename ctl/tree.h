/* The files of a mount, read as any program would. One thread; every function may wait for the daemon.
 * Errors: negative errno. Sentences go to the caller in *ret_why (g_free). */
#ifndef NRD_CTL_TREE_H
#define NRD_CTL_TREE_H

#include "engine/base/macros.h"

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/* The mount point that is meant (g_free): `given`, when a naradfs is there, or the one that it lies in; NULL: the one of
 * the working folder, else the only one of the machine. */
int nrd_tree_find(const char *given, char **ret_mnt, char **ret_why) NRD_MUST_CHECK;

/* Mount points of type fuse.naradfs in the text of /proc/self/mounts (char*, g_ptr_array_unref). Pure. */
GPtrArray *nrd_tree_mounts(const char *text);

/* Names in a folder, sorted (char*, g_ptr_array_unref). */
int nrd_tree_list(const char *dir, GPtrArray **ret_names) NRD_MUST_CHECK;

/* Names of the topics, sorted. */
int nrd_tree_topics(const char *mnt, GPtrArray **ret_names) NRD_MUST_CHECK;

/* Where a topic is. */
typedef struct NrdTreePlace {
    char *mnt;
    char *topic;
    char *partition; /* pNNNNN, when one was named; NULL */
    char *dir;       /* MNT/topics/TOPIC */
} NrdTreePlace;

/* The topic that `name` means: a name, TOPIC/pNNNNN (or a shorter form: partition_name.h), or a path to it or to anything in
 * it; `given` is the mount that was named, NULL when none was: the path's, the one of the working folder, or the only one. The
 * caller clears *ret_place. */
int nrd_tree_find_topic(const char *given, const char *name, NrdTreePlace *ret_place, char **ret_why) NRD_MUST_CHECK;

/* The same for a topic that need not be there: path leads to where it is or would be, MNT/topics/TOPIC, or to the folder
 * MNT/topics, in which it is called `name`. The partition is NULL. */
int nrd_tree_find_target(const char *path, const char *name, NrdTreePlace *ret_place, char **ret_why) NRD_MUST_CHECK;

void nrd_tree_place_clear(NrdTreePlace *place);

/* What is left of path below mnt ("" when it is mnt itself), or NULL when it does not lie there. Pure; points into path. */
const char *nrd_tree_below(const char *mnt, const char *path);

/* "TOPIC[/pNNNNN][/...]" taken apart (g_free; *ret_partition is pNNNNN, or becomes NULL). Pure. */
bool nrd_tree_split(const char *path, char **ret_topic, char **ret_partition);

/* The attribute user.narad.<name> (g_free). */
int nrd_tree_xattr(const char *path, const char *name, char **ret_value) NRD_MUST_CHECK;
int nrd_tree_number(const char *path, const char *name, uint64_t *ret_number) NRD_MUST_CHECK;

/* A whole text file of at most 16 MiB, NUL-terminated (g_free). */
int nrd_tree_read(const char *path, char **ret_text) NRD_MUST_CHECK;

/* One write(2) of all of text. */
int nrd_tree_write(const char *path, const char *text) NRD_MUST_CHECK;

/* Writes a line (given without its newline) to the `ctl` of that topic or of a partition of its. On failure *ret_why (g_free)
 * is what the daemon has said of it, as of nrd_tree_refusal, or NULL. */
int nrd_tree_command(const char *topic_dir, const char *ctl_path, const char *line, char **ret_why) NRD_MUST_CHECK;

/* What follows a label, or `state`, in a status page (g_free); NULL when there is no such line. Pure. */
char *nrd_tree_line(const char *status, const char *label);
char *nrd_tree_state_line(const char *status);

/* What the topic has refused, in words (g_free), when a write to one of its files that began at since_ms (Unix milliseconds)
 * has ended with error (negative errno); NULL: nothing since then, its status cannot be read, or the error is not one that
 * the daemon decides. Another refusal in the same second may be taken for it. */
char *nrd_tree_refusal(const char *topic_dir, int error, int64_t since_ms);

/* Sums over a topic's partitions. */
typedef struct NrdTopicSums {
    uint64_t n_partitions;
    uint64_t n_records; /* retained */
    uint64_t produced;  /* sum of the high watermarks */
    uint64_t settled;   /* sum of the frontiers and of what is settled above them */
    uint64_t lag;
    uint64_t in_flight;
    uint64_t size_bytes;
    char *state; /* "ok", or what is wrong; g_free */
    int error; /* why a part could not be read and is not counted (negative errno), 0: all was, or is out of service, as
                    the daemon says */
} NrdTopicSums;

/* Sets *ret_sums whatever can be read, and returns its error. */
int nrd_tree_sums(const char *topic_dir, NrdTopicSums *ret_sums);

/* Whether the topic was deleted since somebody found it. */
bool nrd_tree_is_gone(const char *topic_dir);
void nrd_tree_sums_clear(NrdTopicSums *sums);

#endif
