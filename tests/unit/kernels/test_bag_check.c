#include "kernels/bag.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"

#include <stdlib.h>
#include <string.h>

static const float floats[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
static int64_t six[] = {4, 1, 2, 3, 0, 2};

static struct eb_table table;     /* f32 [5, 2] */
static struct eb_bag_query query; /* six indices, no layout */
static struct bag_fixture fixture;

static int set_up(void **state)
{
    (void)state;
    table = table_of(EB_F32, floats, 5, 2);
    query = query_of(&table);
    query.indices = INTS(six);
    memset(&fixture, 0, sizeof fixture);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    bag_fixture_release(&fixture);
    return 0;
}

static void check_layout(enum eb_layout layout, struct eb_int_array bounds)
{
    query.layout = layout;
    query.bounds = bounds;
}

static void check(void)
{
    bag_fixture_release(&fixture);
    if (!bag_fixture_check(&fixture, &query)) {
        fail_msg("%s", fixture.error.text);
    }
}

/* Expects this internal form: rows, and the positions in them at which bags start. */
#define assert_form(rows, starts)                                                                  \
    assert_form_is(                                                                                \
        (int64_t[])rows, sizeof((int64_t[])rows), (uint32_t[])starts, sizeof((uint32_t[])starts))

static void assert_form_is(
    const int64_t *rows, size_t rows_bytes, const uint32_t *starts, size_t starts_bytes)
{
    check();
    assert_int_equal(fixture.job.bag_count, starts_bytes / sizeof starts[0] - 1);
    assert_memory_equal(fixture.job.starts, starts, starts_bytes);
    assert_memory_equal(fixture.job.rows, rows, rows_bytes);
}

static void assert_check_malformed(const char *text)
{
    assert_error(&query, EB_BAG_ERROR_MALFORMED, text);
}

static void assert_out_of_range(const char *text)
{
    assert_error(&query, EB_BAG_ERROR_OUT_OF_RANGE, text);
}

static void takes_offsets(void **state)
{
    (void)state;
    int32_t offsets[] = {0, 2, 2, 6};
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    assert_form(LIST(4, 1, 2, 3, 0, 2), LIST(0, 2, 2, 6, 6));
    assert_int_equal(fixture.job.gather_bytes, 6 * 8);
    assert_int_equal(fixture.job.default_row, -1);
}

static void takes_offsets_that_leave_indices_out(void **state)
{
    (void)state;
    int64_t offsets[] = {1, 3, 4};
    six[0] = 99; /* Outside all bags, so it is neither read nor checked. */
    six[5] = -7;
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    query.include_last_offset = true;
    assert_form(LIST(1, 2, 3), LIST(0, 2, 3));
    assert_int_equal(fixture.job.missing_count, 0);
    query.missing = EB_MISSING_SKIP;
    assert_form(LIST(1, 2, 3), LIST(0, 2, 3));
    assert_int_equal(fixture.job.missing_count, 0);
    six[0] = 4;
    six[5] = 2;
}

static void takes_offsets_of_no_bags(void **state)
{
    (void)state;
    int64_t offsets[] = {3};
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    query.include_last_offset = true;
    check();
    assert_int_equal(fixture.job.bag_count, 0);
    assert_int_equal(fixture.job.gather_bytes, 0);
}

/* With an empty array of offsets, indices belong to no bag, but they are still checked. */
static void checks_indices_beside_empty_offsets(void **state)
{
    (void)state;
    static const float weights[6] = {1, 2, 3, 4, 5, 6};
    check_layout(EB_LAYOUT_OFFSETS, NO_INTS);
    query.weights = weights;
    query.weights_bytes = sizeof weights;
    query.weights_type = EB_F32;
    query.has_default = true;
    query.default_index = 3;
    query.max_ids = 1;
    check();
    assert_int_equal(fixture.job.bag_count, 0);
    assert_int_equal(fixture.job.starts[0], 0);
    assert_int_equal(fixture.job.gather_bytes, 0);
    six[3] = 5;
    six[5] = -1;
    assert_out_of_range("indices[3] = 5 is outside the table's 5 rows");
    table.unknown_row = 2;
    for (int missing = EB_MISSING_SKIP; missing < EB_MISSING_COUNT; missing++) {
        uint32_t positions[2];
        query.missing = (enum eb_missing)missing;
        check();
        assert_int_equal(fixture.job.bag_count, 0);
        assert_int_equal(fixture.job.missing_count, 2);
        assert_int_equal(fixture.job.gather_bytes, 0);
        eb_bag_list_missing(&query, 0, 2, positions);
        assert_memory_equal(positions, ((uint32_t[]){3, 5}), sizeof positions);
    }
    query.default_index = 5;
    assert_out_of_range("default_index = 5 is outside the table's 5 rows");
    six[3] = 3;
    six[5] = 2;
}

static void takes_offset_at_the_end(void **state)
{
    (void)state;
    int32_t offsets[] = {0, 0};
    query.indices = NO_INTS;
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    check();
    assert_int_equal(fixture.job.bag_count, 2);
    assert_int_equal(fixture.job.starts[2], 0);
}

static void rejects_offset_that_decreases(void **state)
{
    (void)state;
    int32_t offsets[] = {0, 4, 2};
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    assert_check_malformed("offsets[2] = 2 is less than offsets[1] = 4");
}

static void rejects_offset_past_end(void **state)
{
    (void)state;
    int64_t offsets[] = {0, 2, 7};
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    assert_check_malformed("offsets[2] = 7 is greater than the number of indices, 6");
    offsets[2] = INT64_MAX;
    assert_check_malformed(
        "offsets[2] = 9223372036854775807 is greater than the number of indices, 6");
    query.include_last_offset = true;
    assert_check_malformed(
        "offsets[2] = 9223372036854775807 is greater than the number of indices, 6");
}

static void rejects_negative_offset(void **state)
{
    (void)state;
    int32_t offsets[] = {-1, 2};
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    assert_check_malformed("offsets[0] = -1 is negative");
    offsets[0] = 1;
    offsets[1] = INT32_MIN;
    assert_check_malformed("offsets[1] = -2147483648 is negative");
}

static void takes_lengths(void **state)
{
    (void)state;
    int64_t lengths[] = {0, 4, 0, 2};
    check_layout(EB_LAYOUT_LENGTHS, INTS(lengths));
    assert_form(LIST(4, 1, 2, 3, 0, 2), LIST(0, 0, 4, 4, 6));
}

static void rejects_lengths_of_another_sum(void **state)
{
    (void)state;
    int64_t lengths[] = {1, 4, 0};
    check_layout(EB_LAYOUT_LENGTHS, INTS(lengths));
    assert_check_malformed("the sum of lengths is 5, but the number of indices is 6");
    lengths[2] = 2;
    assert_check_malformed("lengths[2] = 2 makes the sum exceed the number of indices, 6");
    lengths[2] = INT64_MAX;
    assert_check_malformed(
        "lengths[2] = 9223372036854775807 makes the sum exceed the number of indices, 6");
    lengths[1] = -1;
    assert_check_malformed("lengths[1] = -1 is negative");
}

static void takes_packed(void **state)
{
    (void)state;
    query.layout = EB_LAYOUT_PACKED;
    query.indices_per_bag = 3;
    assert_form(LIST(4, 1, 2, 3, 0, 2), LIST(0, 3, 6));
}

static void takes_one_bag(void **state)
{
    (void)state;
    query.num_bags = 1;
    assert_form(LIST(4, 1, 2, 3, 0, 2), LIST(0, 6));
}

static void takes_empty_bags(void **state)
{
    (void)state;
    query.indices = NO_INTS;
    query.num_bags = 2;
    query.has_default = true;
    query.default_index = 3;
    check();
    assert_memory_equal(fixture.job.starts, ((uint32_t[]){0, 0, 0}), 12);
    /* Default rows are gathered too. */
    assert_int_equal(fixture.job.gather_bytes, 2 * 8);
    query.layout = EB_LAYOUT_PACKED;
    check();
    assert_int_equal(fixture.job.bag_count, 2);
}

static void takes_sorted_segments(void **state)
{
    (void)state;
    int32_t ids[] = {1, 1, 1, 4, 4, 5};
    check_layout(EB_LAYOUT_SEGMENTS, INTS(ids));
    query.num_segments = 7;
    assert_form(LIST(4, 1, 2, 3, 0, 2), LIST(0, 0, 3, 3, 3, 5, 6, 6));
}

static void takes_unsorted_segments_in_order_of_indices(void **state)
{
    (void)state;
    int32_t ids[] = {2, 0, 2, 0, 3, 0};
    float weights[] = {1, 2, 3, 4, 5, 6};
    check_layout(EB_LAYOUT_SEGMENTS, INTS(ids));
    query.num_segments = 5;
    query.weights = weights;
    query.weights_bytes = sizeof weights;
    query.weights_type = EB_F32;
    assert_form(LIST(1, 3, 2, 4, 2, 0), LIST(0, 3, 3, 5, 6, 6));
    assert_memory_equal(fixture.job.weights, ((float[]){2, 4, 6, 1, 3, 5}), sizeof weights);
}

static void skips_in_unsorted_segments(void **state)
{
    (void)state;
    int32_t ids[] = {2, 0, 2, 0, 1, 0};
    int64_t indices[] = {4, 9, 2, 3, -1, 2};
    query.indices = INTS(indices);
    check_layout(EB_LAYOUT_SEGMENTS, INTS(ids));
    query.num_segments = 3;
    query.missing = EB_MISSING_SKIP;
    assert_form(LIST(3, 2, 4, 2), LIST(0, 2, 2, 4));
    assert_int_equal(fixture.job.missing_count, 2);
    query.missing = EB_MISSING_ERROR;
    assert_out_of_range("indices[1] = 9 is outside the table's 5 rows");
}

static void rejects_segment_out_of_range(void **state)
{
    (void)state;
    int64_t ids[] = {0, 0, 1, 1, 3, 2};
    check_layout(EB_LAYOUT_SEGMENTS, INTS(ids));
    query.num_segments = 3;
    assert_out_of_range("segment_ids[4] = 3 is outside the segments: num_segments is 3");
    ids[4] = -1;
    assert_out_of_range("segment_ids[4] = -1 is outside the segments: num_segments is 3");
    query.num_segments = 0;
    assert_out_of_range("segment_ids[0] = 0 is outside the segments: num_segments is 0");
}

static void rejects_missing_index(void **state)
{
    (void)state;
    int64_t indices[] = {4, 1, 5, -1};
    query.indices = INTS(indices);
    query.num_bags = 1;
    assert_out_of_range("indices[2] = 5 is outside the table's 5 rows");
    int32_t narrow[] = {4, INT32_MIN};
    query.indices = INTS(narrow);
    assert_out_of_range("indices[1] = -2147483648 is outside the table's 5 rows");
    query.reduction = EB_REDUCTION_NONE;
    assert_out_of_range("indices[1] = -2147483648 is outside the table's 5 rows");
}

static void any_index_of_an_empty_table_is_missing(void **state)
{
    (void)state;
    table.row_count = 0;
    table.rows = NULL;
    query.num_bags = 1;
    assert_out_of_range("indices[0] = 4 is outside the table's 0 rows");
    query.missing = EB_MISSING_SKIP;
    check();
    assert_int_equal(fixture.job.missing_count, 6);
    assert_int_equal(fixture.job.starts[1], 0);
}

static void applies_missing_policies(void **state)
{
    (void)state;
    int32_t indices[] = {4, 7, 2, -1, 0, 2};
    int32_t offsets[] = {0, 3, 4};
    query.indices = INTS(indices);
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    query.missing = EB_MISSING_SKIP;
    assert_form(LIST(4, 2, 0, 2), LIST(0, 2, 2, 4));
    assert_int_equal(fixture.job.missing_count, 2);
    assert_int_equal(fixture.job.gather_bytes, 4 * 8);
    query.missing = EB_MISSING_ZERO;
    assert_form(LIST(4, -1, 2, -1, 0, 2), LIST(0, 3, 4, 6));
    assert_int_equal(fixture.job.missing_count, 2);
    assert_int_equal(fixture.job.gather_bytes, 4 * 8);
    query.missing = EB_MISSING_UNKNOWN_ROW;
    table.unknown_row = 3;
    assert_form(LIST(4, 3, 2, 3, 0, 2), LIST(0, 3, 4, 6));
    assert_int_equal(fixture.job.missing_count, 2);
    assert_int_equal(fixture.job.gather_bytes, 6 * 8);
}

static void none_keeps_a_row_for_every_index(void **state)
{
    (void)state;
    int32_t indices[] = {4, 7, 2};
    query.indices = INTS(indices);
    query.reduction = EB_REDUCTION_NONE;
    query.missing = EB_MISSING_SKIP;
    check();
    assert_null(fixture.job.starts);
    assert_int_equal(fixture.job.bag_count, 3);
    assert_memory_equal(fixture.job.rows, ((int64_t[]){4, EB_ROW_ZERO, 2}), 24);
    assert_int_equal(fixture.job.missing_count, 1);
    assert_int_equal(fixture.job.gather_bytes, 2 * 8);
}

static void checks_default_index(void **state)
{
    (void)state;
    query.num_bags = 1;
    query.default_index = 99; /* Not checked, because has_default is false. */
    check();
    query.has_default = true;
    assert_out_of_range("default_index = 99 is outside the table's 5 rows");
    query.default_index = -2;
    assert_out_of_range("default_index = -2 is outside the table's 5 rows");
    query.reduction = EB_REDUCTION_NONE;
    assert_out_of_range("default_index = -2 is outside the table's 5 rows");
    query.default_index = -1;
    check();
    assert_int_equal(fixture.job.default_row, -1);
}

static void reports_layout_before_default_before_indices(void **state)
{
    (void)state;
    int64_t indices[] = {77};
    int32_t offsets[] = {2};
    query.indices = INTS(indices);
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    query.has_default = true;
    query.default_index = 88;
    assert_check_malformed("offsets[0] = 2 is greater than the number of indices, 1");
    offsets[0] = 0;
    assert_out_of_range("default_index = 88 is outside the table's 5 rows");
    query.default_index = 0;
    assert_out_of_range("indices[0] = 77 is outside the table's 5 rows");
}

/* Places copies of the same array at every offset within a word. Each copy ends where its memory
 * ends. */
static void takes_arrays_at_any_alignment(void **state)
{
    (void)state;
    int32_t offsets[] = {0, 2, 2, 6};
    float weights[] = {1, 2, 3, 4, 5, 6};
    for (size_t shift = 0; shift < 8; shift++) {
        uint8_t *bytes[3] = {malloc(sizeof six + shift), malloc(sizeof offsets + shift),
            malloc(sizeof weights + shift)};
        memcpy(bytes[0] + shift, six, sizeof six);
        memcpy(bytes[1] + shift, offsets, sizeof offsets);
        memcpy(bytes[2] + shift, weights, sizeof weights);
        query.indices.data = bytes[0] + shift;
        check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
        query.bounds.data = bytes[1] + shift;
        query.weights = bytes[2] + shift;
        query.weights_bytes = sizeof weights;
        query.weights_type = EB_F32;
        assert_form(LIST(4, 1, 2, 3, 0, 2), LIST(0, 2, 2, 6, 6));
        assert_memory_equal(fixture.job.weights, weights, sizeof weights);
        for (size_t i = 0; i < 3; i++) {
            free(bytes[i]);
        }
    }
}

static void widens_weights(void **state)
{
    (void)state;
    static const double doubles[10];
    uint16_t halves[] = {0x3c00, 0x3800, 0xc000, 0x0001, 0x8000, 0x7c00};
    table = table_of(EB_F16, floats, 5, 2);
    query.num_bags = 1;
    query.weights = halves;
    query.weights_bytes = sizeof halves;
    query.weights_type = EB_F16;
    check();
    const float *wide = fixture.job.weights;
    assert_memory_equal(
        wide, ((float[]){1, 0.5f, -2, 0x1p-24f, -0.0f, __builtin_inff()}), 6 * sizeof wide[0]);
    float singles[] = {0.1f, 2, 3, 4, 5, 6};
    table = table_of(EB_F64, doubles, 5, 2);
    query.weights = singles;
    query.weights_bytes = sizeof singles;
    query.weights_type = EB_F32;
    check();
    assert_true(((const double *)fixture.job.weights)[0] == (double)0.1f);
}

static void takes_weights_of_no_indices(void **state)
{
    (void)state;
    query.indices = NO_INTS;
    query.weights = floats;
    query.weights_type = EB_F32;
    query.reduction = EB_REDUCTION_NONE;
    check();
    assert_int_equal(fixture.job.bag_count, 0);
}

static void assert_bounded(uint64_t max_ids, const char *text)
{
    query.max_ids = max_ids;
    check();
    query.max_ids = max_ids - 1;
    assert_check_malformed(text);
    query.max_ids = 0;
}

static void bounds_the_indices_of_a_bag(void **state)
{
    (void)state;
    int64_t sorted[] = {0, 0, 1, 3, 3, 3};
    int64_t unsorted[] = {3, 0, 1, 3, 0, 3};
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int32_t[]){1, 1, 4, 5})));
    assert_bounded(3, "bag 1 has 3 indices, more than max_ids = 2");
    check_layout(EB_LAYOUT_LENGTHS, INTS(((int32_t[]){1, 1, 4})));
    assert_bounded(4, "bag 2 has 4 indices, more than max_ids = 3");
    check_layout(EB_LAYOUT_SEGMENTS, INTS(sorted));
    query.num_segments = 5;
    assert_bounded(3, "bag 3 has 3 indices, more than max_ids = 2");
    check_layout(EB_LAYOUT_SEGMENTS, INTS(unsorted));
    assert_bounded(3, "bag 3 has 3 indices, more than max_ids = 2");
    query.max_ids = 3;
    assert_form(LIST(1, 0, 2, 4, 3, 2), LIST(0, 2, 3, 3, 6, 6));
    check_layout(EB_LAYOUT_PACKED, NO_INTS);
    query.indices_per_bag = 2;
    query.num_segments = 0;
    assert_bounded(2, "bag 0 has 2 indices, more than max_ids = 1");
    check_layout(EB_LAYOUT_UNSPECIFIED, NO_INTS);
    query.num_bags = 1;
    assert_bounded(6, "bag 0 has 6 indices, more than max_ids = 5");
}

