/* Reads numbers and choices from a fuzz target's input, and checks conditions. After the end of the
 * input, all numbers are zero.
 * Thread: one. Memory: borrows the input. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The part of the input that has not been taken yet. */
struct input {
    const uint8_t *data;
    size_t size;
};

/* Takes a little-endian number of at most 8 bytes. */
static inline uint64_t take_number(struct input *input, size_t bytes)
{
    uint64_t number = 0;
    size_t taken = bytes < input->size ? bytes : input->size;
    if (taken > 0) {
        memcpy(&number, input->data, taken);
        input->data += taken;
        input->size -= taken;
    }
    return number;
}

/* Takes a number from `first` to `end` - 1. */
static inline int take_choice(struct input *input, int first, int end)
{
    return first + (int)(take_number(input, 1) % (uint64_t)(end - first));
}

/* Aborts, which the fuzzer reports as a crash, unless the condition holds. */
static inline void require(bool condition)
{
    if (!condition) {
        abort();
    }
}
