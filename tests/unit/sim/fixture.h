/* What the tests of the simulated disk share: a disk that is installed, with SIM_DATA open, and short ways to its files. */
#ifndef NRD_TEST_SIM_FIXTURE_H
#define NRD_TEST_SIM_FIXTURE_H

#include "tests/sim/disk.h"

#include <glib.h>

typedef struct Fixture {
    SimDisk *disk;
    int data_fd;
} Fixture;

void fixture_set_up(Fixture *f, gconstpointer options); /* a SimDiskOptions, or NULL */
void fixture_tear_down(Fixture *f, gconstpointer options);

/* Power off and on; the fixture's descriptor is a new one. */
void fixture_power_cycle(Fixture *f, const SimCrash *crash);

/* Puts a disk made from image in the place of the fixture's, whose descriptors are dead then. */
void fixture_load(Fixture *f, const SimImage *image);

/* The descriptor of a file in SIM_DATA, made when it is not there; nothing is synced. */
int file_open(Fixture *f, const char *name);

/* Writes all of it; a failure ends the test. */
void file_write(int fd, const char *bytes, int64_t pos);
void file_fill(int fd, char byte, size_t size, int64_t pos);

/* Durable, with its name. */
void file_make(Fixture *f, const char *name, const char *bytes);

/* What reads give, in one string; holes show as NULs only to who looks at the size. g_free. */
char *file_read(Fixture *f, const char *name, size_t *ret_size); /* NULL: there is none */

/* A file (path from the root) as one layer of an image has it, as a string; g_free; NULL: there is none. */
char *image_text(const SimImage *image, SimLayer layer, const char *path);

#endif
