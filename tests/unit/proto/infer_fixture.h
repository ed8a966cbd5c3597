/* One decoding of a ModelInferRequest that a test writes field by field, and what became of it.
 * Thread: the test's. Memory: freed by infer_fixture_deinit. */
#pragma once

#include "proto/codec_infer.h"
#include "proto/field.h"
#include "tests/unit/proto/lender.h"

#define INFER_FIXTURE_BYTES 4096

/* A message in the making. */
struct infer_message {
    struct eb_field_writer writer;
    uint8_t bytes[INFER_FIXTURE_BYTES];
};

/* `message` must not move. */
void infer_message_init(struct infer_message *message);
/* Adds a message as a field of another. */
void infer_message_put(
    struct infer_message *outer, uint32_t number, const struct infer_message *inner);
/* Adds an entry to the map in that field: a string, or an integer in field `form` of its value. */
void infer_message_put_text(
    struct infer_message *outer, uint32_t number, const char *key, const char *value);
void infer_message_put_number(
    struct infer_message *outer, uint32_t number, const char *key, uint32_t form, uint64_t value);
/* An input's name, datatype and a shape of one dimension. */
void infer_message_init_input(
    struct infer_message *input, const char *name, const char *datatype, uint64_t elements);

/* 2 queries, names of 20 bytes. */
extern const struct eb_codec_limits infer_fixture_limits;

struct infer_fixture {
    struct lender lender;
    struct eb_arena arena;
    struct eb_decode_failure failure;
    struct eb_infer_request *request;
};

/* `trial` must not move. */
void infer_fixture_init(struct infer_fixture *fixture);
/* Checks that all memory has come back. */
void infer_fixture_deinit(struct infer_fixture *fixture);
/* Decodes. NULL: trial->failure. */
const struct eb_infer_request *infer_fixture_decode(
    struct infer_fixture *fixture, const uint8_t *bytes, size_t size);
/* Decodes what must be good. */
const struct eb_infer_request *infer_fixture_accept(
    struct infer_fixture *fixture, const struct infer_message *message);
void infer_fixture_expect_array(
    const struct eb_infer_input *input, uint32_t width, const void *elements, size_t bytes);
/* A whole trial that must end with this error. */
void infer_fixture_refuse(
    const struct infer_message *message, enum eb_status status, const char *text);
