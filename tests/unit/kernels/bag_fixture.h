/* A query that is measured, checked and pooled, as far as a test needs. Memory that the kernels see
 * has no spare byte, so that a sanitizer catches any access past its end. */
#pragma once

#include "kernels/bag_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* An array of int32_t or int64_t as a query takes it. */
#define INTS(array) ((struct eb_int_array){(array), sizeof array, sizeof((array)[0])})
#define NO_INTS ((struct eb_int_array){NULL, 0, 8})
/* The values of an array as one macro argument. */
#define LIST(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

struct bag_fixture {
    struct eb_bag_extent extent;
    struct eb_bag_error error;
    struct eb_bag_job job;
    uint8_t *out; /* result rows without gaps */
};

/* Returns a table in the type's own storage, without a row for unknown ids. */
struct eb_table table_of(enum eb_type type, const void *rows, uint64_t row_count, uint32_t dim);

/* Returns an f32 table of contiguous rows of codes, with a separate array of scales. */
struct eb_table table_of_codes(enum eb_storage storage, const void *rows,
    const struct eb_row_scale *scales, uint64_t row_count, uint32_t dim);

/* Returns a SUM query to which a missing index is an error. The test sets everything else. */
struct eb_bag_query query_of(const struct eb_table *table);

/* Measures and checks the query, and expects the same outcome with every table of functions that
 * runs here. Returns false if the query is refused, with fixture->error set. The caller releases
 * the fixture in either case. */
bool bag_fixture_check(struct bag_fixture *fixture, const struct eb_bag_query *query);
/* Pools a checked job from end to end into fixture->out, which is filled with 0xa5 first. */
void bag_fixture_pool(struct bag_fixture *fixture, const struct eb_bag_ops *ops);
void bag_fixture_release(struct bag_fixture *fixture);

void assert_same_extent(const struct eb_bag_extent *actual, const struct eb_bag_extent *expected);

/* Expects measuring or checking to refuse the query with this error. */
void assert_error(
    const struct eb_bag_query *query, enum eb_bag_error_class class, const char *text);
/* Expects these bytes as the reference's result of the query. */
void assert_pools(const struct eb_bag_query *query, const void *expected, size_t bytes);

/* Expects one bag of the rows LIST(row...), reduced this way by the reference, to give
 * LIST(f32...). */
#define assert_reduces(query, reduction, rows, expected)                                           \
    assert_reduces_to(                                                                             \
        query, reduction, INTS(((int64_t[])rows)), (float[])expected, sizeof((float[])expected))
/* Does the same as assert_reduces, for arrays. If the query has weights, they are f32, one per
 * index. */
void assert_reduces_to(struct eb_bag_query *query, enum eb_reduction reduction,
    struct eb_int_array indices, const float *expected, size_t bytes);
