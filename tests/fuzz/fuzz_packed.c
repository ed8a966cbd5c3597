/* Parses bytes as the head of a packed table, first as they are, then with a corrected digest. The
 * sections of an accepted head must be within the file, in order, and must not overlap. */
#include "kernels/types.h"
#include "server/formats/packed_format.h"
#include "tests/fuzz/input.h"

#include <stdlib.h>
#include <string.h>

#define DIGEST_OFFSET 8
#define DIGEST_END 16
#define FILE_BYTES_OFFSET 152

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_format(const struct eb_packed_format *format)
{
    const struct eb_tensor *tensor = &format->tensor;
    uint64_t elements = eb_tensor_row_elements(tensor);
    uint64_t end = format->head_bytes;
    for (int i = 0; i < EB_PACKED_KIND_COUNT; i++) {
        const struct eb_packed_section *section = &format->sections[i];
        if (section->bytes > 0) {
            require(section->offset >= end && section->offset % EB_PACKED_FORMAT_ALIGNMENT == 0);
            end = section->offset + section->bytes;
        }
    }
    require(end == format->file_bytes);
    require(elements >= 1 && elements <= UINT32_MAX);
    require(eb_storage_holds(tensor->storage, format->type));
    require(format->row_offset_bytes + eb_storage_row_bytes(tensor->storage, elements) <=
            format->row_stride_bytes);
    require(tensor->data_bytes / format->row_stride_bytes == tensor->dims[0]);
    require(tensor->data_offset + tensor->data_bytes <= format->file_bytes);
    require(format->unknown_row < (int64_t)format->rows_total);
    require(format->by_key == (format->salt != 0));
    require(tensor->dims[0] <= format->rows_total);
    require(!format->by_key || (eb_packed_format_is_keyed(format) && format->row_first == 0));
    require(eb_packed_format_checksum_offset(eb_packed_format_block_count(format)) <=
            format->head_bytes);
}

/* Parses the head of a file, whose size the head itself states. */
static void parse_packed(const uint8_t *head, uint64_t size)
{
    uint64_t file_bytes;
    uint64_t head_bytes;
    struct eb_packed_format format;
    struct eb_failure failure = {.text = ""};
    memcpy(&file_bytes, head + FILE_BYTES_OFFSET, sizeof file_bytes);
    if (file_bytes < size || !eb_packed_format_measure(head, file_bytes, &head_bytes, &failure) ||
        head_bytes > size) {
        return;
    }
    if (eb_packed_format_parse(head, head_bytes, file_bytes, &format, &failure)) {
        check_format(&format);
    } else {
        require(failure.text[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t head_bytes;
    struct eb_failure failure = {.text = ""};
    if (size < EB_PACKED_FORMAT_HEADER_BYTES) {
        require(!eb_packed_format_measure(data, size, &head_bytes, &failure));
        require(failure.text[0] != '\0');
        return 0;
    }
    uint8_t *head = malloc(size);
    require(head);
    memcpy(head, data, size);
    parse_packed(head, size);
    uint64_t digest = eb_packed_format_checksum(head + DIGEST_END, size - DIGEST_END);
    memcpy(head + DIGEST_OFFSET, &digest, sizeof digest);
    parse_packed(head, size);
    free(head);
    return 0;
}
