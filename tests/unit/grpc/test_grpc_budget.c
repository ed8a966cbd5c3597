#include "proto/grpc_budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static size_t spend_all(struct eb_grpc_budget *budget)
{
    size_t count = 0;
    while (count < 100000 && eb_grpc_budget_spend_noise(budget)) {
        ++count;
    }
    return count;
}

static void forgives_noise_with_time_and_with_calls(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 5);
    eb_grpc_budget_refill(&budget, 100000);
    size_t burst = spend_all(&budget);
    assert_in_range(burst, 500, 5000);
    eb_grpc_budget_refill(&budget, 100099);
    assert_int_equal(spend_all(&budget), 0);
    eb_grpc_budget_refill(&budget, 100100);
    assert_int_equal(spend_all(&budget), 1);
    eb_grpc_budget_refill(&budget, 102100);
    assert_int_equal(spend_all(&budget), 20);
    eb_grpc_budget_refill(&budget, UINT64_C(1) << 60);
    assert_int_equal(spend_all(&budget), burst);
    eb_grpc_budget_calm(&budget);
    assert_int_equal(spend_all(&budget), burst);
}

static void counts_resets_against_normal_ends(void **state)
{
    (void)state;
    struct eb_grpc_budget budget;
    eb_grpc_budget_init(&budget, 2);
    eb_grpc_budget_earn_reset(&budget);
    assert_true(eb_grpc_budget_spend_reset(&budget));
    assert_true(eb_grpc_budget_spend_reset(&budget));
    assert_false(eb_grpc_budget_spend_reset(&budget));
    eb_grpc_budget_earn_reset(&budget);
    assert_true(eb_grpc_budget_spend_reset(&budget));
    assert_false(eb_grpc_budget_spend_reset(&budget));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forgives_noise_with_time_and_with_calls),
        cmocka_unit_test(counts_resets_against_normal_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
