/* NAME.safetensors.index.json: {"metadata": {...}, "weight_map": {TENSOR: FILE, ...}}, as
 * transformers and others write it beside tensors that are spread over several files.
 * Thread: one at a time. Memory: the list is on the heap. */
#pragma once

#include "server/base/failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest file that is read; version_scan.h says what memory it must find. */
#define EB_TENSOR_INDEX_BYTES_MAX 100000000

struct eb_tensor_place {
    char *tensor;
    char *file; /* a name without a folder */
};

struct eb_tensor_index {
    size_t count;
    struct eb_tensor_place *places;
};

/* false: *failure, without the path; *index is empty. */
bool eb_tensor_index_parse(const uint8_t *json, size_t json_bytes, struct eb_tensor_index *index,
    struct eb_failure *failure);
/* Accepts a zeroed index. */
void eb_tensor_index_deinit(struct eb_tensor_index *index);
