#include "proto/guard.h"

#include "tests/lib/test_group.h"

#include "guard_case.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct eb_guard_limits limits = {
    .fields_max = 100, .name_bytes_max = 20, .submessages_max = 10};
static const struct eb_guard_limits no_limits = {
    .fields_max = UINT32_MAX, .name_bytes_max = UINT32_MAX, .submessages_max = UINT32_MAX};

static bool check(const void *bytes, size_t size, struct eb_error *error)
{
    return eb_guard_check(&embag__guard_case__node__descriptor, bytes, size, &limits, error);
}

#define assert_takes(literal)                                                                      \
    do {                                                                                           \
        struct eb_error error_;                                                                    \
        if (!check("" literal, sizeof literal - 1, &error_)) {                                     \
            fail_msg("refused: %s", error_.text);                                                  \
        }                                                                                          \
    } while (0)

#define assert_refuses(literal, number, message)                                                   \
    do {                                                                                           \
        struct eb_error error_;                                                                    \
        assert_false(check("" literal, sizeof literal - 1, &error_));                              \
        assert_string_equal(error_.text, message);                                                 \
        assert_int_equal(error_.status, number);                                                   \
    } while (0)

static void takes_every_declared_type(void **state)
{
    (void)state;
    assert_takes("");
    assert_takes("\x0A\x02nn");
    assert_takes("\x12\x00");
    assert_takes("\x1A\x04\x0A\x02nn\x1A\x00");
    assert_takes("\x30\x05");
    assert_takes("\x39"
                 "12345678");
    assert_takes("\x45"
                 "1234");
    assert_takes("\x4A\x02\x00\xFF");
    assert_takes("\xA2\x01\x01n\xA2\x01\x01m");
}

static void takes_both_forms_of_repeated_numbers(void **state)
{
    (void)state;
    assert_takes("\x20\x05\x20\x06");
    assert_takes("\x22\x03\x05\x80\x01");
    assert_takes("\x20\x05\x22\x01\x06");
    assert_takes("\x29"
                 "12345678");
    assert_takes("\x2A\x10"
                 "1234567812345678");
}

static void skips_unknown_fields_of_any_type(void **state)
{
    (void)state;
    assert_takes("\xE8\x07\x01");
    assert_takes("\xEA\x07\x03\x00\xFF\x80");
    assert_takes("\xE9\x07"
                 "12345678");
    assert_takes("\xED\x07"
                 "1234");
    assert_takes("\xF8\xFF\xFF\xFF\x0F\x01");
}

static void refuses_a_tag_that_is_none(void **state)
{
    (void)state;
    assert_refuses("\x80", 13, "Node contains an invalid tag (byte 0)");
    assert_refuses(
        "\x30\x01\x80\x80\x80\x80\x80\x00\x01", 13, "Node contains an invalid tag (byte 2)");
    assert_refuses("\xF8\xFF\xFF\xFF\x1F\x01", 13, "Node contains an invalid tag (byte 0)");
}

static void refuses_field_number_zero(void **state)
{
    (void)state;
    assert_refuses("\x00\x01", 13, "Node contains a field with number 0 (byte 0)");
    assert_refuses("\x82\x00\x00", 13, "Node contains a field with number 0 (byte 0)");
}

static void refuses_groups_and_unknown_wire_types(void **state)
{
    (void)state;
    assert_refuses("\xEB\x07\xEC\x07", 13, "Node.125 has an unsupported wire type (byte 0)");
    assert_refuses("\x0C", 13, "Node.name has an unsupported wire type (byte 0)");
    assert_refuses("\x0E", 13, "Node.name has an unsupported wire type (byte 0)");
    assert_refuses("\x0F", 13, "Node.name has an unsupported wire type (byte 0)");
}

