/* Lists of features that are recognised by their bytes. */
#include "tests/unit/proto/request_fixture.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct eb_wire_group *decode_with(
    struct fixture *fixture, const struct eb_known_features *known, size_t known_count)
{
    struct eb_codec_limits limits = {
        .queries_max = 40, .name_bytes_max = 255, .known = known, .known_count = known_count};
    eb_arena_reset(&fixture->arena, eb_lookup_request_arena_bytes(fixture->size, &limits));
    fixture->request = eb_lookup_request_decode(
        &fixture->arena, fixture->bytes, fixture->size, &limits, &fixture->failure);
    assert_non_null(fixture->request);
    return &fixture->request->groups[0];
}

/* The fields "user" and "item", and the names in the known list. */
static const uint8_t two_run[] = "\x12\x04user\x12\x04item";
static const char *const known_names[] = {"known user", "known item"};
static const struct eb_known_features two_known = {two_run, sizeof two_run - 1, 8, 2, known_names};

static void says_where_the_features_lie(void **state)
{
    (void)state;
    struct lone_group lone;
    lone_group_init(&lone);
    struct fixture fixture;
    fixture_accept(&fixture, &lone.request);
    const struct eb_wire_group *group = &fixture.request->groups[0];
    assert_int_equal(group->run_bytes, two_known.run_bytes);
    assert_memory_equal(group->run, two_run, two_known.run_bytes);
    assert_null(group->known);
    fixture_deinit(&fixture);
}

static void says_nothing_of_features_that_lie_apart(void **state)
{
    (void)state;
    /* In a group of a request: user, bags 2, item. */
    static const uint8_t apart[] = "\x42\x0e\x12\x04user\x18\x02\x12\x04item";
    struct lone_group lone;
    lone_group_init(&lone);
    struct fixture fixture;
    fixture_init(&fixture, &lone.request);
    assert_true(fixture.size >= sizeof apart - 1);
    fixture.size = sizeof apart - 1;
    memcpy(fixture.bytes, apart, fixture.size);
    struct eb_known_features user = {two_run, 6, 4, 1, known_names};
    for (size_t known_count = 0; known_count < 2; known_count++) {
        const struct eb_wire_group *group = decode_with(&fixture, &user, known_count);
        assert_int_equal(group->feature_count, 2);
        assert_string_equal(group->features[0], "user");
        assert_string_equal(group->features[1], "item");
        assert_null(group->known);
        assert_null(group->run);
    }
    fixture_deinit(&fixture);
}

static void takes_the_names_of_a_known_list(void **state)
{
    (void)state;
    struct lone_group lone;
    lone_group_init(&lone);
    struct fixture fixture;
    fixture_init(&fixture, &lone.request);
    const struct eb_known_features known[] = {{two_run, 6, 4, 1, known_names}, two_known};
    const struct eb_wire_group *group = decode_with(&fixture, known, 2);
    assert_ptr_equal(group->known, &known[1]); /* the longer list */
    assert_ptr_equal(group->features, known_names);
    assert_int_equal(group->feature_count, 2);
    assert_int_equal(group->run_bytes, two_known.run_bytes);
    fixture_deinit(&fixture);
}

static void reads_what_goes_on_behind_a_known_list(void **state)
{
    (void)state;
    static char *three_features[] = {"user", "item", "shop"};
    struct lone_group lone;
    lone_group_init(&lone);
    lone.group.features = three_features;
    lone.group.n_features = 3;
    struct fixture fixture;
    fixture_init(&fixture, &lone.request);
    const struct eb_wire_group *group = decode_with(&fixture, &two_known, 1);
    assert_null(group->known);
    assert_int_equal(group->feature_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(group->features[i], three_features[i]);
    }
    assert_int_equal(group->run_bytes, two_known.run_bytes + 6);
    fixture_deinit(&fixture);
    /* A message that ends inside the known list, and one whose list begins differently. */
    lone.group.n_features = 1;
    lone.group.bags = 0;
    fixture_init(&fixture, &lone.request);
    assert_null(decode_with(&fixture, &two_known, 1)->known);
    fixture_deinit(&fixture);
    lone.group.n_features = 2;
    lone.group.features = three_features + 1;
    fixture_init(&fixture, &lone.request);
    group = decode_with(&fixture, &two_known, 1);
    assert_null(group->known);
    assert_string_equal(group->features[0], "item");
    fixture_deinit(&fixture);
}

static void counts_the_fields_of_a_known_list(void **state)
{
    (void)state;
    struct lone_group lone;
    lone_group_init(&lone);
    struct fixture fixture;
    fixture_init(&fixture, &lone.request);
    struct eb_codec_limits one = {
        .queries_max = 1, .name_bytes_max = 255, .known = &two_known, .known_count = 1};
    eb_arena_reset(&fixture.arena, eb_lookup_request_arena_bytes(fixture.size, &one));
    assert_null(eb_lookup_request_decode(
        &fixture.arena, fixture.bytes, fixture.size, &one, &fixture.failure));
    assert_int_equal(fixture.failure.error.status, EB_STATUS_RESOURCE_EXHAUSTED);
    fixture_deinit(&fixture);
}

EB_TEST_GROUP(codec_known)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_where_the_features_lie),
        cmocka_unit_test(says_nothing_of_features_that_lie_apart),
        cmocka_unit_test(takes_the_names_of_a_known_list),
        cmocka_unit_test(reads_what_goes_on_behind_a_known_list),
        cmocka_unit_test(counts_the_fields_of_a_known_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
