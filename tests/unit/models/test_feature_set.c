#include "server/models/feature_set.h"

#include "tests/lib/scratch.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TABLES 100

static char table_names[TABLES][16];
static struct eb_named_table named[TABLES]; /* t00, t01, ... */
static struct eb_table_set tables;
static struct eb_model_config config;
static struct eb_feature_set set;

/* Makes the feature set of `count` tables and a model.yaml. */
static void resolve(size_t count, const char *yaml)
{
    struct eb_failure failure = {.text = ""};
    tables = (struct eb_table_set){.count = count, .tables = named};
    if (!eb_model_config_parse((const uint8_t *)yaml, strlen(yaml), 255, &config, &failure) ||
        !eb_feature_set_init(&set, &tables, &config, &failure)) {
        fail_msg("%s", failure.text);
    }
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < TABLES; i++) {
        snprintf(table_names[i], sizeof table_names[i], "t%02d", i);
        named[i] = (struct eb_named_table){
            .name = table_names[i],
            .table = {.row_stride_bytes = 8,
                .row_elements = 2,
                .storage = EB_STORAGE_F32,
                .type = EB_F32,
                .unknown_row = -1},
        };
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    eb_feature_set_deinit(&set);
    eb_model_config_deinit(&config);
    return 0;
}

static void a_table_is_a_feature_with_its_defaults(void **state)
{
    (void)state;
    named[1].missing = EB_MISSING_SKIP;
    named[1].has_default = true;
    named[1].default_index = -1;
    resolve(2, "");
    assert_int_equal(set.table_count, 2);
    assert_int_equal(set.count, 2);
    const struct eb_feature *plain = eb_feature_set_find(&set, "t00");
    assert_non_null(plain);
    assert_ptr_equal(plain->table, &named[0]);
    assert_int_equal(plain->reduction, EB_REDUCTION_SUM);
    assert_int_equal(plain->missing, EB_MISSING_ERROR);
    assert_false(plain->has_default);
    assert_null(plain->id_map);
    assert_true(plain->max_ids == 0);
    assert_int_equal(plain->kind->output_type, EB_F32);
    assert_true(plain->kind->result_row_bytes == 8);
    const struct eb_feature *said = eb_feature_set_find(&set, "t01");
    assert_int_equal(said->missing, EB_MISSING_SKIP);
    assert_true(said->has_default);
    assert_true(said->default_index == -1);
}

static void a_feature_has_what_is_said_of_it(void **state)
{
    (void)state;
    named[0].missing = EB_MISSING_SKIP;
    resolve(1, "features: [{name: f, table: t00, reduction: max, missing: zero, default_index: 7,\n"
               "            id_map: hash_modulo, seed: 42, max_ids: 50}]");
    const struct eb_feature *feature = eb_feature_set_find(&set, "f");
    assert_string_equal(feature->name, "f");
    assert_ptr_equal(feature->table, &named[0]);
    assert_int_equal(feature->reduction, EB_REDUCTION_MAX);
    assert_int_equal(feature->missing, EB_MISSING_ZERO);
    assert_true(feature->has_default);
    assert_true(feature->default_index == 7);
    assert_int_equal(feature->id_map->kind, EB_ID_MAP_HASH_MODULO);
    assert_true(feature->id_map->seed == 42);
    assert_true(feature->max_ids == 50);
    assert_int_equal(eb_feature_set_find(&set, "t00")->missing, EB_MISSING_SKIP);
}

static void a_feature_has_its_tables_defaults_where_nothing_is_said(void **state)
{
    (void)state;
    named[0].missing = EB_MISSING_UNKNOWN_ROW;
    named[0].has_default = true;
    named[0].default_index = 3;
    resolve(1, "features: [{name: f, table: t00, id_map: none}]");
    const struct eb_feature *feature = eb_feature_set_find(&set, "f");
    assert_int_equal(feature->reduction, EB_REDUCTION_SUM);
    assert_int_equal(feature->missing, EB_MISSING_UNKNOWN_ROW);
    assert_true(feature->has_default);
    assert_true(feature->default_index == 3);
    assert_null(feature->id_map);
    assert_null(feature->kind); /* no kind, because the table has no row for unknown ids */
}

static void finds_each_of_many_names(void **state)
{
    (void)state;
    char yaml[TABLES * 32] = "features:\n";
    size_t used = strlen(yaml);
    for (int i = 0; i < TABLES; i++) {
        used += (size_t)snprintf(
            yaml + used, sizeof yaml - used, "- {name: f%02d, table: t%02d}\n", i, i);
    }
    resolve(TABLES, yaml);
    assert_int_equal(set.count, 2 * TABLES);
    for (int i = 0; i < TABLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%02d", i);
        assert_ptr_equal(eb_feature_set_find(&set, name)->table, &named[i]);
        assert_ptr_equal(eb_feature_set_find(&set, table_names[i])->table, &named[i]);
        snprintf(name, sizeof name, "u%02d", i);
        assert_null(eb_feature_set_find(&set, name));
    }
    assert_null(eb_feature_set_find(&set, ""));
}

static void finds_the_same_whatever_was_found_before(void **state)
{
    (void)state;
    resolve(3, "features: [{name: f, table: t00}]");
    const char *names[] = {"t00", "t01", "t02", "f", "u", ""};
    for (size_t last = 0; last <= set.count; last++) {
        const struct eb_feature *before = last < set.count ? &set.features[last] : NULL;
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            assert_ptr_equal(eb_feature_set_find_after(&set, before, names[i]),
                eb_feature_set_find(&set, names[i]));
        }
    }
}

static void keeps_the_order_of_groups(void **state)
{
    (void)state;
    resolve(2, "features: [{name: b, table: t00}, {name: a, table: t01}]\n"
               "groups: [{name: z, features: [b, a, b]}, {name: y, features: [a]}]");
    const struct eb_feature_group *group = eb_feature_set_find_group(&set, "z");
    assert_non_null(group);
    assert_int_equal(group->count, 3);
    assert_string_equal(group->names[0], "b");
    assert_string_equal(group->names[1], "a");
    assert_string_equal(group->names[2], "b");
    assert_int_equal(eb_feature_set_find_group(&set, "y")->count, 1);
    assert_string_equal(eb_feature_set_find_group(&set, "y")->names[0], "a");
    assert_null(eb_feature_set_find_group(&set, "x"));
    assert_null(eb_feature_set_find_group(&set, "a"));
    assert_string_equal(set.groups[0].name, "y");
}

static void finds_nothing_where_nothing_is(void **state)
{
    (void)state;
    struct eb_failure failure;
    tables = (struct eb_table_set){.count = 0};
    assert_true(eb_feature_set_init(&set, &tables, NULL, &failure));
    assert_null(eb_feature_set_find(&set, "t00"));
    assert_null(eb_feature_set_find_group(&set, "t00"));
}

EB_TEST_GROUP(feature_set)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_table_is_a_feature_with_its_defaults),
        TEST(a_feature_has_what_is_said_of_it),
        TEST(a_feature_has_its_tables_defaults_where_nothing_is_said),
        TEST(finds_each_of_many_names),
        TEST(finds_the_same_whatever_was_found_before),
        TEST(keeps_the_order_of_groups),
        TEST(finds_nothing_where_nothing_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
