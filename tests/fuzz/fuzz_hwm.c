/* The hwm file: eight bytes below 2^63, or nothing; what is written is read, over whatever was there.
 * Input: a value (8 bytes), the file. */
#include "fuzz.h"
#include "memory_io.h"

#include "engine/base/endian.h"
#include "engine/log/segments/hwm.h"

#include <errno.h>

static NrdHwm read_hwm(int root)
{
    NrdHwm hwm = { 0 };
    FUZZ_CHECK(nrd_hwm_read(root, "p/hwm", &hwm) == 0);
    return hwm;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FuzzInput in = { data, size };
    uint64_t value = fuzz_u64(&in) >> 1;
    size_t n;
    uint8_t *bytes = fuzz_rest(&in, &n);
    int root = memory_io_start();
    memory_io_put_folder("p");
    FUZZ_CHECK(!read_hwm(root).exists);
    memory_io_put("p/hwm", bytes, n);
    NrdHwm hwm = read_hwm(root);
    bool whole = n == 8 && nrd_get_be64(bytes) <= INT64_MAX;
    FUZZ_CHECK(hwm.exists && hwm.clean == whole);
    FUZZ_CHECK(!whole || hwm.value == nrd_get_be64(bytes));
    FUZZ_CHECK(nrd_hwm_write(root, "p", "p/hwm", value) == 0);
    FUZZ_CHECK(memory_io_get("p/hwm")->len == 8 && nrd_get_be64(memory_io_get("p/hwm")->data) == value);
    hwm = read_hwm(root);
    FUZZ_CHECK(hwm.clean && hwm.value == value);
    FUZZ_CHECK(nrd_hwm_empty(root, "p/hwm", n & 1) == 0);
    hwm = read_hwm(root);
    FUZZ_CHECK(hwm.exists && !hwm.clean && memory_io_get("p/hwm")->len == 0);
    memory_io_end();
    g_free(bytes);
    return 0;
}
