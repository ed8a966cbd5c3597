/* Parses bytes as an npy file. An accepted header must describe exactly the bytes of the file. */
#include "server/formats/npy.h"

#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX_BYTES 10 /* magic, version, and a length of two bytes */
#define DICT_BYTES_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Parses the head of a file of `file_bytes`. */
static void parse_npy(const uint8_t *head, uint64_t head_bytes, uint64_t file_bytes)
{
    struct eb_tensor tensor;
    struct eb_failure failure = {.text = ""};
    if (!eb_npy_parse(head, head_bytes, file_bytes, &tensor, &failure)) {
        require(failure.text[0] != '\0');
        return;
    }
    uint64_t bytes = eb_storage_bytes(tensor.storage);
    for (uint32_t i = 0; i < tensor.rank; i++) {
        bytes *= tensor.dims[i];
    }
    require(tensor.rank >= 1 && tensor.rank <= EB_TENSOR_RANK_MAX);
    require(tensor.data_bytes == bytes);
    require(tensor.data_offset + tensor.data_bytes == file_bytes);
    require(eb_tensor_row_elements(&tensor) >= 1);
}

/* Parses the input as a dict in a header with the right length. The first 8 bytes of the input are
 * the number of data bytes in the file. Otherwise a mutation of the dict would hardly ever match
 * both lengths. */
static void parse_dict(const uint8_t *data, size_t size)
{
    static const uint8_t prefix[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    uint64_t data_bytes;
    if (size < sizeof data_bytes || size - sizeof data_bytes > DICT_BYTES_MAX) {
        return;
    }
    size_t dict_bytes = size - sizeof data_bytes;
    size_t head_bytes = PREFIX_BYTES + dict_bytes;
    memcpy(&data_bytes, data, sizeof data_bytes);
    if (data_bytes > UINT64_MAX - head_bytes) {
        return;
    }
    uint8_t *head = malloc(head_bytes);
    require(head);
    memcpy(head, prefix, sizeof prefix);
    head[sizeof prefix] = (uint8_t)dict_bytes;
    head[sizeof prefix + 1] = (uint8_t)(dict_bytes >> 8);
    memcpy(head + PREFIX_BYTES, data + sizeof data_bytes, dict_bytes);
    parse_npy(head, head_bytes, head_bytes + data_bytes);
    free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse_npy(data, size < EB_NPY_HEADER_BYTES_MAX ? size : EB_NPY_HEADER_BYTES_MAX, size);
    parse_dict(data, size);
    return 0;
}
