/* What data_dir.c (opening, and the lock) and data_dir_layout.c (what has to be in there) share. path is for sentences; each
 * leaves one in *ret_why (g_free) when it fails, and blocks. */
#ifndef NRD_META_DATA_DIR_PRIVATE_H
#define NRD_META_DATA_DIR_PRIVATE_H

#include "engine/meta/data_dir.h"

/* Gives error back; the sentence (g_malloc) goes to *ret_why. */
int nrd_data_dir_refuse(char **ret_why, int error, char *sentence);

/* What to do about an error of the system, as the end of a sentence (static). */
const char *nrd_data_dir_remedy(int error);

/* ---- data_dir_layout.c ---- */

/* Whether somebody has laid a data directory out here, whatever has become of it since. */
bool nrd_data_layout_was_made(int root_fd);

/* Whether this is a data directory of a version that we know (*ret_laid_out), or an empty folder that can become one.
 * Changes nothing: it is asked before the lock is taken, so that nothing is left in a folder of somebody else's, and
 * again under the lock. */
int nrd_data_layout_check_format(int root_fd, const char *path, bool *ret_laid_out, char **ret_why) NRD_MUST_CHECK;

/* The same, and makes an empty folder one, unless read_only: -ENOENT then. */
int nrd_data_layout_settle_format(int root_fd, const char *path, bool read_only, char **ret_why) NRD_MUST_CHECK;

/* Whether its folders are there, or may be made: not one that is gone while another one tells of what was in it (-EIO), and not
 * where something else stands in its place. Changes nothing. */
int nrd_data_layout_check(int root_fd, const char *path, char **ret_why) NRD_MUST_CHECK;

/* Makes those that are missing; all are durable. */
int nrd_data_layout_make_folders(int root_fd, const char *path, char **ret_why) NRD_MUST_CHECK;

#endif
