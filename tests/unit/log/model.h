/* A log's records as a test expects them, beside the log itself. */
#ifndef NRD_TESTS_LOG_MODEL_H
#define NRD_TESTS_LOG_MODEL_H

#include "fixture.h"

/* Commits batches of random records and keeps what the text should be. */
typedef struct Model {
    GString *text;
    GArray *starts;      /* uint64_t: text position of each record */
    GPtrArray *payloads; /* GBytes */
} Model;

void model_init(Model *m);
void model_clear(Model *m);

/* One batch of records of up to max_size bytes, every second one with a key. */
void model_commit(Fixture *f, Model *m, unsigned n_records, size_t max_size);

/* Text position of the record at offset; of the end when there is none. */
size_t model_start(const Model *m, uint64_t offset);

/* Reads all of the text in several ways, and some of it at random places. */
void expect_text(NrdText *text, const char *want, size_t size);

/* Checks text, sizes and records from offset `from` on. */
void expect_model(Fixture *f, const Model *m, uint64_t from);

/* Changes the settings, also of the open log. */
void settings(Fixture *f, uint64_t segment_bytes, NrdCodec codec);

#endif