static void refuses_another_wire_type_than_declared(void **state)
{
    (void)state;
    assert_refuses(
        "\x08\x01", 13, "Node.name has a wire type that differs from the declared one (byte 1)");
    assert_refuses(
        "\x32\x00", 13, "Node.count has a wire type that differs from the declared one (byte 2)");
    assert_refuses(
        "\x38\x01", 13, "Node.wide has a wire type that differs from the declared one (byte 1)");
    assert_refuses("\x41"
                   "12345678",
        13, "Node.narrow has a wire type that differs from the declared one (byte 1)");
    assert_refuses("\x25"
                   "1234",
        13, "Node.numbers has a wire type that differs from the declared one (byte 1)");
    assert_refuses(
        "\x10\x01", 13, "Node.child has a wire type that differs from the declared one (byte 1)");
}

static void refuses_values_that_end_past_their_message(void **state)
{
    (void)state;
    assert_refuses("\x0A\x03nn", 13, "Node.name extends past the end of its message (byte 0)");
    assert_refuses("\x39"
                   "1234567",
        13, "Node.wide extends past the end of its message (byte 0)");
    assert_refuses("\x45"
                   "123",
        13, "Node.narrow extends past the end of its message (byte 0)");
    assert_refuses(
        "\x1A\x05\x0A\x02nn", 13, "Node.children extends past the end of its message (byte 0)");
    assert_refuses("\x1A\x03\x0A\x02nn", 13,
        "Node.children[0].name extends past the end of its message (byte 2)");
    assert_refuses(
        "\x0A\xFF\xFF\xFF\xFF\x0F", 13, "Node.name extends past the end of its message (byte 0)");
}

static void refuses_varints_that_do_not_end(void **state)
{
    (void)state;
    assert_takes("\x30\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01");
    assert_refuses("\x30\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 13,
        "Node.count is an unterminated varint (byte 0)");
    assert_refuses("\x30\xFF", 13, "Node.count is an unterminated varint (byte 0)");
    assert_refuses(
        "\x0A\x81\x80\x80\x80\x80\x00n", 13, "Node.name has an unterminated length (byte 0)");
    assert_refuses("\x0A", 13, "Node.name has an unterminated length (byte 0)");
}

static void refuses_packed_arrays_with_broken_elements(void **state)
{
    (void)state;
    assert_refuses(
        "\x22\x03\x01\x80\x80", 13, "Node.numbers contains an unterminated varint (byte 3)");
    assert_refuses("\x22\x0C\x01\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 13,
        "Node.numbers contains an unterminated varint (byte 3)");
    assert_refuses("\x2A\x0A"
                   "1234567890",
        13, "Node.reals ends inside an element (byte 2)");
}

static void refuses_a_nul_in_a_name(void **state)
{
    (void)state;
    assert_refuses("\x0A\x03n\0n", 3, "Node.name contains a NUL (byte 3)");
    assert_refuses("\xA2\x01\x01\0", 3, "Node.names contains a NUL (byte 3)");
}

static void takes_utf8_at_the_edges_of_its_ranges(void **state)
{
    (void)state;
    assert_takes("\x0A\x04\xC2\x80\xDF\xBF");
    assert_takes("\x0A\x0C\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF");
    assert_takes("\x0A\x08\xF0\x90\x80\x80\xF4\x8F\xBF\xBF");
}

static void refuses_what_is_not_utf8(void **state)
{
    (void)state;
    /* A lone continuation byte, overlong forms, surrogates, numbers past U+10FFFF, cut-off
     * characters. */
    const char *bad[] = {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3",
        "\xE2\x82", "\xF0\x9F\x98", "\xC3n", "\xE2\x82n", "\xF0\x9F\x98n", "\xE2n\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t size = strlen(bad[i]);
        uint8_t bytes[16] = {0x0A, (uint8_t)(size + 1), 'n'};
        memcpy(bytes + 3, bad[i], size);
        struct eb_error error;
        assert_false(check(bytes, size + 3, &error));
        assert_int_equal(error.status, EB_STATUS_INVALID_ARGUMENT);
        assert_string_equal(error.text, "Node.name is not UTF-8 (byte 3)");
    }
}

static void limits_the_length_of_names(void **state)
{
    (void)state;
    assert_takes("\x0A\x14"
                 "12345678901234567890");
    assert_refuses("\x0A\x15"
                   "123456789012345678901",
        8, "Node.name is longer than a name may be (byte 2)");
}

