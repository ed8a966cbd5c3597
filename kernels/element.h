/* One element of a row: from its bytes to a value and back, in plain C. What the reference computes
 * with, and what every faster conversion must equal to the bit.
 * Thread: pure functions. Memory: none; elements are little-endian, at any alignment. */
#pragma once

#include "kernels/types.h"

#include <stdint.h>

/* The value of a floating-point element, which is no code; a double holds every one of them
 * exactly. A NaN stays a NaN, its payload is not kept. */
double eb_element_load_float(enum eb_storage storage, const void *element);

/* Stores `value` as the floating-point `type`, rounded once, to nearest, ties to even; subnormals
 * are kept, too large values become infinite, every NaN becomes the positive quiet one. A value
 * that is a float's is thereby converted from f32. */
void eb_element_store_float(enum eb_type type, double value, void *element);

/* The code of an element of a row of INT8, INT4 or INT2: `row` is where the row starts. */
unsigned eb_element_load_code(enum eb_storage storage, const void *row, uint32_t element);

/* An integer element, sign-extended where its type has a sign. */
uint64_t eb_element_load_int(enum eb_type type, const void *element);

/* Stores the low bits of `value`. */
void eb_element_store_int(enum eb_type type, uint64_t value, void *element);
