#include "client/cli/load_stats.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct eb_load_window window = {
    .begin_ns = 1000, .end_ns = 2000, .deadline_ns = 500, .unanswered_ns = 600};

static struct eb_load_stats *make_stats(void)
{
    struct eb_load_stats *stats = calloc(1, sizeof *stats);
    assert_non_null(stats);
    return stats;
}

static void add_outcome(
    struct eb_load_stats *stats, uint64_t due_ns, uint64_t done_ns, enum embag_status status)
{
    struct embag_error error = {.status = status, .text = "why"};
    struct eb_load_outcome outcome = {
        .due_ns = due_ns,
        .sent_ns = due_ns + 1,
        .done_ns = done_ns,
        .error = &error,
        .answer_bytes = status == EMBAG_OK ? 100 : 0,
        .queue_us = 3,
        .compute_us = 40,
    };
    eb_load_stats_add(stats, &window, &outcome);
}

static void counts_what_was_due_in_the_window(void **state)
{
    (void)state;
    struct eb_load_stats *stats = make_stats();
    add_outcome(stats, 999, 1100, EMBAG_OK);
    add_outcome(stats, 1000, 1100, EMBAG_OK);
    add_outcome(stats, 1999, 2400, EMBAG_OK);
    add_outcome(stats, 2000, 2100, EMBAG_OK);
    assert_int_equal(stats->latency.count, 2);
    assert_int_equal(stats->by_status[0], 2);
    assert_int_equal(stats->latency.max_ns, 401);
    assert_int_equal(stats->answer_bytes, 200);
    assert_int_equal(stats->queue_us, 6);
    assert_int_equal(stats->compute_us, 80);
    /* Answers count by the time of arrival: only the first two arrived in the window. */
    assert_int_equal(stats->window_answers, 2);
    free(stats);
}

static void finds_good_what_came_within_the_deadline(void **state)
{
    (void)state;
    struct eb_load_stats *stats = make_stats();
    add_outcome(stats, 1000, 1500, EMBAG_OK);
    add_outcome(stats, 1000, 1501, EMBAG_OK);
    assert_int_equal(stats->good_count, 1);
    assert_int_equal(stats->window_good, 1);
    assert_int_equal(stats->window_answers, 2);
    free(stats);
}

static void counts_errors_by_code_and_keeps_the_first(void **state)
{
    (void)state;
    struct eb_load_stats *stats = make_stats();
    add_outcome(stats, 1000, 1001, EMBAG_RESOURCE_EXHAUSTED);
    add_outcome(stats, 1000, 1001, EMBAG_UNAVAILABLE);
    add_outcome(stats, 1000, 1001, EMBAG_UNAVAILABLE);
    add_outcome(stats, 1000, 1001, (enum embag_status)99);
    stats->unsent_count = 5;
    assert_int_equal(stats->by_status[EMBAG_RESOURCE_EXHAUSTED], 1);
    assert_int_equal(stats->by_status[EMBAG_UNAVAILABLE], 2);
    assert_int_equal(stats->by_status[EMBAG_UNKNOWN], 1);
    assert_int_equal(eb_load_stats_errors(stats), 4);
    assert_int_equal(eb_load_stats_requests(stats), 9);
    assert_int_equal(stats->first_error.status, EMBAG_RESOURCE_EXHAUSTED);
    assert_int_equal(stats->latency.count, 0);
    assert_int_equal(stats->window_answers, 0);
    free(stats);
}

/* Adds 97 answers in time, and one request of each kind that gets no answer. Requests that are slow
 * or never answered must show in the percentiles. */
static void lets_no_request_without_an_answer_out_of_the_percentiles(void **state)
{
    (void)state;
    struct eb_load_stats *stats = make_stats();
    for (unsigned i = 0; i < 97; i++) {
        add_outcome(stats, 1000, 1100, EMBAG_OK);
    }
    add_outcome(stats, 1000, 1001, EMBAG_RESOURCE_EXHAUSTED);
    eb_load_stats_add_unsent(stats, &window, 1000, 1000);
    eb_load_stats_add_lost(stats, &window, 1);
    assert_true(eb_load_stats_quantile_us(stats, 0.97) < 0.2);
    assert_true(eb_load_stats_quantile_us(stats, 0.98) >= 0.6);
    assert_true(eb_load_stats_quantile_us(stats, 1) == 0.6);
    assert_int_equal(stats->unsent_count, 1);
    assert_int_equal(stats->latency.count, 97);
    /* A request that waited for longer than the others is recorded with its actual wait. */
    add_outcome(stats, 1000, 1900, EMBAG_DEADLINE_EXCEEDED);
    assert_true(eb_load_stats_quantile_us(stats, 1) == 0.9);
    free(stats);
}

static void counts_no_unsent_request_beyond_the_window(void **state)
{
    (void)state;
    struct eb_load_stats *stats = make_stats();
    eb_load_stats_add_unsent(stats, &window, 999, 1500);
    eb_load_stats_add_unsent(stats, &window, 2000, 2500);
    assert_int_equal(stats->unsent_count, 0);
    assert_int_equal(stats->unanswered.count, 0);
    free(stats);
}

static void takes_no_wrong_answer_for_a_good_one(void **state)
{
    (void)state;
    struct eb_load_stats *stats = make_stats();
    struct embag_error error = {.status = EMBAG_OK};
    struct eb_load_outcome outcome = {
        .due_ns = 1000, .sent_ns = 1000, .done_ns = 1001, .error = &error, .is_wrong = true};
    eb_load_stats_add(stats, &window, &outcome);
    assert_int_equal(stats->wrong_count, 1);
    assert_int_equal(stats->good_count, 0);
    free(stats);
}

static void merges_all_counts(void **state)
{
    (void)state;
    struct eb_load_stats *one = make_stats();
    struct eb_load_stats *two = make_stats();
    add_outcome(one, 1000, 1100, EMBAG_OK);
    add_outcome(two, 1200, 1300, EMBAG_OK);
    add_outcome(two, 1200, 1300, EMBAG_INTERNAL);
    two->unsent_count = 3;
    two->wrong_count = 2;
    eb_load_stats_merge(one, two);
    assert_int_equal(one->by_status[0], 2);
    assert_int_equal(one->by_status[EMBAG_INTERNAL], 1);
    assert_int_equal(one->latency.count, 2);
    assert_int_equal(one->late.count, 3);
    assert_int_equal(one->unanswered.count, 1);
    assert_int_equal(one->unsent_count, 3);
    assert_int_equal(one->wrong_count, 2);
    assert_int_equal(one->good_count, 2);
    assert_int_equal(one->window_answers, 2);
    assert_int_equal(one->window_good, 2);
    assert_int_equal(one->answer_bytes, 200);
    assert_int_equal(one->queue_us, 6);
    assert_int_equal(one->compute_us, 80);
    assert_int_equal(one->first_error.status, EMBAG_INTERNAL);
    free(one);
    free(two);
}

EB_TEST_GROUP(load_stats)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_was_due_in_the_window),
        cmocka_unit_test(finds_good_what_came_within_the_deadline),
        cmocka_unit_test(counts_errors_by_code_and_keeps_the_first),
        cmocka_unit_test(lets_no_request_without_an_answer_out_of_the_percentiles),
        cmocka_unit_test(counts_no_unsent_request_beyond_the_window),
        cmocka_unit_test(takes_no_wrong_answer_for_a_good_one),
        cmocka_unit_test(merges_all_counts),
    };
    return cmocka_run_group_tests_name("load_stats", tests, NULL, NULL);
}
