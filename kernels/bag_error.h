/* Puts an error into words; for the files that check queries.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

/* Fills *error; the text is cut at its field's size. */
void eb_bag_error_format(struct eb_bag_error *error, enum eb_bag_error_class class,
    const char *format, ...) __attribute__((cold, format(printf, 3, 4)));

/* The same, as what a failed check returns: false, which compilers see here, so that of checks one
 * after the other nothing is tested twice. */
#define eb_bag_error_set(...) (eb_bag_error_format(__VA_ARGS__), false)
