/* Random numbers, and memory filled with values that are hard cases for arithmetic.
 * Thread: one only, because there is one sequence. Memory: none. */
#pragma once

#include "kernels/bag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Seeds draw() with EMBAG_TEST_SEED, or else with the clock, and prints the seed. */
void draw_seed(void);
/* Returns a number from 0 to `below` - 1. `below` is not 0. */
uint32_t draw(uint32_t below);

/* Fills `count` bytes with elements of a row, or weights: extremes of the format, arbitrary bits,
 * or (most often for floats) numbers of ordinary size. */
void draw_values(uint8_t *bytes, size_t count, enum eb_storage storage);

/* Draws scales and biases for codes of this storage: of ordinary size, with some extreme ones, or
 * arbitrary bits. */
void draw_scales(struct eb_row_scale *scales, uint64_t count, enum eb_storage storage);
