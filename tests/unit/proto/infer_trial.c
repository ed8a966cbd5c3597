#include "tests/unit/proto/infer_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

const struct eb_codec_limits infer_trial_limits = {.queries_max = 2, .name_bytes_max = 20};

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

void infer_trial_init(struct infer_trial *trial)
{
    lender_init(&trial->lender, 0);
    eb_arena_init(&trial->arena, &trial->lender.memory);
}

void infer_trial_deinit(struct infer_trial *trial)
{
    eb_arena_deinit(&trial->arena);
    assert_int_equal(trial->lender.lent_bytes, 0);
}

const struct eb_infer_request *infer_trial_decode(
    struct infer_trial *trial, const uint8_t *bytes, size_t size)
{
    memset(&trial->failure, 0x55, sizeof trial->failure);
    eb_arena_reset(&trial->arena, eb_lookup_request_arena_bytes(size, &infer_trial_limits));
    trial->request =
        eb_infer_request_decode(&trial->arena, bytes, size, &infer_trial_limits, &trial->failure);
    return trial->request;
}

const struct eb_infer_request *infer_trial_accept(
    struct infer_trial *trial, const struct infer_message *message)
{
    if (!infer_trial_decode(trial, message->bytes, message->writer.bytes)) {
        fail_msg("refused: %s", trial->failure.error.text);
    }
    return trial->request;
}

void infer_trial_expect_array(
    const struct eb_infer_input *input, uint32_t width, const void *elements, size_t bytes)
{
    assert_int_equal(input->array.width, width);
    assert_int_equal(input->array.bytes, bytes);
    assert_memory_equal(input->array.data, elements, bytes);
}

void infer_trial_refuse(
    const struct infer_message *message, enum eb_status status, const char *text)
{
    struct infer_trial trial;
    infer_trial_init(&trial);
    if (infer_trial_decode(&trial, message->bytes, message->writer.bytes)) {
        fail_msg("not refused: %s", text);
    }
    assert_string_equal(trial.failure.error.text, text);
    assert_int_equal(trial.failure.error.status, status);
    assert_int_equal(trial.failure.undecodable, status == EB_STATUS_INTERNAL);
    infer_trial_deinit(&trial);
}
