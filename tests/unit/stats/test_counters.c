#include "server/stats/stats.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Makes counters that are all different multiples of `factor`. */
static struct eb_counters *make_counters(uint64_t factor)
{
    struct eb_counters *counters = malloc(sizeof *counters);
    uint64_t *numbers = (uint64_t *)counters;
    assert_non_null(counters);
    assert_int_equal(sizeof *counters % sizeof *numbers, 0);
    for (size_t i = 0; i < sizeof *counters / sizeof *numbers; i++) {
        numbers[i] = factor * (i + 1);
    }
    return counters;
}

static void merging_adds_every_number(void **state)
{
    (void)state;
    struct eb_counters *one = make_counters(1);
    struct eb_counters *ten = make_counters(10);
    struct eb_counters *eleven = make_counters(11);
    eb_counters_merge(ten, one);
    assert_memory_equal(ten, eleven, sizeof *ten);
    free(one);
    free(ten);
    free(eleven);
}

static void stages_and_refusals_have_names_of_their_own(void **state)
{
    (void)state;
    assert_string_equal(eb_stage_name(EB_STAGE_QUEUE), "queue");
    assert_string_equal(eb_stage_name(EB_STAGE_TOTAL), "total");
    assert_string_equal(eb_refusal_name(EB_REFUSAL_QUEUE_FULL), "queue_full");
    assert_string_equal(eb_refusal_name(EB_REFUSAL_EXPIRED_UNSENT), "expired_unsent");
    assert_string_equal(eb_refusal_name(EB_REFUSAL_CONNECTIONS), "connections");
    assert_string_equal(eb_refusal_name(EB_REFUSAL_HANDSHAKES), "handshakes");
    for (unsigned i = 0; i < EB_REFUSAL_COUNT; i++) {
        for (unsigned k = 0; k < i; k++) {
            assert_string_not_equal(
                eb_refusal_name((enum eb_refusal)i), eb_refusal_name((enum eb_refusal)k));
        }
    }
}

static void stats_have_what_their_loops_have_together_and_each_of_them_its_own(void **state)
{
    (void)state;
    struct eb_stats *stats = eb_stats_make(2);
    struct eb_counters *sum = make_counters(5);
    assert_non_null(stats);
    for (unsigned i = 0; i < 2; i++) {
        struct eb_loop_stats *part = calloc(1, sizeof *part);
        struct eb_counters *counters = make_counters(2 + i);
        assert_non_null(part);
        *part = (struct eb_loop_stats){.counters = *counters,
            .connections = 7 + i,
            .handshakes = 17 + i,
            .receive_bytes = 70 + i,
            .answer_bytes = 700};
        eb_stats_add(stats, part);
        assert_int_equal(stats->loop_count, i + 1);
        assert_int_equal(stats->loops[i].connections, 7 + i);
        assert_int_equal(stats->loops[i].handshakes, 17 + i);
        assert_int_equal(stats->loops[i].receive_bytes, 70 + i);
        assert_int_equal(stats->loops[i].answer_bytes, 700);
        assert_memory_equal(&stats->loops[i].lag, &counters->lag, sizeof counters->lag);
        free(counters);
        free(part);
    }
    assert_memory_equal(&stats->total, sum, sizeof *sum);
    free(sum);
    eb_stats_free(stats);
}

EB_TEST_GROUP(counters)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging_adds_every_number),
        cmocka_unit_test(stages_and_refusals_have_names_of_their_own),
        cmocka_unit_test(stats_have_what_their_loops_have_together_and_each_of_them_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
