/* Puts a fault into words; for the files that check queries.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

/* Fills *fault; the text is cut at its field's size. */
void eb_bag_fault_put(struct eb_bag_fault *fault, enum eb_fault_class class, const char *format,
    ...) __attribute__((cold, format(printf, 3, 4)));

/* The same, as what a failed check returns: false, which compilers see here, so that of checks one
 * after the other nothing is tested twice. */
#define eb_bag_fault_set(...) (eb_bag_fault_put(__VA_ARGS__), false)
