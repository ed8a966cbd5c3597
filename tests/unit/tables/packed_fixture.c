#include "tests/unit/tables/packed_fixture.h"

#include "kernels/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define DIGEST_OFFSET 8
#define DIGEST_END 16
#define PORTION_BYTES 1000 /* blocks are not a multiple of this */

struct eb_packed_format eb_packed_fixture_format(uint64_t rows, uint64_t elements)
{
    struct eb_packed_format format = {
        .tensor = {.storage = EB_STORAGE_INT8, .rank = 2, .dims = {rows, elements}},
        .type = EB_F32,
        .rows_total = rows,
        .parts = 1,
        .unknown_row = -1,
    };
    format.row_stride_bytes = eb_row_format_of(EB_STORAGE_INT8, (uint32_t)elements).stride_bytes;
    struct eb_failure failure;
    assert_true(eb_packed_format_lay_out(&format, &failure));
    return format;
}

uint8_t eb_packed_fixture_byte(uint64_t offset)
{
    return (uint8_t)(offset * 37 + offset / 251 + 1);
}

static void append_section(struct eb_packed_writer *writer, enum eb_packed_kind kind)
{
    struct eb_failure failure;
    const struct eb_packed_section *section = &writer->format.sections[kind];
    assert_true(eb_packed_writer_begin(writer, kind, &failure));
    for (uint64_t done = 0; done < section->bytes;) {
        uint8_t portion[PORTION_BYTES];
        uint64_t left = section->bytes - done;
        uint64_t count = left < sizeof portion ? left : sizeof portion;
        for (uint64_t i = 0; i < count; i++) {
            portion[i] = eb_packed_fixture_byte(section->offset + done + i);
        }
        assert_true(eb_packed_writer_append(writer, portion, count, &failure));
        done += count;
    }
}

void eb_packed_fixture_write(
    const struct eb_scratch *scratch, const char *name, struct eb_packed_format *format)
{
    char path[EB_SCRATCH_PATH_BYTES];
    struct eb_packed_writer writer;
    struct eb_failure failure = {.text = ""};
    eb_scratch_path(scratch, name, path);
    if (!eb_packed_writer_open(&writer, path, format, &failure)) {
        fail_msg("%s", failure.text);
    }
    for (int kind = 0; kind < EB_PACKED_KIND_COUNT; kind++) {
        if (format->sections[kind].bytes > 0) {
            append_section(&writer, (enum eb_packed_kind)kind);
        }
    }
    assert_true(eb_packed_writer_end(&writer, &failure));
    assert_true(eb_packed_writer_publish(&writer, &failure));
    format->digest = writer.format.digest;
    eb_packed_writer_close(&writer);
}

bool eb_packed_fixture_verify(const char *path, struct eb_failure *failure)
{
    struct eb_table_file file;
    struct eb_packed_reader reader;
    assert_true(eb_table_file_open(path, &file, failure));
    bool is_good = eb_packed_reader_open(&reader, &file, failure);
    uint64_t count = is_good ? eb_packed_format_block_count(&reader.format) : 0;
    for (uint64_t block = 0; is_good && block < count; block++) {
        is_good = eb_packed_reader_check(&reader, block, failure);
    }
    eb_packed_reader_close(&reader);
    eb_table_file_close(&file);
    return is_good;
}

void eb_packed_fixture_sign(uint8_t *head, uint64_t head_bytes)
{
    uint64_t digest = eb_packed_format_checksum(head + DIGEST_END, head_bytes - DIGEST_END);
    memcpy(head + DIGEST_OFFSET, &digest, sizeof digest);
}
