/* The peer at work on a case, in one thread: called once for each feed of a batch, on the same
 * indices, and on the same rows or its own form of them. Where nothing is pooled it gets bags of
 * one row, for which its code is faster than its own way not to pool. Thread: one each. Memory:
 * heap, until destroyed; borrows case and kernel. */
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
    int32_t *single_offsets;      /* NONE: of bags of one row; else NULL */
    uint8_t *out;                 /* one batch's results */
    struct eb_bench_rows rows;    /* FLUSHED */
};

/* What the peer is to compute in this case. false: it has no such operation. */
bool eb_bench_theirs_shape(const struct eb_bench_case *bench, struct eb_fbgemm_shape *out);

void eb_bench_theirs_init(struct eb_bench_theirs *theirs, const struct eb_bench_case *bench,
    const struct eb_fbgemm_kernel *kernel, unsigned thread, uint32_t call_count);
void eb_bench_theirs_deinit(struct eb_bench_theirs *theirs);
struct eb_bench_runner eb_bench_theirs_runner(struct eb_bench_theirs *theirs);
