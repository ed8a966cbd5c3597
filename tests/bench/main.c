#include "server/base/standard_files.h"
#include "tests/bench/bench_grid.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/bench_workload.h"

#include <stdio.h>

static bool run_bench(const struct eb_bench_options *options)
{
    struct eb_bench_session session;
    eb_bench_session_init(&session, options);
    eb_bench_report_print_head(stdout, options);
    return options->workload ? eb_bench_workload_run(&session) : eb_bench_grid_run(&session);
}

int main(int argument_count, char **arguments)
{
    if (!eb_standard_files_open()) {
        perror("embag-bench: /dev/null");
        return 1;
    }
    struct eb_bench_options options;
    int status = 2;
    switch (eb_bench_options_read(&options, argument_count, arguments)) {
    case EB_ARGUMENTS_READ: status = run_bench(&options) ? 0 : 1; break;
    case EB_ARGUMENTS_HELP: status = 0; break;
    case EB_ARGUMENTS_WRONG: break;
    }
    /* Fails if the figures could not be written. */
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        perror("embag-bench: standard output");
        return 1;
    }
    return status;
}
