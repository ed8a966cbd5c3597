/* One array in a file, as its header describes it: what the npy and safetensors readers give.
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
    uint64_t data_offset; /* from the start of the file */
    uint64_t data_bytes;  /* product of dims times the element's bytes, checked */
};

/* Appends a dim. false: *failure, there are EB_TENSOR_RANK_MAX already. */
bool eb_tensor_add_dim(struct eb_tensor *tensor, uint64_t dim, struct eb_failure *failure);

/* Sets data_bytes from storage, rank and dims. false: *failure, where the array cannot be a table:
 * rank 0, rows of no value, a size that 64 bits do not hold. */
bool eb_tensor_measure(struct eb_tensor *tensor, struct eb_failure *failure);

/* Elements of one row: the product of the trailing dims. Only for a measured tensor. */
uint64_t eb_tensor_row_elements(const struct eb_tensor *tensor);

/* Bytes for the longest shape: eight numbers of 20 digits, separated, in brackets. */
#define EB_TENSOR_SHAPE_BYTES 192

/* The shape as Python writes a tuple: "(5, 2)", "(5,)". Returns its length. */
size_t eb_tensor_shape_text(const struct eb_tensor *tensor, char out[EB_TENSOR_SHAPE_BYTES]);
