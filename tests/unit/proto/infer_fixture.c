#include "tests/unit/proto/infer_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

const struct eb_codec_limits infer_fixture_limits = {.queries_max = 2, .name_bytes_max = 20};

void infer_message_init(struct infer_message *message)
{
    message->writer = (struct eb_field_writer){.out = message->bytes};
}

void infer_message_put(
    struct infer_message *outer, uint32_t number, const struct infer_message *inner)
{
    assert_true(outer->writer.bytes + inner->writer.bytes + 16 <= sizeof outer->bytes);
    eb_field_put_length(&outer->writer, number, inner->writer.bytes);
    eb_field_put_content(&outer->writer, inner->bytes, inner->writer.bytes);
}

static void put_entry(struct infer_message *outer, uint32_t number, const char *key,
    const struct infer_message *value)
{
    struct infer_message entry;
    infer_message_init(&entry);
    eb_field_put_text(&entry.writer, 1, key);
    infer_message_put(&entry, 2, value);
    infer_message_put(outer, number, &entry);
}

void infer_message_put_text(
    struct infer_message *outer, uint32_t number, const char *key, const char *value)
{
    struct infer_message parameter;
    infer_message_init(&parameter);
    eb_field_put_text(&parameter.writer, 3, value);
    put_entry(outer, number, key, &parameter);
}

void infer_message_put_number(
    struct infer_message *outer, uint32_t number, const char *key, uint32_t form, uint64_t value)
{
    struct infer_message parameter;
    infer_message_init(&parameter);
    eb_field_put_present(&parameter.writer, form, value);
    put_entry(outer, number, key, &parameter);
}

void infer_message_init_input(
    struct infer_message *input, const char *name, const char *datatype, uint64_t elements)
{
    infer_message_init(input);
    eb_field_put_text(&input->writer, 1, name);
    eb_field_put_text(&input->writer, 2, datatype);
    eb_field_put_packed(&input->writer, 3, &elements, 1);
}

void infer_fixture_init(struct infer_fixture *fixture)
{
    lender_init(&fixture->lender, 0);
    eb_arena_init(&fixture->arena, &fixture->lender.memory);
}

void infer_fixture_deinit(struct infer_fixture *fixture)
{
    eb_arena_deinit(&fixture->arena);
    assert_int_equal(fixture->lender.lent_bytes, 0);
}

const struct eb_infer_request *infer_fixture_decode(
    struct infer_fixture *fixture, const uint8_t *bytes, size_t size)
{
    memset(&fixture->failure, 0x55, sizeof fixture->failure);
    eb_arena_reset(&fixture->arena, eb_lookup_request_arena_bytes(size, &infer_fixture_limits));
    fixture->request = eb_infer_request_decode(
        &fixture->arena, bytes, size, &infer_fixture_limits, &fixture->failure);
    return fixture->request;
}

const struct eb_infer_request *infer_fixture_accept(
    struct infer_fixture *fixture, const struct infer_message *message)
{
    if (!infer_fixture_decode(fixture, message->bytes, message->writer.bytes)) {
        fail_msg("refused: %s", fixture->failure.error.text);
    }
    return fixture->request;
}

void infer_fixture_expect_array(
    const struct eb_infer_input *input, uint32_t width, const void *elements, size_t bytes)
{
    assert_int_equal(input->array.width, width);
    assert_int_equal(input->array.bytes, bytes);
    assert_memory_equal(input->array.data, elements, bytes);
}

void infer_fixture_refuse(
    const struct infer_message *message, enum eb_status status, const char *text)
{
    struct infer_fixture fixture;
    infer_fixture_init(&fixture);
    if (infer_fixture_decode(&fixture, message->bytes, message->writer.bytes)) {
        fail_msg("not refused: %s", text);
    }
    assert_string_equal(fixture.failure.error.text, text);
    assert_int_equal(fixture.failure.error.status, status);
    assert_int_equal(fixture.failure.undecodable, status == EB_STATUS_INTERNAL);
    infer_fixture_deinit(&fixture);
}
