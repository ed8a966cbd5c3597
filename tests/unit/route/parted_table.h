/* A table, and the same table divided among parts, as servers would have it; and requests on both.
 * Thread: one. Memory: on the heap; a fixture owns what it allocates. */
#pragma once

#include "server/route/route_merge.h"
#include "tests/unit/kernels/bag_fixture.h"
#include "tests/unit/kernels/key_fixture.h"

#include <stdbool.h>

#define PARTED_PARTS_MAX 16

/* How a table and requests on it are drawn. */
struct parted_options {
    enum eb_type type;
    enum eb_storage storage;
    uint32_t parts;
    uint64_t row_count;
    uint32_t row_elements;
    bool is_keyed;
    bool has_unknown_row;
    bool has_vector;
    bool unknown_is_vector; /* with has_vector */
    bool is_whole;          /* it is not divided; parts is 1 */
    /* Values, scales and weights are so few and small that every sum is exact in f32. */
    bool is_exact;
};

struct parted_table {
    struct parted_options options;
    uint64_t random; /* state of splitmix64.h */
    struct eb_part_rule rule;
    struct eb_table whole;
    struct eb_table remote; /* as a router has it: without rows */
    struct eb_table parts[PARTED_PARTS_MAX];
    int64_t *keys; /* [row_count] keys of the whole table's rows; NULL if it is not keyed */
    struct key_fixture whole_keys;
    struct key_fixture part_keys[PARTED_PARTS_MAX];
    void *vector;
    struct eb_arena arena;
};

void parted_init(struct parted_table *table, const struct parted_options *options, uint64_t seed);
void parted_deinit(struct parted_table *table);

/* A request on the table: the arrays that its query points to. */
struct parted_request {
    struct eb_bag_query query; /* on table->whole */
    int64_t *indices;
    int32_t *lengths; /* or segment ids */
    void *weights;
};

/* Draws a request with this reduction and policy. Indices are missing only if they may be. */
void parted_draw(struct parted_table *table, enum eb_reduction reduction, enum eb_missing missing,
    struct parted_request *request);
void parted_request_deinit(struct parted_request *request);

/* Computes a request on the whole table. The caller frees the values. */
uint8_t *parted_pool_whole(const struct eb_bag_query *query, size_t *bytes);

/* Checks a request on the table as a router has it. The caller releases *fixture. */
void parted_check(
    struct parted_table *table, const struct eb_bag_query *query, struct bag_fixture *fixture);
/* Computes a sub-query on its part. The caller frees result->values, missing_positions and shape.
 */
void parted_answer(const struct parted_table *table, const struct eb_route_sub *sub,
    struct eb_wire_result *result);
void parted_answer_free(struct eb_wire_result *result);

#define PARTED_NO_PART UINT32_MAX

struct parted_outcome {
    uint32_t left_out; /* set by the caller: a part that is not reached, or PARTED_NO_PART */
    size_t bytes;      /* of the values */
    uint64_t missing;
    uint64_t unreached; /* rows of the part that was left out */
    uint64_t stand_ins; /* those that may replace missing row numbers */
    bool lacks_default; /* an empty bag is zeros because its default row was left out */
};

/* Splits a request, with random caps, has the parts answer, and merges. Some answers come twice.
 * The caller frees the values. Must not be called for ERROR if a key is missing. */
uint8_t *parted_pool(struct parted_table *table, const struct eb_bag_query *query,
    const struct eb_bag_ops *ops, struct parted_outcome *outcome);
