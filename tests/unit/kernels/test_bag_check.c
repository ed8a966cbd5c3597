#include "kernels/bag.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"
#include "tests/unit/kernels/key_fixture.h"

#include <stdio.h>
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

/* ---- which indices are copied ---- */

/* Checks the query, and expects the row list to be the query's indices from `first` on. */
static void assert_not_copied(uint64_t first)
{
    check();
    assert_ptr_equal(
        fixture.job.rows, (const uint8_t *)query.indices.data + first * sizeof(int64_t));
}

static void assert_copied(void)
{
    check();
    assert_ptr_equal(fixture.job.rows, fixture.job.scratch);
}

static void uses_indices_that_are_rows_where_they_lie(void **state)
{
    (void)state;
    static const float weights[6] = {1, 2, 3, 4, 5, 6};
    int32_t offsets[] = {1, 1, 3, 6};
    query.num_bags = 1;
    assert_not_copied(0);
    assert_form(LIST(4, 1, 2, 3, 0, 2), LIST(0, 6));
    query.num_bags = 0;
    check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
    query.include_last_offset = true;
    assert_not_copied(1);
    assert_form(LIST(1, 2, 3, 0, 2), LIST(0, 0, 2, 5));
    query.weights = weights;
    query.weights_bytes = sizeof weights;
    query.weights_type = EB_F32;
    assert_not_copied(1);
    assert_memory_equal(fixture.job.weights, &weights[1], 5 * sizeof weights[0]);
    check_layout(EB_LAYOUT_SEGMENTS, INTS(((int32_t[]){0, 0, 1, 1, 1, 4})));
    query.include_last_offset = false;
    query.num_segments = 5;
    assert_not_copied(0);
    query.reduction = EB_REDUCTION_NONE;
    assert_not_copied(0);
    for (int missing = EB_MISSING_ERROR; missing < EB_MISSING_COUNT; missing++) {
        table.unknown_row = 2;
        query.missing = (enum eb_missing)missing;
        assert_not_copied(0);
        assert_false(fixture.job.has_zero_rows);
    }
}

static void uses_indices_at_any_alignment(void **state)
{
    (void)state;
    int32_t offsets[] = {2, 5};
    for (size_t shift = 0; shift < 8; shift++) {
        uint8_t *bytes = malloc(sizeof six + shift);
        assert_non_null(bytes);
        memcpy(bytes + shift, six, sizeof six);
        query.indices.data = bytes + shift;
        check_layout(EB_LAYOUT_OFFSETS, INTS(offsets));
        assert_not_copied(2);
        assert_form(LIST(2, 3, 0, 2), LIST(0, 3, 4));
        bag_fixture_pool(&fixture, eb_bag_ops_find(NULL));
        assert_memory_equal(fixture.out, ((float[]){10, 13, 4, 5}), 16);
        free(bytes);
    }
}

static void copies_indices_that_are_no_rows_yet(void **state)
{
    (void)state;
    static const struct eb_id_map maps[] = {{EB_ID_MAP_NONE, 0}, {EB_ID_MAP_MODULO, 0}};
    int32_t narrow[] = {4, 1, 2, 3, 0, 2};
    struct key_fixture keys;
    query.num_bags = 1;
    for (size_t i = 0; i < 2; i++) {
        query.id_map = &maps[i];
        assert_copied();
        assert_form(LIST(4, 1, 2, 3, 0, 2), LIST(0, 6));
    }
    query.id_map = NULL;
    query.indices = INTS(narrow);
    assert_copied();
    assert_form(LIST(4, 1, 2, 3, 0, 2), LIST(0, 6));
    query.indices = INTS(six);
    query.num_bags = 0;
    query.num_segments = 2;
    check_layout(EB_LAYOUT_SEGMENTS, INTS(((int32_t[]){0, 0, 1, 1, 1, 0})));
    assert_copied();
    assert_form(LIST(4, 1, 2, 2, 3, 0), LIST(0, 3, 6));
    /* Keys that could be row numbers. */
    key_fixture_init(&keys, KEYS_SEQUENTIAL, 5);
    for (int64_t row = 0; row < 5; row++) {
        keys.keys[row] = 4 - row;
    }
    assert_int_equal(key_fixture_build(&keys), EB_KEY_OK);
    table.keys = &keys.index;
    query.num_segments = 0;
    query.num_bags = 1;
    check_layout(EB_LAYOUT_UNSPECIFIED, NO_INTS);
    assert_copied();
    assert_form(LIST(0, 3, 2, 1, 4, 2), LIST(0, 6));
    bag_fixture_release(&fixture);
    key_fixture_deinit(&keys);
}

