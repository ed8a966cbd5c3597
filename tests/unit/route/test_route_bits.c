/* The bits of results, against a model that computes step by step (tests/lib/bag_bits.h): first the
 * undivided table, with the kernels' reference, then tables in parts. */
#include "kernels/element.h"
#include "tests/lib/bag_bits.h"
#include "tests/lib/test_group.h"
#include "tests/unit/route/parted_table.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDS 4
#else
#define ROUNDS 25
#endif

static const uint32_t part_counts[] = {1, 2, 3, 4, 16};

static const struct {
    enum eb_type type;
    enum eb_storage storage;
} kinds[] = {
    {EB_F32, EB_STORAGE_F32},
    {EB_F64, EB_STORAGE_F64},
    {EB_F16, EB_STORAGE_F16},
    {EB_F32, EB_STORAGE_BF16},
    {EB_F32, EB_STORAGE_INT8},
    {EB_BF16, EB_STORAGE_INT4},
    {EB_F32, EB_STORAGE_F8_E5M2},
    {EB_I16, EB_STORAGE_I16},
    {EB_U32, EB_STORAGE_U32},
    {EB_I64, EB_STORAGE_I64},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* ---- from a request to the rows of its bags ---- */

/* Returns the row that an index names, or -1. */
static int64_t find_row(const struct parted_table *table, int64_t index)
{
    if (!table->keys) {
        return index >= 0 && (uint64_t)index < table->whole.row_count ? index : -1;
    }
    for (uint64_t row = 0; row < table->whole.row_count; row++) {
        if (table->keys[row] == index) {
            return (int64_t)row;
        }
    }
    return -1;
}

/* Sets the row and part of an index. Returns false if it is skipped. */
static bool take_row(const struct parted_table *table, const struct eb_bag_query *query,
    int64_t index, struct bag_bits_row *out)
{
    bool is_keyed = table->options.is_keyed;
    out->row = find_row(table, index);
    if (out->row < 0 && query->missing == EB_MISSING_UNKNOWN_ROW) {
        out->row = table->whole.unknown_row;
        int64_t named = is_keyed ? index : out->row;
        out->part = out->row == EB_ROW_VECTOR && !is_keyed ? table->rule.parts
                                                           : eb_part_of(&table->rule, named);
        return true;
    }
    if (out->row < 0) {
        out->row = EB_ROW_ZERO;
        return query->missing == EB_MISSING_ZERO || query->reduction == EB_REDUCTION_NONE;
    }
    out->part = eb_part_of(&table->rule, index);
    return true;
}

static void take_weight(const struct eb_bag_query *query, size_t i, struct bag_bits_row *out)
{
    if (!query->weights) {
        return;
    }
    size_t bytes = eb_type_bytes(query->weights_type);
    const uint8_t *from = (const uint8_t *)query->weights + i * bytes;
    if (eb_type_is_float(query->weights_type)) {
        out->weight = eb_element_load_float((enum eb_storage)query->weights_type, from);
    } else {
        out->integer = eb_element_load_int(query->weights_type, from);
    }
}

static size_t count_bags(const struct eb_bag_query *query)
{
    if (query->reduction == EB_REDUCTION_NONE) {
        return query->indices.bytes / sizeof(int64_t);
    }
    return query->layout == EB_LAYOUT_SEGMENTS ? query->num_segments
                                               : query->bounds.bytes / sizeof(int32_t);
}

/* Returns the bag of an index. */
static size_t find_bag(const struct eb_bag_query *query, size_t i)
{
    const int32_t *bounds = query->bounds.data;
    size_t bag = 0;
    size_t end = 0;
    if (query->reduction == EB_REDUCTION_NONE) {
        return i;
    }
    if (query->layout == EB_LAYOUT_SEGMENTS) {
        return (size_t)bounds[i];
    }
    for (end = (size_t)bounds[0]; i >= end; end += (size_t)bounds[bag]) {
        bag++;
    }
    return bag;
}

static size_t list_bag(const struct parted_table *table, const struct eb_bag_query *query,
    size_t bag, struct bag_bits_row *rows)
{
    const int64_t *indices = query->indices.data;
    size_t count = 0;
    for (size_t i = 0; i < query->indices.bytes / sizeof(int64_t); i++) {
        rows[count] = (struct bag_bits_row){0};
        if (find_bag(query, i) == bag && take_row(table, query, indices[i], &rows[count])) {
            take_weight(query, i, &rows[count]);
            count++;
        }
    }
    return count;
}

static int64_t find_default(const struct parted_table *table, const struct eb_bag_query *query)
{
    if (query->has_default) {
        return find_row(table, query->default_index);
    }
    return table->whole.vector ? EB_ROW_VECTOR : -1;
}

/* Returns the model's result of a request, for an undivided table if parts is 0. */
static uint8_t *model_request(const struct parted_table *table, const struct eb_bag_query *query,
    uint32_t parts, size_t bytes)
{
    struct bag_bits bits = {
        .table = &table->whole,
        .parts = parts,
        .reduction = query->reduction,
        .output_type = query->output_type ? query->output_type : table->whole.type,
        .has_weights = query->weights,
        .default_row = find_default(table, query),
    };
    size_t row_bytes = table->whole.row_elements * eb_type_bytes(bits.output_type);
    struct bag_bits_row *rows = calloc(query->indices.bytes / sizeof(int64_t) + 1, sizeof *rows);
    uint8_t *out = calloc(1, bytes + 1);
    assert_non_null(rows);
    assert_non_null(out);
    assert_int_equal(count_bags(query) * row_bytes, bytes);
    for (size_t bag = 0; bag < count_bags(query); bag++) {
        size_t count = list_bag(table, query, bag, rows);
        bag_bits_pool(&bits, rows, count, out + bag * row_bytes);
    }
    free(rows);
    return out;
}

/* ---- comparison ---- */

static void compare_bits(struct parted_table *table, enum eb_reduction reduction,
    enum eb_missing missing, bool is_divided)
{
    struct parted_request request;
    struct parted_outcome outcome = {.left_out = PARTED_NO_PART};
    parted_draw(table, reduction, missing, &request);
    uint8_t *actual = is_divided
                          ? parted_pool(table, &request.query, eb_bag_ops_find(NULL), &outcome)
                          : parted_pool_whole(&request.query, &outcome.bytes);
    size_t bytes = outcome.bytes;
    uint8_t *expected =
        model_request(table, &request.query, is_divided ? table->rule.parts : 0, bytes);
    if (memcmp(actual, expected, bytes) != 0) {
        fail_msg("%s, missing %d, storage %d, %u parts, %skeyed, vector %d, unknown row %lld",
            eb_reduction_name(reduction), (int)missing, (int)table->whole.storage,
            table->rule.parts, table->rule.by_key ? "" : "not ", table->options.has_vector,
            (long long)table->whole.unknown_row);
    }
    free(actual);
    free(expected);
    parted_request_deinit(&request);
}

static void compare_requests(struct parted_table *table, bool is_divided)
{
    bool is_float = eb_type_is_float(table->whole.type);
    for (int reduction = EB_REDUCTION_SUM; reduction < EB_REDUCTION_COUNT; reduction++) {
        if (!is_float &&
            (reduction == EB_REDUCTION_WEIGHTED_MEAN || reduction == EB_REDUCTION_SQRTN)) {
            continue;
        }
        for (int round = 0; round < ROUNDS; round++) {
            int missing = EB_MISSING_ERROR + round % 4;
            if (missing == EB_MISSING_UNKNOWN_ROW && table->whole.unknown_row == -1) {
                missing = EB_MISSING_ZERO;
            }
            compare_bits(table, (enum eb_reduction)reduction, (enum eb_missing)missing, is_divided);
        }
    }
}

static void compare_tables(bool is_keyed, bool is_divided)
{
    for (size_t i = 0; i < KINDS * 5 * 2; i++) {
        struct parted_table *table = calloc(1, sizeof *table);
        struct parted_options options = {
            .type = kinds[i % KINDS].type,
            .storage = kinds[i % KINDS].storage,
            .parts = part_counts[i / KINDS % 5],
            .row_count = 30,
            .row_elements = 1 + (uint32_t)(i * 7 % 19),
            .is_keyed = is_keyed,
            .has_unknown_row = i % 3 != 0,
            .has_vector = i >= KINDS * 5,
            .unknown_is_vector = i >= KINDS * 5 && i % 2 == 0,
        };
        assert_non_null(table);
        parted_init(table, &options, 1000 + i);
        compare_requests(table, is_divided);
        parted_deinit(table);
        free(table);
    }
}

static void the_model_gives_the_bits_of_the_reference(void **state)
{
    (void)state;
    compare_tables(false, false);
    compare_tables(true, false);
}

static void dense_tables_in_parts_give_the_bits_of_the_model(void **state)
{
    (void)state;
    compare_tables(false, true);
}

static void keyed_tables_in_parts_give_the_bits_of_the_model(void **state)
{
    (void)state;
    compare_tables(true, true);
}

EB_TEST_GROUP(route_bits)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_gives_the_bits_of_the_reference),
        cmocka_unit_test(dense_tables_in_parts_give_the_bits_of_the_model),
        cmocka_unit_test(keyed_tables_in_parts_give_the_bits_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
