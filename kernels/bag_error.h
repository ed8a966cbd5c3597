/* Formats errors, for the files that check queries.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

/* Fills in *error. The text is cut at its field's size. */
void eb_bag_error_format(struct eb_bag_error *error, enum eb_bag_error_class class,
    const char *format, ...) __attribute__((cold, format(printf, 3, 4)));

/* Does the same and evaluates to false, the value that a failed check returns. Since compilers see
 * the constant here, consecutive checks test nothing twice. */
#define eb_bag_error_set(...) (eb_bag_error_format(__VA_ARGS__), false)
