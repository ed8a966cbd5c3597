#include "tests/unit/kernels/bag_fixture.h"

#include <stdlib.h>
#include <string.h>

struct eb_table table_of(enum eb_type type, const void *rows, uint64_t row_count, uint32_t dim)
{
    return (struct eb_table){
        .rows = rows,
        .row_count = row_count,
        .row_stride_bytes = dim * eb_type_bytes(type),
        .row_elements = dim,
        .storage = (enum eb_storage)type,
        .type = type,
        .unknown_row = -1,
    };
}

struct eb_table table_of_codes(enum eb_storage storage, const void *rows,
    const struct eb_row_scale *scales, uint64_t row_count, uint32_t dim)
{
    return (struct eb_table){
        .rows = rows,
        .row_count = row_count,
        .row_stride_bytes = eb_storage_row_bytes(storage, dim),
        .scales = scales,
        .scale_stride_bytes = sizeof scales[0],
        .row_elements = dim,
        .storage = storage,
        .type = EB_F32,
        .unknown_row = -1,
    };
}

struct eb_bag_query query_of(const struct eb_table *table)
{
    return (struct eb_bag_query){
        .table = table,
        .reduction = EB_REDUCTION_SUM,
        .missing = EB_MISSING_ERROR,
        .indices = NO_INTS,
        .bounds = NO_INTS,
    };
}

static void *allocate_scratch(const struct eb_bag_extent *extent)
{
    if (extent->scratch_bytes == 0) {
        return NULL;
    }
    void *scratch = aligned_alloc(64, extent->scratch_bytes);
    assert_non_null(scratch);
    return scratch;
}

static void assert_same_lines(
    const struct eb_bag_lines *actual, const struct eb_bag_lines *expected)
{
    assert_int_equal(actual->first, expected->first);
    assert_int_equal(actual->table_bytes, expected->table_bytes);
    assert_int_equal(actual->bytes, expected->bytes);
    assert_int_equal(actual->count, expected->count);
    assert_int_equal(actual->row_class, expected->row_class);
    assert_int_equal(actual->is_compact, expected->is_compact);
    assert_int_equal(actual->has_scales_apart, expected->has_scales_apart);
}

void assert_same_extent(const struct eb_bag_extent *actual, const struct eb_bag_extent *expected)
{
    assert_int_equal(actual->index_count, expected->index_count);
    assert_int_equal(actual->result_rows, expected->result_rows);
    assert_int_equal(actual->result_row_bytes, expected->result_row_bytes);
    assert_int_equal(actual->output_type, expected->output_type);
    assert_int_equal(actual->gather_row_bytes, expected->gather_row_bytes);
    assert_same_lines(&actual->lines, &expected->lines);
    assert_int_equal(actual->scratch_bytes, expected->scratch_bytes);
    assert_int_equal(actual->weights_offset, expected->weights_offset);
    assert_int_equal(actual->starts_offset, expected->starts_offset);
}

static void assert_same_job(const struct eb_bag_job *actual, const struct eb_bag_job *expected)
{
    uint32_t bag_count = expected->bag_count;
    uint32_t row_count = expected->starts ? expected->starts[bag_count] : bag_count;
    enum eb_type type = expected->table->type;
    size_t weight_bytes = eb_type_is_float(type) && type != EB_F64 ? 4 : 8;
    assert_int_equal(actual->bag_count, bag_count);
    assert_int_equal(actual->missing_count, expected->missing_count);
    assert_int_equal(actual->gather_bytes, expected->gather_bytes);
    assert_int_equal(actual->default_row, expected->default_row);
    assert_int_equal(actual->has_zero_rows, expected->has_zero_rows);
    assert_int_equal(actual->has_vector_rows, expected->has_vector_rows);
    assert_same_lines(&actual->lines, &expected->lines);
    bool is_copied = (const void *)expected->rows == expected->scratch;
    assert_ptr_equal(actual->rows, is_copied ? actual->scratch : (const void *)expected->rows);
    assert_memory_equal(actual->rows, expected->rows, row_count * sizeof actual->rows[0]);
    assert_int_equal(!actual->starts, !expected->starts);
    if (expected->starts) {
        size_t bytes = ((size_t)bag_count + 1) * sizeof actual->starts[0];
        assert_memory_equal(actual->starts, expected->starts, bytes);
    }
    assert_int_equal(!actual->weights, !expected->weights);
    if (expected->weights) {
        assert_memory_equal(actual->weights, expected->weights, row_count * weight_bytes);
    }
}

