/* The marker of a topic's folder: whatever it holds, nothing of the folder is deleted, another topic's is set aside whole,
 * and a second claim changes nothing.
 * Input: flags (1: the folder is there; 2: and has a marker; 4: the quarantined name is taken), the marker. */
#include "fuzz.h"
#include "memory_io.h"

#include "engine/meta/incarnation.h"

#include <errno.h>
#include <string.h>

enum { FOLDER = 1, MARKER = 2, TAKEN = 4 };
#define ID "0123456789abcdef"

static void count_renames(void *user_data)
{
    (*(int *)user_data)++;
}

static bool has_data(const char *folder)
{
    g_autofree char *path = g_strconcat(folder, "/p00000/x.log", NULL);
    const GByteArray *bytes = memory_io_get(path);
    return bytes && bytes->len == 4 && memcmp(bytes->data, "data", 4) == 0;
}

static int claim(int root, NrdClaim *ret_claim, int *n_renames)
{
    char *why = NULL;
    int rc = nrd_incarnation_claim(root, "t", ID, count_renames, n_renames, ret_claim, &why);
    FUZZ_CHECK(rc == 0 || why != NULL);
    g_free(why);
    return rc;
}

static int verify(int root)
{
    char *why = NULL;
    int rc = nrd_incarnation_verify(root, "t", ID, &why);
    g_free(why);
    return rc;
}

static void check_claimed(int root, NrdClaim what, const char *stale, bool had_folder, int n_renames)
{
    const GByteArray *marker = memory_io_get("topics/t/incarnation");
    int n = 0;
    FUZZ_CHECK(marker && marker->len >= 16 && memcmp(marker->data, ID, 16) == 0);
    FUZZ_CHECK((what == NRD_CLAIM_QUARANTINED) == (n_renames == 1));
    FUZZ_CHECK((what == NRD_CLAIM_CREATED) == !had_folder);
    if (what == NRD_CLAIM_QUARANTINED)
        FUZZ_CHECK(has_data(stale) && !has_data("topics/t")); /* not served, not deleted */
    else if (had_folder)
        FUZZ_CHECK(has_data("topics/t"));
    FUZZ_CHECK(claim(root, &what, &n) == 0 && what == NRD_CLAIM_MATCH && n == 0 && verify(root) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint8_t flags = fuzz_u8(&in);
    size_t n;
    uint8_t *marker = fuzz_rest(&in, &n);
    g_autofree char *id = g_strndup((const char *)marker, MIN(n, 16));
    g_autofree char *stale = g_strconcat("topics/t.stale-", id, NULL);
    int root = memory_io_start(), n_renames = 0;
    NrdClaim what = NRD_CLAIM_MATCH;
    memory_io_put_folder("topics");
    if (flags & FOLDER)
        memory_io_put("topics/t/p00000/x.log", "data", 4);
    if (flags & FOLDER && flags & MARKER)
        memory_io_put("topics/t/incarnation", marker, n);
    if (flags & TAKEN && nrd_incarnation_valid(id))
        memory_io_put_folder(stale);
    unsigned before = memory_io_count();
    int rc_verify = verify(root);
    FUZZ_CHECK(memory_io_count() == before); /* looking changes nothing */
    int rc = claim(root, &what, &n_renames);
    if (rc == 0)
        check_claimed(root, what, stale, flags & FOLDER, n_renames);
    else
        FUZZ_CHECK(memory_io_count() == before && rc_verify < 0 && (!(flags & FOLDER) || has_data("topics/t")));
    FUZZ_CHECK(rc_verify == 0 || rc_verify == -ENOENT || rc_verify == -EIO || rc_verify == -EFBIG);
    if (rc_verify == 0)
        FUZZ_CHECK(rc == 0 && (what == NRD_CLAIM_MATCH || what == NRD_CLAIM_ADOPTED));
    g_free(marker);
    memory_io_end();
    return 0;
}
