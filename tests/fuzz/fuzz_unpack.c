/* An archive for `naradctl import`: what is accepted holds exactly the files of its manifest, and nothing leads out of the
 * folder.
 * Input: flags (1: checksums of tar headers and of the manifest are made right; 2: the files are made), the archive. */
#include "fuzz.h"
#include "memory_io.h"

#include "ctl/unpack.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { REPAIR = 1, MAKE = 2 };
#define BLOCK 512

static uint64_t octal(const uint8_t *field, size_t size)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        number = number * 8 + (uint64_t)(field[i] - '0');
    return number;
}

static void repair_header(uint8_t *header)
{
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += header[i];
    g_snprintf((char *)header + 148, 8, "%06o", sum);
    header[155] = ' ';
}

static void repair_manifest(uint8_t *text, size_t size)
{
    char digits[9];
    if (size < 16)
        return;
    g_snprintf(digits, sizeof digits, "%08x", fuzz_crc32c(0, text, size - 16));
    memcpy(text + size - 9, digits, 8);
}

static void repair(uint8_t *bytes, size_t size)
{
    for (size_t pos = 0; pos + BLOCK <= size;) {
        uint64_t n = octal(bytes + pos + 124, 11);
        size_t content = pos + BLOCK;
        if (bytes[pos] != 0)
            repair_header(bytes + pos);
        if (pos == 0 && n <= size - content)
            repair_manifest(bytes + content, (size_t)n);
        if (n > size - content)
            break;
        pos = content + (size_t)(n + BLOCK - 1) / BLOCK * BLOCK;
    }
}

/* One file of memory for all runs: libarchive reads a descriptor of the kernel's. */
static int archive_of(const uint8_t *bytes, size_t size)
{
    static int fd = -1;
    if (fd < 0)
        fd = memfd_create("archive", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
    FUZZ_CHECK(lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static void check_files(const NrdManifest *manifest, bool made)
{
    FUZZ_CHECK(memory_io_count() == 1 + (made ? manifest->files->len : 0));
    for (guint i = 0; made && i < manifest->files->len; i++) {
        const NrdManifestFile *file = &g_array_index(manifest->files, NrdManifestFile, i);
        g_autofree char *path = g_strconcat("d/", file->name, NULL);
        const GByteArray *bytes = memory_io_get(path);
        FUZZ_CHECK(bytes && bytes->len == file->size_bytes && fuzz_crc32c(0, bytes->data, bytes->len) == file->crc);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    NrdManifest *manifest = NULL;
    char *why = NULL;
    size_t n;
    uint8_t *bytes = fuzz_rest(&in, &n);
    if (flags & REPAIR)
        repair(bytes, n);
    int root = memory_io_start();
    memory_io_put_folder("d");
    int rc = nrd_unpack(archive_of(bytes, n), root, flags & MAKE ? "d" : NULL, &manifest, &why);
    FUZZ_CHECK(rc == 0 || why != NULL);
    if (rc == 0)
        check_files(manifest, flags & MAKE);
    nrd_manifest_free(manifest);
    g_free(why);
    memory_io_end();
    g_free(bytes);
    return 0;
}
