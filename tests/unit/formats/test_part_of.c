#include "server/formats/part_of.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SALT UINT64_C(0x5bd1e995a1b2c3d4)

static void divides_rows_by_turns(void **state)
{
    (void)state;
    static const struct {
        uint32_t parts;
        int64_t row;
        uint32_t part;
        int64_t index;
    } cases[] = {
        {1, 0, 0, 0},
        {1, 4097, 0, 4097},
        {1, INT64_MAX, 0, INT64_MAX},
        {3, 0, 0, 0},
        {3, 1, 1, 0},
        {3, 2, 2, 0},
        {3, 3, 0, 1},
        {3, 4097, 2, 1365},
        {3, INT64_MAX, 1, INT64_C(3074457345618258602)},
        {EB_PARTS_MAX, 4095, 4095, 0},
        {EB_PARTS_MAX, 4096, 0, 1},
        {EB_PARTS_MAX, 4097, 1, 1},
        {EB_PARTS_MAX, INT64_MAX, 4095, INT64_C(2251799813685247)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_part_rule rule = {.parts = cases[i].parts, .salt = SALT};
        assert_int_equal(eb_part_of(&rule, cases[i].row), cases[i].part);
        assert_true(eb_part_index(&rule, cases[i].row) == cases[i].index);
    }
}

/* The parts were computed with Python's integers, which have no limit. */
static void divides_keys_by_their_hashes(void **state)
{
    (void)state;
    static const struct {
        uint32_t parts;
        int64_t key;
        uint32_t part;
    } cases[] = {
        {1, 0, 0},
        {1, -1, 0},
        {1, INT64_MIN, 0},
        {3, 0, 2},
        {3, 1, 0},
        {3, 2, 1},
        {3, 7, 2},
        {3, 1000000007, 1},
        {3, -1, 2},
        {3, -2, 2},
        {3, INT64_MIN, 0},
        {3, INT64_MAX, 0},
        {EB_PARTS_MAX, 0, 2434},
        {EB_PARTS_MAX, 1, 2684},
        {EB_PARTS_MAX, 2, 720},
        {EB_PARTS_MAX, 7, 420},
        {EB_PARTS_MAX, 1000000007, 2618},
        {EB_PARTS_MAX, -1, 2630},
        {EB_PARTS_MAX, -2, 1690},
        {EB_PARTS_MAX, INT64_MIN, 3371},
        {EB_PARTS_MAX, INT64_MAX, 3475},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_part_rule rule = {.parts = cases[i].parts, .by_key = true, .salt = SALT};
        assert_int_equal(eb_part_of(&rule, cases[i].key), cases[i].part);
        assert_true(eb_part_index(&rule, cases[i].key) == cases[i].key);
    }
}

static void divides_any_number_by_any_count(void **state)
{
    static const uint64_t numbers[] = {0, 1, 2, 4095, 4096, 65535, UINT32_MAX - 1, UINT32_MAX,
        UINT64_C(1) << 32, UINT64_C(12345678901234567), INT64_MAX, UINT64_MAX - 1, UINT64_MAX};
    (void)state;
    for (uint32_t parts = 1; parts <= EB_PARTS_MAX; parts++) {
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            uint32_t rest;
            assert_true(eb_part_divide(numbers[i], parts, &rest) == numbers[i] / parts);
            assert_true(rest == numbers[i] % parts);
        }
    }
}

EB_TEST_GROUP(part_of)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divides_rows_by_turns),
        cmocka_unit_test(divides_keys_by_their_hashes),
        cmocka_unit_test(divides_any_number_by_any_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
