/* What is written to produce.jsonl, cut anywhere; see framing_check.h. */
#include "framing_check.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    framing_check(NRD_FRAMING_JSONL, data, size);
    return 0;
}
