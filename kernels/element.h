/* One element of a row: from its bytes to a value and back, in plain C. The reference computes with
 * these functions, and every faster conversion must equal them to the bit.
 * Thread: pure functions. Memory: none; elements are little-endian, at any alignment. */
#pragma once

#include "kernels/types.h"

#include <stdint.h>

/* Returns the value of a floating-point element that is not a code. A double holds every such value
 * exactly. A NaN stays a NaN, but its payload is not kept. */
double eb_element_load_float(enum eb_storage storage, const void *element);

/* Stores `value` as the floating-point `type`, rounded once, to nearest, ties to even. Subnormals
 * are kept, values that are too large become infinite, and every NaN becomes the positive quiet
 * NaN. If an f32 holds `value` exactly, the result is that of converting the f32. */
void eb_element_store_float(enum eb_type type, double value, void *element);

/* Returns the code of an element of a row of INT8, INT4 or INT2. `row` is the start of the row. */
unsigned eb_element_load_code(enum eb_storage storage, const void *row, uint32_t element);

/* Returns an integer element, sign-extended if its type is signed. */
uint64_t eb_element_load_int(enum eb_type type, const void *element);

/* Stores the low bits of `value`. */
void eb_element_store_int(enum eb_type type, uint64_t value, void *element);
