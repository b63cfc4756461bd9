/* Writes JSON, one object a line, to standard output. One thread. Strings are made valid UTF-8. */
#ifndef NRD_CTL_JSON_H
#define NRD_CTL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct NrdJson NrdJson;

NrdJson *nrd_json_new(void);
void nrd_json_free(NrdJson *json); /* takes NULL */

/* Each function writes one thing; key may be NULL within an array or at the top. */
void nrd_json_object(NrdJson *json, const char *key);
void nrd_json_object_end(NrdJson *json); /* the end of a top object prints its line */
void nrd_json_array(NrdJson *json, const char *key);
void nrd_json_array_end(NrdJson *json);
void nrd_json_string(NrdJson *json, const char *key, const char *text);
void nrd_json_number(NrdJson *json, const char *key, uint64_t number);
void nrd_json_signed(NrdJson *json, const char *key, int64_t number);
void nrd_json_real(NrdJson *json, const char *key, double number);
void nrd_json_bool(NrdJson *json, const char *key, bool value);
void nrd_json_null(NrdJson *json, const char *key);

/* The bytes as text when they are valid UTF-8 without NUL, else in base64 and a member `key`_encoding that says so (as in
 * consume.jsonl). */
void nrd_json_bytes(NrdJson *json, const char *key, const uint8_t *bytes, size_t size);

/* A number when the text is a decimal one, else a string. */
void nrd_json_word(NrdJson *json, const char *key, const char *text);

#endif
