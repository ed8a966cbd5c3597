#include "client/cli/load_verify.h"

#include "kernels/element.h"
#include "tests/lib/test_group.h"
#include "tests/unit/load/load_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BAGS 3
#define VALUES_A (BAGS * 4)
#define VALUES_B (BAGS * 3)

/* An answer of the tables a and b, and everything that it is made from. */
struct case_of_two {
    struct eb_load_options options;
    struct eb_load_target target;
    struct eb_load_pool pool;
    struct eb_load_verify verify;
    uint8_t values[2][VALUES_A * sizeof(float)];
    uint8_t grouped[(VALUES_A + VALUES_B) * sizeof(float)]; /* of both tables, side by side */
    struct embag_result results[2];
    struct embag_answer answer;
};

/* Makes the result of one table. The sums of these few multiples of 1/128 are exact in any
 * order. */
static void fill_result(struct case_of_two *one, uint64_t position, unsigned table)
{
    const struct embag_query *query = &one->pool.queries[2 * position + table];
    struct embag_result *result = &one->results[table];
    const int64_t *indices = query->indices.data;
    unsigned columns = table == 0 ? 4 : 3;
    size_t bag_rows = query->indices.count / BAGS;
    size_t bytes = embag_type_bytes(result->type);
    uint64_t seed = eb_workload_seed(query->table, one->answer.version);
    for (unsigned i = 0; i < BAGS * columns; i++) {
        double sum = 0;
        for (size_t k = 0; k < bag_rows; k++) {
            uint64_t row = (uint64_t)indices[i / columns * bag_rows + k];
            sum += (double)eb_workload_value(seed, row, i % columns);
        }
        eb_element_store_float((enum eb_type)result->type, sum, one->values[table] + i * bytes);
    }
    result->query = table;
    result->rank = 2;
    result->shape[0] = BAGS;
    result->shape[1] = columns;
    result->values = one->values[table];
    result->values_bytes = BAGS * columns * bytes;
}

static void answer_position(
    struct case_of_two *one, uint64_t position, uint64_t version, enum embag_type type)
{
    one->answer = (struct embag_answer){
        .model = "m", .version = version, .result_count = 2, .results = one->results};
    for (unsigned i = 0; i < 2; i++) {
        one->results[i] = (struct embag_result){.type = type};
        fill_result(one, position, i);
    }
}

/* Makes the same answer as one result of a group: both tables' values, side by side in each row. */
static void answer_grouped(struct case_of_two *one, uint64_t position)
{
    const size_t row_bytes[] = {4 * sizeof(float), 3 * sizeof(float)};
    uint8_t *at = one->grouped;
    answer_position(one, position, 9, EMBAG_F32);
    for (unsigned i = 0; i < BAGS; i++) {
        for (unsigned table = 0; table < 2; table++) {
            memcpy(at, one->values[table] + i * row_bytes[table], row_bytes[table]);
            at += row_bytes[table];
        }
    }
    one->answer.result_count = 1;
    one->results[0].shape[1] = 7;
    one->results[0].values = one->grouped;
    one->results[0].values_bytes = sizeof one->grouped;
}

static struct case_of_two *make_case(const char *words)
{
    struct case_of_two *one = calloc(1, sizeof *one);
    assert_non_null(one);
    load_fixture_make(&one->options, &one->target, &one->pool, words);
    assert_true(eb_load_verify_init(&one->verify, &one->pool));
    return one;
}

static void free_case(struct case_of_two *one)
{
    eb_load_verify_deinit(&one->verify);
    eb_load_pool_deinit(&one->pool);
    eb_load_target_deinit(&one->target);
    free(one);
}

#define WORDS "--tables a,b --bags 3 --indices-per-bag 6 --requests 5 --verify"

static void takes_what_was_published(void **state)
{
    (void)state;
    struct case_of_two *one = make_case(WORDS);
    for (uint64_t position = 0; position < 5; position++) {
        answer_position(one, position, 9, EMBAG_F32);
        assert_true(eb_load_verify_answer(&one->verify, position, &one->answer));
        assert_false(eb_load_verify_answer(&one->verify, (position + 1) % 5, &one->answer));
    }
    free_case(one);
}

static void takes_the_answer_of_another_version(void **state)
{
    (void)state;
    struct case_of_two *one = make_case(WORDS);
    answer_position(one, 2, 10, EMBAG_F32);
    assert_true(eb_load_verify_answer(&one->verify, 2, &one->answer));
    one->answer.version = 9;
    assert_false(eb_load_verify_answer(&one->verify, 2, &one->answer));
    free_case(one);
}

