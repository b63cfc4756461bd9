/* What an error says about more than the call that failed. Negative errnos. Pure. */
#ifndef NRD_BASE_ERRORS_H
#define NRD_BASE_ERRORS_H

#include <errno.h>
#include <stdbool.h>

/* The disk is full, or the user's share of it: it passes when something is removed, and is no better elsewhere on it. */
static inline bool nrd_error_is_full(int error)
{
    return error == -ENOSPC || error == -EDQUOT;
}

/* Too few descriptors or too little memory: it says nothing about what was to be opened, and passes by itself. */
static inline bool nrd_error_is_shortage(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* A file that was there is not in its place any more: somebody else has removed, moved or replaced it, or its folder. */
static inline bool nrd_error_is_taken_away(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ELOOP || error == -EISDIR || error == -ESTALE;
}

/* The same error for a program, to which -ENOENT, -ESTALE and the like mean something of their own. */
static inline int nrd_error_unless_taken_away(int error)
{
    return nrd_error_is_taken_away(error) ? -EIO : error;
}

/* What a program is told of files that could not be read or written: a full disk as it is, all else as -EIO, since other
 * errnos mean something of their own to it (-ENOENT: outside the retained range). 0 stays. */
static inline int nrd_error_of_disk(int error)
{
    return error == 0 || nrd_error_is_full(error) ? error : -EIO;
}

#endif
