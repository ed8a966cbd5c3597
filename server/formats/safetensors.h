/* Reads the safetensors format: a length, a JSON header, raw little-endian data. Supports all of
 * the format's numeric types that tables can have (F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I8 to I64 U8 to
 * U64). Source: the format section of the safetensors documentation. The format's rules are
 * enforced: no holes, no overlaps, nothing after the last tensor, unique names. The field
 * __metadata__ and unknown fields of tensors are passed over. A valid tensor that cannot be a table
 * (a scalar, a mask, a type that the format may add later) is listed too, with the reason.
 * Thread: one at a time. Memory: the list is on the heap. With what parsing takes in addition, it
 * is no larger than the head. */
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
    const char *name;     /* in the head */
    uint64_t data_offset; /* from the start of the file */
    uint64_t data_bytes;
};

struct eb_safetensors {
    const uint8_t *head; /* borrowed */
    uint64_t head_bytes;
    size_t count;
    struct eb_safetensors_entry *entries; /* in the order of their data */
    size_t passed_over_count;             /* fields that were passed over */
    char passed_over[64];                 /* the beginning of the first one's name, as written */
};

/* Reads the 8 length bytes. *head_bytes is the size of the whole head, with those 8 bytes. Returns
 * false with *failure set if the length is not valid. */
bool eb_safetensors_head_bytes(
    const uint8_t first[8], uint64_t file_bytes, uint64_t *head_bytes, struct eb_failure *failure);
/* Parses the whole head. It must list at least one tensor, but none of them need be a table.
 * Changes the head's contents, and borrows it until the list is freed. Returns false with *failure
 * set and *out empty if the head is not valid. */
bool eb_safetensors_parse(uint8_t *head, uint64_t head_bytes, uint64_t file_bytes,
    struct eb_safetensors *out, struct eb_failure *failure);
/* Describes the n-th tensor. Returns false if it cannot be a table: then *unfit says why, and only
 * data_offset and data_bytes of *tensor are set. */
bool eb_safetensors_tensor(const struct eb_safetensors *list, size_t n, struct eb_tensor *tensor,
    struct eb_failure *unfit);
/* Accepts a zeroed list. */
void eb_safetensors_deinit(struct eb_safetensors *list);

/* ---- tensor index ---- */

/* Reads NAME.safetensors.index.json: {"metadata": {...}, "weight_map": {TENSOR: FILE, ...}}.
 * transformers and others write it beside tensors that are spread over several files.
 * Thread: one at a time. Memory: the list is on the heap; its texts are in the file's content. */

/* Largest file that is read. version_scan.h says how much memory must be available for it. */
#define EB_TENSOR_INDEX_BYTES_MAX 100000000

struct eb_tensor_location {
    const char *tensor;
    const char *file; /* name without a directory */
};

struct eb_tensor_index {
    size_t count;
    struct eb_tensor_location *locations; /* sorted by tensor */
};

/* Parses the file's content, changes it, and borrows it until the index is freed. If the content is
 * not valid, returns false with *index empty: *failure has the reason, without the path. */
bool eb_tensor_index_parse(
    uint8_t *json, size_t json_bytes, struct eb_tensor_index *index, struct eb_failure *failure);
/* Accepts a zeroed index. */
void eb_tensor_index_deinit(struct eb_tensor_index *index);