static void takes_versions_in_any_order(void **state)
{
    (void)state;
    static const uint64_t versions[] = {10, 11, 10, 9, 10, 12, 12, 11};
    struct case_of_two *one = make_case(WORDS);
    for (unsigned i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        for (uint64_t position = 0; position < 5; position++) {
            answer_position(one, position, versions[i], EMBAG_F32);
            assert_true(eb_load_verify_answer(&one->verify, position, &one->answer));
            one->answer.version++;
            assert_false(eb_load_verify_answer(&one->verify, position, &one->answer));
        }
    }
    free_case(one);
}

static void takes_versions_that_were_computed_beforehand(void **state)
{
    (void)state;
    static const uint64_t versions[] = {9, 11, 10, 11, 12, 8, 9};
    struct case_of_two *one = make_case(WORDS " --verify-ahead 2");
    for (unsigned i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        for (uint64_t position = 0; position < 5; position++) {
            answer_position(one, position, versions[i], EMBAG_F32);
            assert_true(eb_load_verify_answer(&one->verify, position, &one->answer));
            one->values[1][0] ^= 1;
            assert_false(eb_load_verify_answer(&one->verify, position, &one->answer));
        }
    }
    free_case(one);
}

static void takes_other_types_rounded_as_the_kernels_do(void **state)
{
    (void)state;
    static const char *const words[] = {WORDS " --output-type f16", WORDS " --output-type bf16"};
    static const enum embag_type types[] = {EMBAG_F16, EMBAG_BF16};
    for (unsigned i = 0; i < 2; i++) {
        struct case_of_two *one = make_case(words[i]);
        answer_position(one, 1, 9, types[i]);
        assert_true(eb_load_verify_answer(&one->verify, 1, &one->answer));
        answer_position(one, 1, 9, EMBAG_F32);
        assert_false(eb_load_verify_answer(&one->verify, 1, &one->answer));
        free_case(one);
    }
}

static void sees_every_bit_that_is_wrong(void **state)
{
    (void)state;
    struct case_of_two *one = make_case(WORDS);
    answer_position(one, 0, 9, EMBAG_F32);
    for (unsigned table = 0; table < 2; table++) {
        for (size_t i = 0; i < one->results[table].values_bytes; i++) {
            one->values[table][i] ^= 1;
            assert_false(eb_load_verify_answer(&one->verify, 0, &one->answer));
            one->values[table][i] ^= 1;
        }
    }
    assert_true(eb_load_verify_answer(&one->verify, 0, &one->answer));
    free_case(one);
}

static void compares_what_was_asked_as_one_group(void **state)
{
    (void)state;
    struct case_of_two *one = make_case(WORDS " --groups");
    for (uint64_t position = 0; position < 5; position++) {
        answer_grouped(one, position);
        assert_true(eb_load_verify_answer(&one->verify, position, &one->answer));
        assert_false(eb_load_verify_answer(&one->verify, (position + 1) % 5, &one->answer));
    }
    for (size_t i = 0; i < sizeof one->grouped; i++) {
        one->grouped[i] ^= 1;
        assert_false(eb_load_verify_answer(&one->verify, 4, &one->answer));
        one->grouped[i] ^= 1;
    }
    answer_position(one, 4, 9, EMBAG_F32);
    assert_false(eb_load_verify_answer(&one->verify, 4, &one->answer));
    free_case(one);
}

static void sees_a_wrong_form(void **state)
{
    (void)state;
    struct case_of_two *one = make_case(WORDS);
    answer_position(one, 0, 9, EMBAG_F32);
    one->answer.result_count = 1;
    assert_false(eb_load_verify_answer(&one->verify, 0, &one->answer));
    one->answer.result_count = 2;
    one->results[1].shape[0] = 1;
    assert_false(eb_load_verify_answer(&one->verify, 0, &one->answer));
    one->results[1].shape[0] = BAGS;
    one->results[1].missing = 1;
    assert_false(eb_load_verify_answer(&one->verify, 0, &one->answer));
    one->results[1].missing = 0;
    one->results[1].values_bytes -= 4;
    assert_false(eb_load_verify_answer(&one->verify, 0, &one->answer));
    free_case(one);
}

EB_TEST_GROUP(load_verify)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_what_was_published),
        cmocka_unit_test(takes_the_answer_of_another_version),
        cmocka_unit_test(takes_versions_in_any_order),
        cmocka_unit_test(takes_versions_that_were_computed_beforehand),
        cmocka_unit_test(takes_other_types_rounded_as_the_kernels_do),
        cmocka_unit_test(sees_every_bit_that_is_wrong),
        cmocka_unit_test(compares_what_was_asked_as_one_group),
        cmocka_unit_test(sees_a_wrong_form),
    };
    return cmocka_run_group_tests_name("load_verify", tests, NULL, NULL);
}
