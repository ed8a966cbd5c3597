/* Turns bytes into a query on a small table, measures and checks it, and if it is valid pools it
 * with every variant that this machine can run. The variants must agree and write every byte. */
#include "kernels/bag_stream.h"
#include "tests/fuzz/input.h"
#include "tests/unit/kernels/key_fixture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ROW_COUNT 9
#define DIM_MAX 200
#define RESULT_BYTES_MAX (1 << 14)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Takes bytes into a separate allocation, so that a sanitizer detects reads past their end. */
static uint8_t *take_bytes(struct input *input, uint64_t *bytes)
{
    size_t count = take_number(input, 1);
    count = count < input->size ? count : input->size;
    uint8_t *copy = malloc(count > 0 ? count : 1);
    assert(copy);
    memcpy(copy, input->data, count);
    input->data += count;
    input->size -= count;
    *bytes = count;
    return copy;
}

static struct eb_int_array take_bag_array(struct input *input)
{
    uint64_t kind = take_number(input, 1);
    struct eb_int_array array = {.width = kind & 1 ? 8 : 4};
    array.data = take_bytes(input, &array.bytes);
    if (array.bytes == 0 && (kind & 2) != 0) {
        array.width = 0;
    }
    return array;
}

/* Takes an element type that a table with this storage may have. */
static enum eb_type take_type(struct input *input, enum eb_storage storage)
{
    static const enum eb_type types[] = {EB_F32, EB_F16, EB_BF16};
    enum eb_type own = eb_storage_type(storage);
    if (own == EB_F16 || own == EB_BF16) {
        return take_number(input, 1) & 1 ? EB_F32 : own;
    }
    return (int)storage < EB_TYPE_COUNT ? own : types[take_choice(input, 0, 3)];
}

static struct eb_table take_table(struct input *input, uint8_t *rows)
{
    /* Every width for which a variant has a special function, and widths with tails. */
    static const uint32_t dims[] = {1, 3, 16, 37, 8, 24, 32, 48, 64, 96, 128, DIM_MAX};
    struct eb_table table = {.unknown_row = -1};
    table.storage = (enum eb_storage)take_choice(input, EB_STORAGE_F32, EB_STORAGE_COUNT);
    table.type = take_type(input, table.storage);
    table.row_elements = dims[take_choice(input, 0, sizeof dims / sizeof dims[0])];
    table.row_stride_bytes = eb_storage_row_bytes(table.storage, table.row_elements);
    table.row_count = (uint64_t)take_choice(input, 0, ROW_COUNT + 1);
    if (table.row_count > 0 && take_number(input, 1) & 1) {
        table.unknown_row = (int64_t)table.row_count - 1;
    }
    /* The last row ends at the end of the allocation. */
    size_t bytes = table.row_count * table.row_stride_bytes;
    uint8_t *end = rows + (size_t)ROW_COUNT * DIM_MAX * 8;
    for (size_t i = 0; i < bytes; i++) {
        end[(ptrdiff_t)i - (ptrdiff_t)bytes] = (uint8_t)(i * 73 + i / 251);
    }
    table.rows = end - bytes;
    return table;
}

/* Takes scales of arbitrary bits into a separate allocation. */
static uint8_t *take_scales(struct input *input, struct eb_table *table)
{
    if (!eb_storage_is_code(table->storage)) {
        return NULL;
    }
    table->scale_stride_bytes = sizeof(struct eb_row_scale);
    uint8_t *scales = malloc(table->row_count * table->scale_stride_bytes + 1);
    assert(scales);
    for (uint64_t row = 0; row < table->row_count; row++) {
        uint64_t scale = take_number(input, sizeof scale);
        memcpy(scales + 1 + row * sizeof scale, &scale, sizeof scale);
    }
    table->scales = scales + 1;
    return scales;
}

/* Takes a default vector, which the unknown row may name, into a separate allocation. */
static uint8_t *take_vector(struct input *input, struct eb_table *table)
{
    uint64_t kind = take_number(input, 1);
    if ((kind & 1) == 0) {
        return NULL;
    }
    size_t bytes = table->row_elements * eb_type_bytes(table->type);
    uint8_t *vector = malloc(bytes);
    assert(vector);
    for (size_t i = 0; i < bytes; i++) {
        vector[i] = (uint8_t)(i * 29 + kind);
    }
    table->vector = vector;
    table->unknown_row = kind & 2 ? EB_ROW_VECTOR : table->unknown_row;
    return vector;
}

static struct eb_bag_query take_bag_query(struct input *input, const struct eb_table *table)
{
    struct eb_bag_query query = {.table = table};
    query.reduction = (enum eb_reduction)take_choice(input, EB_REDUCTION_SUM, EB_REDUCTION_COUNT);
    query.missing = (enum eb_missing)take_choice(input, EB_MISSING_ERROR, EB_MISSING_COUNT);
    query.output_type = (enum eb_type)take_choice(input, EB_TYPE_UNSPECIFIED, EB_TYPE_COUNT);
    query.layout = (enum eb_layout)take_choice(input, EB_LAYOUT_UNSPECIFIED, EB_LAYOUT_COUNT);
    query.include_last_offset = take_number(input, 1) & 1;
    query.has_default = take_number(input, 1) & 1;
    query.default_index = (int8_t)take_number(input, 1);
    query.indices_per_bag = take_number(input, 1);
    query.num_segments = take_number(input, 2);
    query.num_bags = take_number(input, 2);
    query.indices = take_bag_array(input);
    query.bounds = take_bag_array(input);
    query.weights_type = (enum eb_type)take_choice(input, EB_F32, EB_TYPE_COUNT);
    query.weights = take_bytes(input, &query.weights_bytes);
    if (query.weights_bytes == 0) {
        free((void *)query.weights);
        query.weights = NULL;
    }
    return query;
}

