#include "tests/unit/proto/request_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct eb_codec_limits fixture_limits = {.queries_max = 40, .name_bytes_max = 255};
const int64_t fixture_wide[4] = {1, 2, -3, INT64_MAX};
const int32_t fixture_narrow[4] = {1, 2, -3, INT32_MAX};

void fixture_init(struct fixture *fixture, const Embag__V1__LookupRequest *message)
{
    lender_init(&fixture->lender, 0);
    eb_arena_init(&fixture->arena, &fixture->lender.memory);
    fixture->size = embag__v1__lookup_request__get_packed_size(message);
    fixture->bytes = malloc(fixture->size + 1);
    assert_non_null(fixture->bytes);
    embag__v1__lookup_request__pack(message, fixture->bytes);
}

void fixture_decode(struct fixture *fixture)
{
    memset(&fixture->failure, 0x55, sizeof fixture->failure);
    eb_arena_reset(&fixture->arena, eb_lookup_request_arena_bytes(fixture->size, &fixture_limits));
    fixture->request = eb_lookup_request_decode(
        &fixture->arena, fixture->bytes, fixture->size, &fixture_limits, &fixture->failure);
}

void fixture_deinit(struct fixture *fixture)
{
    eb_arena_deinit(&fixture->arena);
    free(fixture->bytes);
    assert_int_equal(fixture->lender.lent_bytes, 0);
}

void fixture_accept(struct fixture *fixture, const Embag__V1__LookupRequest *message)
{
    fixture_init(fixture, message);
    fixture_decode(fixture);
    if (!fixture->request) {
        fail_msg("refused: %s", fixture->failure.error.text);
    }
}

void fixture_refuse(
    const Embag__V1__LookupRequest *message, enum eb_status status, const char *text)
{
    struct fixture fixture;
    fixture_init(&fixture, message);
    fixture_decode(&fixture);
    const struct eb_error *error = &fixture.failure.error;
    if (fixture.request) {
        assert_true(fixture.request->query_count > 0);
        error = fixture.request->queries[fixture.request->query_count - 1].error;
        assert_non_null(error);
    } else {
        assert_int_equal(fixture.failure.request_id, message->request_id);
        assert_int_equal(fixture.failure.cancel, message->cancel);
        assert_int_equal(fixture.failure.undecodable, status == EB_STATUS_INTERNAL);
    }
    assert_string_equal(error->text, text);
    assert_int_equal(error->status, status);
    fixture_deinit(&fixture);
}

void lone_query_init(struct lone_query *lone)
{
    embag__v1__bag_query__init(&lone->query);
    embag__v1__lookup_request__init(&lone->request);
    lone->query.table = "t";
    lone->queries[0] = &lone->query;
    lone->request.request_id = 77;
    lone->request.n_queries = 1;
    lone->request.queries = lone->queries;
}

ProtobufCBinaryData lone_query_binary(const void *data, size_t size)
{
    return (ProtobufCBinaryData){.len = size, .data = (uint8_t *)(uintptr_t)data};
}

void lone_group_init(struct lone_group *lone)
{
    static char *features[] = {"user", "item"};
    embag__v1__feature_group__init(&lone->group);
    embag__v1__lookup_request__init(&lone->request);
    lone->group.n_features = 2;
    lone->group.features = features;
    lone->group.bags = 2;
    lone->groups[0] = &lone->group;
    lone->request.request_id = 77;
    lone->request.n_groups = 1;
    lone->request.groups = lone->groups;
}

void fixture_expect_array(const struct eb_wire_array *array, uint32_t width, const char *field)
{
    assert_int_equal(array->width, width);
    assert_string_equal(array->field, field);
    assert_int_equal(array->bytes, 4 * width);
    assert_memory_equal(
        array->data, width == 8 ? (const void *)fixture_wide : fixture_narrow, array->bytes);
}

void fixture_expect_absent(const struct eb_wire_array *array)
{
    assert_int_equal(array->width, 0);
    assert_int_equal(array->bytes, 0);
    assert_null(array->data);
    assert_null(array->field);
}
