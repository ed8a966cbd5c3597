/* Bytes as a safetensors file: the tensors that are accepted must tile its data. */
#include "server/models/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void require_tiling(const struct eb_safetensors *list, uint64_t head_bytes, size_t size)
{
    uint64_t covered = head_bytes;
    for (size_t i = 0; i < list->count; i++) {
        const struct eb_tensor *tensor = &list->entries[i].tensor;
        uint64_t bytes = eb_storage_bytes(tensor->storage);
        for (uint32_t dim = 0; dim < tensor->rank; dim++) {
            bytes *= tensor->dims[dim];
        }
        require(tensor->rank >= 1 && tensor->data_bytes == bytes);
        require(tensor->data_offset == covered);
        covered += bytes;
    }
    require(covered == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t first[8] = {0};
    memcpy(first, data, size < sizeof first ? size : sizeof first);
    uint64_t head_bytes;
    struct eb_safetensors list;
    struct eb_file_fault fault = {.text = ""};
    if (!eb_safetensors_head_bytes(first, size, &head_bytes, &fault) ||
        !eb_safetensors_parse(data, head_bytes, size, &list, &fault)) {
        require(fault.text[0] != '\0');
        return 0;
    }
    require_tiling(&list, head_bytes, size);
    eb_safetensors_deinit(&list);
    return 0;
}
