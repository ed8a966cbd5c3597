/* Measures a workload: all of its tables, with calls that look up bags of all of them at once.
 * Thread: main. Memory: all tables and a stock of indices for each. */
#pragma once

#include "tests/bench/bench_session.h"

/* Measures the workload for each type and distribution. Returns false after a message on stderr. */
bool eb_bench_workload_run(struct eb_bench_session *session);
