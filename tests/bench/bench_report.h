/* Prints measurements, as a table or as JSON.
 * Thread: one. Memory: none; texts are borrowed. */
#pragma once

#include "tests/bench/bench_measure.h"
#include "tests/bench/bench_options.h"

#include <stdio.h>

struct eb_bench_report {
    const struct eb_bench_options *options;
    const struct eb_bench_case *bench;
    const struct eb_sampler_distribution *distribution;
    struct eb_bench_figures figures;
    double roofline_ns_per_row; /* 0: not measured */
    const char *roofline_way;
    struct eb_page_count pages;      /* pages of all our tables */
    struct eb_page_count peer_pages; /* pages of all the peer's tables */
    bool is_peer_tuned;
};

/* Prints the head of the table; nothing if the output is JSON. */
void eb_bench_report_print_head(FILE *out, const struct eb_bench_options *options);
/* Prints a line of the table, or a JSON object on a line of its own. */
void eb_bench_report_print(FILE *out, const struct eb_bench_report *report);
