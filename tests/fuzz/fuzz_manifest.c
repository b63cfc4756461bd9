/* The manifest of an exported partition: what decodes encodes to the same bytes.
 * Input: flags (1: a right checksum line is put behind it), the text. */
#include "fuzz.h"

#include "ctl/manifest.h"

#include <errno.h>
#include <string.h>

enum { REPAIR = 1 };

static bool name_is_known(const char *name)
{
    return (strlen(name) == 24 && strspn(name, "0123456789") == 20 && strcmp(name + 20, ".log") == 0) ||
           strcmp(name, "hwm") == 0 || strcmp(name, "consumer.offset") == 0 || strcmp(name, "consumer.ahead") == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    NrdManifest *manifest = NULL;
    char line[32];
    g_autoptr(GByteArray) text = g_byte_array_new();
    if (in.size > 0)
        g_byte_array_append(text, in.data, (guint)in.size);
    if (flags & REPAIR) {
        int n = g_snprintf(line, sizeof line, "crc32c %08x\n", fuzz_crc32c(0, text->data, text->len));
        g_byte_array_append(text, (const guint8 *)line, (guint)n);
    }
    int rc = nrd_manifest_decode((const char *)text->data, text->len, &manifest);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG);
    if (rc < 0)
        return 0;
    g_autoptr(GString) again = nrd_manifest_encode(manifest);
    FUZZ_CHECK(again->len == text->len && memcmp(again->str, text->data, again->len) == 0);
    for (guint i = 0; i < manifest->files->len; i++)
        FUZZ_CHECK(name_is_known(g_array_index(manifest->files, NrdManifestFile, i).name));
    FUZZ_CHECK(manifest->frontier <= manifest->hwm && nrd_manifest_same_content(manifest, manifest));
    nrd_manifest_free(manifest);
    return 0;
}
