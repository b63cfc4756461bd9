/* Reads an exported partition and checks it against its manifest. The bytes are not trusted. One thread; blocks. */
#ifndef NRD_CTL_UNPACK_H
#define NRD_CTL_UNPACK_H

#include "ctl/manifest.h"

/* Reads the archive from fd (borrowed) to its end. dir, when not NULL, is a folder beneath root_fd that is empty: every
 * file but the manifest is made there, synced. Names, sizes and checksums have to be those of the manifest, and nothing
 * may be missing or more: else an error with a sentence (g_free), and the folder holds anything. On success the caller
 * owns *ret_manifest. What the files hold is not looked at (measure.h does). */
int nrd_unpack(int fd, int root_fd, const char *dir, NrdManifest **ret_manifest, char **ret_why) NRD_MUST_CHECK;

#endif
