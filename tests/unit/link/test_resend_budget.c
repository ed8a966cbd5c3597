#include "proto/link/resend_budget.h"

#include "tests/lib/test_group.h"
#include "tests/unit/link/event_orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)

static void earn(struct eb_resend_budget *budget, unsigned calls, uint64_t now_ns)
{
    for (unsigned i = 0; i < calls; i++) {
        eb_resend_budget_earn(budget, now_ns);
    }
}

/* Returns how many resends the budget allows now. */
static unsigned drain(struct eb_resend_budget *budget, uint64_t now_ns)
{
    unsigned taken = 0;
    while (eb_resend_budget_take(budget, now_ns)) {
        taken++;
    }
    assert_false(eb_resend_budget_has(budget, now_ns));
    return taken;
}

static void allows_the_least_without_calls(void **state)
{
    (void)state;
    static const uint32_t least[] = {0, EB_RESEND_LEAST_CLIENT, EB_RESEND_LEAST_ROUTER};
    for (size_t i = 0; i < sizeof least / sizeof least[0]; i++) {
        struct eb_resend_budget budget;
        eb_resend_budget_init(&budget, least[i]);
        assert_int_equal(drain(&budget, 5 * SECOND), least[i]);
    }
}

static void allows_a_tenth_of_many_calls(void **state)
{
    (void)state;
    struct eb_resend_budget budget;
    eb_resend_budget_init(&budget, EB_RESEND_LEAST_CLIENT);
    earn(&budget, 109, SECOND);
    assert_int_equal(drain(&budget, SECOND), 10);
    earn(&budget, 1, SECOND);
    assert_int_equal(drain(&budget, SECOND), 1);
    earn(&budget, 890, 2 * SECOND);
    assert_int_equal(drain(&budget, 2 * SECOND), 89);
}

/* Calls and resends count until their slice is dropped as a whole. */
static void forgets_after_ten_seconds(void **state)
{
    (void)state;
    struct eb_resend_budget budget;
    eb_resend_budget_init(&budget, 1);
    earn(&budget, 50, 3 * SECOND);
    assert_int_equal(drain(&budget, 4 * SECOND), 5);
    assert_int_equal(drain(&budget, 13 * SECOND - 1), 0);
    /* The calls are forgotten, the resends are not. */
    assert_int_equal(drain(&budget, 13 * SECOND), 0);
    assert_int_equal(drain(&budget, 14 * SECOND), 1);
}

static void takes_time_that_stands_still_or_goes_back(void **state)
{
    (void)state;
    struct eb_resend_budget budget;
    eb_resend_budget_init(&budget, 2);
    earn(&budget, 30, 100 * SECOND);
    assert_int_equal(drain(&budget, 50 * SECOND), 3);
    assert_int_equal(drain(&budget, 100 * SECOND), 0);
}

/* If every attempt is refused, servers get at most 1.2 times the calls. */
static void bounds_what_refusing_servers_get(void **state)
{
    (void)state;
    static const uint64_t periods_ns[] = {SECOND / 20, SECOND / 100, SECOND / 20000};
    for (size_t i = 0; i < sizeof periods_ns / sizeof periods_ns[0]; i++) {
        struct eb_resend_budget budget;
        eb_resend_budget_init(&budget, EB_RESEND_LEAST_CLIENT);
        uint64_t calls = 0;
        uint64_t sent = 0;
        for (uint64_t now_ns = 0; now_ns < 60 * SECOND; now_ns += periods_ns[i]) {
            eb_resend_budget_earn(&budget, now_ns);
            calls++;
            sent++;
            /* Each refused attempt is followed by another one, if the budget allows it. */
            sent += drain(&budget, now_ns);
        }
        assert_true(sent * 10 <= calls * 12);
        assert_true(sent * 100 >= calls * 109);
    }
}

/* The same budget, which remembers each event. */
#define MODEL_EVENTS 4096

struct model {
    struct eb_resend_budget budget;
    uint64_t now_ns;
    uint64_t calls_ns[MODEL_EVENTS];
    uint64_t resends_ns[MODEL_EVENTS];
    uint32_t calls;
    uint32_t resends;
};

static void reset_budget_model(void *state)
{
    struct model *model = state;
    model->now_ns = 0;
    model->calls = 0;
    model->resends = 0;
    eb_resend_budget_init(&model->budget, 2);
}

static uint32_t count_recent(uint64_t *times_ns, uint32_t *count, uint64_t now_ns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *count; i++) {
        if (times_ns[i] / SECOND + 10 > now_ns / SECOND) {
            times_ns[kept++] = times_ns[i];
        }
    }
    *count = kept;
    return kept;
}

static bool model_has(struct model *model)
{
    uint32_t calls = count_recent(model->calls_ns, &model->calls, model->now_ns);
    uint32_t allowed = calls / 10 > 2 ? calls / 10 : 2;
    return count_recent(model->resends_ns, &model->resends, model->now_ns) < allowed;
}

static void step_budget_model(void *state, unsigned kind, uint64_t random)
{
    static const uint64_t waits_ns[] = {
        1, 300 * MS, SECOND, 4 * SECOND, 9 * SECOND, 10 * SECOND, 25 * SECOND};
    struct model *model = state;
    unsigned waits = sizeof waits_ns / sizeof waits_ns[0];
    if (kind < waits) {
        model->now_ns += waits_ns[kind];
    } else if (kind == waits) {
        bool has = model_has(model);
        assert_int_equal(eb_resend_budget_take(&model->budget, model->now_ns), has);
        if (has) {
            model->resends_ns[model->resends++] = model->now_ns;
        }
    } else {
        unsigned calls = kind == waits + 1 ? 1 : 10 + (unsigned)(random % 21);
        for (unsigned i = 0; i < calls && model->calls < MODEL_EVENTS; i++) {
            eb_resend_budget_earn(&model->budget, model->now_ns);
            model->calls_ns[model->calls++] = model->now_ns;
        }
    }
    assert_int_equal(eb_resend_budget_has(&model->budget, model->now_ns), model_has(model));
}

static const struct eb_event_machine machine = {10, reset_budget_model, step_budget_model};

static void budget_agrees_with_a_model_in_every_order(void **state)
{
    (void)state;
    static struct model model;
    eb_run_every_order(&machine, &model);
}

static void budget_agrees_with_a_model_on_random_walks(void **state)
{
    (void)state;
    static struct model model;
    eb_run_walk(&machine, &model, 1);
    eb_run_walk(&machine, &model, 2);
}

EB_TEST_GROUP(resend_budget)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allows_the_least_without_calls),
        cmocka_unit_test(allows_a_tenth_of_many_calls),
        cmocka_unit_test(forgets_after_ten_seconds),
        cmocka_unit_test(takes_time_that_stands_still_or_goes_back),
        cmocka_unit_test(bounds_what_refusing_servers_get),
        cmocka_unit_test(budget_agrees_with_a_model_in_every_order),
        cmocka_unit_test(budget_agrees_with_a_model_on_random_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
