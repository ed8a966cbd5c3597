#include "proto/link/ejection.h"

#include "tests/lib/test_group.h"
#include "tests/unit/link/event_orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

/* Counts calls of which the first ones failed. Returns whether the last one made an ejection
 * due. */
static bool count(struct eb_ejection *ejection, unsigned failed, unsigned calls, uint64_t now_ns)
{
    bool is_due = false;
    for (unsigned i = 0; i < calls; i++) {
        is_due = eb_ejection_count(ejection, i < failed, now_ns);
    }
    return is_due;
}

static void needs_twenty_calls(void **state)
{
    (void)state;
    struct eb_ejection ejection = {0};
    assert_false(count(&ejection, 19, 19, SECOND));
    assert_true(count(&ejection, 1, 1, SECOND));
}

static void needs_over_half_to_fail(void **state)
{
    (void)state;
    static const struct {
        unsigned failed, calls;
        bool is_due;
    } cases[] = {{10, 20, false}, {11, 20, true}, {10, 21, false}, {11, 21, true}, {11, 22, false},
        {500, 1000, false}, {501, 1000, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_ejection ejection = {0};
        assert_int_equal(
            count(&ejection, cases[i].failed, cases[i].calls, SECOND), cases[i].is_due);
    }
}

static void counts_the_last_ten_seconds(void **state)
{
    (void)state;
    struct eb_ejection ejection = {0};
    assert_false(count(&ejection, 19, 19, 5 * SECOND));
    assert_true(count(&ejection, 1, 1, 15 * SECOND - 1));
    assert_false(count(&ejection, 18, 18, 15 * SECOND));
    assert_true(count(&ejection, 1, 1, 15 * SECOND));
}

static void ends_when_its_time_is_over(void **state)
{
    (void)state;
    struct eb_ejection ejection = {0};
    assert_false(eb_ejection_end(&ejection, 0));
    eb_ejection_begin(&ejection, 5 * SECOND);
    assert_true(ejection.is_out);
    assert_false(eb_ejection_end(&ejection, 6 * SECOND - 1));
    assert_true(eb_ejection_end(&ejection, 6 * SECOND));
    assert_false(ejection.is_out);
    assert_false(eb_ejection_end(&ejection, 6 * SECOND));
}

/* Calls that were in flight at its start must not cause another one. */
static void starts_anew_after_an_ejection(void **state)
{
    (void)state;
    struct eb_ejection ejection = {0};
    assert_true(count(&ejection, 20, 20, SECOND));
    eb_ejection_begin(&ejection, SECOND);
    assert_false(count(&ejection, 100, 100, SECOND));
    assert_true(eb_ejection_end(&ejection, 2 * SECOND));
    assert_false(count(&ejection, 19, 19, 2 * SECOND));
    assert_true(count(&ejection, 1, 1, 2 * SECOND));
}

/* Ejects and readmits. Returns how long the ejection took, in seconds. */
static uint64_t eject_once(struct eb_ejection *ejection, uint64_t *now_ns)
{
    uint64_t begun_ns = *now_ns;
    eb_ejection_begin(ejection, begun_ns);
    *now_ns = ejection->until_ns;
    assert_true(eb_ejection_end(ejection, *now_ns));
    return (*now_ns - begun_ns) / SECOND;
}

static void doubles_up_to_a_minute(void **state)
{
    (void)state;
    static const uint64_t seconds[] = {1, 2, 4, 8, 16, 32, 60, 60, 60};
    struct eb_ejection ejection = {0};
    uint64_t now_ns = SECOND;
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        assert_int_equal(eject_once(&ejection, &now_ns), seconds[i]);
        now_ns += 59 * SECOND;
    }
}

static void forgets_one_doubling_in_each_good_minute(void **state)
{
    (void)state;
    struct eb_ejection ejection = {0};
    uint64_t now_ns = 100 * SECOND;
    for (unsigned i = 0; i < 4; i++) {
        eject_once(&ejection, &now_ns);
    }
    now_ns += 60 * SECOND - 1;
    assert_int_equal(eject_once(&ejection, &now_ns), 16);
    now_ns += 60 * SECOND;
    assert_int_equal(eject_once(&ejection, &now_ns), 16);
    now_ns += 3 * 60 * SECOND;
    assert_int_equal(eject_once(&ejection, &now_ns), 4);
    now_ns += 3600 * SECOND;
    assert_int_equal(eject_once(&ejection, &now_ns), 1);
}

