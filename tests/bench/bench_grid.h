/* Measures one table for each type and dim, with every combination of the other lists.
 * Thread: main. Memory: one table and one stock of indices at a time. */
#pragma once

#include "tests/bench/bench_session.h"

/* Returns false after a message on stderr. */
bool eb_bench_grid_run(struct eb_bench_session *session);
