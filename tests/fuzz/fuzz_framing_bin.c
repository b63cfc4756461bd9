/* What is written to produce.bin, cut anywhere; see framing_check.h. */
#include "framing_check.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    framing_check(NRD_FRAMING_BIN, data, size);
    return 0;
}
