#include "server/rpc/infer_service.h"

#include "proto/grpc_text.h"
#include "server/rpc/reply.h"
#include "tests/lib/test_group.h"
#include "tests/unit/rpc/plan_fixture.h"

#include "inference/open_inference.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARENA_BYTES ((size_t)1 << 16)

static const struct eb_limits limits = {.name_bytes_max = 8};
static const struct eb_server_facts facts = {.version = "1.2.3"};

/* "trial" has versions 9 (broken) and 7 (served). "idle" has no version yet. */
static char fixture_name[] = "trial";
static char idle_name[] = "idle";
static struct eb_snapshot_version versions[] = {{.number = 9}, {.number = 7}};
static struct eb_snapshot_model models[] = {
    {.name = idle_name},
    {.name = fixture_name, .version_count = 2, .versions = versions},
};
static const struct eb_snapshot snapshot = {.count = 2, .models = models};

static struct eb_buffer_pool pool;
static struct eb_memory memory;
static struct eb_arena arena;
static struct eb_error error;
static struct eb_outgoing *answer;

static int set_up(void **state)
{
    (void)state;
    eb_buffer_pool_init(&pool, UINT64_C(1) << 24);
    memory = eb_buffer_pool_memory(&pool);
    eb_arena_init(&arena, &memory);
    return 0;
}

static void drop(void)
{
    if (answer) {
        eb_outgoing_drop(answer);
        answer = NULL;
    }
}

static int tear_down(void **state)
{
    (void)state;
    drop();
    eb_arena_deinit(&arena);
    assert_int_equal(pool.taken_bytes, 0);
    eb_buffer_pool_deinit(&pool);
    return 0;
}

/* The context of a unary request. */
struct circumstances {
    size_t arena_bytes;
    bool is_draining;
    const struct eb_principal *caller; /* NULL: eb_auth_anybody */
};

static const struct circumstances usual = {.arena_bytes = ARENA_BYTES};

static bool ask_infer(
    eb_unary_fn method, const void *bytes, size_t size, const struct circumstances *circumstances)
{
    drop();
    eb_arena_reset(&arena, circumstances->arena_bytes);
    struct eb_unary_request unary = {
        .snapshot = &snapshot,
        .caller = circumstances->caller ? circumstances->caller : &eb_auth_anybody,
        .facts = &facts,
        .limits = &limits,
        .arena = &arena,
        .pool = &pool,
        .is_leaving = circumstances->is_draining,
        .bytes = bytes,
        .size = size,
    };
    answer = method(&unary, &error);
    return answer;
}

/* Sends a request for a model, made of the fields that all three request types share. */
static bool ask_for(eb_unary_fn method, const char *name, const char *version,
    const struct circumstances *circumstances)
{
    char name_copy[32];
    char version_copy[32];
    uint8_t bytes[128];
    Inference__ModelReadyRequest request = INFERENCE__MODEL_READY_REQUEST__INIT;
    snprintf(name_copy, sizeof name_copy, "%s", name);
    snprintf(version_copy, sizeof version_copy, "%s", version);
    request.name = name_copy;
    request.version = version_copy;
    size_t size = inference__model_ready_request__pack(&request, bytes);
    return ask_infer(method, bytes, size, circumstances);
}

static size_t infer_body_bytes(void)
{
    return answer->size - EB_GRPC_PREFIX_BYTES;
}

static bool read_flag(void)
{
    Inference__ModelReadyResponse *read =
        inference__model_ready_response__unpack(NULL, infer_body_bytes(), eb_reply_body(answer));
    assert_non_null(read);
    bool flag = read->ready;
    inference__model_ready_response__free_unpacked(read, NULL);
    return flag;
}

static void is_live_and_ready_until_it_drains(void **state)
{
    (void)state;
    struct circumstances draining = {.arena_bytes = ARENA_BYTES, .is_draining = true};
    assert_true(ask_infer(eb_infer_service_server_live, NULL, 0, &usual) && read_flag());
    assert_true(ask_infer(eb_infer_service_server_ready, NULL, 0, &usual) && read_flag());
    assert_true(ask_for(eb_infer_service_model_ready, "trial", "", &usual) && read_flag());
    assert_true(ask_infer(eb_infer_service_server_live, NULL, 0, &draining) && read_flag());
    assert_true(ask_infer(eb_infer_service_server_ready, NULL, 0, &draining) && !read_flag());
    assert_true(ask_for(eb_infer_service_model_ready, "trial", "", &draining) && !read_flag());
}

static void a_model_is_ready_in_versions_that_answer(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *version;
        bool is_ready;
    } cases[] = {
        {"trial", "7", true},
        {"", "7", true}, /* "trial" is the only model that serves a version */
        {"trial", "9", false},
        {"trial", "8", false},
        {"idle", "", false},
        {"none", "", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(ask_for(eb_infer_service_model_ready, cases[i].name, cases[i].version, &usual));
        assert_int_equal(read_flag(), cases[i].is_ready);
    }
}

