/* A query of keys, or of ids that are mapped, gives the same as the query of their rows: the same
 * job to the last byte, or the same error at the same position. The expected rows come from a plain
 * search over all keys. */
#include "kernels/bag.h"
#include "tests/lib/test_group.h"
#include "tests/unit/kernels/bag_fixture.h"
#include "tests/unit/kernels/key_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW_COUNT 130
#define ROW_OUTSIDE (ROW_COUNT + 17)
#define BAG_COUNT 40
/* More indices than eb_bag_check turns into rows at a time if segments are not sorted. */
#define INDICES_MAX 700

static uint64_t state_of_draw = 1;

static uint64_t draw_take(uint64_t end)
{
    state_of_draw = state_of_draw * 6364136223846793005u + 1442695040888963407u;
    return (state_of_draw >> 33) % end;
}

/* A query of keys or ids, and the equivalent query of row numbers. */
struct twin {
    struct eb_table plain_table;
    struct eb_table table;
    struct eb_bag_query plain;
    struct eb_bag_query query;
    int64_t rows[INDICES_MAX];
    int64_t ids[INDICES_MAX];
    int32_t narrow_ids[INDICES_MAX];
    int64_t bounds[INDICES_MAX + 1];
    float weights[INDICES_MAX];
};

static float values[ROW_COUNT * 2];

static int64_t search(const struct key_fixture *keys, int64_t key)
{
    for (uint64_t row = 0; row < keys->row_count; row++) {
        if (keys->keys[row] == key) {
            return (int64_t)row;
        }
    }
    return ROW_OUTSIDE;
}

/* Draws a key of the table, or occasionally, if it may miss, one that is not in the table. */
static int64_t draw_key(const struct key_fixture *keys, enum key_set set, bool may_miss)
{
    uint64_t row = draw_take(ROW_COUNT);
    return may_miss && draw_take(8) == 0 ? key_of_set(set, ROW_COUNT + row) : keys->keys[row];
}

static void draw_twin_bounds(struct twin *twin, uint64_t index_count)
{
    struct eb_bag_query *query = &twin->plain;
    uint64_t count = BAG_COUNT;
    switch (query->layout) {
    case EB_LAYOUT_OFFSETS:
        for (uint64_t bag = 0; bag < BAG_COUNT; bag++) {
            uint64_t before = bag > 0 ? (uint64_t)twin->bounds[bag - 1] : draw_take(20);
            twin->bounds[bag] = (int64_t)(before + draw_take((index_count - before) / 8 + 1));
        }
        count = draw_take(8) > 0 ? count : 0;
        break;
    case EB_LAYOUT_LENGTHS:
        memset(twin->bounds, 0, sizeof twin->bounds);
        for (uint64_t i = 0; i < index_count; i++) {
            twin->bounds[draw_take(BAG_COUNT)]++;
        }
        break;
    case EB_LAYOUT_SEGMENTS:
        count = index_count;
        query->num_segments = BAG_COUNT;
        for (uint64_t i = 0; i < index_count; i++) {
            twin->bounds[i] = (int64_t)draw_take(BAG_COUNT);
        }
        break;
    default: count = 0; query->indices_per_bag = 10;
    }
    query->bounds = (struct eb_int_array){twin->bounds, count * 8, 8};
}

static void draw_policy(struct twin *twin)
{
    struct eb_bag_query *query = &twin->plain;
    query->missing = (enum eb_missing)(EB_MISSING_ERROR + draw_take(EB_MISSING_COUNT - 1));
    query->layout = (enum eb_layout)(EB_LAYOUT_OFFSETS + draw_take(EB_LAYOUT_COUNT - 1));
    query->reduction = draw_take(5) ? EB_REDUCTION_SUM : EB_REDUCTION_NONE;
    if (draw_take(2)) {
        query->weights = twin->weights;
        query->weights_type = EB_F32;
    }
}

/* Makes a query of row numbers, and its twin. Returns the number of indices, which are still to be
 * drawn. */
static uint64_t draw_twin(struct twin *twin)
{
    uint64_t index_count = (20 + draw_take(INDICES_MAX / 10 - 20)) * 10;
    twin->plain_table = table_of(EB_F32, values, ROW_COUNT, 2);
    twin->plain_table.unknown_row = 5;
    twin->plain = query_of(&twin->plain_table);
    draw_policy(twin);
    draw_twin_bounds(twin, index_count);
    for (uint64_t i = 0; i < index_count; i++) {
        twin->weights[i] = (float)i;
    }
    twin->plain.weights_bytes = twin->plain.weights ? index_count * sizeof(float) : 0;
    twin->plain.indices = (struct eb_int_array){twin->rows, index_count * 8, 8};
    twin->table = twin->plain_table;
    twin->query = twin->plain;
    twin->query.table = &twin->table;
    twin->query.indices.data = twin->ids;
    return index_count;
}

