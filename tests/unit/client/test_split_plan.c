/* Where tables of a version in parts are placed, and the model.yaml that is left. */
#include "client/cli/split_model.h"
#include "client/cli/split_plan.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void place(struct eb_split_plan *plan)
{
    struct eb_failure failure;
    assert_true(eb_split_plan_place(plan, &failure));
}

static void small_tables_lie_everywhere(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {
        {.name = "a", .bytes = 100, .rows = 1}, {.name = "b", .bytes = 99, .rows = 1}};
    struct eb_split_plan plan = {
        .parts = 2, .everywhere_below = 100, .everywhere_max = 1000, .count = 2, .tables = tables};
    place(&plan);
    assert_int_equal(tables[0].placement, EB_PLACEMENT_ROWS);
    assert_int_equal(tables[1].placement, EB_PLACEMENT_EVERYWHERE);
    assert_int_equal(plan.everywhere_bytes, 99);
    assert_int_equal(plan.part_bytes[0], 50);
    eb_split_plan_deinit(&plan);
}

static void the_smallest_lie_everywhere_up_to_a_limit(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {{.name = "a", .bytes = 60, .rows = 1},
        {.name = "b", .bytes = 40, .rows = 1}, {.name = "c", .bytes = 50, .rows = 1}};
    struct eb_split_plan plan = {
        .parts = 1, .everywhere_below = 100, .everywhere_max = 90, .count = 3, .tables = tables};
    place(&plan);
    assert_int_equal(tables[0].placement, EB_PLACEMENT_WHOLE);
    assert_int_equal(tables[1].placement, EB_PLACEMENT_EVERYWHERE);
    assert_int_equal(tables[2].placement, EB_PLACEMENT_EVERYWHERE);
    eb_split_plan_deinit(&plan);
}

static void the_largest_are_placed_first(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {{.name = "a", .bytes = 10, .rows = 9},
        {.name = "b", .bytes = 300, .rows = 9}, {.name = "c", .bytes = 70, .rows = 9},
        {.name = "d", .bytes = 80, .rows = 9}, {.name = "e", .bytes = 0, .rows = 0}};
    struct eb_split_plan plan = {.parts = 2, .count = 5, .tables = tables};
    place(&plan);
    /* Each part's share is 230, and a tenth more is 253. */
    assert_int_equal(tables[1].placement, EB_PLACEMENT_ROWS);
    assert_int_equal(tables[3].placement, EB_PLACEMENT_WHOLE);
    assert_int_equal(tables[2].placement, EB_PLACEMENT_WHOLE);
    assert_int_not_equal(tables[2].part, tables[3].part);
    assert_int_equal(tables[0].part, tables[2].part);
    assert_int_equal(tables[4].placement, EB_PLACEMENT_WHOLE);
    assert_int_equal(plan.part_bytes[0] + plan.part_bytes[1], 460);
    eb_split_plan_deinit(&plan);
}

static void busy_tables_are_divided(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {{.name = "a", .bytes = 100, .rows = 9, .work = 900},
        {.name = "b", .bytes = 450, .rows = 9, .work = 50},
        {.name = "c", .bytes = 450, .rows = 9, .work = 50}};
    struct eb_split_plan plan = {.parts = 2, .count = 3, .tables = tables};
    place(&plan);
    assert_int_equal(tables[0].placement, EB_PLACEMENT_ROWS);
    assert_int_equal(tables[1].placement, EB_PLACEMENT_WHOLE);
    assert_int_equal(tables[2].placement, EB_PLACEMENT_WHOLE);
    assert_int_not_equal(tables[1].part, tables[2].part);
    assert_int_equal(plan.part_work[0], 500);
    eb_split_plan_deinit(&plan);
}

