/* All that was asked for, measured one after the other and reported on stdout as it comes.
 * Thread: main. Memory: tables and stocks, one at a time. */
#pragma once

#include "tests/bench/bench_options.h"

/* Every combination of the options' lists, or the workload. false: said on stderr why not. */
bool eb_bench_grid_run(const struct eb_bench_options *options);
