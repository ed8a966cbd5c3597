/* A workload: all its tables, and calls that look bags of all of them up at once.
 * Thread: main. Memory: all tables and a stock of indices for each. */
#pragma once

#include "tests/bench/bench_session.h"

/* Once for each type and distribution. false: said on stderr why not. */
bool eb_bench_workload_run(struct eb_bench_session *session);
