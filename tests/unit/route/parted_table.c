#include "tests/unit/route/parted_table.h"

#include "kernels/element.h"
#include "proto/splitmix64.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)64 << 20)
#define SALT UINT64_C(0x5bd1e995a1b2c3d4)

static uint64_t draw(struct parted_table *table, uint64_t count)
{
    return eb_splitmix64_next(&table->random) % count;
}

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

/* ---- the whole table ---- */

/* Draws a value: a small integer, or one with bits from end to end. */
static double draw_value(struct parted_table *table)
{
    static const double special[] = {0.0, -0.0, 1e-40, -1e-45, 3e38, -3e38};
    if (table->options.is_exact) {
        return (double)draw(table, 17) - 8;
    }
    if (draw(table, 50) == 0) {
        return special[draw(table, sizeof special / sizeof special[0])];
    }
    return ((double)draw(table, UINT64_C(1) << 53) / (double)(UINT64_C(1) << 52) - 1) *
           (double)(1 + draw(table, 100));
}

static void draw_row(struct parted_table *table, uint8_t *row)
{
    enum eb_storage storage = table->options.storage;
    size_t row_bytes = eb_storage_row_bytes(storage, table->options.row_elements);
    if (eb_storage_is_code(storage) || !eb_type_is_float(table->options.type)) {
        for (size_t i = 0; i < row_bytes; i++) {
            row[i] = (uint8_t)draw(table, 256);
        }
        return;
    }
    for (uint32_t i = 0; i < table->options.row_elements; i++) {
        uint8_t *at = row + i * eb_storage_bytes(storage);
        if (storage == EB_STORAGE_F8_E4M3 || storage == EB_STORAGE_F8_E5M2) {
            *at = (uint8_t)(draw(table, 8) << 3);
        } else {
            eb_element_store_float((enum eb_type)storage, draw_value(table), at);
        }
    }
}

static void draw_scale(struct parted_table *table, struct eb_row_scale *scale)
{
    if (table->options.is_exact) {
        scale->scale = (float)(1 + draw(table, 2));
        scale->bias = (float)draw(table, 9) - 4;
    } else {
        scale->scale = (float)draw_value(table) * 0.01f;
        scale->bias = (float)draw_value(table);
    }
}

static struct eb_table make_table(const struct parted_options *options, uint64_t row_count)
{
    size_t row_bytes = eb_storage_row_bytes(options->storage, options->row_elements);
    struct eb_table table = {
        .rows = take(row_count * row_bytes),
        .row_count = row_count,
        .row_stride_bytes = row_bytes,
        .row_elements = options->row_elements,
        .storage = options->storage,
        .type = options->type,
        .unknown_row = -1,
    };
    if (eb_storage_is_code(options->storage)) {
        table.scales = take(row_count * sizeof(struct eb_row_scale));
        table.scale_stride_bytes = sizeof(struct eb_row_scale);
    }
    return table;
}

/* The tables of a fixture are const only to the kernels. */
static uint8_t *row_of(const struct eb_table *table, uint64_t row)
{
    return (uint8_t *)(uintptr_t)table->rows + row * table->row_stride_bytes;
}

static struct eb_row_scale *scale_of(const struct eb_table *table, uint64_t row)
{
    return (struct eb_row_scale *)(uintptr_t)table->scales + row;
}

static void draw_rows(struct parted_table *table)
{
    for (uint64_t row = 0; row < table->options.row_count; row++) {
        draw_row(table, row_of(&table->whole, row));
        if (table->whole.scales) {
            draw_scale(table, scale_of(&table->whole, row));
        }
    }
}

static void draw_vector(struct parted_table *table)
{
    enum eb_type type = table->options.type;
    size_t bytes = eb_type_bytes(type);
    table->vector = take(table->options.row_elements * bytes);
    for (uint32_t i = 0; i < table->options.row_elements; i++) {
        uint8_t *at = (uint8_t *)table->vector + i * bytes;
        if (eb_type_is_float(type)) {
            eb_element_store_float(type, draw_value(table), at);
        } else {
            eb_element_store_int(type, draw(table, 256), at);
        }
    }
}