static void given_placements_are_kept(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {
        {.name = "a", .bytes = 1, .rows = 9, .is_given = true, .placement = EB_PLACEMENT_ROWS},
        {.name = "b",
            .bytes = 500,
            .rows = 9,
            .is_given = true,
            .placement = EB_PLACEMENT_EVERYWHERE},
        {.name = "c",
            .bytes = 500,
            .rows = 9,
            .is_given = true,
            .placement = EB_PLACEMENT_WHOLE,
            .part = 1},
        {.name = "d",
            .bytes = 600,
            .rows = 9,
            .is_given = true,
            .placement = EB_PLACEMENT_WHOLE,
            .part = UINT32_MAX}};
    struct eb_split_plan plan = {
        .parts = 2, .everywhere_below = 10, .everywhere_max = 10, .count = 4, .tables = tables};
    place(&plan);
    assert_int_equal(tables[0].placement, EB_PLACEMENT_ROWS);
    assert_int_equal(tables[1].placement, EB_PLACEMENT_EVERYWHERE);
    assert_int_equal(tables[2].part, 1);
    assert_int_equal(tables[3].placement, EB_PLACEMENT_WHOLE);
    assert_int_equal(tables[3].part, 0);
    eb_split_plan_deinit(&plan);
}

static void model_yaml_keeps_what_requests_need(void **state)
{
    (void)state;
    static const char yaml[] =
        "tables:\n"
        "  - {name: a, source: x, storage: int8, missing: skip, default_index: -1}\n"
        "  - {name: b, default_vector: [1, 2.5], unknown_row: default_vector}\n"
        "  - {name: c, unknown_row: 3}\n"
        "features: [{name: \"f: #1\", table: a, reduction: sqrtn, id_map: modulo, max_ids: 7}]\n"
        "groups: [{name: g, features: [\"f: #1\"]}]\n"
        "versions: {keep: 1, keep_s: 0, serve: 9, labels: [{name: l, version: 8}]}\n";
    struct eb_model_config config;
    struct eb_model_config again;
    struct eb_failure failure;
    assert_true(
        eb_model_config_parse((const uint8_t *)yaml, sizeof yaml - 1, 255, &config, &failure));
    char *text = eb_split_model_write(&config, &failure);
    assert_non_null(text);
    assert_true(eb_model_config_parse((const uint8_t *)text, strlen(text), 255, &again, &failure));
    assert_int_equal(again.table_count, 2);
    assert_string_equal(again.tables[0].source, "a");
    assert_int_equal(again.tables[0].storage, EB_STORAGE_UNSPECIFIED);
    assert_true(again.tables[0].has_default && again.tables[0].default_index == -1);
    assert_true(again.tables[1].unknown_is_vector);
    assert_int_equal(again.tables[1].vector_count, 2);
    assert_string_equal(again.features[0].name, "f: #1");
    assert_int_equal(again.features[0].id_map.kind, EB_ID_MAP_MODULO);
    assert_int_equal(again.features[0].max_ids, 7);
    assert_int_equal(again.groups[0].feature_count, 1);
    assert_int_equal(again.serve, 9);
    assert_int_equal(again.keep_s, 0);
    assert_int_equal(again.labels[0].version, 8);
    eb_model_config_deinit(&again);
    eb_model_config_deinit(&config);
    free(text);
}

static void nothing_is_left_of_an_empty_model_yaml(void **state)
{
    (void)state;
    struct eb_model_config config;
    struct eb_failure failure;
    eb_model_config_init(&config);
    char *text = eb_split_model_write(&config, &failure);
    assert_string_equal(text, "");
    free(text);
}

EB_TEST_GROUP(split_plan)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tables_lie_everywhere),
        cmocka_unit_test(the_smallest_lie_everywhere_up_to_a_limit),
        cmocka_unit_test(the_largest_are_placed_first),
        cmocka_unit_test(busy_tables_are_divided),
        cmocka_unit_test(given_placements_are_kept),
        cmocka_unit_test(model_yaml_keeps_what_requests_need),
        cmocka_unit_test(nothing_is_left_of_an_empty_model_yaml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