static void describes_tables_and_then_features(void **state)
{
    (void)state;
    assert_true(ask_for(eb_infer_service_model_metadata, "trial", "", &usual));
    Inference__ModelMetadataResponse *read =
        inference__model_metadata_response__unpack(NULL, infer_body_bytes(), eb_reply_body(answer));
    assert_non_null(read);
    assert_string_equal(read->name, "trial");
    assert_int_equal(read->n_versions, 1);
    assert_string_equal(read->versions[0], "7");
    static const char *const names[] = {
        "bare", "cube", "half", "line", "rows", "whole", "wide", "around", "highest", "plain"};
    static const size_t ranks[] = {2, 3, 2, 1, 2, 2, 2, 2, 2, 2};
    assert_int_equal(read->n_outputs, 10);
    assert_int_equal(read->n_inputs, 30);
    for (size_t i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.pooled", names[i]);
        assert_string_equal(read->outputs[i]->name, name);
        assert_int_equal(read->outputs[i]->n_shape, ranks[i]);
        snprintf(name, sizeof name, "%s.per_sample_weights", names[i]);
        assert_string_equal(read->inputs[3 * i + 2]->name, name);
    }
    assert_string_equal(read->outputs[2]->datatype, "FP16");
    assert_string_equal(read->inputs[8]->datatype, "FP32");
    assert_string_equal(read->outputs[5]->datatype, "INT32");
    assert_string_equal(read->inputs[17]->datatype, "INT32");
    inference__model_metadata_response__free_unpacked(read, NULL);
}

static void expect_infer_refused(eb_unary_fn method, const char *name, const char *version,
    enum eb_status status, const char *text)
{
    assert_false(ask_for(method, name, version, &usual));
    assert_string_equal(error.text, text);
    assert_int_equal(error.status, status);
}

static void refuses_what_infer_does_not_have(void **state)
{
    (void)state;
    static const eb_unary_fn methods[] = {
        eb_infer_service_model_metadata, eb_infer_service_model_config};
    for (size_t i = 0; i < 2; i++) {
        expect_infer_refused(methods[i], "none", "", EB_STATUS_NOT_FOUND, "no model \"none\"");
        expect_infer_refused(methods[i], "idle", "", EB_STATUS_NOT_FOUND,
            "model \"idle\" has no version in memory yet");
        expect_infer_refused(methods[i], "trial", "9", EB_STATUS_NOT_FOUND,
            "model \"trial\" has no version 9 in memory");
        expect_infer_refused(methods[i], "trial", "new", EB_STATUS_INVALID_ARGUMENT,
            "invalid version \"new\": expected a number of at least 1, or an empty string for the "
            "served version");
    }
    expect_infer_refused(eb_infer_service_model_config, "nine byte", "",
        EB_STATUS_RESOURCE_EXHAUSTED,
        "ModelConfigRequest.name is longer than a name may be (byte 2)");
}

static void tells_nobody_of_models_that_are_not_his(void **state)
{
    (void)state;
    static const eb_unary_fn methods[] = {eb_infer_service_model_ready,
        eb_infer_service_model_metadata, eb_infer_service_model_config};
    struct circumstances unknown = {.arena_bytes = ARENA_BYTES, .caller = &eb_auth_nobody};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        assert_false(ask_for(methods[i], "trial", "", &unknown));
        assert_int_equal(error.status, EB_STATUS_PERMISSION_DENIED);
        assert_false(ask_for(methods[i], "none", "", &unknown));
        assert_int_equal(error.status, EB_STATUS_PERMISSION_DENIED);
    }
    assert_true(ask_infer(eb_infer_service_server_live, NULL, 0, &unknown));
}

static void refuses_bytes_that_are_no_request(void **state)
{
    (void)state;
    static const eb_unary_fn methods[] = {eb_infer_service_server_live,
        eb_infer_service_server_ready, eb_infer_service_server_metadata,
        eb_infer_service_model_ready, eb_infer_service_model_metadata,
        eb_infer_service_model_config};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        assert_false(ask_infer(methods[i], "\x0a", 1, &usual));
        assert_int_equal(error.status, EB_STATUS_INTERNAL);
    }
}

static void answers_nothing_without_memory(void **state)
{
    (void)state;
    struct circumstances circumstances = {.arena_bytes = 0};
    while (!ask_for(eb_infer_service_model_config, "trial", "7", &circumstances)) {
        assert_int_equal(error.status, EB_STATUS_RESOURCE_EXHAUSTED);
        circumstances.arena_bytes += EB_ARENA_ALIGNMENT;
    }
    assert_in_range(circumstances.arena_bytes, 1, ARENA_BYTES);
}

static int load(void **state)
{
    if (plan_fixture_load(state) != 0) {
        return -1;
    }
    /* The version is borrowed. The snapshot is never freed. */
    versions[1].loaded = (struct eb_model_version *)(uintptr_t)plan_fixture_version();
    versions[1].state = EB_VERSION_SERVING;
    models[1].served = versions[1].loaded;
    return 0;
}

EB_TEST_GROUP(infer_service)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(is_live_and_ready_until_it_drains),
        EACH(a_model_is_ready_in_versions_that_answer),
        EACH(describes_tables_and_then_features),
        EACH(refuses_what_infer_does_not_have),
        EACH(tells_nobody_of_models_that_are_not_his),
        EACH(refuses_bytes_that_are_no_request),
        EACH(answers_nothing_without_memory),
    };
    return cmocka_run_group_tests(tests, load, plan_fixture_unload);
}
