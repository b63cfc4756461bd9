/* What the two halves of the oracle share: the journal, and the look at a store. */
#ifndef NRD_TEST_ORACLE_PRIVATE_H
#define NRD_TEST_ORACLE_PRIVATE_H

#include "tests/sim/oracle.h"

/* Which record these bytes are, down to the last one; -1: none that was ever submitted. */
int oracle_identify(const Oracle *oracle, const uint8_t *payload, size_t size);
uint32_t oracle_key_hash(uint8_t key);

#endif
