/* What others on the machine are not to see: passwords on the command line, and files that hold secrets.
 * Refusals are -EINVAL, and sentences on standard error without any secret. Files are read at once: a call may block. */
#ifndef NRD_MOUNT_SECRETS_H
#define NRD_MOUNT_SECRETS_H

#include "engine/base/macros.h"

#include <stdbool.h>

/* Takes what stands before the @ of addresses of servers out of an argument, in place: what the kernel shows of the command
 * line (ps) is that memory. Whether there was something. */
bool nrd_secrets_scrub(char *argument);

/* A file that is named by an option and holds a secret: a regular file of root or of this user, that nobody else can change, and
 * nobody but a group that root has chosen can read. Its text goes to *ret_text (g_free), if that is not NULL, and its absolute
 * name, which is good after a change of the working folder, to *ret_path (g_free). */
int nrd_secrets_read(const char *option, const char *path, char **ret_path, char **ret_text) NRD_MUST_CHECK;

/* The same for a file that everybody may read, but nobody else change. */
int nrd_secrets_check_public(const char *option, const char *path, char **ret_path) NRD_MUST_CHECK;

#endif
