/* Reads and writes NumPy's .npy format, versions 1.0 to 3.0: C order, little-endian, every element
 * type of tables that it can hold (f2 f4 f8, i1 to i8, u1 to u8). Source: the documentation of
 * numpy.lib.format.
 * Thread: pure. Memory: none. */
#pragma once

#include "server/formats/tensor.h"

#include <stdbool.h>

/* Most bytes at the beginning of a file that eb_npy_parse needs. */
#define EB_NPY_HEADER_BYTES_MAX 65536

/* Reads a header. `head` is the first head_bytes = min(file_bytes, EB_NPY_HEADER_BYTES_MAX) bytes
 * of a file of file_bytes bytes. The data must fill the rest of the file exactly. Returns false if
 * the header is not valid or does not fit the file: *failure says what is wrong and where. */
bool eb_npy_parse(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_tensor *tensor, struct eb_failure *failure);

/* Writes the header of a version 1.0 file for the storage, rank and dims of `tensor`. Sets
 * data_offset to the header's size, a multiple of 64. Returns the number of bytes in the header.
 * Returns 0 if npy cannot hold that storage, or if the header is longer than out_bytes. */
uint64_t eb_npy_header_write(struct eb_tensor *tensor, uint8_t *out, uint64_t out_bytes);
