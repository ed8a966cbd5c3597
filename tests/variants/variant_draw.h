/* Random numbers, and memory filled with what arithmetic finds hard.
 * Thread: one only, there is one sequence. Memory: none. */
#pragma once

#include "kernels/bag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Seeds draw(): EMBAG_TEST_SEED, else the clock; printed. */
void draw_seed(void);
/* A number below `below`, which is not 0. */
uint32_t draw(uint32_t below);

/* Elements of a row, or weights, of one kind: extremes of a format, any bits at all, or numbers of
 * everyday size, which floats are most of the time. */
void draw_values(uint8_t *bytes, size_t count, enum eb_storage storage);

/* Scales and biases of everyday size for codes of that storage, or extreme ones among them, or any
 * bits at all. */
void draw_scales(struct eb_row_scale *scales, uint64_t count, enum eb_storage storage);
