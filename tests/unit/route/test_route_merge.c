/* Queries on tables in parts, from the split to the merged result, against the undivided table. */
#include "tests/lib/test_group.h"
#include "tests/unit/route/parted_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 5

static const uint32_t part_counts[] = {1, 2, 3, 4, 16};

/* T and storage of the tables. */
static const struct {
    enum eb_type type;
    enum eb_storage storage;
} kinds[] = {
    {EB_F32, EB_STORAGE_F32},
    {EB_F64, EB_STORAGE_F64},
    {EB_F16, EB_STORAGE_F16},
    {EB_BF16, EB_STORAGE_BF16},
    {EB_F32, EB_STORAGE_F16},
    {EB_F32, EB_STORAGE_INT8},
    {EB_F32, EB_STORAGE_INT4},
    {EB_F16, EB_STORAGE_INT2},
    {EB_F32, EB_STORAGE_F8_E4M3},
    {EB_I8, EB_STORAGE_I8},
    {EB_U16, EB_STORAGE_U16},
    {EB_I32, EB_STORAGE_I32},
    {EB_U64, EB_STORAGE_U64},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static bool is_possible(enum eb_type type, enum eb_reduction reduction)
{
    return eb_type_is_float(type) ||
           (reduction != EB_REDUCTION_WEIGHTED_MEAN && reduction != EB_REDUCTION_SQRTN);
}

/* Changes -0.0 to +0.0 in results of `type`. */
static void drop_signs_of_zeros(enum eb_type type, uint8_t *values, size_t bytes)
{
    size_t size = eb_type_bytes(type);
    for (size_t at = 0; at < bytes; at += size) {
        uint8_t any = values[at + size - 1] & 0x7f;
        for (size_t i = 0; i + 1 < size; i++) {
            any |= values[at + i];
        }
        if (any == 0) {
            values[at + size - 1] = 0;
        }
    }
}

static void compare_one(struct parted_table *table, enum eb_reduction reduction,
    enum eb_missing missing, const struct eb_bag_ops *ops)
{
    struct parted_request request;
    struct parted_outcome outcome = {.left_out = PARTED_NO_PART};
    size_t expected_bytes;
    parted_draw(table, reduction, missing, &request);
    uint8_t *values = parted_pool(table, &request.query, ops, &outcome);
    size_t bytes = outcome.bytes;
    uint8_t *expected = parted_pool_whole(&request.query, &expected_bytes);
    enum eb_type type = request.query.output_type ? request.query.output_type : table->whole.type;
    assert_int_equal(bytes, expected_bytes);
    if (eb_type_is_float(type) && missing == EB_MISSING_ZERO && !table->options.is_whole) {
        drop_signs_of_zeros(type, values, bytes);
        drop_signs_of_zeros(type, expected, bytes);
    }
    if (memcmp(values, expected, bytes) != 0) {
        fail_msg("%s, missing %d, output %d, %u parts, %skeyed, vector %d, unknown %lld",
            eb_reduction_name(reduction), (int)missing, (int)type, table->rule.parts,
            table->rule.by_key ? "" : "not ", table->options.has_vector,
            (long long)table->whole.unknown_row);
    }
    free(values);
    free(expected);
    parted_request_deinit(&request);
}

/* Compares random requests of each reduction and policy. */
static void compare_table(struct parted_table *table, const struct eb_bag_ops *ops)
{
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_COUNT; reduction++) {
        if (!is_possible(table->whole.type, (enum eb_reduction)reduction)) {
            continue;
        }
        for (int missing = EB_MISSING_ERROR; missing < EB_MISSING_COUNT; missing++) {
            bool is_possible_policy =
                missing != EB_MISSING_UNKNOWN_ROW || table->whole.unknown_row != -1;
            for (int round = 0; is_possible_policy && round < ROUNDS; round++) {
                compare_one(table, (enum eb_reduction)reduction, (enum eb_missing)missing, ops);
            }
        }
    }
}

/* Sums that are exact do not depend on their order, so the results of tables in parts are those of
 * the undivided table. */
