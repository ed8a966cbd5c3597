/* C interface of FBGEMM's embedding kernels. In a build without FBGEMM, no kernel can be created.
 * Thread: a kernel may run in any number of threads. Memory: heap, until destroyed. */
#pragma once

#include "kernels/types.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct eb_fbgemm_kernel;

struct eb_fbgemm_shape {
    enum eb_storage storage;
    uint32_t dim;
    uint64_t row_stride_bytes; /* of FBGEMM's rows, in which scale and bias are fused with codes */
    enum eb_type output_type;
    bool is_weighted;
    bool is_mean; /* otherwise it is a sum */
};

struct eb_fbgemm_call {
    const void *rows;
    uint64_t row_count;
    const int64_t *indices; /* [index_count] */
    uint64_t index_count;
    const int32_t *offsets; /* [bag_count + 1] */
    uint32_t bag_count;
    const float *weights; /* [index_count]; NULL: none */
    void *out;            /* [bag_count, dim] */
};

/* Returns whether the build has FBGEMM. */
bool eb_fbgemm_is_built(void);

/* Creates the kernel, including code generation. Returns NULL if FBGEMM has no such kernel. */
struct eb_fbgemm_kernel *eb_fbgemm_create(const struct eb_fbgemm_shape *shape);
/* Destroys the kernel. NULL is allowed. */
void eb_fbgemm_destroy(struct eb_fbgemm_kernel *kernel);
/* Returns whether FBGEMM generates code for this shape. Otherwise the kernel is FBGEMM's
 * plain reference code, and a comparison with it is not fair. */
bool eb_fbgemm_is_tuned(const struct eb_fbgemm_shape *shape);

/* Runs `call_count` calls one after another. Returns false if FBGEMM refused one of them. */
bool eb_fbgemm_run(
    const struct eb_fbgemm_kernel *kernel, const struct eb_fbgemm_call *calls, uint64_t call_count);

#ifdef __cplusplus
}
#endif
