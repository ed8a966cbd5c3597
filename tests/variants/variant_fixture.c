#include "tests/variants/variant_fixture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BAG_COUNT_MAX 12
#define RAGGED_INDICES_MAX 9
/* Limits of SHAPE_LONG. Its bags can be longer than the distance over which vector functions
 * prefetch rows, and together so long that a range is pooled in two parts. */
#define LONG_BAG_COUNT_MAX 6
#define LONG_INDICES_MAX 70
#define INDEX_COUNT_MAX (LONG_BAG_COUNT_MAX * LONG_INDICES_MAX)
static_assert(BAG_COUNT_MAX * RAGGED_INDICES_MAX <= INDEX_COUNT_MAX, "ragged bags must fit");
#define GAP_BYTES_MAX 64
#define SCRATCH_BYTES 65536
#define GUARD_BYTE 0xc3

/* The bags of one query. */
struct bags {
    int64_t indices[INDEX_COUNT_MAX];
    int64_t offsets[BAG_COUNT_MAX];
    bool is_repeat[BAG_COUNT_MAX];
    uint32_t count; /* number of indices */
    uint32_t bag_count;
};

void fixture_init(struct fixture *fixture)
{
    size_t out_bytes = (INDEX_COUNT_MAX + 1) * (TABLE_DIM_MAX * 8 + (size_t)GAP_BYTES_MAX);
    memset(fixture, 0, sizeof *fixture);
    table_memory_init(&fixture->tables);
    assert_true(guarded_map(&fixture->indices, (size_t)INDEX_COUNT_MAX * 8));
    assert_true(guarded_map(&fixture->offsets, (size_t)BAG_COUNT_MAX * 8));
    assert_true(guarded_map(&fixture->weights, (size_t)INDEX_COUNT_MAX * 8));
    assert_true(guarded_map(&fixture->out, GAP_BYTES_MAX + out_bytes));
    fixture->expected = malloc(out_bytes);
    fixture->scratch = aligned_alloc(64, SCRATCH_BYTES);
    assert_non_null(fixture->expected);
    assert_non_null(fixture->scratch);
}

void fixture_deinit(struct fixture *fixture)
{
    table_memory_deinit(&fixture->tables);
    guarded_unmap(&fixture->indices);
    guarded_unmap(&fixture->offsets);
    guarded_unmap(&fixture->weights);
    guarded_unmap(&fixture->out);
    free(fixture->expected);
    free(fixture->scratch);
}

static uint32_t draw_bag_count(enum shape shape)
{
    switch (shape) {
    case SHAPE_NO_BAGS: return 0;
    case SHAPE_LONG: return 1 + draw(LONG_BAG_COUNT_MAX);
    default: return 1 + draw(BAG_COUNT_MAX);
    }
}

static uint32_t draw_bag_size(enum shape shape)
{
    switch (shape) {
    case SHAPE_RAGGED: return draw(RAGGED_INDICES_MAX + 1);
    case SHAPE_LONG: return draw(LONG_INDICES_MAX + 1);
    case SHAPE_SINGLE: return 1;
    default: return 0;
    }
}

static struct eb_int_array draw_array(const struct guarded *memory, const int64_t *values, size_t n)
{
    struct eb_int_array array = {.width = draw(2) ? 4 : 8};
    array.bytes = n * array.width;
    uint8_t *bytes = memory->end - array.bytes;
    for (size_t i = 0; i < n; i++) {
        memcpy(bytes + i * array.width, &values[i], array.width);
    }
    array.data = bytes;
    return array;
}

/* Draws a missing policy. With ERROR, no index may be missing. */
static void draw_missing(struct fixture *fixture)
{
    fixture->query.missing =
        (enum eb_missing)(EB_MISSING_ERROR + draw(EB_MISSING_COUNT - EB_MISSING_ERROR));
    if (fixture->query.missing == EB_MISSING_UNKNOWN_ROW && fixture->table.unknown_row == -1) {
        fixture->query.missing = EB_MISSING_SKIP;
    }
}