/* The same, which keeps every call and every ejection. */
#define MODEL_CALLS 8192

struct model {
    struct eb_ejection ejection;
    uint64_t now_ns;
    struct {
        uint64_t at_ns;
        bool has_failed;
    } calls[MODEL_CALLS];
    uint32_t count;
    bool is_out;
    uint64_t until_ns;
    uint64_t next_seconds; /* length of the next ejection before any good minute */
};

static void reset_ejection_model(void *state)
{
    struct model *model = state;
    model->ejection = (struct eb_ejection){0};
    model->now_ns = SECOND;
    model->count = 0;
    model->is_out = false;
    model->until_ns = 0;
    model->next_seconds = 1;
}

static bool model_is_due(const struct model *model)
{
    uint32_t calls = 0;
    uint32_t failed = 0;
    for (uint32_t i = model->count; i-- > 0;) {
        if (model->calls[i].at_ns / SECOND + 10 <= model->now_ns / SECOND) {
            break;
        }
        calls++;
        failed += model->calls[i].has_failed;
    }
    return calls >= 20 && 2 * failed > calls;
}

static void eject_in_model(struct model *model)
{
    for (uint64_t good_ns = model->now_ns - model->until_ns; good_ns >= 60 * SECOND;
         good_ns -= 60 * SECOND) {
        model->next_seconds = model->next_seconds > 1 ? model->next_seconds / 2 : 1;
    }
    uint64_t seconds = model->next_seconds < 60 ? model->next_seconds : 60;
    model->is_out = true;
    model->until_ns = model->now_ns + seconds * SECOND;
    model->next_seconds = model->next_seconds < 64 ? 2 * model->next_seconds : 64;
    model->count = 0;
}

static void count_in_both(struct model *model, bool has_failed)
{
    bool is_due = eb_ejection_count(&model->ejection, has_failed, model->now_ns);
    if (model->is_out) {
        assert_false(is_due);
        return;
    }
    if (model->count == MODEL_CALLS) {
        model->count = 0;
        model->ejection.recent = (struct eb_recent_counts){0};
        return;
    }
    model->calls[model->count].at_ns = model->now_ns;
    model->calls[model->count++].has_failed = has_failed;
    assert_int_equal(is_due, model_is_due(model));
    if (is_due) {
        eb_ejection_begin(&model->ejection, model->now_ns);
        eject_in_model(model);
        assert_int_equal(model->ejection.until_ns, model->until_ns);
    }
}

static void step_ejection_model(void *state, unsigned kind, uint64_t random)
{
    static const uint64_t waits_ns[] = {SECOND / 3, SECOND, 5 * SECOND, 10 * SECOND, 65 * SECOND};
    static const struct {
        unsigned failed, calls;
    } batches[] = {{0, 1}, {1, 1}, {0, 10}, {10, 10}, {25, 25}};
    struct model *model = state;
    (void)random;
    if (kind < 5) {
        model->now_ns += waits_ns[kind];
        bool ends = model->is_out && model->now_ns >= model->until_ns;
        assert_int_equal(eb_ejection_end(&model->ejection, model->now_ns), ends);
        model->is_out &= !ends;
    } else {
        for (unsigned i = 0; i < batches[kind - 5].calls; i++) {
            count_in_both(model, i < batches[kind - 5].failed);
        }
    }
    assert_int_equal(model->ejection.is_out, model->is_out);
}

static const struct eb_event_machine machine = {10, reset_ejection_model, step_ejection_model};

static void ejection_agrees_with_a_model_in_every_order(void **state)
{
    (void)state;
    static struct model model;
    eb_run_every_order(&machine, &model);
}

static void ejection_agrees_with_a_model_on_random_walks(void **state)
{
    (void)state;
    static struct model model;
    eb_run_walk(&machine, &model, 1);
}

EB_TEST_GROUP(ejection)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(needs_twenty_calls),
        cmocka_unit_test(needs_over_half_to_fail),
        cmocka_unit_test(counts_the_last_ten_seconds),
        cmocka_unit_test(ends_when_its_time_is_over),
        cmocka_unit_test(starts_anew_after_an_ejection),
        cmocka_unit_test(doubles_up_to_a_minute),
        cmocka_unit_test(forgets_one_doubling_in_each_good_minute),
        cmocka_unit_test(ejection_agrees_with_a_model_in_every_order),
        cmocka_unit_test(ejection_agrees_with_a_model_on_random_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
