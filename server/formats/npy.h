/* NumPy's .npy format, versions 1.0 to 3.0: C order, little-endian, every element type of ours
 * that it can hold (f2 f4 f8, i1 to i8, u1 to u8). Source: numpy.lib.format's documentation.
 * Thread: pure. Memory: none. */
#pragma once

#include "server/formats/tensor.h"

#include <stdbool.h>

/* Bytes of a file's beginning that eb_npy_parse needs to see at most. */
#define EB_NPY_HEADER_BYTES_MAX 65536

/* `head` is the first head_bytes = min(file_bytes, EB_NPY_HEADER_BYTES_MAX) bytes of a file of
 * file_bytes. Data must fill the file exactly. false: *failure says what is wrong and where. */
bool eb_npy_parse(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_tensor *tensor, struct eb_failure *failure);

/* Writes the header of a version 1.0 file for `tensor` (its storage, rank and dims; data_offset is
 * set to the header's size, a multiple of 64). Returns the header's bytes, at most out_bytes, or 0
 * where npy cannot hold that storage or out is too small. */
uint64_t eb_npy_header_write(struct eb_tensor *tensor, uint8_t *out, uint64_t out_bytes);
