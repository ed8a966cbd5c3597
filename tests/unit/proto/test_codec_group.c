#include "tests/unit/proto/request_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void decodes_the_fields_of_a_group(void **state)
{
    (void)state;
    struct lone_group lone;
    lone_group_init(&lone);
    lone.group.bags = UINT32_MAX;
    lone.group.weights = lone_query_binary("12345", 5);
    lone.group.weights_type = EMBAG__V1__DATA_TYPE__DATA_TYPE_F16;
    lone.group.reduction = EMBAG__V1__REDUCTION__REDUCTION_SQRTN;
    lone.group.missing = EMBAG__V1__MISSING__MISSING_ZERO;
    lone.group.max_len = UINT32_MAX;
    lone.group.unique = true;
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    assert_int_equal(fixture.request->group_count, 1);
    const struct eb_wire_group *group = fixture.request->groups;
    assert_null(group->error);
    assert_string_equal(group->name, "");
    assert_int_equal(group->feature_count, 2);
    assert_string_equal(group->features[0], "user");
    assert_string_equal(group->features[1], "item");
    assert_true(group->bags == UINT32_MAX);
    assert_int_equal(group->weights_bytes, 5);
    assert_memory_equal(group->weights, "12345", 5);
    assert_int_equal(group->weights_type, 3);
    assert_int_equal(group->reduction, 4);
    assert_int_equal(group->missing, 3);
    assert_int_equal(group->sequence.max_len, UINT32_MAX);
    assert_false(group->sequence.keep_first || group->sequence.pad);
    assert_true(group->sequence.unique);
    fixture_expect_absent(&group->values);
    fixture_expect_absent(&group->lengths);
    fixture_expect_absent(&group->offsets);
    fixture_deinit(&fixture);
}

static void decodes_the_name_of_a_list(void **state)
{
    (void)state;
    struct lone_group lone;
    lone_group_init(&lone);
    lone.group.n_features = 0;
    lone.group.name = "sparse";
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    assert_null(fixture.request->groups[0].error);
    assert_string_equal(fixture.request->groups[0].name, "sparse");
    assert_int_equal(fixture.request->groups[0].feature_count, 0);
    fixture_deinit(&fixture);
}

static void takes_values_and_bounds_in_every_form(void **state)
{
    (void)state;
    for (int form = 0; form < 6; form++) {
        struct lone_group lone;
        lone_group_init(&lone);
        if (form % 2 == 0) {
            lone.group.values_i64 = lone_query_binary(fixture_wide, sizeof fixture_wide);
        } else {
            lone.group.values_i32 = lone_query_binary(fixture_narrow, sizeof fixture_narrow);
        }
        if (form / 2 == 0) {
            lone.group.lengths_i32 = lone_query_binary(fixture_narrow, sizeof fixture_narrow);
        } else if (form / 2 == 1) {
            lone.group.offsets_i64 = lone_query_binary(fixture_wide, sizeof fixture_wide);
        } else {
            lone.group.offsets_i32 = lone_query_binary(fixture_narrow, sizeof fixture_narrow);
        }
        struct fixture fixture;
        fixture_accept(&fixture, &lone.request);
        const struct eb_wire_group *group = fixture.request->groups;
        assert_null(group->error);
        fixture_expect_array(
            &group->values, form % 2 ? 4 : 8, form % 2 ? "values_i32" : "values_i64");
        if (form / 2 == 0) {
            fixture_expect_array(&group->lengths, 4, "lengths_i32");
            fixture_expect_absent(&group->offsets);
        } else {
            bool is_wide = form / 2 == 1;
            fixture_expect_array(
                &group->offsets, is_wide ? 8 : 4, is_wide ? "offsets_i64" : "offsets_i32");
            fixture_expect_absent(&group->lengths);
        }
        fixture_deinit(&fixture);
    }
}

/* Decodes the group and expects this error. */
static void assert_group_refused(const struct lone_group *lone, const char *what)
{
    char text[256];
    snprintf(text, sizeof text, "groups[0] \"%s\": %s", lone->group.name, what);
    struct fixture fixture;
    fixture_accept(&fixture, &lone->request);
    assert_int_equal(fixture.request->group_count, 1);
    const struct eb_error *error = fixture.request->groups[0].error;
    assert_non_null(error);
    assert_string_equal(error->text, text);
    assert_int_equal(error->status, EB_STATUS_INVALID_ARGUMENT);
    fixture_deinit(&fixture);
}

