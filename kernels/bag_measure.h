/* Parts of measuring and checking that several files need: the texts of errors, the size of
 * weights, and the extent of a query whose counts are known already.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

/* Fills in *error. Truncates the text to the size of its field. */
void eb_bag_error_format(struct eb_bag_error *error, enum eb_bag_error_class class,
    const char *format, ...) __attribute__((cold, format(printf, 3, 4)));

/* Does what eb_bag_error_format does, and evaluates to false, the value that a failed check
 * returns. Because compilers see that constant here, they need not test the result of one check
 * again before the next check. */
#define eb_bag_error_set(...) (eb_bag_error_format(__VA_ARGS__), false)

static inline bool eb_bag_weights_are_given(const struct eb_bag_query *query)
{
    return query->weights || query->weights_bytes > 0;
}

/* Returns the size of a weight in a job for a table whose T is `type`: 4 or 8 bytes. */
uint64_t eb_bag_weights_bytes(enum eb_type type);

#define EB_BAG_SCRATCH_ALIGNMENT 64

/* Fills in the extent of a query whose counts are known and sound. Sizes come from `kind`. The
 * scratch holds row numbers, then weights if they are given, then the bags' starts unless the
 * reduction is NONE. No sum can wrap within EB_BAG_INDICES_MAX and EB_BAG_BAGS_MAX. */
static inline void eb_bag_extent_fill(const struct eb_bag_query *query,
    const struct eb_bag_kind *kind, uint64_t index_count, uint64_t result_rows,
    struct eb_bag_extent *extent)
{
    uint64_t bytes = index_count * sizeof(int64_t);
    extent->index_count = index_count;
    extent->result_rows = result_rows;
    extent->result_row_bytes = kind->result_row_bytes;
    extent->output_type = kind->output_type;
    extent->gather_row_bytes = kind->gather_row_bytes;
    extent->lines = kind->lines;
    extent->weights_offset = 0;
    if (eb_bag_weights_are_given(query)) {
        /* Without indices, weights_offset is 0, as it is without weights. */
        extent->weights_offset = bytes;
        bytes += index_count * eb_bag_weights_bytes(query->table->type);
    }
    extent->starts_offset = bytes;
    if (query->reduction != EB_REDUCTION_NONE) {
        bytes += (result_rows + 1) * sizeof(uint32_t);
    }
    /* The scratch of the next query follows, and must be aligned too. */
    extent->scratch_bytes = (bytes + EB_BAG_SCRATCH_ALIGNMENT - 1) / EB_BAG_SCRATCH_ALIGNMENT *
                            EB_BAG_SCRATCH_ALIGNMENT;
}

/* Does the same as eb_bag_measure for a query of LENGTHS whose num_bags lengths add up to its
 * index_count indices. */
static inline bool eb_bag_measure_counted(const struct eb_bag_query *query, uint64_t index_count,
    struct eb_bag_extent *extent, struct eb_bag_error *error)
{
    if (!query->kind || eb_bag_weights_are_given(query) || query->reduction == EB_REDUCTION_NONE ||
        index_count > EB_BAG_INDICES_MAX || query->num_bags > EB_BAG_BAGS_MAX) {
        return eb_bag_measure(query, extent, error);
    }
    eb_bag_extent_fill(query, query->kind, index_count, query->num_bags, extent);
    return true;
}
