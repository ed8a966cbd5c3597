#include "tests/bench/bench_grid.h"

#include <stdio.h>

int main(int argument_count, char **arguments)
{
    struct eb_bench_options options;
    switch (eb_bench_options_read(&options, argument_count, arguments)) {
    case EB_ARGUMENTS_READ: return eb_bench_grid_run(&options) ? 0 : 1;
    case EB_ARGUMENTS_HELP: return 0;
    case EB_ARGUMENTS_WRONG: break;
    }
    return 2;
}
