/* Where the rows of batches lie: what is flushed, and what the machine's limit is measured on.
 * Thread: one each. Memory: heap, until deinit. */
#pragma once

#include "tests/bench/bench_case.h"

struct eb_bench_rows {
    const uint8_t **rows;   /* [room], with scale and bias where they lie in front */
    const uint8_t **scales; /* beside rows; NULL: none apart */
    uint64_t room;
    uint64_t count;
    uint32_t row_bytes;
};

/* Room for the rows of `batch_count` batches; all tables of the case have rows of one length. */
void eb_bench_rows_init(
    struct eb_bench_rows *out, const struct eb_bench_case *bench, uint64_t batch_count);
void eb_bench_rows_deinit(struct eb_bench_rows *rows);

/* Lists the rows of the batches that a thread takes from a position on, in the order in which they
 * are pooled. */
void eb_bench_rows_list(struct eb_bench_rows *rows, const struct eb_bench_case *bench,
    unsigned thread, uint64_t position);
/* The same rows of the peer's tables. */
void eb_bench_rows_list_peer(struct eb_bench_rows *rows, const struct eb_bench_case *bench,
    unsigned thread, uint64_t position);

/* Puts every line of the listed rows out of all caches. */
void eb_bench_rows_flush(const struct eb_bench_rows *rows);
/* Whether this machine lets a program do that. */
bool eb_bench_rows_can_flush(void);
