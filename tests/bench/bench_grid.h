/* One table for each type and dim, and on it every combination of the other lists.
 * Thread: main. Memory: one table and one stock of indices at a time. */
#pragma once

#include "tests/bench/bench_session.h"

/* false: said on stderr why not. */
bool eb_bench_grid_run(struct eb_bench_session *session);
