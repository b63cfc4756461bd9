/* The table of file system calls over a small tree in memory: a run of a fuzz target costs no system call. Everything
 * written is durable at once, and nothing fails but what has to (a missing name, a name that is there, a folder in the
 * place of a file): what the disk may do wrong is for other tests. One thread. */
#ifndef NRD_TESTS_FUZZ_MEMORY_IO_H
#define NRD_TESTS_FUZZ_MEMORY_IO_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An empty tree, and the table in force; returns the descriptor of its root, which stays the same and open. */
int memory_io_start(void);

/* Checks that no descriptor and no mapping is left, and gives the memory back. */
void memory_io_end(void);

/* A file with these bytes (copied), and the folders that lead to it; or a folder. Replaces what is there. */
void memory_io_put(const char *path, const void *bytes, size_t size);
void memory_io_put_folder(const char *path);

/* The bytes of a file, valid until its next change; NULL when there is none. */
const GByteArray *memory_io_get(const char *path);
bool memory_io_exists(const char *path);

/* Files and folders, the root not counted. */
unsigned memory_io_count(void);

#endif