static uint8_t *pool(
    const struct eb_bag_ops *ops, struct eb_bag_job *job, size_t row_bytes, int fill)
{
    size_t bytes = job->bag_count * row_bytes;
    uint8_t *out = malloc(bytes > 0 ? bytes : 1);
    assert(out);
    memset(out, fill, bytes);
    job->out = out;
    job->out_stride_bytes = row_bytes;
    eb_bag_pool(ops, job, 0, job->bag_count);
    return out;
}

/* Compares the variants' results with the reference's. Bytes that are not written show up, because
 * the buffers of the reference and the variants are filled differently beforehand. */
static void compare_variants(struct eb_bag_job *job, size_t row_bytes)
{
    uint8_t *expected = pool(eb_bag_ops_find("ref"), job, row_bytes, 0);
    const struct eb_bag_ops *ops;
    for (size_t n = 0; (ops = eb_bag_ops_at(n)); n++) {
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        uint8_t *actual = pool(ops, job, row_bytes, 0xff);
        assert(memcmp(actual, expected, job->bag_count * row_bytes) == 0);
        free(actual);
    }
    free(expected);
}

static void *allocate_scratch(const struct eb_bag_extent *extent)
{
    if (extent->scratch_bytes == 0) {
        return NULL;
    }
    void *scratch = aligned_alloc(64, extent->scratch_bytes);
    assert(scratch);
    return scratch;
}

static void compare_jobs(const struct eb_bag_job *actual, const struct eb_bag_job *expected)
{
    uint32_t bag_count = expected->bag_count;
    uint32_t row_count = expected->starts ? expected->starts[bag_count] : bag_count;
    assert(actual->bag_count == bag_count && actual->missing_count == expected->missing_count);
    assert(actual->gather_bytes == expected->gather_bytes);
    assert(!expected->starts || memcmp(actual->starts, expected->starts,
                                    (bag_count + 1) * sizeof actual->starts[0]) == 0);
    size_t row_bytes = row_count * sizeof actual->rows[0];
    assert(row_bytes == 0 || memcmp(actual->rows, expected->rows, row_bytes) == 0);
}

/* Checks that every variant turns the query into the same job, or finds the same error. */
static void compare_checks(const struct eb_bag_query *query, const struct eb_bag_extent *extent,
    const struct eb_bag_job *job, const struct eb_bag_error *expected)
{
    const struct eb_bag_ops *ops;
    for (size_t n = 1; (ops = eb_bag_ops_at(n)); n++) {
        if (!eb_bag_ops_runs_here(ops)) {
            continue;
        }
        struct eb_bag_error error;
        struct eb_bag_job again = {.scratch = allocate_scratch(extent)};
        bool is_sound = eb_bag_check(ops, query, extent, &again, &error);
        assert(is_sound == !!job);
        if (is_sound) {
            compare_jobs(&again, job);
        } else {
            assert(error.class == expected->class && strcmp(error.text, expected->text) == 0);
        }
        free(again.scratch);
    }
}

static void run_query(const struct eb_bag_query *query)
{
    struct eb_bag_extent extent;
    struct eb_bag_error error;
    if (!eb_bag_measure(query, &extent, &error) ||
        extent.result_rows * extent.result_row_bytes > RESULT_BYTES_MAX) {
        return;
    }
    struct eb_bag_job job = {.scratch = allocate_scratch(&extent)};
    bool is_sound = eb_bag_check(eb_bag_ops_find("ref"), query, &extent, &job, &error);
    compare_checks(query, &extent, is_sound ? &job : NULL, &error);
    if (is_sound) {
        assert(job.bag_count == extent.result_rows);
        assert(job.missing_count <= extent.index_count);
        assert(query->missing != EB_MISSING_ERROR || job.missing_count == 0);
        assert(job.bag_count > 0 || job.gather_bytes == 0);
        compare_variants(&job, extent.result_row_bytes);
    }
    free(job.scratch);
}

/* Runs the query on a keyed table, without an id map. */
static void run_keyed(struct eb_bag_query *query, struct eb_table *table, enum key_set set)
{
    struct key_fixture keys;
    key_fixture_init(&keys, set, table->row_count);
    enum eb_key_outcome outcome = key_fixture_build(&keys);
    assert(outcome == EB_KEY_OK);
    table->keys = &keys.index;
    query->id_map = NULL;
    run_query(query);
    table->keys = NULL;
    key_fixture_deinit(&keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    uint8_t *rows = malloc((size_t)ROW_COUNT * DIM_MAX * 8);
    assert(rows);
    struct eb_table table = take_table(&input, rows);
    uint8_t *scales = take_scales(&input, &table);
    struct eb_bag_query query = take_bag_query(&input, &table);
    query.max_ids = take_number(&input, 1);
    struct eb_id_map map;
    map.kind = (enum eb_id_map_kind)take_choice(&input, EB_ID_MAP_NONE, EB_ID_MAP_COUNT);
    map.seed = take_number(&input, 8);
    query.id_map = &map;
    int key_set = take_choice(&input, 0, KEY_SET_COUNT + 1);
    uint8_t *vector = take_vector(&input, &table);
    if (key_set > 0) {
        run_keyed(&query, &table, (enum key_set)(key_set - 1));
    } else {
        run_query(&query);
    }
    free((void *)query.indices.data);
    free((void *)query.bounds.data);
    free((void *)query.weights);
    free(vector);
    free(scales);
    free(rows);
    return 0;
}
