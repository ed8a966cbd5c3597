/* Decodes a ModelInferRequest that a test writes field by field.
 * Thread: the test's. Memory: freed by infer_fixture_deinit. */
#pragma once

#include "proto/codec_infer.h"
#include "proto/field.h"
#include "tests/unit/proto/lender.h"

#define INFER_FIXTURE_BYTES 4096

/* A message under construction. */
struct infer_message {
    struct eb_field_writer writer;
    uint8_t bytes[INFER_FIXTURE_BYTES];
};

/* `message` must not move. */
void infer_message_init(struct infer_message *message);
/* Adds a message as a field of another. */
void infer_message_put(
    struct infer_message *outer, uint32_t number, const struct infer_message *inner);
/* Add an entry to the map in field `number`: a string, or an integer in field `form` of the
 * value. */
void infer_message_put_text(
    struct infer_message *outer, uint32_t number, const char *key, const char *value);
void infer_message_put_number(
    struct infer_message *outer, uint32_t number, const char *key, uint32_t form, uint64_t value);
/* Begins an input with this name, this datatype and a shape of one dimension. */
void infer_message_init_input(
    struct infer_message *input, const char *name, const char *datatype, uint64_t elements);

/* At most 2 queries, names of at most 20 bytes. */
extern const struct eb_codec_limits infer_fixture_limits;

struct infer_fixture {
    struct lender lender;
    struct eb_arena arena;
    struct eb_decode_failure failure;
    struct eb_infer_request *request;
};

/* `fixture` must not move. */
void infer_fixture_init(struct infer_fixture *fixture);
/* Checks that all memory was given back. */
void infer_fixture_deinit(struct infer_fixture *fixture);
/* Decodes the bytes. Returns NULL on failure, with fixture->failure set. */
const struct eb_infer_request *infer_fixture_decode(
    struct infer_fixture *fixture, const uint8_t *bytes, size_t size);
/* Decodes a message that must be accepted. */
const struct eb_infer_request *infer_fixture_accept(
    struct infer_fixture *fixture, const struct infer_message *message);
void infer_fixture_expect_array(
    const struct eb_infer_input *input, uint32_t width, const void *elements, size_t bytes);
/* Expects a message to be refused with this error. Uses a fixture of its own. */
void infer_fixture_refuse(
    const struct infer_message *message, enum eb_status status, const char *text);
