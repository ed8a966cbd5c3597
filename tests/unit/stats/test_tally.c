#include "server/stats/census.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Every number of it is another one, but the same for the same `factor`. */
static struct eb_tally *make_tally(uint64_t factor)
{
    struct eb_tally *tally = malloc(sizeof *tally);
    uint64_t *numbers = (uint64_t *)tally;
    assert_non_null(tally);
    assert_int_equal(sizeof *tally % sizeof *numbers, 0);
    for (size_t i = 0; i < sizeof *tally / sizeof *numbers; i++) {
        numbers[i] = factor * (i + 1);
    }
    return tally;
}

static void merging_adds_every_number(void **state)
{
    (void)state;
    struct eb_tally *one = make_tally(1);
    struct eb_tally *ten = make_tally(10);
    struct eb_tally *eleven = make_tally(11);
    eb_tally_merge(ten, one);
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
    for (unsigned i = 0; i < EB_REFUSAL_COUNT; i++) {
        for (unsigned k = 0; k < i; k++) {
            assert_string_not_equal(
                eb_refusal_name((enum eb_refusal)i), eb_refusal_name((enum eb_refusal)k));
        }
    }
}

static void a_census_has_what_its_loops_have_together_and_each_of_them_its_own(void **state)
{
    (void)state;
    struct eb_census *census = eb_census_make(2);
    struct eb_tally *sum = make_tally(5);
    assert_non_null(census);
    for (unsigned i = 0; i < 2; i++) {
        struct eb_census_part *part = calloc(1, sizeof *part);
        struct eb_tally *tally = make_tally(2 + i);
        assert_non_null(part);
        *part = (struct eb_census_part){
            .tally = *tally, .connections = 7 + i, .receive_bytes = 70 + i, .answer_bytes = 700};
        eb_census_add(census, part);
        assert_int_equal(census->loop_count, i + 1);
        assert_int_equal(census->loops[i].connections, 7 + i);
        assert_int_equal(census->loops[i].receive_bytes, 70 + i);
        assert_int_equal(census->loops[i].answer_bytes, 700);
        assert_memory_equal(&census->loops[i].lag, &tally->lag, sizeof tally->lag);
        free(tally);
        free(part);
    }
    assert_memory_equal(&census->total, sum, sizeof *sum);
    free(sum);
    eb_census_free(census);
}

EB_TEST_GROUP(tally)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merging_adds_every_number),
        cmocka_unit_test(stages_and_refusals_have_names_of_their_own),
        cmocka_unit_test(a_census_has_what_its_loops_have_together_and_each_of_them_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