static int64_t draw_index(const struct fixture *fixture)
{
    uint32_t row_count = (uint32_t)fixture->table.row_count;
    if (fixture->query.missing == EB_MISSING_ERROR) {
        return draw(row_count);
    }
    return draw(16) ? (int64_t)draw(row_count + 2) : INT32_MIN;
}

/* Appends a copy of the previous bag, sometimes with another last index. */
static void repeat_bag(
    const struct fixture *fixture, struct bags *bags, uint32_t first, uint32_t previous)
{
    bags->count = first + (first - previous);
    memcpy(bags->indices + first, bags->indices + previous,
        (first - previous) * sizeof bags->indices[0]);
    if (first > previous && draw(4) == 0) {
        bags->indices[bags->count - 1] = draw_index(fixture);
    }
}

static void draw_bags(const struct fixture *fixture, struct bags *bags, enum shape shape)
{
    bool has_repeats = draw(2);
    bags->bag_count = draw_bag_count(shape);
    bags->count = 0;
    for (uint32_t bag = 0; bag < bags->bag_count; bag++) {
        bags->offsets[bag] = bags->count;
        bags->is_repeat[bag] = bag > 0 && has_repeats && draw(2);
        if (bags->is_repeat[bag]) {
            repeat_bag(fixture, bags, bags->count, (uint32_t)bags->offsets[bag - 1]);
            continue;
        }
        uint32_t end = bags->count + draw_bag_size(shape);
        while (bags->count < end) {
            bags->indices[bags->count++] = draw_index(fixture);
        }
    }
}

/* Gives some repeated bags the weights of the previous bag too. */
static void repeat_weights(const struct bags *bags, uint8_t *weights, size_t weight_bytes)
{
    for (uint32_t bag = 1; bag < bags->bag_count; bag++) {
        if (bags->is_repeat[bag] && draw(2)) {
            size_t first = (size_t)bags->offsets[bag];
            size_t previous = (size_t)bags->offsets[bag - 1];
            memcpy(weights + first * weight_bytes, weights + previous * weight_bytes,
                (first - previous) * weight_bytes);
        }
    }
}

static void draw_weights(struct fixture *fixture, const struct bags *bags)
{
    enum eb_type type = fixture->table.type;
    if (eb_type_is_float(type) && draw(2)) {
        type = EB_F32;
    }
    struct eb_bag_query *query = &fixture->query;
    query->weights_type = type;
    query->weights_bytes = bags->count * eb_type_bytes(type);
    uint8_t *weights = fixture->weights.end - query->weights_bytes;
    draw_values(weights, query->weights_bytes, (enum eb_storage)type);
    repeat_weights(bags, weights, eb_type_bytes(type));
    query->weights = weights;
}

static void draw_query(struct fixture *fixture, const struct plan *plan, enum shape shape)
{
    struct bags bags;
    fixture->query = (struct eb_bag_query){
        .table = &fixture->table,
        .reduction = plan->reduction,
        .output_type = plan->output_type,
        .layout = EB_LAYOUT_OFFSETS,
        .has_default = draw(2),
        .default_index = (int64_t)draw((uint32_t)fixture->table.row_count + 1) - 1,
    };
    draw_missing(fixture);
    draw_bags(fixture, &bags, shape);
    fixture->query.indices = draw_array(&fixture->indices, bags.indices, bags.count);
    fixture->query.bounds = draw_array(&fixture->offsets, bags.offsets, bags.bag_count);
    if (plan->is_weighted) {
        draw_weights(fixture, &bags);
    }
}

static void pool_reference(struct fixture *fixture)
{
    fixture->job.out = fixture->expected;
    fixture->job.out_stride_bytes = fixture->extent.result_row_bytes;
    eb_bag_pool(eb_bag_ops_find("ref"), &fixture->job, 0, fixture->job.bag_count);
}