static void refuses_two_forms_of_an_array_of_a_group(void **state)
{
    (void)state;
    struct lone_group lone;
    lone_group_init(&lone);
    lone.group.values_i64 = lone_query_binary(fixture_wide, 8);
    lone.group.values_i32 = lone_query_binary(fixture_narrow, 4);
    assert_group_refused(
        &lone, "values_i64 and values_i32 are forms of the same array: give only one");
    lone_group_init(&lone);
    lone.group.offsets_i64 = lone_query_binary(fixture_wide, 8);
    lone.group.offsets_i32 = lone_query_binary(fixture_narrow, 4);
    assert_group_refused(
        &lone, "offsets_i64 and offsets_i32 are forms of the same array: give only one");
    lone_group_init(&lone);
    lone.group.name = "sparse";
    assert_group_refused(&lone, "name and features are forms of the same list: give only one");
}

static void refuses_two_layouts_of_a_group(void **state)
{
    (void)state;
    struct lone_group lone;
    lone_group_init(&lone);
    lone.group.lengths_i32 = lone_query_binary(fixture_narrow, 4);
    lone.group.offsets_i64 = lone_query_binary(fixture_wide, 8);
    assert_group_refused(
        &lone, "lengths_i32 and offsets_i64 imply different layouts: give only one");
    lone_group_init(&lone);
    lone.group.lengths_i32 = lone_query_binary(fixture_narrow, 4);
    lone.group.offsets_i32 = lone_query_binary(fixture_narrow, 4);
    assert_group_refused(
        &lone, "lengths_i32 and offsets_i32 imply different layouts: give only one");
}

static void refuses_unknown_enum_values_of_a_group(void **state)
{
    (void)state;
    struct lone_group lone;
    lone_group_init(&lone);
    lone.group.reduction = (Embag__V1__Reduction)8;
    assert_group_refused(&lone, "reduction = 8 is not a value of Reduction");
    lone_group_init(&lone);
    lone.group.missing = (Embag__V1__Missing)-1;
    assert_group_refused(&lone, "missing = -1 is not a value of Missing");
    lone_group_init(&lone);
    lone.group.weights_type = (Embag__V1__DataType)13;
    assert_group_refused(&lone, "weights_type = 13 is not a value of DataType");
}

static void refuses_a_feature_without_a_name(void **state)
{
    (void)state;
    static char *features[] = {"user", ""};
    struct lone_group lone;
    lone_group_init(&lone);
    lone.group.features = features;
    assert_group_refused(&lone, "features[1] is empty");
}

/* Decodes three queries and three groups. The second query is faulty if `query_fails`, the second
 * group if `group_fails`. */
static void decode_three_of_each(
    struct fixture *fixture, bool query_fails, bool group_fails, bool errors_per_query)
{
    Embag__V1__BagQuery query = EMBAG__V1__BAG_QUERY__INIT;
    Embag__V1__BagQuery bad_query = EMBAG__V1__BAG_QUERY__INIT;
    Embag__V1__FeatureGroup group = EMBAG__V1__FEATURE_GROUP__INIT;
    Embag__V1__FeatureGroup bad_group = EMBAG__V1__FEATURE_GROUP__INIT;
    query.table = bad_query.table = "t";
    bad_query.reduction = (Embag__V1__Reduction)99;
    group.bags = 5;
    bad_group.reduction = (Embag__V1__Reduction)99;
    Embag__V1__BagQuery *queries[] = {&query, query_fails ? &bad_query : &query, &query};
    Embag__V1__FeatureGroup *groups[] = {&group, group_fails ? &bad_group : &group, &group};
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.n_queries = message.n_groups = 3;
    message.queries = queries;
    message.groups = groups;
    message.errors_per_query = errors_per_query;
    fixture_accept(fixture, &message);
    assert_int_equal(fixture->request->errors_per_query, errors_per_query);
}

static void ends_a_request_at_its_first_error(void **state)
{
    (void)state;
    struct fixture fixture;
    decode_three_of_each(&fixture, true, true, false);
    assert_int_equal(fixture.request->query_count, 2);
    assert_non_null(fixture.request->queries[1].error);
    assert_int_equal(fixture.request->group_count, 0);
    fixture_deinit(&fixture);
    decode_three_of_each(&fixture, false, true, false);
    assert_int_equal(fixture.request->query_count, 3);
    assert_int_equal(fixture.request->group_count, 2);
    assert_null(fixture.request->groups[0].error);
    assert_string_equal(fixture.request->groups[1].error->text,
        "groups[1] \"\": reduction = 99 is not a value of Reduction");
    fixture_deinit(&fixture);
}

