/* A server that does the least possible work for a case. For every request received, it runs the
 * check pass and the pooling of one call, straight into the memory of the answer, and writes the
 * answer. There is no HTTP/2, no gRPC and no planning, and it does not parse the request: the batch
 * comes from the stock. Unless the state is HOT, the batch is read from main memory, whereas a
 * server has the indices of a request in cache. Kernels and I/O share the caches of a core here, as
 * in embagd, so this costs more than the sum of the kernels alone and a bare echo.
 *
 * Thread: one. Memory: answers and the jobs of a call, while it serves; borrows the case. */
#pragma once

#include "tests/bench/bench_case.h"
#include "tests/bench/bench_echo.h"

/* Serves until the process is killed. Each answer ends with the results of a batch, one after
 * another; the bytes before them represent frames and message heads. If HOT, every answer has the
 * first batch, otherwise another batch each time. Returns if it cannot serve, after a message on
 * stderr. */
void eb_bench_floor_serve(
    const struct eb_bench_case *bench, const struct eb_bench_echo_sizes *sizes);
