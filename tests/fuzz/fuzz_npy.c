/* Bytes as an npy file: what is accepted must describe exactly the bytes that are there. */
#include "server/models/npy.h"

#include <stddef.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_tensor tensor;
    struct eb_file_fault fault = {.text = ""};
    uint64_t head_bytes = size < EB_NPY_HEADER_BYTES_MAX ? size : EB_NPY_HEADER_BYTES_MAX;
    if (!eb_npy_parse(data, head_bytes, size, &tensor, &fault)) {
        require(fault.text[0] != '\0');
        return 0;
    }
    uint64_t bytes = eb_storage_bytes(tensor.storage);
    for (uint32_t i = 0; i < tensor.rank; i++) {
        bytes *= tensor.dims[i];
    }
    require(tensor.rank >= 1 && tensor.rank <= EB_TENSOR_RANK_MAX);
    require(tensor.data_bytes == bytes);
    require(tensor.data_offset + tensor.data_bytes == size);
    require(eb_tensor_row_elements(&tensor) >= 1);
    return 0;
}
