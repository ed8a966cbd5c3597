#include "server/formats/packed_format.h"

#include "tests/lib/test_group.h"
#include "tests/unit/tables/packed_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SMALL_HEAD_BYTES 4096

/* Writes a head of SMALL_HEAD_BYTES, which suffices for a file of a few MiB. Its checksums are
 * zero. */
static void write_head(struct eb_packed_format *format, uint8_t head[SMALL_HEAD_BYTES])
{
    assert_int_equal(format->head_bytes, SMALL_HEAD_BYTES);
    memset(head, 0, SMALL_HEAD_BYTES);
    eb_packed_format_write(format, head);
}

static bool parse_packed(const uint8_t *head, uint64_t file_bytes, struct eb_packed_format *format,
    struct eb_failure *failure)
{
    uint64_t head_bytes;
    return eb_packed_format_measure(head, file_bytes, &head_bytes, failure) &&
           eb_packed_format_parse(head, head_bytes, file_bytes, format, failure);
}

static void lays_sections_at_pages_in_order(void **state)
{
    (void)state;
    struct eb_failure failure;
    struct eb_packed_format format = eb_packed_fixture_format(5, 3);
    assert_int_equal(format.row_offset_bytes, 8);
    assert_int_equal(format.row_stride_bytes, 12);
    format.sections[EB_PACKED_KEYS].bytes = 40;
    format.sections[EB_PACKED_KEY_INDEX].bytes = 5000;
    assert_true(eb_packed_format_lay_out(&format, &failure));
    assert_int_equal(format.head_bytes, 4096);
    assert_int_equal(format.tensor.data_offset, 4096);
    assert_int_equal(format.tensor.data_bytes, 60);
    assert_int_equal(format.sections[EB_PACKED_ROWS].offset, 4096);
    assert_int_equal(format.sections[EB_PACKED_KEYS].offset, 8192);
    assert_int_equal(format.sections[EB_PACKED_KEY_INDEX].offset, 12288);
    assert_int_equal(format.file_bytes, 17288);
}

static void makes_room_for_a_checksum_of_each_block(void **state)
{
    (void)state;
    /* 448 checksums fill the header's page. */
    struct eb_packed_format format = eb_packed_fixture_format(448, (1 << 20) - 8);
    assert_int_equal(eb_packed_format_block_count(&format), 448);
    assert_int_equal(format.head_bytes, 4096);
    format = eb_packed_fixture_format(449, (1 << 20) - 8);
    assert_int_equal(format.head_bytes, 8192);
    assert_int_equal(eb_packed_format_block_bytes(&format, 448), 1 << 20);
    format = eb_packed_fixture_format(3, 300000);
    assert_int_equal(eb_packed_format_block_count(&format), 1);
    assert_int_equal(eb_packed_format_block_bytes(&format, 0), format.tensor.data_bytes);
}

static void holds_a_table_of_no_rows(void **state)
{
    (void)state;
    uint8_t head[SMALL_HEAD_BYTES];
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format format = eb_packed_fixture_format(0, 3);
    struct eb_packed_format read;
    assert_int_equal(format.file_bytes, format.head_bytes);
    write_head(&format, head);
    assert_true(parse_packed(head, format.file_bytes, &read, &failure));
    assert_int_equal(eb_packed_format_block_count(&read), 0);
    assert_int_equal(read.tensor.dims[0], 0);
}

