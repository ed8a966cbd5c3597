/* One run of the benchmark: measures case after case as the options say, and reports each.
 * Thread: main. Memory: borrows the options. */
#pragma once

#include "tests/bench/bench_measure.h"
#include "tests/bench/bench_options.h"

struct eb_bench_session {
    const struct eb_bench_options *options;
    struct eb_bag_schedules schedules;
    struct eb_bench_plan plan;
    /* Of the cases to come. */
    const struct eb_sampler_distribution *distribution;
    struct eb_page_count pages;
    struct eb_page_count peer_pages;
    /* Of the rows of these tables, this distribution, state and number of threads, however they
     * are put in bags; 0: not measured yet. */
    double roofline_ns_per_row;
    const char *roofline_way;
};

void eb_bench_session_init(
    struct eb_bench_session *session, const struct eb_bench_options *options);

/* Takes up the tables that cases to come read: how far ahead their rows are best called. */
void eb_bench_session_adopt(
    struct eb_bench_session *session, const struct eb_bench_table *tables, unsigned count);

/* What all cases have in common; feeds, bags and batches are the caller's to say. */
struct eb_bench_case eb_bench_session_model(
    const struct eb_bench_session *session, enum eb_storage storage);

/* Verifies, measures and reports a case, or serves it where that is asked for. false: results are
 * wrong, or it cannot be served; said on stderr. */
bool eb_bench_session_measure(struct eb_bench_session *session, const struct eb_bench_case *bench);

/* Calls `measure` for each number of threads and state, with the case changed so, until it returns
 * false, and returns that. */
bool eb_bench_session_vary(struct eb_bench_session *session, struct eb_bench_case *bench,
    bool (*measure)(
        struct eb_bench_session *session, const struct eb_bench_case *bench, const void *context),
    const void *context);
