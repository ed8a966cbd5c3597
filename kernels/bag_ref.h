/* The reference for one bag: the operation as bag.h specifies it, an element at a time.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

/* A bag of at least one row: job->rows[first .. end). */
struct eb_bag_ref_bag {
    const struct eb_bag_job *job;
    uint32_t first;
    uint32_t end;
    uint32_t element_first; /* first of the columns to compute */
    uint32_t element_end;
};

/* Writes these columns of the bag's row of the result, which begins at `out`. There is one function
 * for each type that sums are kept in: float (f32, f16, bf16, fp8 and codes), double (f64) and
 * 64-bit integers (all integer tables). */
void eb_bag_ref_row_f32(const struct eb_bag_ref_bag *bag, uint8_t *out);
void eb_bag_ref_row_f64(const struct eb_bag_ref_bag *bag, uint8_t *out);
void eb_bag_ref_row_int(const struct eb_bag_ref_bag *bag, uint8_t *out);