static void goes_on_behind_errors_with_errors_per_query(void **state)
{
    (void)state;
    struct fixture fixture;
    decode_three_of_each(&fixture, true, true, true);
    assert_int_equal(fixture.request->query_count, 3);
    assert_int_equal(fixture.request->group_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(!!fixture.request->queries[i].error, i == 1);
        assert_int_equal(!!fixture.request->groups[i].error, i == 1);
        assert_int_equal(fixture.request->groups[i].bags, i == 1 ? 0 : 5);
    }
    fixture_deinit(&fixture);
}

/* Ten queries and 30 features in two groups are as many as are allowed. */
static void counts_queries_and_features_together(void **state)
{
    (void)state;
    Embag__V1__BagQuery query = EMBAG__V1__BAG_QUERY__INIT;
    query.table = "t";
    Embag__V1__BagQuery *queries[10];
    char *features[20];
    for (size_t i = 0; i < 20; i++) {
        queries[i % 10] = &query;
        features[i] = "feature";
    }
    Embag__V1__FeatureGroup twenty = EMBAG__V1__FEATURE_GROUP__INIT;
    Embag__V1__FeatureGroup ten = EMBAG__V1__FEATURE_GROUP__INIT;
    twenty.n_features = 20;
    ten.n_features = 10;
    twenty.features = ten.features = features;
    Embag__V1__FeatureGroup *groups[] = {&twenty, &ten};
    Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
    message.n_queries = 10;
    message.queries = queries;
    message.n_groups = 2;
    message.groups = groups;
    struct fixture fixture;
    fixture_accept(&fixture, &message);
    assert_int_equal(fixture.request->query_count, 10);
    assert_int_equal(fixture.request->group_count, 2);
    assert_int_equal(fixture.request->groups[1].feature_count, 10);
    fixture_deinit(&fixture);
    ten.n_features = 11;
    fixture_refuse(&message, EB_STATUS_RESOURCE_EXHAUSTED,
        "41 queries and features of groups; a request may have at most 40");
}

static void limits_names_of_features(void **state)
{
    (void)state;
    char name[257];
    memset(name, 'n', sizeof name);
    name[255] = 0;
    char *features[] = {"user", name};
    struct lone_group lone;
    lone_group_init(&lone);
    lone.group.features = features;
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    assert_string_equal(fixture.request->groups[0].features[1], name);
    fixture_deinit(&fixture);
    name[255] = 'n';
    name[256] = 0;
    fixture_refuse(&lone.request, EB_STATUS_RESOURCE_EXHAUSTED,
        "LookupRequest.groups[0].features is longer than a name may be (byte 14)");
    features[1] = "\xFF";
    fixture_refuse(&lone.request, EB_STATUS_INVALID_ARGUMENT,
        "LookupRequest.groups[0].features is not UTF-8 (byte 12)");
}

/* Decodes with an arena whose cap is computed by eb_lookup_request_arena_bytes. Returns how much of
 * the arena was used. */
static size_t decode_within_the_cap(struct fixture *fixture, uint32_t queries_max)
{
    struct eb_codec_limits many = {.queries_max = queries_max, .name_bytes_max = 255};
    eb_arena_reset(&fixture->arena, eb_lookup_request_arena_bytes(fixture->size, &many));
    fixture->request = eb_lookup_request_decode(
        &fixture->arena, fixture->bytes, fixture->size, &many, &fixture->failure);
    if (!fixture->request) {
        fail_msg("refused: %s", fixture->failure.error.text);
    }
    return fixture->arena.used_bytes;
}

enum { FEATURES = 856, QUERIES_MAX = 4096 };

/* The number of values does not change how much memory is taken, because each array is one
 * piece. */
static void takes_no_memory_for_single_values(void **state)
{
    (void)state;
    static char names[FEATURES][8];
    static char *features[FEATURES];
    static const int32_t values[100 * FEATURES];
    for (size_t i = 0; i < FEATURES; i++) {
        snprintf(names[i], sizeof names[i], "t%zu", i);
        features[i] = names[i];
    }
    size_t used[2];
    for (size_t many = 0; many < 2; many++) {
        struct lone_group lone;
        lone_group_init(&lone);
        lone.group.n_features = FEATURES;
        lone.group.features = features;
        lone.group.values_i32 = lone_query_binary(values, many ? sizeof values : 16);
        lone.group.lengths_i32 = lone_query_binary(values, 8 * FEATURES);
        struct fixture fixture;
        fixture_init(&fixture, &lone.request);
        used[many] = decode_within_the_cap(&fixture, QUERIES_MAX);
        assert_int_equal(fixture.request->groups[0].feature_count, FEATURES);
        assert_string_equal(fixture.request->groups[0].features[855], "t855");
        fixture_deinit(&fixture);
    }
    assert_int_equal(used[1], used[0]);
}

