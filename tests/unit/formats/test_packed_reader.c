#include "server/formats/packed_reader.h"

#include "tests/lib/test_group.h"
#include "tests/unit/tables/packed_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[EB_SCRATCH_PATH_BYTES];

static int set_up(void **state)
{
    if (eb_scratch_set_up(state) != 0) {
        return -1;
    }
    eb_scratch_path(*state, "t.embag", path);
    return 0;
}

/* Writes a keyed table into a file of some 12 KiB. */
static struct eb_packed_format write_small(const struct eb_scratch *scratch)
{
    struct eb_failure failure;
    struct eb_packed_format format = eb_packed_fixture_format(6, 4);
    format.unknown_row = 2;
    format.sections[EB_PACKED_KEYS].bytes = 48;
    format.sections[EB_PACKED_KEY_INDEX].bytes = 130;
    assert_true(eb_packed_format_lay_out(&format, &failure));
    eb_packed_fixture_write(scratch, "t.embag", &format);
    return format;
}

static void write_byte(int descriptor, uint64_t offset, uint8_t byte)
{
    assert_int_equal(pwrite(descriptor, &byte, 1, (off_t)offset), 1);
}

static void finds_every_flipped_bit(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format format = write_small(scratch);
    assert_true(eb_packed_fixture_verify(path, &failure));
    int descriptor = open(path, O_RDWR);
    assert_true(descriptor >= 0);
    for (uint64_t at = 0; at < format.file_bytes; at++) {
        uint8_t byte;
        assert_int_equal(pread(descriptor, &byte, 1, (off_t)at), 1);
        for (unsigned bit = 0; bit < 8; bit++) {
            write_byte(descriptor, at, (uint8_t)(byte ^ 1u << bit));
            if (eb_packed_fixture_verify(path, &failure)) {
                fail_msg("bit %u of byte %d", bit, (int)at);
            }
        }
        write_byte(descriptor, at, byte);
    }
    assert_true(eb_packed_fixture_verify(path, &failure));
    close(descriptor);
}

static void finds_every_truncation_and_what_follows_the_end(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format format = write_small(scratch);
    assert_int_equal(truncate(path, (off_t)format.file_bytes + 1), 0);
    assert_false(eb_packed_fixture_verify(path, &failure));
    eb_scratch_expect(failure.text, "but its header says");
    for (uint64_t bytes = format.file_bytes; bytes-- > 0;) {
        assert_int_equal(truncate(path, (off_t)bytes), 0);
        if (eb_packed_fixture_verify(path, &failure)) {
            fail_msg("cut at byte %d", (int)bytes);
        }
    }
}

/* Writes and opens a file of two and a half blocks. */
static void open_large(const struct eb_scratch *scratch, struct eb_packed_format *format,
    struct eb_table_file *file, struct eb_packed_reader *reader)
{
    struct eb_failure failure;
    *format = eb_packed_fixture_format(10000, 254);
    eb_packed_fixture_write(scratch, "t.embag", format);
    assert_int_equal(eb_packed_format_block_count(format), 3);
    assert_true(eb_table_file_open(path, file, &failure));
    assert_true(eb_packed_reader_open(reader, file, &failure));
}

static void reads_any_range_of_any_blocks(void **state)
{
    const struct eb_scratch *scratch = *state;
    static const struct {
        uint64_t from;
        uint64_t bytes;
    } ranges[] = {{0, 1}, {5, 100}, {1048570, 6}, {1048570, 20}, {0, 1 << 20}, {0, 2000000},
        {1048576, 1048576}, {1, 2600000}, {2097152, 500000}, {2639999, 1}, {2640000, 0}};
    struct eb_packed_format format;
    struct eb_table_file file;
    struct eb_packed_reader reader;
    struct eb_failure failure;
    open_large(scratch, &format, &file, &reader);
    assert_true(reader.format.digest == format.digest);
    assert_int_equal(format.tensor.data_bytes, 2640000);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        uint64_t offset = format.head_bytes + ranges[i].from;
        uint8_t *out = malloc(ranges[i].bytes + 1);
        assert_true(eb_packed_reader_read(&reader, offset, out, ranges[i].bytes, &failure));
        for (uint64_t at = 0; at < ranges[i].bytes; at++) {
            if (out[at] != eb_packed_fixture_byte(offset + at)) {
                fail_msg("range %d, byte %d", (int)i, (int)at);
            }
        }
        free(out);
    }
    eb_packed_reader_close(&reader);
    eb_table_file_close(&file);
}

static void names_the_bytes_that_are_damaged(void **state)
{
    const struct eb_scratch *scratch = *state;
    struct eb_packed_format format;
    struct eb_table_file file;
    struct eb_packed_reader reader;
    struct eb_failure failure = {.text = ""};
    open_large(scratch, &format, &file, &reader);
    uint64_t begin = format.head_bytes;
    int descriptor = open(path, O_RDWR);
    write_byte(descriptor, begin + 1048576 + 77, 0);
    close(descriptor);
    uint8_t out[16];
    assert_true(eb_packed_reader_read(&reader, begin + 500, out, sizeof out, &failure));
    assert_false(eb_packed_reader_read(&reader, begin + 1048570, out, sizeof out, &failure));
    eb_scratch_expect(failure.text, "bytes 1052672 to 2101247 are damaged");
    assert_false(eb_packed_reader_check(&reader, 1, &failure));
    assert_true(eb_packed_reader_read(&reader, begin + 2097152, out, sizeof out, &failure));
    eb_packed_reader_close(&reader);
    eb_table_file_close(&file);
}

EB_TEST_GROUP(packed_reader)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finds_every_flipped_bit, set_up, eb_scratch_tear_down),
        cmocka_unit_test_setup_teardown(
            finds_every_truncation_and_what_follows_the_end, set_up, eb_scratch_tear_down),
        cmocka_unit_test_setup_teardown(
            reads_any_range_of_any_blocks, set_up, eb_scratch_tear_down),
        cmocka_unit_test_setup_teardown(
            names_the_bytes_that_are_damaged, set_up, eb_scratch_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