static void check_query(struct fixture *fixture)
{
    struct eb_bag_error error;
    fixture->job.scratch = fixture->scratch;
    if (!eb_bag_measure(&fixture->query, &fixture->extent, &error) ||
        !eb_bag_check(
            eb_bag_ops_find(NULL), &fixture->query, &fixture->extent, &fixture->job, &error)) {
        fail_msg("%s", error.text);
    }
}

/* Returns whether empty bags are filled with zeros instead of the default vector. No query of a
 * keyed table can ask for that. */
static bool has_zeros_for_vector(const struct fixture *fixture)
{
    const struct eb_bag_query *query = &fixture->query;
    return fixture->table.vector && query->has_default && query->default_index < 0;
}

/* Replaces the row numbers of the query with keys. */
static void use_keys(struct fixture *fixture)
{
    struct eb_bag_query *query = &fixture->query;
    uint8_t *bytes = (uint8_t *)(uintptr_t)query->indices.data;
    table_use_keys(&fixture->tables, &fixture->table);
    query->has_default = query->has_default && query->default_index >= 0;
    query->default_index = table_key(query->default_index);
    for (uint64_t at = 0; at < query->indices.bytes; at += query->indices.width) {
        int32_t row; /* The low four bytes hold the whole number. */
        memcpy(&row, bytes + at, sizeof row);
        int64_t key = table_key(row);
        memcpy(bytes + at, &key, query->indices.width);
    }
    check_query(fixture);
}

void fixture_draw(struct fixture *fixture, const struct plan *plan, enum shape shape)
{
    enum eb_type type = plan->type ? plan->type : eb_storage_type(plan->storage);
    fixture->table = table_draw(&fixture->tables, plan->storage, type, plan->dim);
    draw_query(fixture, plan, shape);
    check_query(fixture);
    pool_reference(fixture);
    if (draw(4) == 0 && !has_zeros_for_vector(fixture)) {
        use_keys(fixture);
    }
}

void fixture_clear_out(struct fixture *fixture)
{
    size_t row_bytes = fixture->extent.result_row_bytes;
    size_t stride = row_bytes + draw(2) * draw(GAP_BYTES_MAX);
    size_t bytes = (fixture->job.bag_count ? fixture->job.bag_count - 1 : 0) * stride + row_bytes;
    fixture->job.out = fixture->out.end - bytes;
    memset(fixture->job.out - GAP_BYTES_MAX, GUARD_BYTE, bytes + GAP_BYTES_MAX);
    fixture->job.out_stride_bytes = stride;
}

static void fail_at(const struct fixture *fixture, const char *who, uint32_t bag)
{
    fail_msg("%s: %s of %s as %s, dim %u, %sweighted, to %s: row %u of %u differs", who,
        eb_reduction_name(fixture->job.reduction), eb_storage_name(fixture->table.storage),
        eb_type_name(fixture->table.type), fixture->table.row_elements,
        fixture->job.weights ? "" : "not ", eb_type_name(fixture->job.output_type), bag,
        fixture->job.bag_count);
}

static bool is_guard(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

void fixture_compare(const struct fixture *fixture, const char *who)
{
    const struct eb_bag_job *job = &fixture->job;
    size_t row_bytes = fixture->extent.result_row_bytes;
    const uint8_t *before = job->out - GAP_BYTES_MAX;
    assert_true(is_guard(before, GAP_BYTES_MAX));
    for (uint32_t bag = 0; bag < job->bag_count; bag++) {
        const uint8_t *row = job->out + bag * job->out_stride_bytes;
        bool is_last = bag + 1 == job->bag_count;
        size_t gap = is_last ? 0 : job->out_stride_bytes - row_bytes;
        if (memcmp(row, fixture->expected + bag * row_bytes, row_bytes) != 0 ||
            !is_guard(row + row_bytes, gap)) {
            fail_at(fixture, who, bag);
        }
    }
}
