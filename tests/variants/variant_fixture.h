/* A random lookup in memory between two guard pages, which any variant pools and whose result is
 * compared with the bytes of the reference.
 * Thread: one only. Memory: a fixture owns what it maps. */
#pragma once

#include "kernels/bag_parallel.h"
#include "tests/variants/variant_table.h"

/* Shapes of the bags of a trial. */
enum shape { SHAPE_RAGGED, SHAPE_LONG, SHAPE_EMPTY, SHAPE_SINGLE, SHAPE_NO_BAGS, SHAPE_COUNT };

/* Parameters of one trial. */
struct plan {
    enum eb_storage storage;
    enum eb_type type; /* unspecified: the storage's own type */
    uint32_t dim;
    enum eb_reduction reduction;
    enum eb_type output_type;
    bool is_weighted;
};

struct fixture {
    struct table_memory tables;
    struct guarded indices;
    struct guarded offsets;
    struct guarded weights;
    struct guarded out;
    uint8_t *expected;
    uint8_t *scratch;
    struct eb_table table;
    struct eb_bag_query query;
    struct eb_bag_extent extent;
    struct eb_bag_job job;
};

void fixture_init(struct fixture *fixture);
void fixture_deinit(struct fixture *fixture);

/* Draws a table and a query, and computes the reference's result. In one of four trials the job is
 * then replaced by the job of the same query with keys, if there is one. */
void fixture_draw(struct fixture *fixture, const struct plan *plan, enum shape shape);

/* Points `job.out` at cleared memory with any alignment, with guard bytes between rows. */
void fixture_clear_out(struct fixture *fixture);

/* Fails the test unless every result row equals the reference's and all bytes between rows are
 * unchanged. `who` is the name of the variant, for the message. */
void fixture_compare(const struct fixture *fixture, const char *who);
