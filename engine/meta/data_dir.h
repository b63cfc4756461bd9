/* The data directory itself: its lock, its layout version and its fixed folders. Blocks. */
#ifndef NRD_META_DATA_DIR_H
#define NRD_META_DATA_DIR_H

#include "engine/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

#define NRD_DATA_FORMAT 1

typedef struct NrdDataDir NrdDataDir;

/* Opens (or, when the folder is empty and not read_only, lays out) the data directory at path, takes its lock and checks
 * its format. On failure *ret_why (g_free) is a sentence for a person that names the file and says what to do:
 * locked by another daemon (-EBUSY, with its pid), newer format (-ENOTSUP), not a data directory (-EINVAL: there are
 * other files in it), meta/ missing though topics/ is not empty (-EIO), read-only file system (-EROFS), permission. */
int nrd_data_dir_open(const char *path, bool read_only, NrdDataDir **ret_dir, char **ret_why) NRD_MUST_CHECK;

/* For a look at a directory that nobody serves: takes the lock as a read-only daemon does and changes nothing. What
 * would keep a daemon from serving it (format, meta/, topics/) is no failure but a sentence in *ret_damage (g_free),
 * NULL when there is nothing of the kind. Fails, as above, for what cannot be opened, is locked or is of a
 * newer format, and with -EINVAL for a
 * folder that has neither a format nor topic records. */
int nrd_data_dir_inspect(const char *path, NrdDataDir **ret_dir, char **ret_damage, char **ret_why) NRD_MUST_CHECK;
int nrd_data_dir_fd(const NrdDataDir *dir);

/* Unix milliseconds at which a daemon last took or gave back the lock, before this one: the clock was past that then. 0
 * when there was none. */
int64_t nrd_data_dir_last_used_ms(const NrdDataDir *dir);

/* What the next run will be told by that: for a clock that is in doubt, whose present time must not count as known. */
void nrd_data_dir_note_time(NrdDataDir *dir, int64_t unix_ms);

void nrd_data_dir_close(NrdDataDir *dir); /* releases the lock; takes NULL */

#endif