/* ---- parts ---- */

static void copy_row(
    const struct eb_table *from, uint64_t row, const struct eb_table *to, uint64_t to_row)
{
    memcpy(row_of(to, to_row), row_of(from, row), from->row_stride_bytes);
    if (from->scales) {
        *scale_of(to, to_row) = *scale_of(from, row);
    }
}

static bool is_unknown_row(const struct parted_table *table, uint64_t row)
{
    return table->options.is_keyed && table->whole.unknown_row >= 0 &&
           (uint64_t)table->whole.unknown_row == row;
}

static int64_t index_of(const struct parted_table *table, uint64_t row)
{
    return table->keys ? table->keys[row] : (int64_t)row;
}

/* Copies the rows of a part. A keyed part has the row for unknown keys, which comes last, whatever
 * the part of its key. */
static uint64_t fill_part(struct parted_table *table, uint32_t part, int64_t *keys)
{
    uint64_t count = 0;
    for (uint64_t row = 0; row < table->options.row_count; row++) {
        int64_t index = index_of(table, row);
        if (eb_part_of(&table->rule, index) == part && !is_unknown_row(table, row)) {
            keys[count] = index;
            copy_row(&table->whole, row, &table->parts[part], count++);
        }
    }
    if (table->options.is_keyed && table->whole.unknown_row >= 0) {
        uint64_t row = (uint64_t)table->whole.unknown_row;
        keys[count] = index_of(table, row);
        copy_row(&table->whole, row, &table->parts[part], count);
        table->parts[part].unknown_row = (int64_t)count++;
    }
    return count;
}

static void make_part(struct parted_table *table, uint32_t part)
{
    struct eb_table *of_part = &table->parts[part];
    int64_t *keys = take((table->options.row_count + 1) * sizeof *keys);
    *of_part = make_table(&table->options, table->options.row_count + 1);
    of_part->row_count = fill_part(table, part, keys);
    if (table->options.is_keyed) {
        struct key_fixture *fixture = &table->part_keys[part];
        key_fixture_init(fixture, KEYS_SEQUENTIAL, of_part->row_count);
        memcpy(fixture->keys, keys, of_part->row_count * sizeof *keys);
        assert_int_equal(key_fixture_build(fixture), EB_KEY_OK);
        of_part->keys = &fixture->index;
        of_part->vector = table->whole.vector;
        if (table->options.unknown_is_vector) {
            of_part->unknown_row = EB_ROW_VECTOR;
        }
    }
    if (table->options.is_whole) {
        of_part->vector = table->whole.vector;
        of_part->unknown_row =
            table->options.is_keyed ? of_part->unknown_row : table->whole.unknown_row;
    }
    free(keys);
}

static void make_keys(struct parted_table *table)
{
    uint64_t count = table->options.row_count;
    key_fixture_init(&table->whole_keys, KEYS_MIXED, count);
    assert_int_equal(key_fixture_build(&table->whole_keys), EB_KEY_OK);
    table->keys = table->whole_keys.keys;
    table->whole.keys = &table->whole_keys.index;
}

void parted_init(struct parted_table *table, const struct parted_options *options, uint64_t seed)
{
    *table = (struct parted_table){
        .options = *options,
        .random = seed,
        .rule = {options->parts, options->is_keyed, SALT},
    };
    eb_arena_init(&table->arena, &eb_memory_heap);
    eb_arena_reset(&table->arena, ARENA_BYTES);
    table->whole = make_table(options, options->row_count);
    draw_rows(table);
    if (options->is_keyed) {
        make_keys(table);
    }
    if (options->has_unknown_row) {
        table->whole.unknown_row = (int64_t)draw(table, options->row_count);
    }
    if (options->has_vector) {
        draw_vector(table);
        table->whole.vector = table->vector;
        table->whole.unknown_row =
            options->unknown_is_vector ? EB_ROW_VECTOR : table->whole.unknown_row;
    }
    table->remote = table->whole;
    table->remote.rows = NULL;
    table->remote.scales = NULL;
    table->remote.keys = options->is_keyed ? &eb_key_index_remote : NULL;
    for (uint32_t part = 0; part < options->parts; part++) {
        make_part(table, part);
    }
}

