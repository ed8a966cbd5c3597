/* Runs the peer's kernel on a case, in one thread. The kernel is called once for each feed of a
 * batch, with our indices, and with our rows or a copy in the peer's format. For the reduction NONE
 * it gets bags of one row, because that is faster than the peer's own code without pooling.
 * Thread: one each. Memory: heap, until deinit; borrows case and kernel. */
#pragma once

#include "tests/bench/bench_rows.h"
#include "tests/bench/bench_workers.h"
#include "tests/bench/fbgemm_peer.h"

struct eb_bench_theirs {
    const struct eb_bench_case *bench;
    const struct eb_fbgemm_kernel *kernel;
    unsigned thread;
    uint32_t call_count;
    struct eb_fbgemm_call *calls; /* [call_count * feed_count] */
    int32_t *single_offsets;      /* offsets of bags of one row for NONE; otherwise NULL */
    uint8_t *out;                 /* results of one batch */
    struct eb_bench_rows rows;    /* used if FLUSHED */
};

/* Sets *out to the peer's operation for this case. Returns false if it has no such operation. */
bool eb_bench_theirs_shape(const struct eb_bench_case *bench, struct eb_fbgemm_shape *out);

void eb_bench_theirs_init(struct eb_bench_theirs *theirs, const struct eb_bench_case *bench,
    const struct eb_fbgemm_kernel *kernel, unsigned thread, uint32_t call_count);
void eb_bench_theirs_deinit(struct eb_bench_theirs *theirs);
struct eb_bench_runner eb_bench_theirs_runner(struct eb_bench_theirs *theirs);
