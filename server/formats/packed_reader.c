#include "server/formats/packed_reader.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NO_BLOCK UINT64_MAX

/* Reads the head and its size; the caller frees the head. Returns NULL with *failure set if that
 * fails. */
static uint8_t *read_packed_head(
    struct eb_table_file *file, uint64_t *head_bytes, struct eb_failure *failure)
{
    uint8_t header[EB_PACKED_FORMAT_HEADER_BYTES];
    uint64_t there = file->bytes < sizeof header ? file->bytes : sizeof header;
    if (!eb_table_file_read(file, 0, header, there, failure) ||
        !eb_packed_format_measure(header, file->bytes, head_bytes, failure)) {
        return NULL;
    }
    uint8_t *head = malloc(*head_bytes);
    if (!head) {
        eb_failure_set(failure, "out of memory");
        return NULL;
    }
    if (!eb_table_file_read(file, 0, head, *head_bytes, failure)) {
        free(head);
        return NULL;
    }
    return head;
}

bool eb_packed_reader_open(
    struct eb_packed_reader *reader, struct eb_table_file *file, struct eb_failure *failure)
{
    uint64_t head_bytes = 0;
    *reader = (struct eb_packed_reader){.file = file, .block_index = NO_BLOCK};
    reader->head = read_packed_head(file, &head_bytes, failure);
    if (!reader->head ||
        !eb_packed_format_parse(reader->head, head_bytes, file->bytes, &reader->format, failure)) {
        eb_packed_reader_close(reader);
        return false;
    }
    /* The first block is the largest. */
    reader->block = malloc(eb_packed_format_block_bytes(&reader->format, 0) + 1);
    if (!reader->block) {
        eb_packed_reader_close(reader);
        return eb_failure_set(failure, "out of memory");
    }
    return true;
}

void eb_packed_reader_close(struct eb_packed_reader *reader)
{
    free(reader->head);
    free(reader->block);
    *reader = (struct eb_packed_reader){0};
}

/* Reads a whole block to `out` and checks it. */
static bool read_block(
    const struct eb_packed_reader *reader, uint64_t block, uint8_t *out, struct eb_failure *failure)
{
    const struct eb_packed_format *format = &reader->format;
    uint64_t bytes = eb_packed_format_block_bytes(format, block);
    uint64_t offset = format->head_bytes + block * EB_PACKED_FORMAT_BLOCK_BYTES;
    if (!eb_table_file_read(reader->file, offset, out, bytes, failure)) {
        return false;
    }
    uint64_t expected;
    memcpy(&expected, reader->head + eb_packed_format_checksum_offset(block), sizeof expected);
    return eb_packed_format_checksum(out, bytes) == expected ||
           eb_failure_set(failure,
               "bytes %" PRIu64 " to %" PRIu64 " are damaged: their checksum is wrong; copy the "
               "file again",
               offset, offset + bytes - 1);
}

bool eb_packed_reader_check(
    struct eb_packed_reader *reader, uint64_t block, struct eb_failure *failure)
{
    assert(block < eb_packed_format_block_count(&reader->format));
    if (reader->block_index == block) {
        return true;
    }
    reader->block_index = NO_BLOCK;
    if (!read_block(reader, block, reader->block, failure)) {
        return false;
    }
    reader->block_index = block;
    return true;
}

bool eb_packed_reader_read(struct eb_packed_reader *reader, uint64_t offset, void *out,
    uint64_t bytes, struct eb_failure *failure)
{
    const struct eb_packed_format *format = &reader->format;
    assert(offset >= format->head_bytes && offset <= format->file_bytes);
    assert(bytes <= format->file_bytes - offset);
    uint8_t *to = out;
    for (uint64_t at = offset - format->head_bytes; bytes > 0;) {
        uint64_t block = at / EB_PACKED_FORMAT_BLOCK_BYTES;
        uint64_t skipped = at % EB_PACKED_FORMAT_BLOCK_BYTES;
        uint64_t count = eb_packed_format_block_bytes(format, block) - skipped;
        bool is_whole = skipped == 0 && count <= bytes;
        count = count < bytes ? count : bytes;
        if (!(is_whole ? read_block(reader, block, to, failure)
                       : eb_packed_reader_check(reader, block, failure))) {
            return false;
        }
        if (!is_whole) {
            memcpy(to, reader->block + skipped, count);
        }
        to += count;
        at += count;
        bytes -= count;
    }
    return true;
}
