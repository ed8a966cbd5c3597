/* A query brought as far as a test wants it: measured, checked, pooled. Memory that the kernels see
 * is allocated to the byte, so that a sanitizer sees what goes past it. */
#pragma once

#include "kernels/bag_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* An array of int32_t or int64_t as a query takes it. */
#define INTS(array) ((struct eb_int_array){(array), sizeof array, sizeof((array)[0])})
#define NO_INTS ((struct eb_int_array){NULL, 0, 8})
/* The values of an array, as an argument of a macro. */
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

/* A table of the type's own storage without a row for unknown ids. */
struct eb_table table_of(enum eb_type type, const void *rows, uint64_t row_count, uint32_t dim);

/* A table of rows of codes one right after the other, with an array of scales; T is f32. */
struct eb_table table_of_codes(enum eb_storage storage, const void *rows,
    const struct eb_row_scale *scales, uint64_t row_count, uint32_t dim);

/* SUM with missing indices as errors; everything else is for the test to say. */
struct eb_bag_query query_of(const struct eb_table *table);

/* Measures and checks, the same with every table of functions that runs here. false: fixture->error
 * says why. Either way it must be released. */
bool bag_fixture_check(struct bag_fixture *fixture, const struct eb_bag_query *query);
/* Pools a checked job from end to end into fixture->out, filled with 0xa5 before. */
void bag_fixture_pool(struct bag_fixture *fixture, const struct eb_bag_ops *ops);
void bag_fixture_release(struct bag_fixture *fixture);

/* That the query fails so, in measuring or checking. */
void assert_error(
    const struct eb_bag_query *query, enum eb_bag_error_class class, const char *text);
/* That the query's result by the reference is these bytes. */
void assert_pools(const struct eb_bag_query *query, const void *expected, size_t bytes);

/* That one bag of these rows, LIST(row...), reduced so by the reference, is LIST(f32...). */
#define assert_reduces(query, reduction, rows, expected)                                           \
    assert_reduces_to(                                                                             \
        query, reduction, INTS(((int64_t[])rows)), (float[])expected, sizeof((float[])expected))
/* The same. Weights, where the query has any, are f32, as many as there are indices. */
void assert_reduces_to(struct eb_bag_query *query, enum eb_reduction reduction,
    struct eb_int_array indices, const float *expected, size_t bytes);