static void compare_kind(size_t kind, size_t p, const struct parted_options *drawn)
{
    struct parted_table *table = calloc(1, sizeof *table);
    struct parted_options options = *drawn;
    assert_non_null(table);
    options.type = kinds[kind].type;
    options.storage = kinds[kind].storage;
    options.parts = options.is_whole ? 1 : part_counts[p];
    options.row_count = 40;
    options.row_elements = 1 + (uint32_t)((kind * 5 + p * 3) % 11);
    options.has_unknown_row = p % 2 == 0;
    options.unknown_is_vector = options.has_vector && p % 3 != 0;
    parted_init(table, &options, 1 + kind * 100 + p);
    compare_table(table, eb_bag_ops_find(p % 2 == 0 ? NULL : "ref"));
    parted_deinit(table);
    free(table);
}

static void compare_kinds(const struct parted_options *options)
{
    for (size_t kind = 0; kind < KINDS; kind++) {
        for (size_t p = 0; p < sizeof part_counts / sizeof part_counts[0]; p++) {
            compare_kind(kind, p, options);
        }
    }
}

static void dense_tables_give_the_results_of_the_whole(void **state)
{
    (void)state;
    compare_kinds(&(struct parted_options){.is_exact = true});
}

static void dense_tables_with_vectors_give_the_results_of_the_whole(void **state)
{
    (void)state;
    compare_kinds(&(struct parted_options){.is_exact = true, .has_vector = true});
}

static void keyed_tables_give_the_results_of_the_whole(void **state)
{
    (void)state;
    compare_kinds(&(struct parted_options){.is_exact = true, .is_keyed = true});
}

static void keyed_tables_with_vectors_give_the_results_of_the_whole(void **state)
{
    (void)state;
    compare_kinds(&(struct parted_options){.is_exact = true, .is_keyed = true, .has_vector = true});
}

/* A table in one part gives the same bits, whatever its values. */
static void tables_in_one_part_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    compare_kinds(&(struct parted_options){.is_whole = true});
    compare_kinds(&(struct parted_options){.is_whole = true, .has_vector = true});
    compare_kinds(&(struct parted_options){.is_whole = true, .is_keyed = true});
    compare_kinds(&(struct parted_options){.is_whole = true, .is_keyed = true, .has_vector = true});
}

/* Makes the indices of a part row numbers that are missing. Returns how many there are. */
static uint64_t lose_part(
    const struct parted_table *table, uint32_t part, int64_t *indices, uint64_t count)
{
    uint64_t lost = 0;
    for (uint64_t i = 0; i < count; i++) {
        bool is_row = indices[i] >= 0 && (uint64_t)indices[i] < table->whole.row_count;
        if (is_row && eb_part_of(&table->rule, indices[i]) == part) {
            indices[i] = -7;
            lost++;
        }
    }
    return lost;
}

static void indices_of_a_part_that_is_left_out_count_as_skipped(void **state)
{
    (void)state;
    static const struct parted_options options = {.type = EB_F32,
        .storage = EB_STORAGE_F32,
        .parts = 3,
        .row_count = 40,
        .row_elements = 5,
        .is_exact = true};
    struct parted_table *table = calloc(1, sizeof *table);
    assert_non_null(table);
    parted_init(table, &options, 9);
    for (int round = 0; round < 200; round++) {
        for (int reduction = EB_REDUCTION_SUM; reduction <= EB_REDUCTION_NONE; reduction++) {
            struct parted_request request;
            struct parted_outcome outcome = {.left_out = (uint32_t)round % 3};
            size_t bytes;
            parted_draw(table, (enum eb_reduction)reduction, EB_MISSING_SKIP, &request);
            request.query.has_default = false;
            uint8_t *values = parted_pool(table, &request.query, eb_bag_ops_find(NULL), &outcome);
            uint64_t lost = lose_part(table, outcome.left_out, request.indices,
                request.query.indices.bytes / sizeof *request.indices);
            uint8_t *expected = parted_pool_whole(&request.query, &bytes);
            assert_int_equal(bytes, outcome.bytes);
            assert_memory_equal(values, expected, bytes);
            assert_true(outcome.unreached <= lost); /* some are in no bag */
            free(values);
            free(expected);
            parted_request_deinit(&request);
        }
    }
    parted_deinit(table);
    free(table);
}