/* Expects the query to be one bag of the `count` indices from `first` on, which are not copied. */
static void assert_only_bag(uint64_t first, uint32_t count)
{
    check();
    assert_int_equal(fixture.job.bag_count, 1);
    assert_int_equal(fixture.job.starts[0], 0);
    assert_int_equal(fixture.job.starts[1], count);
    assert_int_equal(fixture.job.gather_bytes, count * 8);
    assert_int_equal(fixture.job.default_row, -1);
    if (count > 0) {
        assert_ptr_equal(fixture.job.rows, &six[first]);
    }
}

static void takes_the_only_bag_of_every_layout(void **state)
{
    (void)state;
    query.num_bags = 1;
    assert_only_bag(0, 6);
    check_layout(EB_LAYOUT_PACKED, NO_INTS);
    query.indices_per_bag = 6;
    assert_only_bag(0, 6);
    query.indices_per_bag = 0;
    query.num_bags = 0;
    check_layout(EB_LAYOUT_LENGTHS, INTS(((int32_t[]){6})));
    assert_only_bag(0, 6);
    check_layout(EB_LAYOUT_SEGMENTS, INTS(((int64_t[]){0, 0, 0, 0, 0, 0})));
    query.num_segments = 1;
    assert_only_bag(0, 6);
    query.num_segments = 0;
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int32_t[]){2})));
    assert_only_bag(2, 4);
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int64_t[]){6})));
    assert_only_bag(6, 0);
    query.include_last_offset = true;
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int64_t[]){1, 4})));
    assert_only_bag(1, 3);
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int32_t[]){0, 6})));
    assert_only_bag(0, 6);
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int32_t[]){3, 3})));
    assert_only_bag(3, 0);
}

static void rejects_an_only_bag_of_wrong_bounds(void **state)
{
    (void)state;
    check_layout(EB_LAYOUT_LENGTHS, INTS(((int64_t[]){5})));
    assert_check_malformed("the sum of lengths is 5, but the number of indices is 6");
    check_layout(EB_LAYOUT_LENGTHS, INTS(((int64_t[]){(INT64_C(1) << 32) + 6})));
    assert_check_malformed("lengths[0] = 4294967302 makes the sum exceed the number of indices, 6");
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int32_t[]){7})));
    assert_check_malformed("offsets[0] = 7 is greater than the number of indices, 6");
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int32_t[]){-1})));
    assert_check_malformed("offsets[0] = -1 is negative");
    query.include_last_offset = true;
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int64_t[]){4, 2})));
    assert_check_malformed("offsets[1] = 2 is less than offsets[0] = 4");
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int64_t[]){0, 7})));
    assert_check_malformed("offsets[1] = 7 is greater than the number of indices, 6");
    check_layout(EB_LAYOUT_OFFSETS, INTS(((int64_t[]){0, INT64_MIN})));
    assert_check_malformed("offsets[1] = -9223372036854775808 is negative");
    query.include_last_offset = false;
    check_layout(EB_LAYOUT_UNSPECIFIED, NO_INTS);
    query.num_bags = 1;
    query.max_ids = 5;
    assert_check_malformed("bag 0 has 6 indices, more than max_ids = 5");
    query.max_ids = 6;
    query.has_default = true;
    query.default_index = 5;
    assert_out_of_range("default_index = 5 is outside the table's 5 rows");
    query.default_index = 4;
    check();
    assert_int_equal(fixture.job.default_row, 4);
}

/* Counts of indices around those at which another function checks them, or checks them in another
 * way. */
static const uint32_t edge_counts[] = {1, 2, 3, 31, 32, 33, 36, 47, 48, 49, 100};
#define EDGE_COUNTS (sizeof edge_counts / sizeof edge_counts[0])
#define EDGE_COUNT_MAX 100

/* Checks one bag of `count` indices in memory of their own, with index `position` replaced. Expects
 * the result that the query's policy for missing indices prescribes. */
static void check_one_missing(uint32_t count, uint32_t position, int64_t index)
{
    int64_t rows[EDGE_COUNT_MAX];
    int64_t *indices = malloc(count * sizeof indices[0]);
    assert_non_null(indices);
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = indices[i] = i % 5;
    }
    indices[position] = index;
    uint32_t kept = count;
    if (query.missing == EB_MISSING_SKIP) {
        memmove(&rows[position], &rows[position + 1], (count - position - 1) * sizeof rows[0]);
        kept--;
    } else {
        rows[position] = query.missing == EB_MISSING_ZERO ? EB_ROW_ZERO : table.unknown_row;
    }
    query.indices = (struct eb_int_array){indices, count * sizeof indices[0], 8};
    assert_copied();
    assert_int_equal(fixture.job.missing_count, 1);
    assert_int_equal(fixture.job.has_zero_rows, query.missing == EB_MISSING_ZERO);
    assert_int_equal(fixture.job.starts[1], kept);
    assert_memory_equal(fixture.job.rows, rows, kept * sizeof rows[0]);
    free(indices);
}

