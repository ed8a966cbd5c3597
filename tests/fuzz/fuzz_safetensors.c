/* Parses bytes as a safetensors file. The tensors of an accepted file, whether they are tables or
 * not, must cover its data without gaps or overlaps. */
#include "server/formats/safetensors.h"

#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_tiling(const struct eb_safetensors *list, uint64_t head_bytes, uint64_t size)
{
    uint64_t covered = head_bytes;
    for (size_t i = 0; i < list->count; i++) {
        struct eb_tensor of_entry;
        struct eb_failure unfit = {.text = ""};
        const struct eb_tensor *tensor = &of_entry;
        require(list->entries[i].data_offset == covered);
        covered += list->entries[i].data_bytes;
        if (!eb_safetensors_tensor(list, i, &of_entry, &unfit)) {
            require(unfit.text[0] != '\0');
            continue;
        }
        require(tensor->data_offset == list->entries[i].data_offset);
        uint64_t bytes = eb_storage_bytes(tensor->storage);
        for (uint32_t dim = 0; dim < tensor->rank; dim++) {
            require(dim == 0 || tensor->dims[dim] > 0);
            bytes *= tensor->dims[dim];
        }
        require(tensor->rank >= 1 && tensor->data_bytes == bytes);
    }
    require(covered == size);
}

/* Parses a copy, since parsing changes the head. */
static void parse_safetensors(const uint8_t *bytes, uint64_t head_bytes, uint64_t file_bytes)
{
    struct eb_safetensors list;
    struct eb_failure failure = {.text = ""};
    uint8_t *head = malloc(head_bytes);
    require(head);
    memcpy(head, bytes, head_bytes);
    if (!eb_safetensors_parse(head, head_bytes, file_bytes, &list, &failure)) {
        require(failure.text[0] != '\0');
    } else {
        require_tiling(&list, head_bytes, file_bytes);
        eb_safetensors_deinit(&list);
    }
    free(head);
}

/* Parses the input unchanged. */
static void parse_file(const uint8_t *data, size_t size)
{
    uint8_t first[8] = {0};
    memcpy(first, data, size < sizeof first ? size : sizeof first);
    uint64_t head_bytes;
    struct eb_failure failure = {.text = ""};
    if (eb_safetensors_head_bytes(first, size, &head_bytes, &failure)) {
        parse_safetensors(data, head_bytes, size);
    } else {
        require(failure.text[0] != '\0');
    }
}

/* Parses the input as a header with the right length. The first 8 bytes of the input are the number
 * of data bytes in the file. Otherwise a mutation of the header would hardly ever match both
 * lengths. */
static void parse_header(const uint8_t *data, size_t size)
{
    uint64_t data_bytes;
    if (size < sizeof data_bytes) {
        return;
    }
    memcpy(&data_bytes, data, sizeof data_bytes);
    if (data_bytes <= UINT64_MAX - size) {
        parse_safetensors(data, size, size + data_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse_file(data, size);
    parse_header(data, size);
    return 0;
}