static void free_rows(const struct eb_table *table)
{
    free((void *)(uintptr_t)table->rows);
    free((void *)(uintptr_t)table->scales);
}

void parted_deinit(struct parted_table *table)
{
    for (uint32_t part = 0; part < table->options.parts; part++) {
        free_rows(&table->parts[part]);
        if (table->options.is_keyed) {
            key_fixture_deinit(&table->part_keys[part]);
        }
    }
    if (table->options.is_keyed) {
        key_fixture_deinit(&table->whole_keys);
    }
    free_rows(&table->whole);
    free(table->vector);
    eb_arena_deinit(&table->arena);
}

/* ---- requests ---- */

static int64_t draw_index(struct parted_table *table, bool may_be_missing)
{
    static const int64_t absent[] = {-1, -2, -3, INT64_MIN, INT64_MAX};
    if (may_be_missing && draw(table, 3) == 0) {
        return absent[draw(table, sizeof absent / sizeof absent[0])];
    }
    return index_of(table, draw(table, table->options.row_count));
}

static void draw_weights(struct parted_table *table, uint64_t count, struct parted_request *request)
{
    enum eb_type type = table->options.type;
    bool is_float = eb_type_is_float(type);
    enum eb_type weights_type = is_float && draw(table, 2) == 0 ? EB_F32 : type;
    size_t bytes = eb_type_bytes(weights_type);
    request->weights = take(count * bytes);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t *at = (uint8_t *)request->weights + i * bytes;
        if (!is_float) {
            eb_element_store_int(weights_type, draw(table, 256), at);
        } else if (table->options.is_exact) {
            eb_element_store_float(weights_type, (double)draw(table, 5) - 2, at);
        } else {
            eb_element_store_float(weights_type, draw_value(table) * 0.1, at);
        }
    }
    request->query.weights = request->weights;
    request->query.weights_bytes = count * bytes;
    request->query.weights_type = weights_type;
}

static enum eb_type draw_output_type(struct parted_table *table)
{
    static const enum eb_type types[] = {EB_TYPE_UNSPECIFIED, EB_F32, EB_F16, EB_BF16};
    return eb_type_is_float(table->options.type) ? types[draw(table, 4)] : EB_TYPE_UNSPECIFIED;
}

/* Draws how the indices lie in bags. */
static void draw_bags(struct parted_table *table, uint64_t bags, struct parted_request *request)
{
    struct eb_bag_query *query = &request->query;
    uint64_t count = 0;
    request->lengths = take(bags * 8 * sizeof *request->lengths);
    for (uint64_t bag = 0; bag < bags; bag++) {
        uint64_t length = draw(table, 3) == 0 ? 0 : draw(table, 7);
        request->lengths[bag] = (int32_t)length;
        count += length;
    }
    query->layout = EB_LAYOUT_LENGTHS;
    query->bounds = (struct eb_int_array){request->lengths, bags * sizeof(int32_t), 4};
    if (draw(table, 4) == 0) {
        for (uint64_t i = 0; i < count; i++) {
            request->lengths[i] = (int32_t)draw(table, bags);
        }
        query->layout = EB_LAYOUT_SEGMENTS;
        query->num_segments = bags;
        query->bounds.bytes = count * sizeof(int32_t);
    }
    query->indices.bytes = count * sizeof(int64_t);
}

