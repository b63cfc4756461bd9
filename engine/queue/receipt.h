/* Receipts as text: "partition:offset:nonce", decimal. Pure. */
#ifndef NRD_QUEUE_RECEIPT_H
#define NRD_QUEUE_RECEIPT_H

#include "engine/base/macros.h"

#include <stddef.h>
#include <stdint.h>

typedef struct NrdReceipt {
    uint32_t partition;
    uint64_t offset;
    uint64_t nonce;
} NrdReceipt;

/* Longest text with its NUL: 10 + 1 + 20 + 1 + 20 + 1. */
#define NRD_RECEIPT_TEXT_MAX 53

/* Parses text[0..size) exactly; -EINVAL for signs, spaces, leading zeros, overflow, missing or trailing parts. */
int nrd_receipt_parse(const char *text, size_t size, NrdReceipt *ret_receipt) NRD_MUST_CHECK;

/* The same of a receipt at the front of text, whatever follows it: its length, or 0 when there is none. */
size_t nrd_receipt_scan(const char *text, size_t size, NrdReceipt *ret_receipt);

/* Writes the text and a NUL; returns its length without the NUL. */
size_t nrd_receipt_format(const NrdReceipt *receipt, char buf[NRD_RECEIPT_TEXT_MAX]);

#endif
