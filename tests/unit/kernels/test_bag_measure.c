#include "kernels/bag_measure.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <string.h>

static const float floats[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
static const int32_t integers[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
static int64_t six[] = {0, 1, 2, 3, 4, 0};
static int32_t ends[] = {0, 2, 2, 6};

static struct eb_table table; /* f32 [5, 2] */
static struct eb_table integer_table;
static struct eb_bag_query query; /* six indices, no layout */

static int set_up(void **state)
{
    (void)state;
    table = table_of(EB_F32, floats, 5, 2);
    integer_table = table_of(EB_I32, integers, 5, 2);
    query = query_of(&table);
    query.indices = INTS(six);
    return 0;
}

static void measure_layout(enum eb_layout layout, struct eb_int_array bounds)
{
    query.layout = layout;
    query.bounds = bounds;
}

static void assert_measure_malformed(const char *text)
{
    assert_error(&query, EB_BAG_ERROR_MALFORMED, text);
}

static void assert_bags(uint64_t expected)
{
    struct eb_bag_extent extent;
    struct eb_bag_error error;
    if (!eb_bag_measure(&query, &extent, &error)) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(extent.result_rows, expected);
}

static void names_reductions(void **state)
{
    (void)state;
    assert_string_equal(eb_reduction_name(EB_REDUCTION_WEIGHTED_MEAN), "WEIGHTED_MEAN");
    assert_string_equal(eb_reduction_name(EB_REDUCTION_UNSPECIFIED), "unspecified");
}

static void measures_result_and_scratch(void **state)
{
    (void)state;
    measure_layout(EB_LAYOUT_OFFSETS, INTS(ends));
    struct eb_bag_extent extent;
    struct eb_bag_error error;
    assert_true(eb_bag_measure(&query, &extent, &error));
    assert_int_equal(extent.index_count, 6);
    assert_int_equal(extent.result_rows, 4);
    assert_int_equal(extent.result_row_bytes, 8);
    assert_int_equal(extent.output_type, EB_F32);
    /* 6 rows of 8 bytes and 5 starts of 4 bytes: 68, rounded up to whole cache lines. */
    assert_int_equal(extent.scratch_bytes, 128);
    query.output_type = EB_BF16;
    assert_true(eb_bag_measure(&query, &extent, &error));
    assert_int_equal(extent.result_row_bytes, 4);
    assert_int_equal(extent.output_type, EB_BF16);
}

static void rejects_torn_indices(void **state)
{
    (void)state;
    query.indices.bytes = 12;
    assert_measure_malformed("indices has 12 bytes, which is not a multiple of 8");
}

static void rejects_torn_bounds(void **state)
{
    (void)state;
    measure_layout(EB_LAYOUT_OFFSETS, INTS(ends));
    query.bounds.bytes = 7;
    assert_measure_malformed("offsets has 7 bytes, which is not a multiple of 4");
    query.layout = EB_LAYOUT_LENGTHS;
    assert_measure_malformed("lengths has 7 bytes, which is not a multiple of 4");
    query.layout = EB_LAYOUT_SEGMENTS;
    assert_measure_malformed("segment_ids has 7 bytes, which is not a multiple of 4");
}

static void caps_indices(void **state)
{
    (void)state;
    /* The size is checked before anything is read. */
    query.indices = (struct eb_int_array){six, (EB_BAG_INDICES_MAX + 1) * 4, 4};
    query.num_bags = 1;
    assert_error(&query, EB_BAG_ERROR_TOO_LARGE, "16777217 indices, at most 16777216 are allowed");
    query.indices.bytes -= 4;
    assert_bags(1);
}

static void caps_bags(void **state)
{
    (void)state;
    query.indices = NO_INTS;
    query.num_bags = EB_BAG_BAGS_MAX + 1;
    assert_error(&query, EB_BAG_ERROR_TOO_LARGE, "16777217 bags, at most 16777216 are allowed");
    query.num_bags = UINT64_MAX;
    assert_error(
        &query, EB_BAG_ERROR_TOO_LARGE, "18446744073709551615 bags, at most 16777216 are allowed");
    query.num_bags = EB_BAG_BAGS_MAX;
    assert_bags(EB_BAG_BAGS_MAX);
}

static void rejects_indices_without_layout(void **state)
{
    (void)state;
    assert_measure_malformed("indices need a layout (offsets, lengths, segment_ids or "
                             "indices_per_bag), or num_bags = 1");
    query.num_bags = 2;
    assert_measure_malformed("indices need a layout (offsets, lengths, segment_ids or "
                             "indices_per_bag), or num_bags = 1");
}

static void takes_one_bag_without_layout(void **state)
{
    (void)state;
    query.num_bags = 1;
    assert_bags(1);
}

static void takes_empty_bags_without_layout(void **state)
{
    (void)state;
    query.indices = NO_INTS;
    assert_bags(0);
    query.num_bags = 7;
    assert_bags(7);
}

static void none_ignores_layout(void **state)
{
    (void)state;
    query.reduction = EB_REDUCTION_NONE;
    measure_layout(EB_LAYOUT_OFFSETS, INTS(ends));
    query.bounds.bytes = 7;
    query.num_bags = 99;
    assert_bags(6);
}

static void counts_bags_of_offsets(void **state)
{
    (void)state;
    measure_layout(EB_LAYOUT_OFFSETS, INTS(ends));
    assert_bags(4);
    query.include_last_offset = true;
    assert_bags(3);
    query.num_bags = 3;
    assert_bags(3);
    query.num_bags = 4;
    assert_measure_malformed("num_bags is 4, but offsets gives 3");
}

static void indices_beside_empty_offsets_have_no_bag(void **state)
{
    (void)state;
    measure_layout(EB_LAYOUT_OFFSETS, NO_INTS);
    assert_bags(0);
    query.bounds.width = 0;
    assert_bags(0);
    query.num_bags = 1;
    assert_measure_malformed("num_bags is 1, but offsets gives 0");
    query.num_bags = 0;
    query.include_last_offset = true;
    assert_measure_malformed("offsets is empty, but include_last_offset needs an entry");
}

static void rejects_empty_lengths_of_indices(void **state)
{
    (void)state;
    measure_layout(EB_LAYOUT_LENGTHS, NO_INTS);
    assert_measure_malformed("lengths is empty, but the number of indices is 6");
}

static void empty_layout_leaves_bags_to_num_bags(void **state)
{
    (void)state;
    query.indices = NO_INTS;
    measure_layout(EB_LAYOUT_OFFSETS, NO_INTS);
    assert_bags(0);
    query.num_bags = 3;
    assert_bags(3);
    query.layout = EB_LAYOUT_LENGTHS;
    assert_bags(3);
}

static void rejects_last_offset_that_is_absent(void **state)
{
    (void)state;
    query.indices = NO_INTS;
    query.include_last_offset = true;
    measure_layout(EB_LAYOUT_OFFSETS, NO_INTS);
    assert_measure_malformed("offsets is empty, but include_last_offset needs an entry");
    query.layout = EB_LAYOUT_LENGTHS;
    assert_measure_malformed("include_last_offset is set without offsets");
}

static void counts_packed_bags(void **state)
{
    (void)state;
    query.layout = EB_LAYOUT_PACKED;
    query.indices_per_bag = 3;
    assert_bags(2);
    query.num_bags = 6;
    assert_measure_malformed("num_bags is 6, but indices_per_bag gives 2");
    query.indices_per_bag = 4;
    assert_measure_malformed("the number of indices, 6, is not a multiple of indices_per_bag = 4");
    query.indices_per_bag = 0;
    assert_measure_malformed("the number of indices, 6, is not a multiple of indices_per_bag = 0");
    query.indices_per_bag = UINT64_MAX;
    assert_measure_malformed(
        "the number of indices, 6, is not a multiple of indices_per_bag = 18446744073709551615");
}

static void counts_packed_bags_of_nothing(void **state)
{
    (void)state;
    query.layout = EB_LAYOUT_PACKED;
    query.indices = NO_INTS;
    query.num_bags = 5;
    assert_bags(5);
    query.num_bags = 0;
    query.indices_per_bag = UINT64_MAX;
    assert_bags(0);
}

static void counts_segments(void **state)
{
    (void)state;
    measure_layout(EB_LAYOUT_SEGMENTS, INTS(six));
    query.num_segments = 9;
    assert_bags(9);
    query.num_bags = 8;
    assert_measure_malformed("num_bags is 8, but num_segments gives 9");
    query.num_bags = 0;
    query.bounds = INTS(ends);
    assert_measure_malformed("the number of segment_ids is 4, but the number of indices is 6");
}

static void takes_no_segments(void **state)
{
    (void)state;
    query.indices = NO_INTS;
    measure_layout(EB_LAYOUT_SEGMENTS, NO_INTS);
    assert_bags(0);
}

static void use_weights(enum eb_type type, uint64_t bytes)
{
    static const uint8_t some[64];
    query.weights = some;
    query.weights_type = type;
    query.weights_bytes = bytes;
}

static void checks_count_of_weights(void **state)
{
    (void)state;
    query.num_bags = 1;
    use_weights(EB_F32, 24);
    assert_bags(1);
    use_weights(EB_F32, 20);
    assert_measure_malformed("weights has 20 bytes; expected 24, one weight for each index");
}

static void rejects_weights_where_they_mean_nothing(void **state)
{
    (void)state;
    query.num_bags = 1;
    use_weights(EB_F32, 24);
    query.reduction = EB_REDUCTION_MEAN;
    assert_measure_malformed("weights are not allowed with MEAN");
    query.reduction = EB_REDUCTION_MAX;
    assert_measure_malformed("weights are not allowed with MAX");
    query.reduction = EB_REDUCTION_MIN;
    assert_measure_malformed("weights are not allowed with MIN");
}

static void checks_type_of_weights(void **state)
{
    (void)state;
    query.num_bags = 1;
    use_weights(EB_F64, 48);
    assert_measure_malformed("weights_type f64 cannot be used with a table of f32");
    use_weights(EB_F16, 12);
    assert_measure_malformed("weights_type f16 cannot be used with a table of f32");
    use_weights(EB_TYPE_UNSPECIFIED, 24);
    assert_measure_malformed("weights_type unspecified cannot be used with a table of f32");
    query.table = &integer_table;
    use_weights(EB_F32, 24);
    assert_measure_malformed("weights_type f32 cannot be used with a table of i32");
    use_weights(EB_I32, 24);
    assert_bags(1);
}

static void rejects_weighted_means_of_integers(void **state)
{
    (void)state;
    query.table = &integer_table;
    query.num_bags = 1;
    query.reduction = EB_REDUCTION_WEIGHTED_MEAN;
    assert_measure_malformed("WEIGHTED_MEAN needs a floating-point table, but this one is i32");
    query.reduction = EB_REDUCTION_SQRTN;
    assert_measure_malformed("SQRTN needs a floating-point table, but this one is i32");
}

static void checks_output_type(void **state)
{
    (void)state;
    query.num_bags = 1;
    query.output_type = EB_F16;
    assert_bags(1);
    query.output_type = EB_F64;
    assert_measure_malformed("output_type f64 cannot be used with a table of f32");
    query.output_type = EB_I8;
    assert_measure_malformed("output_type i8 cannot be used with a table of f32");
    query.table = &integer_table;
    query.output_type = EB_F32;
    assert_measure_malformed("output_type f32 cannot be used with a table of i32");
    query.output_type = EB_I32;
    assert_bags(1);
}

static void rejects_unknown_row_that_is_absent(void **state)
{
    (void)state;
    query.num_bags = 1;
    query.missing = EB_MISSING_UNKNOWN_ROW;
    assert_measure_malformed("missing is UNKNOWN_ROW, but the table has no row for unknown ids");
    table.unknown_row = 4;
    assert_bags(1);
}

/* Expects the same outcome as from eb_bag_measure, or the same error. */
static void assert_counted_alike(void)
{
    struct eb_bag_extent extents[2];
    struct eb_bag_error errors[2];
    uint64_t index_count = query.indices.bytes / query.indices.width;
    bool is_sound = eb_bag_measure(&query, &extents[0], &errors[0]);
    assert_int_equal(
        eb_bag_measure_counted(&query, index_count, &extents[1], &errors[1]), is_sound);
    if (is_sound) {
        assert_same_extent(&extents[1], &extents[0]);
    } else {
        assert_string_equal(errors[0].text, errors[1].text);
    }
}

static void measures_lengths_that_are_counted_alike(void **state)
{
    (void)state;
    static int32_t lengths[] = {2, 0, 4};
    static const float weights[6];
    struct eb_bag_kind kind;
    struct eb_bag_error error;
    measure_layout(EB_LAYOUT_LENGTHS, INTS(lengths));
    query.num_bags = 3;
    for (enum eb_reduction r = EB_REDUCTION_UNSPECIFIED + 1; r < EB_REDUCTION_COUNT; r++) {
        query.reduction = r;
        query.kind = NULL;
        assert_counted_alike();
        assert_true(eb_bag_kind_find(&query, &kind, &error));
        query.kind = &kind;
        assert_counted_alike();
        query.weights = weights;
        query.weights_bytes = sizeof weights;
        query.weights_type = EB_F32;
        assert_counted_alike();
        query.weights_bytes--;
        assert_counted_alike();
        query.weights = NULL;
        query.weights_bytes = 0;
    }
    query.reduction = EB_REDUCTION_SUM;
    /* Empty bags, no bags, too many bags, and too many indices. */
    query.indices.bytes = 0;
    assert_counted_alike();
    query.bounds.bytes = 0;
    query.num_bags = 0;
    assert_counted_alike();
    query.num_bags = EB_BAG_BAGS_MAX + 1;
    query.bounds.bytes = query.num_bags * query.bounds.width;
    assert_counted_alike();
    query.num_bags = 3;
    query.bounds.bytes = sizeof lengths;
    query.indices.bytes = (EB_BAG_INDICES_MAX + 1) * query.indices.width;
    assert_counted_alike();
}

EB_TEST_GROUP(bag_measure)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(names_reductions, set_up),
        cmocka_unit_test_setup(measures_result_and_scratch, set_up),
        cmocka_unit_test_setup(rejects_torn_indices, set_up),
        cmocka_unit_test_setup(rejects_torn_bounds, set_up),
        cmocka_unit_test_setup(caps_indices, set_up),
        cmocka_unit_test_setup(caps_bags, set_up),
        cmocka_unit_test_setup(rejects_indices_without_layout, set_up),
        cmocka_unit_test_setup(takes_one_bag_without_layout, set_up),
        cmocka_unit_test_setup(takes_empty_bags_without_layout, set_up),
        cmocka_unit_test_setup(none_ignores_layout, set_up),
        cmocka_unit_test_setup(counts_bags_of_offsets, set_up),
        cmocka_unit_test_setup(indices_beside_empty_offsets_have_no_bag, set_up),
        cmocka_unit_test_setup(rejects_empty_lengths_of_indices, set_up),
        cmocka_unit_test_setup(empty_layout_leaves_bags_to_num_bags, set_up),
        cmocka_unit_test_setup(rejects_last_offset_that_is_absent, set_up),
        cmocka_unit_test_setup(counts_packed_bags, set_up),
        cmocka_unit_test_setup(counts_packed_bags_of_nothing, set_up),
        cmocka_unit_test_setup(counts_segments, set_up),
        cmocka_unit_test_setup(takes_no_segments, set_up),
        cmocka_unit_test_setup(checks_count_of_weights, set_up),
        cmocka_unit_test_setup(rejects_weights_where_they_mean_nothing, set_up),
        cmocka_unit_test_setup(checks_type_of_weights, set_up),
        cmocka_unit_test_setup(rejects_weighted_means_of_integers, set_up),
        cmocka_unit_test_setup(checks_output_type, set_up),
        cmocka_unit_test_setup(rejects_unknown_row_that_is_absent, set_up),
        cmocka_unit_test_setup(measures_lengths_that_are_counted_alike, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
