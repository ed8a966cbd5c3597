#include "proto/codec.h"
#include "proto/guard.h"
#include "tests/lib/test_group.h"

#include "embag/v1/embedding_bag.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define NUMBER_MAX 40
#define ARENA_BYTES 65536

static const struct eb_codec_limits limits = {.queries_max = 40, .name_bytes_max = 255};
static const struct eb_guard_limits guard_limits = {
    .fields_max = 100, .name_bytes_max = 255, .submessages_max = 40};

/* Contents of a field, by wire type: some that every declaration accepts, and some that only
 * certain declarations accept. */
static const struct {
    uint32_t wire_type;
    uint8_t size;
    const char *bytes;
} contents[] = {
    {PROTOBUF_C_WIRE_TYPE_VARINT, 1, "\x01"},
    {PROTOBUF_C_WIRE_TYPE_64BIT, 8, "abcdefgh"},
    {PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 1, "\x00"},
    {PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 5, "\x04\x08\x01\x08\x01"},
    {PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 2, "\x01t"},
    {PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 2, "\x01\x80"},
    {PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 3, "\x02\xC3\xA9"},
    {PROTOBUF_C_WIRE_TYPE_32BIT, 4, "abcd"},
};

struct message {
    uint8_t bytes[32];
    size_t size;
};

/* Makes a message of one field. The field is inside field `outer` of the message, or in the message
 * itself if `outer` is 0. */
static struct message make_message(uint32_t outer, uint32_t number, size_t content)
{
    struct message field = {.size = 0};
    uint32_t tag = number << 3 | contents[content].wire_type;
    while (tag >= 0x80) {
        field.bytes[field.size++] = (uint8_t)(tag | 0x80);
        tag >>= 7;
    }
    field.bytes[field.size++] = (uint8_t)tag;
    memcpy(field.bytes + field.size, contents[content].bytes, contents[content].size);
    field.size += contents[content].size;
    if (outer == 0) {
        return field;
    }
    struct message whole = {.size = 2 + field.size};
    whole.bytes[0] = (uint8_t)(outer << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
    whole.bytes[1] = (uint8_t)field.size;
    memcpy(whole.bytes + 2, field.bytes, field.size);
    return whole;
}

static bool reads_request(
    struct eb_arena *arena, const struct message *message, struct eb_error *error)
{
    struct eb_decode_failure failure;
    bool is_read =
        eb_lookup_request_decode(arena, message->bytes, message->size, &limits, &failure);
    *error = failure.error;
    return is_read || !failure.undecodable;
}

static bool reads_response(
    struct eb_arena *arena, const struct message *message, struct eb_error *error)
{
    return eb_lookup_response_decode(arena, message->bytes, message->size, error);
}

/* Expects every message that the guard refuses to be refused for the same reason, and every other
 * message to be decodable. */
static void assert_agrees(const ProtobufCMessageDescriptor *descriptor,
    bool (*reads)(struct eb_arena *, const struct message *, struct eb_error *), uint32_t outer)
{
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    size_t passed_count = 0;
    for (uint32_t number = 1; number <= NUMBER_MAX; number++) {
        for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
            struct message message = make_message(outer, number, i);
            struct eb_error said = {.status = EB_STATUS_OK};
            struct eb_error wanted;
            eb_arena_reset(&arena, ARENA_BYTES);
            bool is_read = reads(&arena, &message, &said);
            bool passes =
                eb_guard_check(descriptor, message.bytes, message.size, &guard_limits, &wanted);
            passed_count += passes;
            if (!passes) {
                assert_int_equal(said.status, wanted.status);
                assert_string_equal(said.text, wanted.text);
            } else if (!is_read) {
                fail_msg("field %u, content %zu: %s", number, i, said.text);
            }
        }
    }
    assert_in_range(passed_count, NUMBER_MAX, NUMBER_MAX * sizeof contents / sizeof *contents - 1);
    eb_arena_deinit(&arena);
}

static void takes_of_a_request_what_the_guard_lets_pass(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *descriptor = &embag__v1__lookup_request__descriptor;
    assert_agrees(descriptor, reads_request, 0);
}

static void takes_of_a_query_what_the_guard_lets_pass(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *descriptor = &embag__v1__lookup_request__descriptor;
    assert_agrees(descriptor, reads_request, 4);
}

static void takes_of_a_group_what_the_guard_lets_pass(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *descriptor = &embag__v1__lookup_request__descriptor;
    assert_agrees(descriptor, reads_request, 8);
}

static void takes_of_an_answer_what_the_guard_lets_pass(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *descriptor = &embag__v1__lookup_response__descriptor;
    assert_agrees(descriptor, reads_response, 0);
}

static void takes_of_a_result_what_the_guard_lets_pass(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *descriptor = &embag__v1__lookup_response__descriptor;
    assert_agrees(descriptor, reads_response, 4);
}

EB_TEST_GROUP(codec_fields)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_of_a_request_what_the_guard_lets_pass),
        cmocka_unit_test(takes_of_a_query_what_the_guard_lets_pass),
        cmocka_unit_test(takes_of_a_group_what_the_guard_lets_pass),
        cmocka_unit_test(takes_of_an_answer_what_the_guard_lets_pass),
        cmocka_unit_test(takes_of_a_result_what_the_guard_lets_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