static void assert_same_positions(const struct twin *twin, uint64_t count)
{
    uint32_t expected[INDICES_MAX];
    uint32_t positions[INDICES_MAX];
    eb_bag_list_missing(&twin->plain, 1000, count, expected);
    eb_bag_list_missing(&twin->query, 1000, count, positions);
    assert_memory_equal(positions, expected, count * sizeof positions[0]);
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(twin->rows[expected[i] - 1000], ROW_OUTSIDE);
    }
}

static void assert_same_jobs(const struct bag_fixture *actual, const struct bag_fixture *expected)
{
    const struct eb_bag_job *job = &expected->job;
    uint32_t row_count = job->starts ? job->starts[job->bag_count] : job->bag_count;
    assert_int_equal(actual->job.missing_count, job->missing_count);
    assert_int_equal(actual->job.gather_bytes, job->gather_bytes);
    assert_int_equal(actual->job.default_row, job->default_row);
    assert_memory_equal(actual->job.rows, job->rows, row_count * sizeof job->rows[0]);
    if (job->starts) {
        assert_memory_equal(
            actual->job.starts, job->starts, (job->bag_count + 1) * sizeof job->starts[0]);
    }
    if (job->weights) {
        assert_memory_equal(actual->job.weights, job->weights, row_count * sizeof(float));
    }
}

/* Expects `actual` to name the same position as `expected`, the error of the query of row numbers,
 * but in the words of a keyed table. */
static void assert_same_error(const struct twin *twin, const char *actual, const char *expected)
{
    unsigned position = 0;
    char text[EB_BAG_ERROR_TEXT_BYTES];
    if (sscanf(expected, "indices[%u]", &position) == 1) {
        snprintf(text, sizeof text, "indices[%u] = %" PRId64 " is not one of the table's %d keys",
            position, twin->ids[position], ROW_COUNT);
    } else {
        snprintf(text, sizeof text, "default_index = %" PRId64 " is not one of the table's %d keys",
            twin->query.default_index, ROW_COUNT);
    }
    assert_string_equal(actual, text);
}

static void assert_same_outcome(const struct twin *twin)
{
    struct bag_fixture expected;
    struct bag_fixture actual;
    bool is_sound = bag_fixture_check(&expected, &twin->plain);
    assert_int_equal(bag_fixture_check(&actual, &twin->query), is_sound);
    if (is_sound) {
        assert_same_jobs(&actual, &expected);
        assert_same_positions(twin, expected.job.missing_count);
    } else {
        assert_same_error(twin, actual.error.text, expected.error.text);
    }
    bag_fixture_release(&expected);
    bag_fixture_release(&actual);
}

static void keys_are_what_their_rows_are(void **state)
{
    (void)state;
    static struct twin twin;
    for (unsigned trial = 0; trial < 3000; trial++) {
        enum key_set set = (enum key_set)draw_take(KEY_SET_COUNT);
        struct key_fixture keys;
        key_fixture_init(&keys, set, ROW_COUNT);
        assert_int_equal(key_fixture_build(&keys), EB_KEY_OK);
        uint64_t index_count = draw_twin(&twin);
        twin.table.keys = &keys.index;
        bool may_miss = draw_take(4);
        for (uint64_t i = 0; i < index_count; i++) {
            twin.ids[i] = draw_key(&keys, set, may_miss);
            twin.rows[i] = search(&keys, twin.ids[i]);
        }
        twin.plain.has_default = twin.query.has_default = draw_take(2);
        twin.query.default_index = draw_key(&keys, set, true);
        twin.plain.default_index = search(&keys, twin.query.default_index);
        assert_same_outcome(&twin);
        key_fixture_deinit(&keys);
    }
}

static void keys_of_32_bits_are_widened(void **state)
{
    (void)state;
    static struct twin twin;
    struct key_fixture keys;
    key_fixture_init(&keys, KEYS_NEGATIVE, ROW_COUNT);
    assert_int_equal(key_fixture_build(&keys), EB_KEY_OK);
    for (unsigned trial = 0; trial < 200; trial++) {
        uint64_t index_count = draw_twin(&twin);
        twin.table.keys = &keys.index;
        for (uint64_t i = 0; i < index_count; i++) {
            twin.ids[i] = draw_key(&keys, KEYS_NEGATIVE, true);
            twin.narrow_ids[i] = (int32_t)twin.ids[i];
            twin.rows[i] = search(&keys, twin.ids[i]);
        }
        twin.query.indices = (struct eb_int_array){twin.narrow_ids, index_count * 4, 4};
        assert_same_outcome(&twin);
    }
    key_fixture_deinit(&keys);
}