void parted_draw(struct parted_table *table, enum eb_reduction reduction, enum eb_missing missing,
    struct parted_request *request)
{
    uint64_t bags = 1 + draw(table, 6);
    bool is_weightless = reduction == EB_REDUCTION_MEAN || reduction == EB_REDUCTION_MAX ||
                         reduction == EB_REDUCTION_MIN;
    *request = (struct parted_request){.query = query_of(&table->whole)};
    struct eb_bag_query *query = &request->query;
    query->reduction = reduction;
    query->missing = missing;
    query->output_type = draw_output_type(table);
    draw_bags(table, bags, request);
    uint64_t count = query->indices.bytes / sizeof(int64_t);
    request->indices = take(count * sizeof *request->indices);
    for (uint64_t i = 0; i < count; i++) {
        request->indices[i] = draw_index(table, missing != EB_MISSING_ERROR);
    }
    query->indices.data = request->indices;
    query->indices.width = sizeof(int64_t);
    if (!is_weightless && draw(table, 2) == 0) {
        draw_weights(table, count, request);
    }
    query->has_default = draw(table, 2) == 0;
    query->default_index = index_of(table, draw(table, table->options.row_count));
    if (!table->options.is_keyed && draw(table, 4) == 0) {
        query->default_index = -1;
    }
}

void parted_request_deinit(struct parted_request *request)
{
    free(request->indices);
    free(request->lengths);
    free(request->weights);
}

/* ---- results ---- */

static size_t result_bytes(const struct bag_fixture *fixture)
{
    return fixture->job.bag_count * fixture->extent.result_row_bytes;
}

/* Pools a checked job into a copy of its own. */
static uint8_t *pool_copy(struct bag_fixture *fixture, size_t *bytes)
{
    bag_fixture_pool(fixture, eb_bag_ops_find("ref"));
    *bytes = result_bytes(fixture);
    uint8_t *values = take(*bytes);
    memcpy(values, fixture->out, *bytes);
    return values;
}

uint8_t *parted_pool_whole(const struct eb_bag_query *query, size_t *bytes)
{
    struct bag_fixture fixture;
    assert_true(bag_fixture_check(&fixture, query));
    uint8_t *values = pool_copy(&fixture, bytes);
    bag_fixture_release(&fixture);
    return values;
}

void parted_check(
    struct parted_table *table, const struct eb_bag_query *query, struct bag_fixture *fixture)
{
    struct eb_bag_query remote = *query;
    remote.table = &table->remote;
    assert_true(bag_fixture_check(fixture, &remote));
}

static struct eb_bag_query sub_query(
    const struct parted_table *table, const struct eb_route_sub *sub)
{
    struct eb_bag_query query = query_of(&table->parts[sub->part]);
    query.reduction = sub->reduction;
    query.missing = sub->missing;
    query.output_type = sub->output_type;
    query.has_default = sub->has_default;
    query.default_index = sub->default_index;
    query.indices = (struct eb_int_array){sub->indices, sub->index_count * sizeof(int64_t), 8};
    if (sub->lengths) {
        query.layout = EB_LAYOUT_LENGTHS;
        query.bounds = (struct eb_int_array){sub->lengths, sub->bag_count * sizeof(int32_t), 4};
    }
    if (sub->weights) {
        query.weights = sub->weights;
        query.weights_type = sub->weights_type;
        query.weights_bytes = sub->index_count * eb_type_bytes(sub->weights_type);
    }
    return query;
}