static void bounds_bags_before_defaults_and_indices(void **state)
{
    (void)state;
    int64_t wrong[] = {9, 0, 0};
    query.indices = INTS(wrong);
    query.has_default = true;
    query.default_index = 9;
    query.max_ids = 2;
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int32_t[]){0})));
    assert_check_malformed("bag 0 has 3 indices, more than max_ids = 2");
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int32_t[]){0, 4})));
    assert_check_malformed("offsets[1] = 4 is greater than the number of indices, 3");
}

static void a_row_of_none_is_no_bag(void **state)
{
    (void)state;
    query.reduction = EB_REDUCTION_NONE;
    query.max_ids = 1;
    check();
    assert_int_equal(fixture.job.bag_count, 6);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

EB_TEST_GROUP(bag_check)
{
    const struct CMUnitTest tests[] = {
        TEST(takes_offsets),
        TEST(takes_offsets_that_leave_indices_out),
        TEST(takes_offsets_of_no_bags),
        TEST(checks_indices_beside_empty_offsets),
        TEST(takes_offset_at_the_end),
        TEST(rejects_offset_that_decreases),
        TEST(rejects_offset_past_end),
        TEST(rejects_negative_offset),
        TEST(takes_lengths),
        TEST(rejects_lengths_of_another_sum),
        TEST(takes_packed),
        TEST(takes_one_bag),
        TEST(takes_empty_bags),
        TEST(takes_sorted_segments),
        TEST(takes_unsorted_segments_in_order_of_indices),
        TEST(skips_in_unsorted_segments),
        TEST(rejects_segment_out_of_range),
        TEST(rejects_missing_index),
        TEST(any_index_of_an_empty_table_is_missing),
        TEST(applies_missing_policies),
        TEST(none_keeps_a_row_for_every_index),
        TEST(checks_default_index),
        TEST(reports_layout_before_default_before_indices),
        TEST(takes_arrays_at_any_alignment),
        TEST(widens_weights),
        TEST(takes_weights_of_no_indices),
        TEST(bounds_the_indices_of_a_bag),
        TEST(bounds_bags_before_defaults_and_indices),
        TEST(a_row_of_none_is_no_bag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
