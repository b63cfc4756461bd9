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

/* Reads receipts that follow each other in a text. Most name the offset behind the one before: what such a receipt has in
 * common with that one is compared, and only the rest is parsed. {0} at first. */
typedef struct NrdReceiptReader {
    NrdReceipt receipt; /* the last one */
    const char
        *text; /* private: where it begins, NULL when there was none; what is read next is behind it in this text */
    size_t digit_pos; /* private: of the last digit of its offset, from there */
} NrdReceiptReader;

/* The receipt at the front of text, which is what nrd_receipt_scan says of it, in reader->receipt: its length, or 0. */
size_t nrd_receipt_reader_next(NrdReceiptReader *reader, const char *text, size_t size);

/* Writes the text and a NUL; returns its length without the NUL. */
size_t nrd_receipt_format(const NrdReceipt *receipt, char buf[NRD_RECEIPT_TEXT_MAX]);

#endif
