#include "proto/codec_reflection.h"

#include "tests/lib/test_group.h"

#include "grpc/reflection/v1/reflection.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define BYTES_MAX 65536

/* Decodes a request from host "h" for "n" in field `number`. */
static struct eb_wire_reflection_request *decode_reflection(
    struct eb_arena *arena, uint8_t number, struct eb_error *error)
{
    const uint8_t bytes[] = {0x0a, 1, 'h', (uint8_t)(number << 3 | 2), 1, 'n'};
    return eb_reflection_request_decode(arena, bytes, sizeof bytes, error);
}

static void reads_every_question(void **state)
{
    static const enum eb_reflection_question questions[] = {EB_REFLECTION_FILE,
        EB_REFLECTION_SYMBOL, EB_REFLECTION_EXTENSION_NUMBERS, EB_REFLECTION_SERVICES};
    (void)state;
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, BYTES_MAX);
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        bool is_named = questions[i] != EB_REFLECTION_SERVICES;
        const struct eb_wire_reflection_request *request =
            decode_reflection(&arena, (uint8_t)questions[i], &error);
        assert_non_null(request);
        assert_int_equal(request->question, questions[i]);
        assert_string_equal(request->host, "h");
        assert_string_equal(request->name, is_named ? "n" : "");
    }
    static const uint8_t extension[] = {5 << 3 | 2, 5, 0x0a, 1, 'n', 0x10, 7};
    const struct eb_wire_reflection_request *request =
        eb_reflection_request_decode(&arena, extension, sizeof extension, &error);
    assert_non_null(request);
    assert_int_equal(request->question, EB_REFLECTION_EXTENSION);
    assert_string_equal(request->name, "n");
    eb_arena_deinit(&arena);
}

static void takes_an_unknown_question_for_none(void **state)
{
    (void)state;
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, BYTES_MAX);
    const struct eb_wire_reflection_request *request = decode_reflection(&arena, 8, &error);
    assert_non_null(request);
    assert_int_equal(request->question, EB_REFLECTION_NONE);
    request = eb_reflection_request_decode(&arena, NULL, 0, &error);
    assert_non_null(request);
    assert_int_equal(request->question, EB_REFLECTION_NONE);
    eb_arena_deinit(&arena);
}

static void refuses_what_is_no_request(void **state)
{
    static const uint8_t broken[] = {3 << 3 | 2, 9, 'n'};
    static uint8_t name[EB_REFLECTION_NAME_BYTES_MAX + 4] = {3 << 3 | 2};
    (void)state;
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, BYTES_MAX);
    assert_null(eb_reflection_request_decode(&arena, broken, sizeof broken, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    memset(name + 3, 'n', sizeof name - 3);
    for (size_t more = 0; more <= 1; more++) {
        size_t size = EB_REFLECTION_NAME_BYTES_MAX + more;
        name[1] = (uint8_t)(size & 127) | 128;
        name[2] = (uint8_t)(size >> 7);
        assert_int_equal(!!eb_reflection_request_decode(&arena, name, 3 + size, &error), more == 0);
    }
    assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    eb_arena_deinit(&arena);
}

/* Returns the response as protobuf-c reads it. The caller frees it. */
static Grpc__Reflection__V1__ServerReflectionResponse *reread(
    const struct eb_wire_reflection_response *response)
{
    static uint8_t bytes[BYTES_MAX];
    size_t size = eb_reflection_response_bytes(response);
    assert_true(size <= sizeof bytes);
    eb_reflection_response_encode(response, bytes);
    Grpc__Reflection__V1__ServerReflectionResponse *read =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_string_equal(read->valid_host, "h");
    assert_string_equal(read->original_request->file_by_filename, "n");
    return read;
}

static void free_read(Grpc__Reflection__V1__ServerReflectionResponse *read)
{
    grpc__reflection__v1__server_reflection_response__free_unpacked(read, NULL);
}

static const uint8_t asked[] = {3 << 3 | 2, 1, 'n'};

static void writes_an_error(void **state)
{
    (void)state;
    struct eb_error error = {EB_STATUS_NOT_FOUND, "what"};
    struct eb_wire_reflection_response response = {
        .host = "h", .request = asked, .request_bytes = sizeof asked, .error = &error};
    Grpc__Reflection__V1__ServerReflectionResponse *read = reread(&response);
    assert_int_equal(read->error_response->error_code, EB_STATUS_NOT_FOUND);
    assert_string_equal(read->error_response->error_message, "what");
    free_read(read);
}

static void writes_files(void **state)
{
    (void)state;
    struct eb_schema_files files;
    assert_true(eb_schema_find_file("embag/v1/model_admin.proto", &files));
    struct eb_wire_reflection_response response = {
        .host = "h", .request = asked, .request_bytes = sizeof asked, .files = &files};
    Grpc__Reflection__V1__ServerReflectionResponse *read = reread(&response);
    const Grpc__Reflection__V1__FileDescriptorResponse *told = read->file_descriptor_response;
    assert_int_equal(told->n_file_descriptor_proto, 2);
    assert_int_equal(told->file_descriptor_proto[0].len, files.files[0].size);
    assert_memory_equal(
        told->file_descriptor_proto[1].data, files.files[1].bytes, files.files[1].size);
    free_read(read);
}

static void writes_services_and_a_message_without_extensions(void **state)
{
    static const char *const services[] = {"a.A", "b.B"};
    (void)state;
    struct eb_wire_reflection_response response = {.host = "h",
        .request = asked,
        .request_bytes = sizeof asked,
        .services = services,
        .service_count = 2};
    Grpc__Reflection__V1__ServerReflectionResponse *read = reread(&response);
    assert_int_equal(read->list_services_response->n_service, 2);
    assert_string_equal(read->list_services_response->service[1]->name, "b.B");
    free_read(read);
    response.base_type = "a.M";
    read = reread(&response);
    assert_string_equal(read->all_extension_numbers_response->base_type_name, "a.M");
    assert_int_equal(read->all_extension_numbers_response->n_extension_number, 0);
    free_read(read);
}

EB_TEST_GROUP(codec_reflection)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_question),
        cmocka_unit_test(takes_an_unknown_question_for_none),
        cmocka_unit_test(refuses_what_is_no_request),
        cmocka_unit_test(writes_an_error),
        cmocka_unit_test(writes_files),
        cmocka_unit_test(writes_services_and_a_message_without_extensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