static void limits_the_number_of_fields_at_all_depths(void **state)
{
    (void)state;
    uint8_t bytes[256];
    struct eb_error error;
    /* One child of 50 fields, then 49 more fields: 100 fields in all. The last 49 are unknown. */
    bytes[0] = 0x12;
    bytes[1] = 100;
    for (size_t i = 0; i < 100; i++) {
        bytes[2 + 2 * i] = i < 50 ? 0x30 : 0x58;
        bytes[3 + 2 * i] = 1;
    }
    assert_true(check(bytes, 2 + 2 * 99, &error));
    assert_false(check(bytes, 2 + 2 * 100, &error));
    assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(
        error.text, "Node.11 exceeds the number of fields that a message may have (byte 200)");
}

static void limits_the_number_of_repeated_messages(void **state)
{
    (void)state;
    uint8_t bytes[22];
    struct eb_error error;
    for (size_t i = 0; i < 11; i++) {
        bytes[2 * i] = 0x1A;
        bytes[2 * i + 1] = 0;
    }
    assert_true(check(bytes, 20, &error));
    assert_false(check(bytes, 22, &error));
    assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(
        error.text, "Node.children has more elements than a message may have (byte 22)");
}

static void names_the_element_that_is_wrong(void **state)
{
    (void)state;
    /* children[0] {}, child {}, children[1] { children[0] {}, children[1] { count: no end } } */
    assert_refuses("\x1A\x00\x12\x00\x1A\x06\x1A\x00\x1A\x02\x30\xFF", 13,
        "Node.children[1].children[1].count is an unterminated varint (byte 10)");
    assert_refuses("\x12\x02\x30\xFF", 13, "Node.child.count is an unterminated varint (byte 2)");
}

static void refuses_a_second_singular_message(void **state)
{
    (void)state;
    assert_refuses("\x12\x00\x30\x01\x12\x00", 13, "Node.child occurs twice (byte 6)");
    assert_takes("\x1A\x02\x12\x00\x1A\x02\x12\x00");
}

/* Writes messages nested this deep, from the innermost outwards, so that they end at `end`. Returns
 * their size. */
static size_t write_nested(uint8_t *end, size_t depth)
{
    uint8_t *at = end;
    for (size_t i = 0; i < depth; i++) {
        size_t size = (size_t)(end - at);
        uint8_t length[5];
        size_t length_bytes = 0;
        do {
            length[length_bytes++] = (uint8_t)((size & 0x7F) | (size >= 0x80 ? 0x80 : 0));
            size >>= 7;
        } while (size > 0);
        at -= length_bytes;
        memcpy(at, length, length_bytes);
        *--at = 0x12;
    }
    return (size_t)(end - at);
}

static void limits_nesting(void **state)
{
    (void)state;
    uint8_t bytes[64];
    uint8_t *end = bytes + sizeof bytes;
    struct eb_error error;
    size_t size = write_nested(end, EB_GUARD_DEPTH_MAX - 1);
    assert_true(check(end - size, size, &error));
    size = write_nested(end, EB_GUARD_DEPTH_MAX);
    assert_false(check(end - size, size, &error));
    assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "child.child is nested too deeply"));
}

static void refuses_seventy_five_kilobytes_of_nesting(void **state)
{
    (void)state;
    size_t room = 76000;
    uint8_t *bytes = malloc(room);
    assert_non_null(bytes);
    size_t size = write_nested(bytes + room, 20200);
    assert_in_range(size, 75000, room);
    struct eb_error error;
    assert_false(eb_guard_check(
        &embag__guard_case__node__descriptor, bytes + room - size, size, &no_limits, &error));
    free(bytes);
}

static void refuses_a_quarter_megabyte_of_one_singular_message(void **state)
{
    (void)state;
    size_t size = 256 * 1024;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i += 2) {
        bytes[i] = 0x12;
        bytes[i + 1] = 0;
    }
    struct eb_error error;
    assert_false(
        eb_guard_check(&embag__guard_case__node__descriptor, bytes, size, &no_limits, &error));
    assert_string_equal(error.text, "Node.child occurs twice (byte 4)");
    free(bytes);
}

