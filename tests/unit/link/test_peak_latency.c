#include "proto/link/peak_latency.h"

#include "tests/lib/test_group.h"
#include "tests/unit/link/event_orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#define MS UINT64_C(1000000)
#define HALF (UINT64_C(1) << EB_PEAK_LATENCY_HALF_BITS)

static void rises_at_once(void **state)
{
    (void)state;
    struct eb_peak_latency latency = {0};
    eb_peak_latency_add(&latency, MS, 5 * MS);
    assert_int_equal(eb_peak_latency_now(&latency, 5 * MS), MS);
    eb_peak_latency_add(&latency, 50 * MS, 5 * MS + 1);
    assert_int_equal(eb_peak_latency_now(&latency, 5 * MS + 1), 50 * MS);
}

static void falls_by_half_of_the_distance_in_a_half_life(void **state)
{
    (void)state;
    struct eb_peak_latency latency = {0};
    eb_peak_latency_add(&latency, 9 * MS, MS);
    eb_peak_latency_add(&latency, MS, MS + HALF);
    assert_int_equal(eb_peak_latency_now(&latency, MS + HALF), 5 * MS);
    assert_int_equal(eb_peak_latency_now(&latency, MS + 2 * HALF), 5 * MS / 2);
}

/* However many samples there are, they pull the latency down at the same pace. */
static void falls_by_time_not_by_samples(void **state)
{
    (void)state;
    for (uint64_t samples = 10; samples <= 10000; samples *= 10) {
        struct eb_peak_latency latency = {0};
        eb_peak_latency_add(&latency, 100 * MS, MS);
        for (uint64_t i = 1; i <= samples; i++) {
            eb_peak_latency_add(&latency, MS, MS + 4 * HALF * i / samples);
        }
        assert_in_range(eb_peak_latency_now(&latency, MS + 4 * HALF), 68 * MS / 10, 73 * MS / 10);
    }
}

static void counts_a_call_without_an_answer_only_if_it_is_larger(void **state)
{
    (void)state;
    struct eb_peak_latency latency = {0};
    eb_peak_latency_add(&latency, 8 * MS, MS);
    eb_peak_latency_raise(&latency, 4 * MS - 1, MS + HALF);
    assert_int_equal(eb_peak_latency_now(&latency, MS + HALF), 4 * MS);
    eb_peak_latency_raise(&latency, 4 * MS + 1, MS + HALF);
    assert_int_equal(eb_peak_latency_now(&latency, MS + HALF), 4 * MS + 1);
}

/* A time-out may be infinite. */
static void bounds_a_latency(void **state)
{
    (void)state;
    struct eb_peak_latency latency = {0};
    eb_peak_latency_raise(&latency, UINT64_MAX, MS);
    assert_int_equal(eb_peak_latency_now(&latency, MS), EB_PEAK_LATENCY_MAX_NS);
    assert_int_equal(eb_peak_latency_now(&latency, MS + 1000 * HALF), 0);
    assert_int_equal(eb_peak_latency_now(&latency, UINT64_MAX), 0);
    eb_peak_latency_add(&latency, UINT64_MAX, 2 * MS);
    assert_int_equal(eb_peak_latency_now(&latency, 2 * MS), EB_PEAK_LATENCY_MAX_NS);
    /* Time that goes back changes nothing. */
    assert_int_equal(eb_peak_latency_now(&latency, 0), EB_PEAK_LATENCY_MAX_NS);
}

/* The same in floating point, with a true exponential. */
struct model {
    struct eb_peak_latency latency;
    uint64_t now_ns;
    double low_ns; /* bounds of what the latency should be */
    double high_ns;
};

static void reset_latency_model(void *state)
{
    struct model *model = state;
    *model = (struct model){.now_ns = 1};
}

static void decay_model(struct model *model, double towards_ns, uint64_t elapsed_ns)
{
    double exact = exp2(-(double)elapsed_ns / (double)HALF);
    model->low_ns = towards_ns + fmax(model->low_ns - towards_ns, 0) * exact * 0.99 - 2;
    model->high_ns = towards_ns + fmax(model->high_ns - towards_ns, 0) * exact * 1.01 + 2;
}

static void step_latency_model(void *state, unsigned kind, uint64_t random)
{
    static const uint64_t samples_ns[] = {10000, 300000, 50 * MS, 4000 * MS};
    static const uint64_t waits_ns[] = {0, 1000, 10 * MS, HALF, 3 * HALF + 12345};
    struct model *model = state;
    (void)random;
    if (kind < 4) {
        uint64_t value_ns = model->latency.value_ns;
        uint64_t elapsed_ns = model->now_ns - model->latency.at_ns;
        model->low_ns = (double)value_ns;
        model->high_ns = (double)value_ns;
        decay_model(model, (double)samples_ns[kind], elapsed_ns);
        eb_peak_latency_add(&model->latency, samples_ns[kind], model->now_ns);
        assert_true((double)model->latency.value_ns >= model->low_ns);
        assert_true((double)model->latency.value_ns <= model->high_ns);
    } else if (kind < 7) {
        uint64_t before_ns = eb_peak_latency_now(&model->latency, model->now_ns);
        uint64_t least_ns = samples_ns[kind - 3];
        eb_peak_latency_raise(&model->latency, least_ns, model->now_ns);
        uint64_t expected_ns = before_ns > least_ns ? before_ns : least_ns;
        assert_int_equal(eb_peak_latency_now(&model->latency, model->now_ns), expected_ns);
    } else {
        uint64_t before_ns = eb_peak_latency_now(&model->latency, model->now_ns);
        model->now_ns += waits_ns[kind - 7];
        assert_true(eb_peak_latency_now(&model->latency, model->now_ns) <= before_ns);
    }
}

static const struct eb_event_machine machine = {12, reset_latency_model, step_latency_model};

static void follows_the_exponential_in_every_order(void **state)
{
    (void)state;
    struct model model;
    eb_run_every_order(&machine, &model);
}

static void follows_the_exponential_on_random_walks(void **state)
{
    (void)state;
    struct model model;
    eb_run_walk(&machine, &model, 1);
}

EB_TEST_GROUP(peak_latency)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rises_at_once),
        cmocka_unit_test(falls_by_half_of_the_distance_in_a_half_life),
        cmocka_unit_test(falls_by_time_not_by_samples),
        cmocka_unit_test(counts_a_call_without_an_answer_only_if_it_is_larger),
        cmocka_unit_test(bounds_a_latency),
        cmocka_unit_test(follows_the_exponential_in_every_order),
        cmocka_unit_test(follows_the_exponential_on_random_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
