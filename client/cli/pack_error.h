/* What a table loses by being stored otherwise: the errors of its values, and of sums of bags of
 * its rows, drawn at random.
 * Thread: one at a time. Memory: the sample of bags is on the heap. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of a bag of the sample. */
#define EB_PACK_ERROR_BAG_ROWS 20
/* Bags of the sample, fewer where their sums would take more than this memory, but one at least. */
#define EB_PACK_ERROR_BAGS_MAX 256
#define EB_PACK_ERROR_BYTES_MAX (UINT64_C(64) << 20)

/* Absolute errors. A value that is not finite has none where it is what it was, an infinite one
 * otherwise. */
struct eb_pack_deviation {
    double max;
    uint64_t max_row; /* of values: where it is */
    double sum;
    uint64_t count;
};

struct eb_pack_draw;

struct eb_pack_error {
    uint32_t elements;
    struct eb_pack_deviation values;
    size_t bag_count;
    size_t draw_count;
    size_t next_draw;
    struct eb_pack_draw *draws; /* which row goes to which bag, by row */
    double *exact_sums;         /* [bag_count][elements] */
    double *stored_sums;        /* [bag_count][elements] */
};

/* Of a table of so many rows. false: out of memory. */
bool eb_pack_error_init(struct eb_pack_error *error, uint64_t row_count, uint32_t elements);
/* Accepts a zeroed struct. */
void eb_pack_error_deinit(struct eb_pack_error *error);

/* Counts a row, of which there are the values and what is read back; rows come in order, from 0. */
void eb_pack_error_add(
    struct eb_pack_error *error, uint64_t row, const float *exact, const float *stored);

/* The errors of the bags' sums. */
struct eb_pack_deviation eb_pack_error_bags(const struct eb_pack_error *error);
double eb_pack_error_mean(const struct eb_pack_deviation *deviation);