/* Compares a request on a whole table with the same one on a table that is divided into one part,
 * when that part is left out. */
static void compare_left_out(struct parted_table *whole, struct parted_table *divided,
    enum eb_reduction reduction, enum eb_missing missing)
{
    uint64_t seed = whole->random + 1;
    struct parted_table *tables[] = {whole, divided};
    struct parted_outcome outcomes[2] = {{.left_out = 0}, {.left_out = 0}};
    const struct eb_bag_ops *ops = eb_bag_ops_find(seed % 2 == 0 ? NULL : "ref");
    uint8_t *values[2];
    enum eb_type type = EB_TYPE_UNSPECIFIED;
    for (int i = 0; i < 2; i++) {
        struct parted_request request;
        tables[i]->random = seed;
        parted_draw(tables[i], reduction, missing, &request);
        type = request.query.output_type ? request.query.output_type : whole->whole.type;
        values[i] = parted_pool(tables[i], &request.query, ops, &outcomes[i]);
        if (eb_type_is_float(type)) {
            drop_signs_of_zeros(type, values[i], outcomes[i].bytes);
        }
        parted_request_deinit(&request);
    }
    assert_int_equal(outcomes[0].bytes, outcomes[1].bytes);
    if (memcmp(values[0], values[1], outcomes[0].bytes) != 0) {
        fail_msg("%s, missing %d, output %d, %skeyed, vector %d", eb_reduction_name(reduction),
            (int)missing, (int)type, whole->rule.by_key ? "" : "not ", whole->options.has_vector);
    }
    assert_int_equal(outcomes[0].unreached, outcomes[1].unreached);
    assert_int_equal(outcomes[0].stand_ins, outcomes[1].stand_ins);
    assert_int_equal(outcomes[0].missing, outcomes[1].missing);
    assert_int_equal(outcomes[0].lacks_default, outcomes[1].lacks_default);
    free(values[0]);
    free(values[1]);
}

/* Padding and replaced row numbers are in no part, and the default vector is known. */
static void whole_tables_that_are_left_out_give_what_divided_ones_give(void **state)
{
    (void)state;
    for (size_t number = 0; number < 8 * KINDS; number++) {
        struct parted_table *tables = calloc(2, sizeof *tables);
        struct parted_options options = {
            .type = kinds[number / 8].type,
            .storage = kinds[number / 8].storage,
            .parts = 1,
            .row_count = 12,
            .row_elements = 5,
            .is_keyed = number % 2 > 0,
            .has_unknown_row = true,
            .has_vector = number / 2 % 2 > 0,
            .unknown_is_vector = number / 4 % 2 > 0 && number / 2 % 2 > 0,
            .is_exact = true,
        };
        assert_non_null(tables);
        parted_init(&tables[1], &options, 9);
        options.is_whole = true;
        parted_init(&tables[0], &options, 9);
        for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_COUNT; reduction++) {
            bool may_be = is_possible(options.type, (enum eb_reduction)reduction);
            for (int round = 0; may_be && round < 4 * ROUNDS; round++) {
                compare_left_out(&tables[0], &tables[1], (enum eb_reduction)reduction,
                    (enum eb_missing)(EB_MISSING_ERROR + round % 4));
            }
        }
        parted_deinit(&tables[0]);
        parted_deinit(&tables[1]);
        free(tables);
    }
}

EB_TEST_GROUP(route_merge)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_tables_give_the_results_of_the_whole),
        cmocka_unit_test(dense_tables_with_vectors_give_the_results_of_the_whole),
        cmocka_unit_test(keyed_tables_give_the_results_of_the_whole),
        cmocka_unit_test(keyed_tables_with_vectors_give_the_results_of_the_whole),
        cmocka_unit_test(tables_in_one_part_give_the_bits_of_the_whole),
        cmocka_unit_test(indices_of_a_part_that_is_left_out_count_as_skipped),
        cmocka_unit_test(whole_tables_that_are_left_out_give_what_divided_ones_give),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
