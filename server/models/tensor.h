/* One array in a file, as its header describes it: what the npy and safetensors readers give.
 * Thread, memory: plain data; the name is owned by whoever made the struct. */
#pragma once

#include "kernels/types.h"

#include <stdint.h>

#define EB_TENSOR_RANK_MAX 8

struct eb_tensor {
    enum eb_storage storage;
    uint32_t rank; /* at least 1 */
    uint64_t dims[EB_TENSOR_RANK_MAX];
    uint64_t data_offset; /* from the start of the file */
    uint64_t data_bytes;  /* product of dims times the element's bytes, checked */
};

/* What is wrong with a file, in one line: what, where and what to do. */
#define EB_FILE_FAULT_BYTES 512

struct eb_file_fault {
    char text[EB_FILE_FAULT_BYTES];
};