static void minus_one_is_a_key_as_any_other(void **state)
{
    (void)state;
    static const int64_t index = 0;
    const float expected[] = {values[0], values[1], values[0], values[1]};
    struct key_fixture keys;
    key_fixture_init(&keys, KEYS_SEQUENTIAL, ROW_COUNT);
    struct eb_table table = table_of(EB_F32, values, ROW_COUNT, 2);
    struct eb_bag_query query = query_of(&table);
    table.keys = &keys.index;
    query.layout = EB_LAYOUT_OFFSETS;
    query.bounds = INTS(((int64_t[]){0, 1}));
    query.indices = (struct eb_int_array){&index, 8, 8};
    query.has_default = true;
    query.default_index = -1;
    assert_int_equal(key_fixture_build(&keys), EB_KEY_OK);
    assert_error(
        &query, EB_BAG_ERROR_OUT_OF_RANGE, "default_index = -1 is not one of the table's 130 keys");
    keys.keys[1] = 0;
    keys.keys[0] = -1;
    assert_int_equal(key_fixture_build(&keys), EB_KEY_OK);
    query.indices = INTS(((int64_t[]){-1}));
    assert_pools(&query, expected, sizeof expected);
    key_fixture_deinit(&keys);
}

static void any_key_of_an_empty_table_is_missing(void **state)
{
    (void)state;
    struct key_fixture keys;
    struct bag_fixture fixture;
    key_fixture_init(&keys, KEYS_SEQUENTIAL, 0);
    assert_int_equal(key_fixture_build(&keys), EB_KEY_OK);
    struct eb_table table = table_of(EB_F32, NULL, 0, 2);
    struct eb_bag_query query = query_of(&table);
    table.keys = &keys.index;
    query.num_bags = 1;
    query.indices = INTS(((int64_t[]){0, -1, 5}));
    assert_error(
        &query, EB_BAG_ERROR_OUT_OF_RANGE, "indices[0] = 0 is not one of the table's 0 keys");
    query.missing = EB_MISSING_SKIP;
    assert_true(bag_fixture_check(&fixture, &query));
    assert_int_equal(fixture.job.missing_count, 3);
    bag_fixture_release(&fixture);
    key_fixture_deinit(&keys);
}

static void mapped_ids_are_what_their_rows_are(void **state)
{
    (void)state;
    static struct twin twin;
    for (unsigned trial = 0; trial < 1000; trial++) {
        uint64_t index_count = draw_twin(&twin);
        struct eb_id_map map = {(enum eb_id_map_kind)draw_take(3), trial};
        twin.query.id_map = &map;
        twin.query.has_default = twin.plain.has_default = draw_take(2);
        twin.query.default_index = twin.plain.default_index = (int64_t)draw_take(ROW_COUNT + 1) - 1;
        for (uint64_t i = 0; i < index_count; i++) {
            twin.ids[i] =
                (int64_t)(draw_take(UINT64_C(1) << 31) << 33 | draw_take(UINT64_C(1) << 31));
            if (map.kind == EB_ID_MAP_NONE) {
                twin.ids[i] = (int64_t)draw_take(ROW_COUNT);
            }
        }
        memcpy(twin.rows, twin.ids, sizeof twin.rows);
        if (map.kind != EB_ID_MAP_NONE) {
            eb_id_map_rows(&map, ROW_COUNT, twin.rows, index_count);
        }
        assert_same_outcome(&twin);
    }
}

static void an_empty_table_has_no_row_to_map_to(void **state)
{
    (void)state;
    struct eb_id_map map = {EB_ID_MAP_MODULO, 0};
    struct eb_table table = table_of(EB_F32, NULL, 0, 2);
    struct eb_bag_query query = query_of(&table);
    query.id_map = &map;
    query.num_bags = 1;
    query.indices = INTS(((int64_t[]){3}));
    assert_error(&query, EB_BAG_ERROR_OUT_OF_RANGE, "indices[0] = 3 is outside the table's 0 rows");
}

static int set_up(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ROW_COUNT * 2; i++) {
        values[i] = (float)i + 0.5f;
    }
    return 0;
}

EB_TEST_GROUP(bag_take)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_what_their_rows_are),
        cmocka_unit_test(keys_of_32_bits_are_widened),
        cmocka_unit_test(minus_one_is_a_key_as_any_other),
        cmocka_unit_test(any_key_of_an_empty_table_is_missing),
        cmocka_unit_test(mapped_ids_are_what_their_rows_are),
        cmocka_unit_test(an_empty_table_has_no_row_to_map_to),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