/* As many elements as the limit allows, each as short as possible, all with an error. */
static void decodes_the_most_errors_within_the_cap_that_it_names(void **state)
{
    (void)state;
    static Embag__V1__BagQuery *queries[QUERIES_MAX];
    static Embag__V1__FeatureGroup *groups[QUERIES_MAX];
    Embag__V1__BagQuery query = EMBAG__V1__BAG_QUERY__INIT;
    Embag__V1__FeatureGroup group = EMBAG__V1__FEATURE_GROUP__INIT;
    char *features[] = {""};
    group.n_features = 1;
    group.features = features;
    for (size_t i = 0; i < QUERIES_MAX; i++) {
        queries[i] = &query;
        groups[i] = &group;
    }
    for (size_t query_count = 0; query_count <= QUERIES_MAX; query_count += QUERIES_MAX / 2) {
        Embag__V1__LookupRequest message = EMBAG__V1__LOOKUP_REQUEST__INIT;
        message.errors_per_query = true;
        message.n_queries = query_count;
        message.queries = queries;
        message.n_groups = QUERIES_MAX - query_count;
        message.groups = groups;
        struct fixture fixture;
        fixture_init(&fixture, &message);
        decode_within_the_cap(&fixture, QUERIES_MAX);
        assert_int_equal(fixture.request->query_count, query_count);
        assert_int_equal(fixture.request->group_count, QUERIES_MAX - query_count);
        for (size_t i = 0; i < query_count; i++) {
            assert_non_null(fixture.request->queries[i].error);
        }
        for (size_t i = 0; i < QUERIES_MAX - query_count; i++) {
            assert_non_null(fixture.request->groups[i].error);
        }
        fixture_deinit(&fixture);
    }
}

static void survives_each_failing_allocation_of_a_group(void **state)
{
    (void)state;
    static const uint8_t zeroes[300000];
    struct lone_group lone;
    lone_group_init(&lone);
    lone.group.values_i64 = lone_query_binary(zeroes, sizeof zeroes);
    lone.group.offsets_i64 = lone_query_binary(zeroes, sizeof zeroes);
    struct fixture fixture;
    size_t fail_at = 0;
    do {
        fixture_init(&fixture, &lone.request);
        fixture.lender.fail_at = ++fail_at;
        fixture_decode(&fixture);
        assert_true(
            fixture.request || fixture.failure.error.status == EB_STATUS_RESOURCE_EXHAUSTED);
        fixture_deinit(&fixture);
    } while (!fixture.request);
    assert_int_equal(fail_at, 2);
}

/* Whatever the arena has no room for, the error blames the arena. */
static void refuses_groups_that_outgrow_their_arena(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        struct lone_group lone;
        lone_group_init(&lone);
        lone.group.reduction = (Embag__V1__Reduction)(bad ? 99 : 0);
        struct fixture fixture;
        fixture_init(&fixture, &lone.request);
        size_t cap = 0;
        eb_arena_reset(&fixture.arena, cap);
        while (!eb_lookup_request_decode(
            &fixture.arena, fixture.bytes, fixture.size, &fixture_limits, &fixture.failure)) {
            assert_int_equal(fixture.failure.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
            assert_int_equal(fixture.failure.request_id, 77);
            cap += 16;
            eb_arena_reset(&fixture.arena, cap);
        }
        assert_in_range(cap, bad ? 1200 : 200, bad ? 2048 : 1024);
        fixture_deinit(&fixture);
    }
}

static Embag__V1__LookupRequest *encode_and_unpack(const struct eb_wire_request *request)
{
    size_t size = eb_lookup_request_bytes(request);
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    eb_lookup_request_encode(request, bytes);
    Embag__V1__LookupRequest *read = embag__v1__lookup_request__unpack(NULL, size, bytes);
    assert_non_null(read);
    assert_int_equal(embag__v1__lookup_request__get_packed_size(read), size);
    free(bytes);
    return read;
}