void parted_answer(
    const struct parted_table *table, const struct eb_route_sub *sub, struct eb_wire_result *result)
{
    struct eb_bag_query query = sub_query(table, sub);
    struct bag_fixture fixture;
    uint64_t *shape = take(2 * sizeof *shape);
    assert_true(bag_fixture_check(&fixture, &query));
    uint64_t missing = fixture.job.missing_count;
    uint32_t *positions = take(missing * sizeof *positions);
    eb_bag_list_missing(&query, 0, missing, positions);
    shape[0] = fixture.job.bag_count;
    shape[1] = table->options.row_elements;
    *result = (struct eb_wire_result){
        .type = (int32_t)fixture.job.output_type,
        .shape_count = 2,
        .shape = shape,
        .missing = missing,
        .missing_positions = (const uint8_t *)positions,
        .missing_positions_bytes = sub->reports_missing ? missing * sizeof *positions : 0,
    };
    result->values = pool_copy(&fixture, &result->values_bytes);
    bag_fixture_release(&fixture);
}

void parted_answer_free(struct eb_wire_result *result)
{
    free((void *)(uintptr_t)result->values);
    free((void *)(uintptr_t)result->missing_positions);
    free((void *)(uintptr_t)result->shape);
}

/* Takes the answers of all parts but one, which is left out. */
static void take_answers(
    struct parted_table *table, struct eb_route_merge *merge, uint32_t left_out)
{
    for (uint32_t i = 0; i < merge->split->sub_count; i++) {
        struct eb_wire_result result;
        struct eb_error error = {0};
        if (merge->split->subs[i].part == left_out) {
            assert_true(eb_route_merge_leave_out(merge, i, &table->arena));
            continue;
        }
        parted_answer(table, &merge->split->subs[i], &result);
        /* An answer that comes again replaces the former. */
        for (uint64_t times = eb_splitmix64_next(&table->random) % 2; times < 2; times++) {
            if (!eb_route_merge_take(merge, i, &result, &error)) {
                fail_msg("%s", error.text);
            }
        }
        parted_answer_free(&result);
    }
}

/* Draws caps that cut most sub-queries with several bags, or hardly any. */
static struct eb_route_caps draw_caps(struct parted_table *table)
{
    uint64_t bits = eb_splitmix64_next(&table->random);
    return (struct eb_route_caps){.request_bytes = 1 + (bits & 255),
        .answer_bytes = 1 + (bits >> 8 & 255),
        .queries = 1 + (uint32_t)(bits >> 16 & 3)};
}

uint8_t *parted_pool(struct parted_table *table, const struct eb_bag_query *query,
    const struct eb_bag_ops *ops, struct parted_outcome *outcome)
{
    struct eb_route_caps caps = draw_caps(table);
    struct bag_fixture fixture;
    struct eb_route_split split;
    struct eb_route_merge merge;
    struct eb_bag_job job;
    eb_arena_reset(&table->arena, ARENA_BYTES);
    parted_check(table, query, &fixture);
    struct eb_route_query route = {
        .job = &fixture.job,
        .rule = table->rule,
        .missing = query->missing,
        .has_default = query->has_default,
        .default_index = query->default_index,
        .may_leave_out = outcome->left_out != PARTED_NO_PART,
        .caps = eb_splitmix64_next(&table->random) % 2 == 0 ? &caps : NULL,
    };
    if (table->options.is_whole) {
        assert_true(eb_route_split_whole(&route, 0, &table->arena, &split));
    } else {
        assert_true(eb_route_split(&route, &table->arena, &split));
    }
    assert_true(eb_route_merge_begin(&split, ops, &table->arena, &merge));
    take_answers(table, &merge, outcome->left_out);
    assert_true(eb_route_merge_end(&merge, &table->arena, &job));
    outcome->bytes = result_bytes(&fixture);
    outcome->missing = job.missing_count;
    outcome->unreached = merge.unreached_count;
    outcome->stand_ins = merge.stand_in_count;
    outcome->lacks_default = eb_route_merge_lacks_default(&merge, &job);
    uint8_t *values = take(outcome->bytes);
    job.out = values;
    job.out_stride_bytes = fixture.extent.result_row_bytes;
    eb_bag_pool(ops, &job, 0, job.bag_count);
    eb_route_merge_fill(&merge, &job);
    bag_fixture_release(&fixture);
    return values;
}
