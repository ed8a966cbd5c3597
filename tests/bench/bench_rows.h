/* Addresses of the rows of batches. They serve to flush the rows from the caches, and to measure
 * the roofline.
 * Thread: one each. Memory: heap, until deinit. */
#pragma once

#include "tests/bench/bench_case.h"

struct eb_bench_rows {
    const uint8_t **rows;   /* [room], including scale and bias if they are stored before the row */
    const uint8_t **scales; /* one for each row; NULL: there are no separate scales */
    uint64_t room;
    uint64_t count;
    uint32_t row_bytes;
};

/* Allocates room for the rows of `batch_count` batches. All tables of the case must have rows of
 * the same length. */
void eb_bench_rows_init(
    struct eb_bench_rows *out, const struct eb_bench_case *bench, uint64_t batch_count);
void eb_bench_rows_deinit(struct eb_bench_rows *rows);

/* Lists the rows of a thread's batches, starting at a position, in the order in which they are
 * pooled. */
void eb_bench_rows_list(struct eb_bench_rows *rows, const struct eb_bench_case *bench,
    unsigned thread, uint64_t position);
/* Lists the same rows of the peer's tables. */
void eb_bench_rows_list_peer(struct eb_bench_rows *rows, const struct eb_bench_case *bench,
    unsigned thread, uint64_t position);

/* Flushes every cache line of the listed rows from all caches. */
void eb_bench_rows_flush(const struct eb_bench_rows *rows);
/* Returns whether a program can flush caches on this machine. */
bool eb_bench_rows_can_flush(void);
