/* Parses bytes as a list of tensors. An accepted list names only files in the same directory. */
#include "server/formats/safetensors.h"

#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct eb_tensor_index index;
    struct eb_failure failure = {.text = ""};
    uint8_t *json = malloc(size + 1); /* a copy, since parsing changes it */
    require(json);
    memcpy(json, data, size);
    if (!eb_tensor_index_parse(json, size, &index, &failure)) {
        require(failure.text[0] != '\0' && index.count == 0);
        free(json);
        return 0;
    }
    for (size_t i = 0; i < index.count; i++) {
        require(index.locations[i].tensor && index.locations[i].file[0] != '\0');
        require(!strchr(index.locations[i].file, '/'));
    }
    eb_tensor_index_deinit(&index);
    free(json);
    return 0;
}
