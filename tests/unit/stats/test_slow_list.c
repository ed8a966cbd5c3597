#include "server/stats/slow_list.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOW_MS UINT64_C(9000000)
#define COUNT EB_STATS_SLOW_REQUESTS

static const struct eb_trace_parent no_trace;

static struct eb_access_record record_of(uint64_t total_ns)
{
    return (struct eb_access_record){.method = "a/B",
        .peer = "unix:",
        .trace = &no_trace,
        .model = "m",
        .is_lookup = true,
        .total_ns = total_ns};
}

/* Adds a request if the list wants it, as a loop does. Returns whether it was wanted. */
static bool offer(struct eb_slow_list *list, uint64_t total_ns, uint64_t now_ms)
{
    struct eb_access_record record = record_of(total_ns);
    bool is_wanted = eb_slow_list_wants(list, total_ns);
    if (is_wanted) {
        eb_slow_list_add(list, &record, now_ms);
    }
    return is_wanted;
}

static uint64_t find_least(const struct eb_slow_list *list)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < list->count; i++) {
        uint64_t ns = list->requests[i].shown.ns[EB_STAGE_TOTAL];
        least = ns < least ? ns : least;
    }
    return least;
}

static void keeps_what_there_is_to_know_of_a_request(void **state)
{
    (void)state;
    struct eb_slow_list list = {0};
    struct eb_stats_slow copied[COUNT];
    struct eb_trace_parent trace = {"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", false};
    struct eb_access_record record = record_of(500);
    record.trace = &trace;
    record.status = EB_STATUS_DEADLINE_EXCEEDED;
    record.queue_ns = 400;
    record.compute_ns = 100;
    record.rows = 12;
    record.value_bytes = 13;
    eb_slow_list_add(&list, &record, NOW_MS);
    assert_int_equal(eb_slow_list_copy(&list, NOW_MS, copied), 1);
    assert_in_range(copied[0].unix_ms, UINT64_C(1600000000000), UINT64_C(40000000000000));
    assert_int_equal(copied[0].ns[EB_STAGE_QUEUE], 400);
    assert_int_equal(copied[0].ns[EB_STAGE_COMPUTE], 100);
    assert_int_equal(copied[0].ns[EB_STAGE_SEND], 0);
    assert_int_equal(copied[0].ns[EB_STAGE_TOTAL], 500);
    assert_int_equal(copied[0].indices, 12);
    assert_int_equal(copied[0].value_bytes, 13);
    assert_int_equal(copied[0].status, EB_STATUS_DEADLINE_EXCEEDED);
    assert_string_equal(copied[0].method, "a/B");
    assert_string_equal(copied[0].model, "m");
    assert_string_equal(copied[0].peer, "unix:");
    assert_string_equal(copied[0].trace, trace.trace_id);
    assert_string_equal(copied[0].span, trace.parent_id);
}

static void cuts_long_names_between_characters(void **state)
{
    (void)state;
    struct eb_slow_list list = {0};
    char longest[EB_STATS_TEXT_BYTES] = "";
    char longer[2 * EB_STATS_TEXT_BYTES] = "";
    memset(longest, 'x', sizeof longest - 1);
    memset(longer, 'y', EB_STATS_TEXT_BYTES - 2);
    strcat(longer, "\xe2\x82\xac and more");
    struct eb_access_record record = record_of(500);
    record.method = longest;
    record.model = longer;
    eb_slow_list_add(&list, &record, NOW_MS);
    assert_string_equal(list.requests[0].shown.method, longest);
    assert_int_equal(strlen(list.requests[0].shown.model), EB_STATS_TEXT_BYTES - 2);
    assert_memory_equal(list.requests[0].shown.model, longer, EB_STATS_TEXT_BYTES - 2);
}

static void keeps_the_longest_about(void **state)
{
    (void)state;
    struct eb_slow_list list = {0};
    uint64_t missed_ns = 0;
    srand(4711);
    for (unsigned n = 0; n < 20000; n++) {
        uint64_t ns = (uint64_t)(rand() % 1000000) + 1;
        if (!offer(&list, ns, NOW_MS) && ns > missed_ns) {
            missed_ns = ns;
        }
    }
    assert_int_equal(list.count, COUNT);
    assert_true(missed_ns <= find_least(&list) + find_least(&list) / EB_SLOW_LIST_STEP);
    assert_true(offer(&list, 10000000, NOW_MS));
    assert_int_equal(list.count, COUNT);
}

static void notes_few_of_requests_that_each_take_longer(void **state)
{
    (void)state;
    struct eb_slow_list list = {0};
    unsigned noted = 0;
    for (uint64_t us = 1; us <= 1000000; us++) {
        noted += offer(&list, us * 1000, NOW_MS);
    }
    assert_true(noted < 5000);
    assert_true(find_least(&list) > UINT64_C(800000000));
}

static void forgets_after_some_minutes(void **state)
{
    (void)state;
    struct eb_slow_list list = {0};
    struct eb_stats_slow copied[COUNT];
    for (unsigned n = 0; n < COUNT; n++) {
        assert_true(offer(&list, 1000 + n, NOW_MS + 2000 * n));
    }
    assert_false(offer(&list, 500, NOW_MS + 2000 * COUNT));
    eb_slow_list_age(&list, NOW_MS + EB_SLOW_LIST_AGE_MS - 1);
    assert_int_equal(list.count, COUNT);
    assert_int_equal(
        eb_slow_list_copy(&list, NOW_MS + EB_SLOW_LIST_AGE_MS + 2000, copied), COUNT - 2);
    for (size_t i = 0; i < COUNT - 2; i++) {
        assert_true(copied[i].ns[EB_STAGE_TOTAL] >= 1002);
    }
    assert_true(offer(&list, 1, NOW_MS + EB_SLOW_LIST_AGE_MS + 2000));
    assert_int_equal(eb_slow_list_copy(&list, NOW_MS + 3 * EB_SLOW_LIST_AGE_MS, copied), 0);
    assert_int_equal(list.floor_ns, 0);
}

static void merges_the_longest_of_all_loops(void **state)
{
    (void)state;
    struct eb_stats *stats = calloc(1, sizeof *stats);
    assert_non_null(stats);
    for (uint64_t loop = 0; loop < 3; loop++) {
        struct eb_slow_list list = {0};
        struct eb_stats_slow copied[COUNT];
        for (uint64_t n = 1; n <= 20; n++) {
            assert_true(offer(&list, 3 * n + loop, NOW_MS));
        }
        eb_stats_add_slow(stats, copied, eb_slow_list_copy(&list, NOW_MS, copied));
        assert_int_equal(stats->slow_count, loop == 0 ? 20 : COUNT);
    }
    /* The three loops together have the times 3 to 62. */
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(stats->slow[i].ns[EB_STAGE_TOTAL], 62 - i);
    }
    eb_stats_add_slow(stats, NULL, 0);
    assert_int_equal(stats->slow_count, COUNT);
    free(stats);
}

EB_TEST_GROUP(slow_list)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_what_there_is_to_know_of_a_request),
        cmocka_unit_test(cuts_long_names_between_characters),
        cmocka_unit_test(keeps_the_longest_about),
        cmocka_unit_test(notes_few_of_requests_that_each_take_longer),
        cmocka_unit_test(forgets_after_some_minutes),
        cmocka_unit_test(merges_the_longest_of_all_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
