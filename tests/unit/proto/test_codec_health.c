#include "proto/codec_health.h"

#include "tests/lib/test_group.h"

#include "grpc/health/v1/health.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void reads_the_name_that_is_asked_for(void **state)
{
    static const uint8_t bytes[] = {0x0a, 3, 'a', '.', 'B'};
    (void)state;
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 4096);
    assert_string_equal(eb_health_request_decode(&arena, NULL, 0, 3, &error), "");
    assert_string_equal(eb_health_request_decode(&arena, bytes, sizeof bytes, 3, &error), "a.B");
    assert_null(eb_health_request_decode(&arena, bytes, sizeof bytes, 2, &error));
    assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    assert_null(eb_health_request_decode(&arena, bytes, 3, 3, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    eb_arena_deinit(&arena);
}

static void writes_a_status(void **state)
{
    (void)state;
    for (int status = EB_HEALTH_UNKNOWN; status <= EB_HEALTH_SERVICE_UNKNOWN; status++) {
        uint8_t bytes[8];
        size_t size = eb_health_response_bytes((enum eb_health_status)status);
        assert_true(size <= sizeof bytes);
        eb_health_response_encode((enum eb_health_status)status, bytes);
        Grpc__Health__V1__HealthCheckResponse *read =
            grpc__health__v1__health_check_response__unpack(NULL, size, bytes);
        assert_non_null(read);
        assert_int_equal(read->status, status);
        grpc__health__v1__health_check_response__free_unpacked(read, NULL);
    }
}

static void writes_a_map_of_statuses(void **state)
{
    static const struct eb_wire_health items[] = {
        {"", EB_HEALTH_SERVING}, {"m", EB_HEALTH_NOT_SERVING}, {"n", EB_HEALTH_UNKNOWN}};
    (void)state;
    uint8_t bytes[256];
    size_t size = eb_health_list_bytes(items, 3);
    assert_true(size <= sizeof bytes);
    eb_health_list_encode(items, 3, bytes);
    Grpc__Health__V1__HealthListResponse *read =
        grpc__health__v1__health_list_response__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_int_equal(read->n_statuses, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(read->statuses[i]->key, items[i].name);
        assert_int_equal(read->statuses[i]->value->status, items[i].status);
    }
    grpc__health__v1__health_list_response__free_unpacked(read, NULL);
    assert_int_equal(eb_health_list_bytes(items, 0), 0);
}

EB_TEST_GROUP(codec_health)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_name_that_is_asked_for),
        cmocka_unit_test(writes_a_status),
        cmocka_unit_test(writes_a_map_of_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
