#include "proto/splitmix64.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The expected numbers are published as the first ones that seed 0 gives. */
static void gives_the_numbers_of_the_published_algorithm(void **state)
{
    (void)state;
    static const uint64_t expected[] = {
        UINT64_C(0xE220A8397B1DCDAF), UINT64_C(0x6E789E6AA1B965F4), UINT64_C(0x06C45D188009454F)};
    uint64_t seed = 0;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_true(eb_splitmix64_next(&seed) == expected[i]);
        assert_true(eb_splitmix64_mix((i + 1) * EB_SPLITMIX64_STEP) == expected[i]);
    }
    assert_true(eb_splitmix64_mix(0) == 0);
}

EB_TEST_GROUP(splitmix64)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_numbers_of_the_published_algorithm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