static void finds_a_missing_index_wherever_it_lies(void **state)
{
    (void)state;
    static const int64_t missing_indices[] = {-1, 5, INT64_MIN, INT64_MAX, INT64_C(1) << 32};
    query.num_bags = 1;
    table.unknown_row = 3;
    for (size_t i = 0; i < EDGE_COUNTS; i++) {
        for (uint32_t position = 0; position < edge_counts[i]; position++) {
            int64_t index = missing_indices[(position + i) % 5];
            for (int missing = EB_MISSING_SKIP; missing < EB_MISSING_COUNT; missing++) {
                query.missing = (enum eb_missing)missing;
                check_one_missing(edge_counts[i], position, index);
            }
        }
    }
}

static void reports_a_missing_index_wherever_it_lies(void **state)
{
    (void)state;
    query.num_bags = 1;
    for (size_t i = 0; i < EDGE_COUNTS; i++) {
        for (uint32_t position = 0; position < edge_counts[i]; position++) {
            int64_t indices[EDGE_COUNT_MAX] = {0};
            char text[EB_BAG_ERROR_TEXT_BYTES];
            indices[position] = 5;
            query.indices = (struct eb_int_array){indices, edge_counts[i] * sizeof indices[0], 8};
            snprintf(text, sizeof text, "indices[%u] = 5 is outside the table's 5 rows", position);
            assert_out_of_range(text);
        }
    }
}

static void finds_the_last_row_of_any_table(void **state)
{
    (void)state;
    static const struct {
        uint64_t row_count;
        int64_t last;
        bool is_copied;
    } cases[] = {
        {1, 0, false},
        {UINT64_C(1) << 32, UINT32_MAX, false},
        {INT64_MAX, INT64_MAX - 1, false},
        {UINT64_C(1) << 63, INT64_MAX, true},
        {UINT64_MAX, INT64_MAX, true},
    };
    query.num_bags = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        table.row_count = cases[i].row_count;
        for (size_t n = 0; n < EDGE_COUNTS; n++) {
            int64_t indices[EDGE_COUNT_MAX];
            for (uint32_t position = 0; position < edge_counts[n]; position++) {
                indices[position] = position % 2 ? 0 : cases[i].last;
            }
            query.indices = (struct eb_int_array){indices, edge_counts[n] * sizeof indices[0], 8};
            query.missing = EB_MISSING_ERROR;
            if (cases[i].is_copied) {
                assert_copied();
            } else {
                assert_not_copied(0);
            }
            assert_memory_equal(fixture.job.rows, indices, query.indices.bytes);
            indices[edge_counts[n] - 1] = cases[i].is_copied ? INT64_MIN : cases[i].last + 1;
            query.missing = EB_MISSING_SKIP;
            assert_copied();
            assert_int_equal(fixture.job.missing_count, 1);
        }
    }
}

static void no_index_is_a_row_of_an_empty_table(void **state)
{
    (void)state;
    static const int64_t indices[EDGE_COUNT_MAX] = {0};
    table.row_count = 0;
    table.rows = NULL;
    query.num_bags = 1;
    query.missing = EB_MISSING_ZERO;
    for (size_t n = 0; n < EDGE_COUNTS; n++) {
        query.indices = (struct eb_int_array){indices, edge_counts[n] * sizeof indices[0], 8};
        assert_copied();
        assert_int_equal(fixture.job.missing_count, edge_counts[n]);
        assert_true(fixture.job.has_zero_rows);
    }
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
        TEST(uses_indices_that_are_rows_where_they_lie),
        TEST(uses_indices_at_any_alignment),
        TEST(copies_indices_that_are_no_rows_yet),
        TEST(takes_the_only_bag_of_every_layout),
        TEST(rejects_an_only_bag_of_wrong_bounds),
        TEST(finds_a_missing_index_wherever_it_lies),
        TEST(reports_a_missing_index_wherever_it_lies),
        TEST(finds_the_last_row_of_any_table),
        TEST(no_index_is_a_row_of_an_empty_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
