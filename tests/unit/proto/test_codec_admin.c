#include "proto/codec_admin.h"

#include "tests/lib/test_group.h"

#include "embag/v1/model_admin.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARENA_BYTES ((size_t)1 << 16)
#define NAME_BYTES_MAX 8

static const struct eb_codec_limits limits = {.name_bytes_max = NAME_BYTES_MAX};

static struct eb_arena arena;
static struct eb_error error;

static int open_arena(void **state)
{
    (void)state;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    return 0;
}

static int close_arena(void **state)
{
    (void)state;
    eb_arena_deinit(&arena);
    return 0;
}

static const struct eb_wire_model_query *decode_admin(const void *bytes, size_t size)
{
    return eb_version_request_decode(&arena, bytes, size, &limits, &error);
}

static void carries_a_request(void **state)
{
    struct eb_wire_model_query request = {"dlrm", UINT64_MAX};
    uint8_t bytes[64];
    (void)state;
    size_t size = eb_version_request_bytes(&request);
    eb_version_request_encode(&request, bytes);
    Embag__V1__VersionRequest *peer = embag__v1__version_request__unpack(NULL, size, bytes);
    assert_non_null(peer);
    assert_string_equal(peer->model, "dlrm");
    assert_true(peer->version == UINT64_MAX);
    embag__v1__version_request__free_unpacked(peer, NULL);
    const struct eb_wire_model_query *read = decode_admin(bytes, size);
    assert_non_null(read);
    assert_string_equal(read->model, "dlrm");
    assert_true(read->version == UINT64_MAX);
    read = decode_admin("", 0);
    assert_non_null(read);
    assert_string_equal(read->model, "");
    assert_int_equal(read->version, 0);
}

static void carries_progress(void **state)
{
    struct eb_wire_progress progress = {1, UINT64_MAX, true, "version 7 is served"};
    uint8_t bytes[64];
    (void)state;
    size_t size = eb_version_progress_bytes(&progress);
    eb_version_progress_encode(&progress, bytes);
    Embag__V1__VersionProgress *peer = embag__v1__version_progress__unpack(NULL, size, bytes);
    assert_non_null(peer);
    assert_int_equal(embag__v1__version_progress__get_packed_size(peer), size);
    embag__v1__version_progress__free_unpacked(peer, NULL);
    const struct eb_wire_progress *read = eb_version_progress_decode(&arena, bytes, size, &error);
    assert_non_null(read);
    assert_int_equal(read->done_bytes, 1);
    assert_true(read->total_bytes == UINT64_MAX);
    assert_true(read->done);
    assert_string_equal(read->text, "version 7 is served");
    assert_null(eb_version_progress_decode(&arena, bytes, size - 1, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
}

static void carries_the_outcome_of_a_reload(void **state)
{
    struct eb_wire_reload reload = {3, UINT32_MAX};
    uint8_t bytes[64];
    (void)state;
    size_t size = eb_reload_bytes(&reload);
    eb_reload_encode(&reload, bytes);
    Embag__V1__ReloadSettingsResponse *peer =
        embag__v1__reload_settings_response__unpack(NULL, size, bytes);
    assert_non_null(peer);
    assert_int_equal(embag__v1__reload_settings_response__get_packed_size(peer), size);
    embag__v1__reload_settings_response__free_unpacked(peer, NULL);
    const struct eb_wire_reload *read = eb_reload_decode(&arena, bytes, size, &error);
    assert_non_null(read);
    assert_int_equal(read->changed, 3);
    assert_true(read->pending == UINT32_MAX);
    assert_null(eb_reload_decode(&arena, bytes, size - 1, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
}

static void carries_settings(void **state)
{
    static const struct eb_wire_setting settings[] = {
        {"queries_max", "7", EMBAG__V1__SETTING__ORIGIN__ORIGIN_FILE, true, false, ""},
        {"isa", "", EMBAG__V1__SETTING__ORIGIN__ORIGIN_DEFAULT, false, true, "avx2"},
        {"loops", "2", EMBAG__V1__SETTING__ORIGIN__ORIGIN_FLAG, false, false, ""},
    };
    struct eb_wire_setting_list list = {3, settings};
    uint8_t bytes[256];
    (void)state;
    size_t size = eb_setting_list_bytes(&list);
    assert_true(size <= sizeof bytes);
    eb_setting_list_encode(&list, bytes);
    Embag__V1__ListSettingsResponse *peer =
        embag__v1__list_settings_response__unpack(NULL, size, bytes);
    assert_non_null(peer);
    assert_int_equal(embag__v1__list_settings_response__get_packed_size(peer), size);
    embag__v1__list_settings_response__free_unpacked(peer, NULL);
    const struct eb_wire_setting_list *read = eb_setting_list_decode(&arena, bytes, size, &error);
    assert_non_null(read);
    assert_int_equal(read->count, 3);
    for (size_t i = 0; i < read->count; i++) {
        assert_string_equal(read->settings[i].name, settings[i].name);
        assert_string_equal(read->settings[i].value, settings[i].value);
        assert_int_equal(read->settings[i].origin, settings[i].origin);
        assert_int_equal(read->settings[i].live, settings[i].live);
        assert_int_equal(read->settings[i].pending, settings[i].pending);
        assert_string_equal(read->settings[i].pending_value, settings[i].pending_value);
    }
    assert_null(eb_setting_list_decode(&arena, bytes, size - 1, &error));
    assert_int_equal(error.status, EB_STATUS_INTERNAL);
    read = eb_setting_list_decode(&arena, bytes, 0, &error);
    assert_non_null(read);
    assert_int_equal(read->count, 0);
    eb_arena_reset(&arena, 0);
    assert_null(eb_setting_list_decode(&arena, bytes, size, &error));
    assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
}

static void expect_refused(const void *bytes, size_t size, enum eb_status status)
{
    assert_null(decode_admin(bytes, size));
    assert_int_equal(error.status, status);
    assert_true(error.text[0] != '\0');
}

static void refuses_requests_that_are_none(void **state)
{
    uint8_t unknown[256];
    (void)state;
    expect_refused("\x0a\x05m", 3, EB_STATUS_INTERNAL);
    expect_refused("\x0a\x01\0", 3, EB_STATUS_INVALID_ARGUMENT);
    expect_refused("\x0a\x02\xff\xfe", 4, EB_STATUS_INVALID_ARGUMENT);
    assert_non_null(decode_admin("\x0a\x08nnnnnnnn", 10));
    expect_refused("\x0a\x09nnnnnnnnn", 11, EB_STATUS_RESOURCE_EXHAUSTED);
    for (size_t i = 0; i < sizeof unknown; i += 2) {
        unknown[i] = 0x28;
        unknown[i + 1] = 0;
    }
    expect_refused(unknown, sizeof unknown, EB_STATUS_RESOURCE_EXHAUSTED);
    eb_arena_reset(&arena, 0);
    expect_refused("", 0, EB_STATUS_RESOURCE_EXHAUSTED);
}

EB_TEST_GROUP(codec_admin)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(carries_a_request, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(carries_progress, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(carries_the_outcome_of_a_reload, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(carries_settings, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(refuses_requests_that_are_none, open_arena, close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