static void reads_what_it_wrote(void **state)
{
    (void)state;
    uint8_t head[SMALL_HEAD_BYTES];
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format read;
    struct eb_packed_format format = {
        .tensor = {.storage = EB_STORAGE_INT4, .rank = 3, .dims = {10, 5, 7}},
        .type = EB_BF16,
        .row_stride_bytes = 30,
        .rows_total = 70,
        .row_first = 4,
        .parts = 5,
        .part = 2,
        .unknown_row = 69,
        .packing = UINT64_C(0xfedcba9876543210),
        .sections = {[EB_PACKED_KEYS] = {.bytes = 80}, [EB_PACKED_KEY_INDEX] = {.bytes = 1}},
    };
    assert_true(eb_packed_format_lay_out(&format, &failure));
    write_head(&format, head);
    if (!parse_packed(head, format.file_bytes, &read, &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_memory_equal(&read, &format, sizeof read);
    assert_false(eb_packed_format_is_whole(&read));
}

/* Returns part 2 of 5 by keys, with 10 of the table's 70 rows. */
static struct eb_packed_format make_part_by_keys(void)
{
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format format = {
        .tensor = {.storage = EB_STORAGE_F32, .rank = 2, .dims = {10, 3}},
        .type = EB_F32,
        .row_stride_bytes = 12,
        .rows_total = 70,
        .parts = 5,
        .part = 2,
        .unknown_row = 33,
        .by_key = true,
        .salt = UINT64_C(0x5bd1e995a1b2c3d4),
        .sections = {[EB_PACKED_KEYS] = {.bytes = 80}},
    };
    if (!eb_packed_format_lay_out(&format, &failure)) {
        fail_msg("%s", failure.text);
    }
    return format;
}

/* Expects that the format reads back as it was written. */
static void expect_same(struct eb_packed_format *format)
{
    uint8_t head[SMALL_HEAD_BYTES];
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format read;
    if (!eb_packed_format_lay_out(format, &failure)) {
        fail_msg("%s", failure.text);
    }
    write_head(format, head);
    if (!parse_packed(head, format->file_bytes, &read, &failure)) {
        fail_msg("%s", failure.text);
    }
    assert_memory_equal(&read, format, sizeof read);
    assert_false(eb_packed_format_is_whole(&read));
    assert_true(eb_packed_format_is_keyed(&read));
}

static void reads_the_part_by_keys_that_it_wrote(void **state)
{
    (void)state;
    uint8_t head[SMALL_HEAD_BYTES];
    static const uint8_t fields[] = {
        1, 0, 0, 0, 0, 0, 0, 0, 0xd4, 0xc3, 0xb2, 0xa1, 0x95, 0xe9, 0xd1, 0x5b};
    struct eb_packed_format format = make_part_by_keys();
    write_head(&format, head);
    assert_memory_equal(head + 216, fields, sizeof fields);
    expect_same(&format);
}

static void a_part_by_keys_may_have_any_number_of_rows(void **state)
{
    (void)state;
    static const struct {
        uint64_t rows;
        uint32_t parts;
        int64_t unknown_row;
    } cases[] = {{0, 5, -1}, {1, 5, 69}, {70, 5, -1}, {70, 5, 0}, {70, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_packed_format format = make_part_by_keys();
        format.tensor.dims[0] = cases[i].rows;
        format.sections[EB_PACKED_KEYS].bytes = cases[i].rows * sizeof(int64_t);
        format.parts = cases[i].parts;
        format.part = 0;
        format.unknown_row = cases[i].unknown_row;
        expect_same(&format);
    }
}

static void the_digest_tells_tables_apart(void **state)
{
    (void)state;
    uint8_t head[SMALL_HEAD_BYTES];
    struct eb_packed_format format = eb_packed_fixture_format(5, 3);
    struct eb_packed_format other = format;
    write_head(&format, head);
    write_head(&other, head);
    assert_true(format.digest == other.digest);
    other.type = EB_F16;
    write_head(&other, head);
    assert_true(format.digest != other.digest);
    other = format;
    memset(head, 0, sizeof head);
    head[eb_packed_format_checksum_offset(0)] = 1;
    eb_packed_format_write(&other, head);
    assert_true(format.digest != other.digest);
}

static void counts_the_rows_of_parts(void **state)
{
    (void)state;
    for (uint64_t total = 0; total < 20; total++) {
        for (uint32_t parts = 1; parts < 7; parts++) {
            uint64_t sum = 0;
            for (uint32_t part = 0; part < parts; part++) {
                sum += eb_packed_format_part_rows(total, parts, part);
            }
            assert_int_equal(sum, total);
        }
    }
    assert_int_equal(eb_packed_format_part_rows(7, 3, 0), 3);
    assert_int_equal(eb_packed_format_part_rows(7, 3, 1), 2);
}

static void expect_no_layout(const struct eb_packed_format *format, const char *part)
{
    struct eb_packed_format copy = *format;
    struct eb_failure failure = {.text = ""};
    if (eb_packed_format_lay_out(&copy, &failure)) {
        fail_msg("laid out without \"%s\"", part);
    }
    eb_scratch_expect(failure.text, part);
}

/* Lays out a copy of the table with one field changed, and expects an error. */
#define EXPECT_FAILURE(field, value, part)                                                         \
    do {                                                                                           \
        struct eb_packed_format changed = eb_packed_fixture_format(5, 3);                          \
        changed.field = (value);                                                                   \
        expect_no_layout(&changed, (part));                                                        \
    } while (0)

/* Lays out a part by keys with one field changed, and expects an error. */
#define EXPECT_NO_PART(field, value, part)                                                         \
    do {                                                                                           \
        struct eb_packed_format changed = make_part_by_keys();                                     \
        changed.field = (value);                                                                   \
        expect_no_layout(&changed, (part));                                                        \
    } while (0)

static void refuses_wrong_parts_by_keys(void **state)
{
    (void)state;
    EXPECT_NO_PART(salt, 0, "'salt': 0 in a part by keys");
    EXPECT_NO_PART(by_key, false, "'salt': 5bd1e995a1b2c3d4 without by_key");
    EXPECT_NO_PART(row_first, 1, "'row_first': 1 in a part by keys; expected 0");
    EXPECT_NO_PART(rows_total, 9, "'unknown_row': 33");
    EXPECT_NO_PART(rows_total, UINT64_C(1) << 63, "'rows_total'");
    EXPECT_NO_PART(tensor.dims[0], 71, "'shape': 71 rows in a part by keys; expected 1 to 70");
    EXPECT_NO_PART(tensor.dims[0], 0, "'shape': 0 rows in a part by keys; expected 1 to 70");
    EXPECT_NO_PART(tensor.dims[0], 9, "'keys': 80 bytes");
    EXPECT_NO_PART(
        sections[EB_PACKED_KEYS].bytes, 0, "'keys': a part by keys has rows but no keys");
    EXPECT_NO_PART(part, 5, "part 5 of 5");
    EXPECT_NO_PART(parts, 0, "'parts'");
    EXPECT_NO_PART(unknown_row, 70, "'unknown_row': 70");
    struct eb_packed_format format = make_part_by_keys();
    format.parts = 1;
    format.part = 0;
    expect_no_layout(&format, "'shape': 10 rows in a part by keys; expected 70 to 70");
    EXPECT_FAILURE(salt, 1, "'salt': 0000000000000001 without by_key");
    EXPECT_FAILURE(by_key, true, "'keys': a part by keys has rows but no keys");
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    EXPECT_FAILURE(
        tensor.storage, EB_STORAGE_UNSPECIFIED, "'storage', 'T': storage unspecified (0)");
    EXPECT_FAILURE(tensor.storage, EB_STORAGE_COUNT, "'storage'");
    EXPECT_FAILURE(type, EB_F64, "storage int8 (15) cannot hold a table of type f64 (2)");
    EXPECT_FAILURE(type, EB_TYPE_COUNT, "'T'");
    EXPECT_FAILURE(tensor.rank, 0, "'rank': 0");
    EXPECT_FAILURE(tensor.rank, 9, "'rank': 9");
    EXPECT_FAILURE(tensor.dims[1], 0, "'shape': a row has no values");
    EXPECT_FAILURE(tensor.dims[1], UINT64_C(1) << 32, "more than 2^32 - 1");
    EXPECT_FAILURE(row_stride_bytes, 10, "'row_stride': 10 for rows of 11 bytes");
    EXPECT_FAILURE(row_stride_bytes, 23, "'row_stride': 23");
    EXPECT_FAILURE(rows_total, 4, "'row_first', 'shape': 5 rows from row 0");
    EXPECT_FAILURE(rows_total, UINT64_C(1) << 63, "'rows_total'");
    EXPECT_FAILURE(row_first, 1, "5 rows from row 1 on reach past the 5");
    EXPECT_FAILURE(row_first, UINT64_MAX, "'row_first'");
    EXPECT_FAILURE(parts, 0, "'parts'");
    EXPECT_FAILURE(parts, 2, "reach past the 3 rows of this part");
    EXPECT_FAILURE(part, 1, "part 1 of 1");
    EXPECT_FAILURE(unknown_row, 5, "'unknown_row': 5");
    EXPECT_FAILURE(unknown_row, -2, "'unknown_row': -2");
    EXPECT_FAILURE(sections[EB_PACKED_KEYS].bytes, 41, "'keys': 41 bytes");
    EXPECT_FAILURE(sections[EB_PACKED_KEYS].bytes, 48, "'keys': 48 bytes");
    EXPECT_FAILURE(sections[EB_PACKED_KEY_INDEX].bytes, 192,
        "'key index': the file has an index of keys but no keys");
}

static void refuses_what_no_file_can_hold(void **state)
{
    (void)state;
    struct eb_packed_format format = eb_packed_fixture_format(5, 3);
    format.sections[EB_PACKED_KEYS].bytes = 40;
    format.sections[EB_PACKED_KEY_INDEX].bytes = UINT64_MAX;
    expect_no_layout(
        &format, "more than 17592186044416 bytes, the maximum of a packed file; split it");
    format.sections[EB_PACKED_KEY_INDEX].bytes = EB_PACKED_FORMAT_FILE_BYTES_MAX;
    expect_no_layout(&format, "split the table");
    format = eb_packed_fixture_format(5, 3);
    format.tensor.dims[0] = UINT64_MAX / 2;
    expect_no_layout(&format, "the rows have more than 2^64 bytes");
}

/* Changes each byte of a head, and corrects the digest. Only rows_total, the packing and a checksum
 * may change: with another rows_total, these rows are a piece of a larger table. */
static void refuses_a_head_that_contradicts_itself(void **state)
{
    (void)state;
    for (uint64_t at = 16; at < SMALL_HEAD_BYTES; at++) {
        uint8_t head[SMALL_HEAD_BYTES];
        struct eb_packed_format read;
        struct eb_failure failure = {.text = ""};
        struct eb_packed_format format = eb_packed_fixture_format(5, 3);
        format.sections[EB_PACKED_KEYS].bytes = 40;
        assert_true(eb_packed_format_lay_out(&format, &failure));
        write_head(&format, head);
        head[at] ^= 0x80;
        eb_packed_fixture_sign(head, sizeof head);
        bool is_free = (at >= 96 && at < 103) || (at >= 208 && at < 216) || (at >= 512 && at < 520);
        if (parse_packed(head, format.file_bytes, &read, &failure) != is_free) {
            fail_msg("byte %d", (int)at);
        }
    }
}

/* Sets each byte of the fields of a part by keys, and corrects the digest. */
static void refuses_unknown_kinds_of_parts(void **state)
{
    (void)state;
    for (uint64_t at = 216; at < 240; at++) {
        uint8_t head[SMALL_HEAD_BYTES];
        struct eb_packed_format read;
        struct eb_failure failure = {.text = ""};
        struct eb_packed_format format = make_part_by_keys();
        write_head(&format, head);
        head[at] ^= 0x02;
        eb_packed_fixture_sign(head, sizeof head);
        bool is_salt = at >= 224 && at < 232;
        if (parse_packed(head, format.file_bytes, &read, &failure) != is_salt) {
            fail_msg("byte %d", (int)at);
        }
        if (!is_salt) {
            eb_scratch_expect(failure.text, "the head has unknown fields");
        }
    }
}

static void names_what_is_no_packed_table(void **state)
{
    (void)state;
    uint8_t head[SMALL_HEAD_BYTES];
    uint64_t head_bytes;
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format format = eb_packed_fixture_format(5, 3);
    write_head(&format, head);
    assert_false(eb_packed_format_measure(head, 7, &head_bytes, &failure));
    eb_scratch_expect(failure.text, "not a packed table");
    assert_false(eb_packed_format_measure(head, 511, &head_bytes, &failure));
    eb_scratch_expect(failure.text, "byte 511: the file ends inside its header");
    assert_false(eb_packed_format_measure(head, 5000, &head_bytes, &failure));
    eb_scratch_expect(failure.text, "has 5000 bytes, but its header says 4156");
    head[16] = 2;
    assert_false(eb_packed_format_measure(head, format.file_bytes, &head_bytes, &failure));
    eb_scratch_expect(failure.text, "version 2");
    head[0] = 'P';
    assert_false(eb_packed_format_measure(head, format.file_bytes, &head_bytes, &failure));
    eb_scratch_expect(failure.text, "not a packed table");
}

static void asks_for_no_more_memory_than_the_file_deserves(void **state)
{
    (void)state;
    uint8_t head[SMALL_HEAD_BYTES];
    uint64_t head_bytes;
    uint64_t claimed = UINT64_C(1) << 40;
    struct eb_failure failure = {.text = ""};
    struct eb_packed_format format = eb_packed_fixture_format(5, 3);
    write_head(&format, head);
    memcpy(head + 144, &claimed, sizeof claimed);
    memcpy(head + 152, &claimed, sizeof claimed);
    assert_false(eb_packed_format_measure(head, claimed, &head_bytes, &failure));
    eb_scratch_expect(failure.text, "byte 144: a head of 1099511627776 bytes");
}

EB_TEST_GROUP(packed_format)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lays_sections_at_pages_in_order),
        cmocka_unit_test(makes_room_for_a_checksum_of_each_block),
        cmocka_unit_test(holds_a_table_of_no_rows),
        cmocka_unit_test(reads_what_it_wrote),
        cmocka_unit_test(reads_the_part_by_keys_that_it_wrote),
        cmocka_unit_test(a_part_by_keys_may_have_any_number_of_rows),
        cmocka_unit_test(the_digest_tells_tables_apart),
        cmocka_unit_test(counts_the_rows_of_parts),
        cmocka_unit_test(refuses_wrong_parts_by_keys),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(refuses_what_no_file_can_hold),
        cmocka_unit_test(refuses_a_head_that_contradicts_itself),
        cmocka_unit_test(refuses_unknown_kinds_of_parts),
        cmocka_unit_test(names_what_is_no_packed_table),
        cmocka_unit_test(asks_for_no_more_memory_than_the_file_deserves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
