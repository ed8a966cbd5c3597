#include "server/formats/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

static_assert(EB_TENSOR_SHAPE_BYTES > EB_TENSOR_RANK_MAX * 22 + 2, "the longest shape fits");

bool eb_tensor_add_dim(struct eb_tensor *tensor, uint64_t dim, struct eb_failure *failure)
{
    if (tensor->rank == EB_TENSOR_RANK_MAX) {
        return eb_failure_set(failure,
            "field 'shape': more than %d dimensions; reshape the array to rows of one dimension",
            EB_TENSOR_RANK_MAX);
    }
    tensor->dims[tensor->rank++] = dim;
    return true;
}

bool eb_tensor_measure(struct eb_tensor *tensor, struct eb_failure *failure)
{
    if (tensor->rank == 0) {
        return eb_failure_set(failure,
            "field 'shape': a scalar is not a table; the first dimension is the number of rows");
    }
    char shape[EB_TENSOR_SHAPE_BYTES];
    eb_tensor_shape_text(tensor, shape);
    uint64_t bytes = eb_storage_bytes(tensor->storage);
    /* Multiply by the number of rows last, so that 0 rows cannot hide a product that overflows. */
    for (uint32_t i = tensor->rank; i-- > 0;) {
        if (i > 0 && tensor->dims[i] == 0) {
            return eb_failure_set(failure,
                "field 'shape': the rows of shape %s hold no values; every dimension but the first "
                "must be at "
                "least 1",
                shape);
        }
        if (__builtin_mul_overflow(bytes, tensor->dims[i], &bytes)) {
            return eb_failure_set(failure,
                "field 'shape': %s is larger than 2^64 bytes; write the file again", shape);
        }
    }
    tensor->data_bytes = bytes;
    return true;
}

uint64_t eb_tensor_row_elements(const struct eb_tensor *tensor)
{
    uint64_t elements = 1;
    for (uint32_t i = 1; i < tensor->rank; i++) {
        elements *= tensor->dims[i];
    }
    return elements;
}

size_t eb_tensor_shape_text(const struct eb_tensor *tensor, char out[EB_TENSOR_SHAPE_BYTES])
{
    size_t used = 0;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        used += (size_t)snprintf(out + used, EB_TENSOR_SHAPE_BYTES - used, "%s%" PRIu64,
            i == 0 ? "(" : ", ", tensor->dims[i]);
    }
    const char *end = tensor->rank == 0 ? "()" : tensor->rank == 1 ? ",)" : ")";
    used += (size_t)snprintf(out + used, EB_TENSOR_SHAPE_BYTES - used, "%s", end);
    return used;
}
