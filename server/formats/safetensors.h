/* Reads the safetensors format: a length, a JSON header, raw little-endian data. Supports all of
 * the format's numeric types that tables can have (F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I8 to I64 U8 to
 * U64). Source: the format section of the safetensors documentation. The format's rules are
 * enforced: no holes, no overlaps, nothing after the last tensor, unique names. A tensor with an
 * unknown field is refused. A valid tensor that cannot be a table (a scalar, a mask, a type that
 * the format may add later) is listed with the reason.
 * Thread: one at a time. Memory: the list is on the heap. */
#pragma once

#include "server/base/failure.h"
#include "server/formats/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest JSON header, as in the reference implementation. version_scan.h says how much memory must
 * be available for it. */
#define EB_SAFETENSORS_HEADER_BYTES_MAX 100000000

struct eb_safetensors_entry {
    char *name;
    struct eb_tensor tensor; /* if unfit, only data_offset and data_bytes are set */
    char *unfit;             /* reason why it cannot be a table; NULL if it can */
};

struct eb_safetensors {
    size_t count;
    struct eb_safetensors_entry *entries; /* in the order of their data */
};

/* Reads the 8 length bytes. *head_bytes is the size of the whole head, with those 8 bytes. Returns
 * false with *failure set if the length is not valid. */
bool eb_safetensors_head_bytes(
    const uint8_t first[8], uint64_t file_bytes, uint64_t *head_bytes, struct eb_failure *failure);
/* Parses the whole head. It must list at least one tensor, but none of them need be a table.
 * Returns false with *failure set and *out empty if the head is not valid. */
bool eb_safetensors_parse(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_safetensors *out, struct eb_failure *failure);
/* Accepts a zeroed list. */
void eb_safetensors_deinit(struct eb_safetensors *list);

/* ---- tensor index ---- */

/* Reads NAME.safetensors.index.json: {"metadata": {...}, "weight_map": {TENSOR: FILE, ...}}.
 * transformers and others write it beside tensors that are spread over several files.
 * Thread: one at a time. Memory: the list is on the heap. */

/* Largest file that is read. version_scan.h says how much memory must be available for it. */
#define EB_TENSOR_INDEX_BYTES_MAX 100000000

struct eb_tensor_location {
    char *tensor;
    char *file; /* name without a directory */
};

struct eb_tensor_index {
    size_t count;
    struct eb_tensor_location *locations;
};

/* Parses the file's content. If the content is not valid, returns false with *index empty: *failure
 * has the reason, without the path. */
bool eb_tensor_index_parse(const uint8_t *json, size_t json_bytes, struct eb_tensor_index *index,
    struct eb_failure *failure);
/* Accepts a zeroed index. */
void eb_tensor_index_deinit(struct eb_tensor_index *index);
