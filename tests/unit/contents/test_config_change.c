/* Checks which changes of model.yaml change the tables, features and groups of versions that are in
 * memory, and which do not. */
#include "server/contents/config_change.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BASE                                                                                       \
    "tables: [{name: t, source: s, storage: f16, missing: zero, default_index: 1, unknown_row: "   \
    "2}]\n"                                                                                        \
    "features: [{name: f, table: t, reduction: mean, id_map: hash_modulo, seed: 4, max_ids: 5}, "  \
    "{name: g, table: t}]\n"                                                                       \
    "groups: [{name: r, features: [f]}]\n"

static void parse_change(const char *yaml, struct eb_model_config *config)
{
    struct eb_failure failure;
    if (!eb_model_config_parse((const uint8_t *)yaml, strlen(yaml), 255, config, &failure)) {
        fail_msg("%s", failure.text);
    }
}

static bool is_none(const char *yaml)
{
    struct eb_model_config before;
    struct eb_model_config after;
    parse_change(BASE, &before);
    parse_change(yaml, &after);
    bool is_same = eb_config_change_is_alike(&before, &after);
    eb_model_config_deinit(&before);
    eb_model_config_deinit(&after);
    return is_same;
}

static void passes_over_what_is_said_of_versions(void **state)
{
    (void)state;
    assert_true(is_none(BASE));
    assert_true(is_none(BASE "only: []\n"));
    assert_true(is_none(BASE "versions: {keep: 3, serve: 2, labels: [{name: l, version: 1}]}\n"));
}

/* Expects the tables, features or groups to change if `to` replaces the first `from` in BASE. */
static void expect_change(const char *from, const char *to)
{
    char yaml[1024];
    const char *at = strstr(BASE, from);
    assert_non_null(at);
    snprintf(yaml, sizeof yaml, "%.*s%s%s", (int)(at - BASE), BASE, to, at + strlen(from));
    if (is_none(yaml)) {
        fail_msg("%s to %s", from, to);
    }
}

static void notices_each_change_of_tables_features_and_groups(void **state)
{
    static const char *const changes[][2] = {
        {"name: t, source", "name: t2, source"},
        {"source: s", "source: s2"},
        {"f16", "f32"},
        {"zero", "skip"},
        {"default_index: 1", "default_index: 2"},
        {"default_index: 1, ", ""},
        {"unknown_row: 2", "unknown_row: 3"},
        {"name: g,", "name: h,"},
        {"table: t, reduction", "table: u, reduction"},
        {"mean", "max"},
        {"hash_modulo, seed: 4", "modulo"},
        {"seed: 4", "seed: 3"},
        {"max_ids: 5", "max_ids: 6"},
        {", {name: g, table: t}", ""},
        {"name: r", "name: q"},
        {"[f]", "[g]"},
        {"[f]", "[f, g]"},
        {"groups: [{name: r, features: [f]}]", "groups: []"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        expect_change(changes[i][0], changes[i][1]);
    }
}

static void notices_another_dim(void **state)
{
    (void)state;
    struct eb_model_config before;
    struct eb_model_config after;
    parse_change("tables: [{name: t, format: torchrec_int8, dim: 16}]", &before);
    parse_change("tables: [{name: t, format: torchrec_int8, dim: 17}]", &after);
    assert_false(eb_config_change_is_alike(&before, &after));
    eb_model_config_deinit(&before);
    eb_model_config_deinit(&after);
}

static void notices_other_scales(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tables: [{name: t, format: codes_int8, scales: s, biases: b}]",
        "tables: [{name: t, format: codes_int8, scales: s2, biases: b}]",
        "tables: [{name: t, format: codes_int8, scales: s, biases: b2}]",
        "tables: [{name: t, format: codes_int8, scales: s}]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct eb_model_config before;
        struct eb_model_config after;
        parse_change(texts[0], &before);
        parse_change(texts[i], &after);
        assert_int_equal(eb_config_change_is_alike(&before, &after), i == 0);
        assert_int_equal(eb_config_change_is_alike(&after, &before), i == 0);
        eb_model_config_deinit(&before);
        eb_model_config_deinit(&after);
    }
}

static void notices_another_default_vector(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tables: [{name: t}]",
        "tables: [{name: t, default_vector: [1]}]",
        "tables: [{name: t, default_vector: [2]}]",
        "tables: [{name: t, default_vector: [1, 2]}]",
        "tables: [{name: t, default_vector: [1], unknown_row: default_vector}]",
    };
    enum { COUNT = sizeof texts / sizeof texts[0] };
    for (size_t i = 0; i < COUNT * COUNT; i++) {
        struct eb_model_config before;
        struct eb_model_config after;
        parse_change(texts[i / COUNT], &before);
        parse_change(texts[i % COUNT], &after);
        assert_int_equal(eb_config_change_is_alike(&before, &after), i / COUNT == i % COUNT);
        eb_model_config_deinit(&before);
        eb_model_config_deinit(&after);
    }
}

static void notices_other_patterns(void **state)
{
    (void)state;
    assert_false(is_none(BASE "only: [s, t]\n"));
    assert_false(is_none(BASE "exclude: [u]\n"));
}

EB_TEST_GROUP(config_change)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_over_what_is_said_of_versions),
        cmocka_unit_test(notices_each_change_of_tables_features_and_groups),
        cmocka_unit_test(notices_another_dim),
        cmocka_unit_test(notices_other_scales),
        cmocka_unit_test(notices_another_default_vector),
        cmocka_unit_test(notices_other_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
