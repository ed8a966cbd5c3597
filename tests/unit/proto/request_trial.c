#include "tests/unit/proto/request_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct eb_codec_limits trial_limits = {.queries_max = 40, .name_bytes_max = 255};

void trial_init(struct trial *trial, const Embag__V1__LookupRequest *message)
{
    lender_init(&trial->lender, 0);
    eb_arena_init(&trial->arena, &trial->lender.memory);
    trial->size = embag__v1__lookup_request__get_packed_size(message);
    trial->bytes = malloc(trial->size + 1);
    assert_non_null(trial->bytes);
    embag__v1__lookup_request__pack(message, trial->bytes);
}

void trial_decode(struct trial *trial)
{
    memset(&trial->failure, 0x55, sizeof trial->failure);
    eb_arena_reset(&trial->arena, eb_lookup_request_arena_bytes(trial->size, &trial_limits));
    trial->request = eb_lookup_request_decode(
        &trial->arena, trial->bytes, trial->size, &trial_limits, &trial->failure);
}

void trial_deinit(struct trial *trial)
{
    eb_arena_deinit(&trial->arena);
    free(trial->bytes);
    assert_int_equal(trial->lender.lent_bytes, 0);
}

void trial_accept(struct trial *trial, const Embag__V1__LookupRequest *message)
{
    trial_init(trial, message);
    trial_decode(trial);
    if (!trial->request) {
        fail_msg("refused: %s", trial->failure.error.text);
    }
}

void trial_refuse(const Embag__V1__LookupRequest *message, enum eb_status status, const char *text)
{
    struct trial trial;
    trial_init(&trial, message);
    trial_decode(&trial);
    const struct eb_error *error = &trial.failure.error;
    if (trial.request) {
        assert_true(trial.request->query_count > 0);
        error = trial.request->queries[trial.request->query_count - 1].fault;
        assert_non_null(error);
    } else {
        assert_int_equal(trial.failure.request_id, message->request_id);
        assert_int_equal(trial.failure.cancel, message->cancel);
        assert_int_equal(trial.failure.undecodable, status == EB_STATUS_INTERNAL);
    }
    assert_string_equal(error->text, text);
    assert_int_equal(error->status, status);
    trial_deinit(&trial);
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