static void encodes_groups_that_protobuf_reads(void **state)
{
    (void)state;
    static const char *const features[] = {"user", "item"};
    struct eb_wire_group groups[] = {
        {.name = "",
            .feature_count = 2,
            .features = features,
            .bags = 300,
            .values = {fixture_wide, 32, 8, ""},
            .lengths = {fixture_narrow, 16, 4, ""},
            .weights = "1234",
            .weights_bytes = 4,
            .weights_type = 1,
            .reduction = 2,
            .missing = 3,
            .sequence = {.max_len = 300, .keep_first = true, .pad = true}},
        {.name = "sparse",
            .values = {fixture_narrow, 16, 4, ""},
            .offsets = {fixture_wide, 32, 8, ""},
            .sequence = {.unique = true}},
        {.name = "dense", .offsets = {fixture_narrow, 16, 4, ""}, .reduction = -1},
    };
    struct eb_wire_request request = {.model = "", .group_count = 3, .groups = groups};
    Embag__V1__LookupRequest *read = encode_and_unpack(&request);
    assert_int_equal(read->n_groups, 3);
    const Embag__V1__FeatureGroup *group = read->groups[0];
    assert_string_equal(group->name, "");
    assert_int_equal(group->n_features, 2);
    assert_string_equal(group->features[0], "user");
    assert_string_equal(group->features[1], "item");
    assert_int_equal(group->bags, 300);
    assert_int_equal(group->values_i64.len, 32);
    assert_memory_equal(group->values_i64.data, fixture_wide, 32);
    assert_int_equal(group->lengths_i32.len, 16);
    assert_memory_equal(group->lengths_i32.data, fixture_narrow, 16);
    assert_memory_equal(group->weights.data, "1234", 4);
    assert_int_equal(group->weights_type, 1);
    assert_int_equal(group->reduction, 2);
    assert_int_equal(group->missing, 3);
    assert_int_equal(group->max_len, 300);
    assert_true(group->keep_first && group->pad && !group->unique);
    group = read->groups[1];
    assert_true(group->unique && !group->keep_first && !group->pad);
    assert_string_equal(group->name, "sparse");
    assert_int_equal(group->n_features, 0);
    assert_int_equal(group->values_i32.len, 16);
    assert_memory_equal(group->values_i32.data, fixture_narrow, 16);
    assert_int_equal(group->offsets_i64.len, 32);
    assert_memory_equal(group->offsets_i64.data, fixture_wide, 32);
    group = read->groups[2];
    assert_int_equal(group->values_i64.len, 0);
    assert_int_equal(group->values_i32.len, 0);
    assert_memory_equal(group->offsets_i32.data, fixture_narrow, 16);
    assert_int_equal((int32_t)group->reduction, -1);
    embag__v1__lookup_request__free_unpacked(read, NULL);
}

static void encodes_options_that_protobuf_reads(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct eb_wire_request request = {.model = "",
            .request_id = 1,
            .partial = i == 0,
            .cancel = i == 1,
            .errors_per_query = i == 2,
            .report_missing = i == 3,
            .priority = i == 4};
        Embag__V1__LookupRequest *read = encode_and_unpack(&request);
        assert_int_equal(read->partial, i == 0);
        assert_int_equal(read->cancel, i == 1);
        assert_int_equal(read->errors_per_query, i == 2);
        assert_int_equal(read->report_missing, i == 3);
        assert_int_equal(read->priority, i == 4);
        struct fixture fixture;
        fixture_accept(&fixture, read);
        assert_int_equal(fixture.request->partial, i == 0);
        assert_int_equal(fixture.request->cancel, i == 1);
        assert_int_equal(fixture.request->errors_per_query, i == 2);
        assert_int_equal(fixture.request->report_missing, i == 3);
        assert_int_equal(fixture.request->priority, i == 4);
        fixture_deinit(&fixture);
        embag__v1__lookup_request__free_unpacked(read, NULL);
    }
}

EB_TEST_GROUP(codec_group)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_the_fields_of_a_group),
        cmocka_unit_test(decodes_the_name_of_a_list),
        cmocka_unit_test(takes_values_and_bounds_in_every_form),
        cmocka_unit_test(refuses_two_forms_of_an_array_of_a_group),
        cmocka_unit_test(refuses_two_layouts_of_a_group),
        cmocka_unit_test(refuses_unknown_enum_values_of_a_group),
        cmocka_unit_test(refuses_a_feature_without_a_name),
        cmocka_unit_test(ends_a_request_at_its_first_error),
        cmocka_unit_test(goes_on_behind_errors_with_errors_per_query),
        cmocka_unit_test(counts_queries_and_features_together),
        cmocka_unit_test(limits_names_of_features),
        cmocka_unit_test(takes_no_memory_for_single_values),
        cmocka_unit_test(decodes_the_most_errors_within_the_cap_that_it_names),
        cmocka_unit_test(survives_each_failing_allocation_of_a_group),
        cmocka_unit_test(refuses_groups_that_outgrow_their_arena),
        cmocka_unit_test(encodes_groups_that_protobuf_reads),
        cmocka_unit_test(encodes_options_that_protobuf_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
