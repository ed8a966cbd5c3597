/* One array in a file, as its header describes it: the result of the npy and safetensors readers.
 * Thread: pure functions. Memory: plain data. */
#pragma once

#include "kernels/types.h"
#include "server/base/failure.h"

#include <stdint.h>

#define EB_TENSOR_RANK_MAX 8

struct eb_tensor {
    enum eb_storage storage;
    uint32_t rank; /* at least 1 */
    uint64_t dims[EB_TENSOR_RANK_MAX];
    uint64_t data_offset; /* offset of the data from the start of the file */
    uint64_t data_bytes;  /* product of dims times the element's bytes, checked */
};

/* Appends a dim. Returns false with *failure set if there are EB_TENSOR_RANK_MAX already. */
bool eb_tensor_add_dim(struct eb_tensor *tensor, uint64_t dim, struct eb_failure *failure);

/* Sets data_bytes from storage, rank and dims. Returns false with *failure set if the array cannot
 * be a table: its rank is 0, its rows have no values, or its size exceeds 64 bits. */
bool eb_tensor_measure(struct eb_tensor *tensor, struct eb_failure *failure);

/* Returns the number of elements in one row, which is the product of the trailing dims. The tensor
 * must be measured. */
uint64_t eb_tensor_row_elements(const struct eb_tensor *tensor);

/* Room for the text of the longest shape: eight numbers of 20 digits, separators and brackets. */
#define EB_TENSOR_SHAPE_BYTES 192

/* Writes the shape as Python writes a tuple: "(5, 2)", "(5,)". Returns its length. */
size_t eb_tensor_shape_text(const struct eb_tensor *tensor, char out[EB_TENSOR_SHAPE_BYTES]);