/* Writes bytes that look like a message more often than random ones do. Returns their number. */
static size_t write_random(uint8_t *bytes, size_t room)
{
    static const uint8_t tags[] = {
        0x0A, 0x12, 0x1A, 0x22, 0x20, 0x2A, 0x30, 0x39, 0x45, 0x4A, 0x58};
    size_t size = (size_t)rand() % room;
    for (size_t i = 0; i < size; i++) {
        unsigned random = (unsigned)rand();
        unsigned kind = random % 4;
        unsigned any = random >> 8;
        bytes[i] = kind == 0 ? (uint8_t)any : (uint8_t)(any % 10);
        bytes[i] = kind == 1 ? tags[any % sizeof tags] : bytes[i];
    }
    return size;
}

static void lets_nothing_through_that_protobuf_c_refuses(void **state)
{
    (void)state;
    unsigned seed = 20240229;
    print_message("seed %u\n", seed);
    srand(seed);
    size_t passed = 0;
    for (size_t i = 0; i < 200000; i++) {
        uint8_t bytes[48];
        size_t size = write_random(bytes, sizeof bytes);
        struct eb_error error;
        if (!check(bytes, size, &error)) {
            assert_int_not_equal(error.text[0], 0);
            continue;
        }
        Embag__GuardCase__Node *node = embag__guard_case__node__unpack(NULL, size, bytes);
        assert_non_null(node);
        embag__guard_case__node__free_unpacked(node, NULL);
        passed++;
    }
    print_message("%zu messages passed\n", passed);
    assert_true(passed > 1000);
}

static void finds_a_number_of_a_message_it_refuses(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0x12, 0x02, 0x30, 0x07, 0x30, 0x08, 0x30, 0x89, 0x01, 0x0A, 0x7F};
    assert_int_equal(eb_guard_find_varint(bytes, sizeof bytes, 6), 137);
    assert_int_equal(eb_guard_find_varint(bytes, 6, 6), 8);
    assert_int_equal(eb_guard_find_varint(bytes, 4, 6), 0);
    assert_int_equal(eb_guard_find_varint(bytes, sizeof bytes, 2), 0);
    assert_int_equal(eb_guard_find_varint(NULL, 0, 6), 0);
}

EB_TEST_GROUP(guard)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_every_declared_type),
        cmocka_unit_test(takes_both_forms_of_repeated_numbers),
        cmocka_unit_test(skips_unknown_fields_of_any_type),
        cmocka_unit_test(refuses_a_tag_that_is_none),
        cmocka_unit_test(refuses_field_number_zero),
        cmocka_unit_test(refuses_groups_and_unknown_wire_types),
        cmocka_unit_test(refuses_another_wire_type_than_declared),
        cmocka_unit_test(refuses_values_that_end_past_their_message),
        cmocka_unit_test(refuses_varints_that_do_not_end),
        cmocka_unit_test(refuses_packed_arrays_with_broken_elements),
        cmocka_unit_test(refuses_a_nul_in_a_name),
        cmocka_unit_test(takes_utf8_at_the_edges_of_its_ranges),
        cmocka_unit_test(refuses_what_is_not_utf8),
        cmocka_unit_test(limits_the_length_of_names),
        cmocka_unit_test(limits_the_number_of_fields_at_all_depths),
        cmocka_unit_test(limits_the_number_of_repeated_messages),
        cmocka_unit_test(names_the_element_that_is_wrong),
        cmocka_unit_test(refuses_a_second_singular_message),
        cmocka_unit_test(limits_nesting),
        cmocka_unit_test(refuses_seventy_five_kilobytes_of_nesting),
        cmocka_unit_test(refuses_a_quarter_megabyte_of_one_singular_message),
        cmocka_unit_test(lets_nothing_through_that_protobuf_c_refuses),
        cmocka_unit_test(finds_a_number_of_a_message_it_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
