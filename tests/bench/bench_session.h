/* One run of the benchmark: measures the cases that the options define, and reports each.
 * Thread: main. Memory: borrows the options. */
#pragma once

#include "tests/bench/bench_measure.h"
#include "tests/bench/bench_options.h"

struct eb_bench_session {
    const struct eb_bench_options *options;
    struct eb_bag_schedules schedules;
    struct eb_bench_plan plan;
    /* For the next cases: */
    const struct eb_sampler_distribution *distribution;
    struct eb_page_count pages;
    struct eb_page_count peer_pages;
    /* The roofline for these tables, this distribution, state and number of threads. It is the same
     * for all shapes of bags. 0: not measured yet. */
    double roofline_ns_per_row;
    const char *roofline_way;
};

void eb_bench_session_init(
    struct eb_bench_session *session, const struct eb_bench_options *options);

/* Sets the tables of the next cases, and chooses their prefetch schedules by the options. */
void eb_bench_session_adopt(
    struct eb_bench_session *session, const struct eb_bench_table *tables, unsigned count);

/* Returns a case with the fields that all cases share. The caller sets feeds, bags and batches. */
struct eb_bench_case eb_bench_session_model(
    const struct eb_bench_session *session, enum eb_storage storage);

/* Verifies, measures and reports a case, or serves it if the options require that. Returns false if
 * results are wrong or it cannot be served, after a message on stderr. */
bool eb_bench_session_measure(struct eb_bench_session *session, const struct eb_bench_case *bench);

/* Calls `measure` for each number of threads and each state, which it sets in the case. Stops and
 * returns false once `measure` returns false. */
bool eb_bench_session_vary(struct eb_bench_session *session, struct eb_bench_case *bench,
    bool (*measure)(
        struct eb_bench_session *session, const struct eb_bench_case *bench, const void *context),
    const void *context);