/* Checks the query with these ops, and expects the outcome that `fixture` holds. */
static void check_again(const struct bag_fixture *fixture, const struct eb_bag_query *query,
    const struct eb_bag_ops *ops, bool is_sound)
{
    struct eb_bag_error error = {0};
    struct eb_bag_job job = {.scratch = allocate_scratch(&fixture->extent)};
    assert_int_equal(eb_bag_check(ops, query, &fixture->extent, &job, &error), is_sound);
    if (is_sound) {
        assert_same_job(&job, &fixture->job);
    } else {
        assert_string_equal(error.text, fixture->error.text);
        assert_int_equal(error.class, fixture->error.class);
    }
    free(job.scratch);
}

/* Measures the query with its kind found in advance by eb_bag_kind_find, and expects the outcome
 * that `fixture` holds. */
static void measure_again(
    const struct bag_fixture *fixture, const struct eb_bag_query *query, bool is_sound)
{
    struct eb_bag_error error = {0};
    struct eb_bag_extent extent;
    struct eb_bag_kind kind;
    struct eb_bag_query known = *query;
    if (!eb_bag_kind_find(query, &kind, &error)) {
        assert_false(is_sound);
        return;
    }
    known.kind = &kind;
    memset(&extent, 0, sizeof extent);
    assert_int_equal(eb_bag_measure(&known, &extent, &error), is_sound);
    if (is_sound) {
        assert_same_extent(&extent, &fixture->extent);
    } else {
        assert_string_equal(error.text, fixture->error.text);
        assert_int_equal(error.class, fixture->error.class);
    }
}

bool bag_fixture_check(struct bag_fixture *fixture, const struct eb_bag_query *query)
{
    memset(fixture, 0, sizeof *fixture);
    bool is_measured = eb_bag_measure(query, &fixture->extent, &fixture->error);
    measure_again(fixture, query, is_measured);
    if (!is_measured) {
        return false;
    }
    fixture->job.scratch = allocate_scratch(&fixture->extent);
    bool is_sound = eb_bag_check(
        eb_bag_ops_find("ref"), query, &fixture->extent, &fixture->job, &fixture->error);
    const struct eb_bag_ops *ops;
    for (size_t n = 1; (ops = eb_bag_ops_at(n)); n++) {
        if (eb_bag_ops_runs_here(ops)) {
            check_again(fixture, query, ops, is_sound);
        }
    }
    return is_sound;
}

void bag_fixture_pool(struct bag_fixture *fixture, const struct eb_bag_ops *ops)
{
    uint64_t bytes = fixture->extent.result_rows * fixture->extent.result_row_bytes;
    fixture->out = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(fixture->out);
    memset(fixture->out, 0xa5, bytes);
    fixture->job.out = fixture->out;
    fixture->job.out_stride_bytes = fixture->extent.result_row_bytes;
    eb_bag_pool(ops, &fixture->job, 0, fixture->job.bag_count);
}

void bag_fixture_release(struct bag_fixture *fixture)
{
    free(fixture->job.scratch);
    free(fixture->out);
    memset(fixture, 0, sizeof *fixture);
}

void assert_error(const struct eb_bag_query *query, enum eb_bag_error_class class, const char *text)
{
    struct bag_fixture fixture;
    assert_false(bag_fixture_check(&fixture, query));
    assert_string_equal(fixture.error.text, text);
    assert_int_equal(fixture.error.class, class);
    bag_fixture_release(&fixture);
}

void assert_pools(const struct eb_bag_query *query, const void *expected, size_t bytes)
{
    struct bag_fixture fixture;
    if (!bag_fixture_check(&fixture, query)) {
        fail_msg("%s", fixture.error.text);
    }
    assert_int_equal(fixture.extent.result_rows * fixture.extent.result_row_bytes, bytes);
    bag_fixture_pool(&fixture, eb_bag_ops_find("ref"));
    assert_memory_equal(fixture.out, expected, bytes);
    bag_fixture_release(&fixture);
}

void assert_reduces_to(struct eb_bag_query *query, enum eb_reduction reduction,
    struct eb_int_array indices, const float *expected, size_t bytes)
{
    query->reduction = reduction;
    query->indices = indices;
    if (query->weights) {
        query->weights_type = EB_F32;
        query->weights_bytes = indices.bytes / indices.width * sizeof(float);
    }
    assert_pools(query, expected, bytes);
}
