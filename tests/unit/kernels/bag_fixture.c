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

bool bag_fixture_check(struct bag_fixture *fixture, const struct eb_bag_query *query)
{
    memset(fixture, 0, sizeof *fixture);
    if (!eb_bag_measure(query, &fixture->extent, &fixture->fault)) {
        return false;
    }
    if (fixture->extent.scratch_bytes > 0) {
        fixture->job.scratch = aligned_alloc(64, fixture->extent.scratch_bytes);
        assert_non_null(fixture->job.scratch);
    }
    return eb_bag_check(
        eb_bag_ops_find(NULL), query, &fixture->extent, &fixture->job, &fixture->fault);
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

void assert_fault(const struct eb_bag_query *query, enum eb_fault_class class, const char *text)
{
    struct bag_fixture fixture;
    assert_false(bag_fixture_check(&fixture, query));
    assert_string_equal(fixture.fault.text, text);
    assert_int_equal(fixture.fault.class, class);
    bag_fixture_release(&fixture);
}

void assert_pools(const struct eb_bag_query *query, const void *expected, size_t bytes)
{
    struct bag_fixture fixture;
    if (!bag_fixture_check(&fixture, query)) {
        fail_msg("%s", fixture.fault.text);
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
