/* Puts a fault into words; for the files that check queries.
 * Thread: pure. Memory: none. */
#pragma once

#include "kernels/bag.h"

/* Fills *fault; the text is cut at its field's size. Always returns false, what a failed check
 * returns. */
bool eb_bag_fault_set(struct eb_bag_fault *fault, enum eb_fault_class class, const char *format,
    ...) __attribute__((cold, format(printf, 3, 4)));
