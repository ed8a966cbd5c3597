/* The least that a server can take for a case: for every request's bytes that it has received, one
 * call's check pass and pooling straight into the answer's place, and the answer's write. There is
 * no HTTP/2, no gRPC, no planning and no reading of the request: its batch comes from the stock,
 * and so, unless HOT, out of memory, where a server has its indices in the cache. Kernels and bytes
 * share a core's caches here, as they do in embagd, so that it takes more than the kernels alone
 * and a bare echo do together.
 *
 * Thread: one. Memory: answers and the jobs of a call, while it serves; borrows the case. */
#pragma once

#include "tests/bench/bench_case.h"
#include "tests/bench/bench_echo.h"

/* Serves until the process is killed: each answer is a batch's, its results one behind the other at
 * its end; what is before them stands for frames and heads of messages. HOT: each the first
 * batch's, else of another each time. Returns where it cannot serve: said on stderr why, and what
 * to do. */
void eb_bench_floor_serve(
    const struct eb_bench_case *bench, const struct eb_bench_echo_sizes *sizes);
