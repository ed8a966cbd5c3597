/* A random lookup in memory that lies between two guard pages, pooled by any table of functions
 * and compared with the reference's bytes.
 * Thread: one only. Memory: a trial owns what it maps. */
#pragma once

#include "kernels/bag_parallel.h"
#include "tests/variants/variant_table.h"

/* How the bags of a trial lie. */
enum shape { SHAPE_RAGGED, SHAPE_LONG, SHAPE_EMPTY, SHAPE_SINGLE, SHAPE_NO_BAGS, SHAPE_COUNT };

/* What is chosen for one trial. */
struct plan {
    enum eb_storage storage;
    enum eb_type type; /* unspecified: the storage's */
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

/* Draws a table, a query and the reference's result. In one trial of four the job is then that of
 * the same query by keys. */
void fixture_draw(struct fixture *fixture, const struct plan *plan, enum shape shape);

/* Points the job at cleared memory, `job.out` at any alignment, guard bytes between rows. */
void fixture_clear_out(struct fixture *fixture);

/* That every result row equals the reference's and every byte between them is untouched. `who`
 * names what pooled. */
void fixture_compare(const struct fixture *fixture, const char *who);
