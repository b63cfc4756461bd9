/* Reads a file once and computes the CRC-32C of it, with the library that naradfs uses, for scripts/bench.
 *
 * usage: checksum FILE BYTES
 * Prints the seconds that opening, reading and checksumming took. */
#include <fcntl.h>
#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES (256 * 1024)

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: checksum FILE BYTES\n");
        return 2;
    }
    long left = atol(argv[2]);
    unsigned char *chunk = malloc(CHUNK_BYTES);
    unsigned crc = ~0u;
    double start = now_s();
    int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || chunk == NULL) {
        perror(argv[1]);
        return 1;
    }
    while (left > 0) {
        ssize_t n = read(fd, chunk, left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES);
        if (n <= 0) {
            fprintf(stderr, "checksum: %s ends %ld bytes early\n", argv[1], left);
            return 1;
        }
        crc = crc32_iscsi(chunk, (int)n, crc);
        left -= n;
    }
    volatile unsigned keep = crc; /* so that none of it is left out */
    (void)keep;
    printf("%.6f\n", now_s() - start);
    return 0;
}
