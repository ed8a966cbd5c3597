#include "server/tables/memory_claims.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define AVAILABLE 100

static uint64_t tell_available(void)
{
    return AVAILABLE;
}

static int set_up(void **state)
{
    static struct eb_memory_claims claims;
    eb_faults.eb_machine_available_bytes = tell_available;
    *state = &claims;
    return eb_memory_claims_init(&claims);
}

static int tear_down(void **state)
{
    eb_faults_disarm();
    eb_memory_claims_deinit(*state);
    return 0;
}

static void two_loads_do_not_count_on_the_same_memory(void **state)
{
    struct eb_memory_claims *claims = *state;
    uint64_t first = 0;
    uint64_t second = 0;
    uint64_t available;
    assert_true(eb_memory_claims_take(claims, 60, &first, &available));
    assert_false(eb_memory_claims_take(claims, 41, &second, &available));
    assert_int_equal(available, 40);
    assert_int_equal(second, 0);
    assert_true(eb_memory_claims_take(claims, 40, &second, &available));
    eb_memory_claims_give(claims, first);
    assert_false(eb_memory_claims_take(claims, AVAILABLE + 1, &second, &available));
    assert_int_equal(available, AVAILABLE);
    assert_true(eb_memory_claims_take(claims, AVAILABLE, &second, &available));
    eb_memory_claims_give(claims, second);
}

static void a_later_claim_replaces_the_first(void **state)
{
    struct eb_memory_claims *claims = *state;
    uint64_t first = 0;
    uint64_t second = 0;
    uint64_t available;
    assert_true(eb_memory_claims_take(claims, 90, &first, &available));
    assert_true(eb_memory_claims_take(claims, 10, &first, &available));
    assert_true(eb_memory_claims_take(claims, 90, &second, &available));
    assert_false(eb_memory_claims_take(claims, 11, &first, &available));
    assert_int_equal(first, 10);
    assert_int_equal(available, 10);
    eb_memory_claims_give(claims, first);
    eb_memory_claims_give(claims, second);
}

static void a_load_alone_only_compares(void **state)
{
    uint64_t held = 0;
    uint64_t available;
    (void)state;
    assert_true(eb_memory_claims_take(NULL, AVAILABLE, &held, &available));
    assert_false(eb_memory_claims_take(NULL, AVAILABLE + 1, &held, &available));
    assert_int_equal(available, AVAILABLE);
    assert_int_equal(held, 0);
    eb_memory_claims_give(NULL, held);
}

EB_TEST_GROUP(memory_claims)
{
#define FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FIXTURE(two_loads_do_not_count_on_the_same_memory),
        FIXTURE(a_later_claim_replaces_the_first),
        FIXTURE(a_load_alone_only_compares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
