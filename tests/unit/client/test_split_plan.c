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
    struct eb_split_plan plan = {.parts = 2,
        .everywhere_below = 100,
        .everywhere_bytes_max = 1000,
        .count = 2,
        .tables = tables};
    place(&plan);
    assert_int_equal(tables[0].placement, EB_PLACEMENT_ROWS);
    assert_int_equal(tables[1].placement, EB_PLACEMENT_EVERYWHERE);
    assert_int_equal(plan.everywhere_bytes, 99);
    assert_int_equal(plan.part_demands[0].bytes, 50);
    eb_split_plan_deinit(&plan);
}

static void the_smallest_lie_everywhere_up_to_a_limit(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {{.name = "a", .bytes = 60, .rows = 1},
        {.name = "b", .bytes = 40, .rows = 1}, {.name = "c", .bytes = 50, .rows = 1}};
    struct eb_split_plan plan = {.parts = 1,
        .everywhere_below = 100,
        .everywhere_bytes_max = 90,
        .count = 3,
        .tables = tables};
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
    assert_int_equal(plan.part_demands[0].bytes + plan.part_demands[1].bytes, 460);
    eb_split_plan_deinit(&plan);
}

static void those_with_the_most_bags_per_byte_lie_everywhere(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {{.name = "a", .bytes = 60, .rows = 1, .bags = 600},
        {.name = "b", .bytes = 40, .rows = 1, .bags = 80},
        {.name = "c", .bytes = 50, .rows = 1, .bags = 200}, {.name = "d", .bytes = 9, .rows = 1},
        {.name = "e", .bytes = 8, .rows = 1}};
    struct eb_split_plan plan = {.parts = 1,
        .everywhere_below = 100,
        .everywhere_bytes_max = 118,
        .count = 5,
        .tables = tables};
    place(&plan);
    /* After a and c there is no room for b, but for one more. */
    assert_int_equal(tables[0].placement, EB_PLACEMENT_EVERYWHERE);
    assert_int_equal(tables[1].placement, EB_PLACEMENT_WHOLE);
    assert_int_equal(tables[2].placement, EB_PLACEMENT_EVERYWHERE);
    assert_int_equal(tables[3].placement, EB_PLACEMENT_WHOLE);
    assert_int_equal(tables[4].placement, EB_PLACEMENT_EVERYWHERE);
    assert_int_equal(plan.everywhere_bytes, 118);
    eb_split_plan_deinit(&plan);
}

static void given_tables_do_not_count_for_the_limit(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {{.name = "a",
                                          .bytes = 500,
                                          .rows = 1,
                                          .is_given = true,
                                          .placement = EB_PLACEMENT_EVERYWHERE},
        {.name = "b", .bytes = 90, .rows = 1}, {.name = "c", .bytes = 91, .rows = 1}};
    struct eb_split_plan plan = {.parts = 1,
        .everywhere_below = 100,
        .everywhere_bytes_max = 90,
        .count = 3,
        .tables = tables};
    place(&plan);
    assert_int_equal(tables[1].placement, EB_PLACEMENT_EVERYWHERE);
    assert_int_equal(tables[2].placement, EB_PLACEMENT_WHOLE);
    assert_int_equal(plan.everywhere_bytes, 590);
    eb_split_plan_deinit(&plan);
}

static void busy_tables_are_divided(void **state)
{
    (void)state;
    /* Table a has most of the rows in one case, and most of the bags in the other. */
    for (int by_bags = 0; by_bags < 2; by_bags++) {
        double hot_rows = by_bags ? 50 : 900;
        double hot_bags = by_bags ? 45 : 9;
        double rows = by_bags ? 475 : 50;
        double bags = by_bags ? 5 : 20;
        struct eb_split_table tables[] = {
            {.name = "a", .bytes = 100, .rows = 9, .rows_touched = hot_rows, .bags = hot_bags},
            {.name = "b", .bytes = 450, .rows = 9, .rows_touched = rows, .bags = bags},
            {.name = "c", .bytes = 450, .rows = 9, .rows_touched = rows, .bags = bags}};
        struct eb_split_plan plan = {.parts = 2, .count = 3, .tables = tables};
        place(&plan);
        assert_int_equal(tables[0].placement, EB_PLACEMENT_ROWS);
        assert_int_equal(tables[1].placement, EB_PLACEMENT_WHOLE);
        assert_int_equal(tables[2].placement, EB_PLACEMENT_WHOLE);
        assert_int_not_equal(tables[1].part, tables[2].part);
        assert_int_equal(plan.part_demands[0].bytes, 500);
        assert_int_equal(plan.part_demands[0].rows_touched, 500);
        assert_int_equal(plan.part_demands[1].bags, by_bags ? 30 : 29);
        eb_split_plan_deinit(&plan);
    }
}

static void tables_are_not_divided_if_each_part_would_have_all_their_bags(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {
        {.name = "a", .bytes = 100, .rows = 9, .rows_touched = 90, .bags = 45},
        {.name = "b", .bytes = 450, .rows = 9, .rows_touched = 90, .bags = 2},
        {.name = "c", .bytes = 450, .rows = 9, .rows_touched = 90, .bags = 2}};
    struct eb_split_plan plan = {.parts = 2, .count = 3, .tables = tables};
    place(&plan);
    assert_int_equal(tables[0].placement, EB_PLACEMENT_WHOLE);
    /* With less than one row more in all its bags, it is. */
    eb_split_plan_deinit(&plan);
    tables[0].rows_touched = 89;
    place(&plan);
    assert_int_equal(tables[0].placement, EB_PLACEMENT_ROWS);
    eb_split_plan_deinit(&plan);
}

static void one_divided_table_does_not_divide_the_rest(void **state)
{
    (void)state;
    /* Each of four parts has all 90 bags of the divided table. */
    struct eb_split_table tables[12] = {
        {.name = "hot", .bytes = 400, .rows = 9, .rows_touched = 9000, .bags = 90}};
    for (size_t i = 1; i < 12; i++) {
        static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"};
        tables[i] = (struct eb_split_table){
            .name = names[i - 1], .bytes = 30, .rows = 9, .rows_touched = 60, .bags = 50};
    }
    struct eb_split_plan plan = {.parts = 4, .count = 12, .tables = tables};
    place(&plan);
    assert_int_equal(tables[0].placement, EB_PLACEMENT_ROWS);
    for (size_t i = 1; i < 12; i++) {
        assert_int_equal(tables[i].placement, EB_PLACEMENT_WHOLE);
    }
    assert_int_equal(plan.part_demands[0].rows_touched, 2250 + 3 * 60);
    assert_int_equal(plan.part_demands[0].bags, 90 + 3 * 50);
    eb_split_plan_deinit(&plan);
}

static void bytes_and_lookups_are_balanced_together(void **state)
{
    (void)state;
    struct eb_split_table tables[] = {
        {.name = "large", .bytes = 500, .rows = 9, .rows_touched = 0, .bags = 0},
        {.name = "busy", .bytes = 10, .rows = 9, .rows_touched = 480, .bags = 480},
        {.name = "larger", .bytes = 480, .rows = 9, .rows_touched = 0, .bags = 0},
        {.name = "busier", .bytes = 10, .rows = 9, .rows_touched = 520, .bags = 520}};
    struct eb_split_plan plan = {.parts = 2, .count = 4, .tables = tables};
    place(&plan);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(tables[i].placement, EB_PLACEMENT_WHOLE);
    }
    assert_int_not_equal(tables[0].part, tables[2].part);
    assert_int_not_equal(tables[1].part, tables[3].part);
    eb_split_plan_deinit(&plan);
}

static void small_tables_are_never_divided(void **state)
{
    (void)state;
    /* Part 0 has too many bytes, and part 1 too many rows. */
    struct eb_split_table tables[] = {{.name = "a",
                                          .bytes = 900,
                                          .rows = 9,
                                          .is_given = true,
                                          .placement = EB_PLACEMENT_WHOLE,
                                          .part = 0},
        {.name = "b",
            .bytes = 55,
            .rows = 9,
            .rows_touched = 900,
            .is_given = true,
            .placement = EB_PLACEMENT_WHOLE,
            .part = 1},
        {.name = "small", .bytes = 45, .rows = 9, .rows_touched = 49},
        {.name = "rest", .bytes = 0, .rows = 9, .rows_touched = 51}};
    struct eb_split_plan plan = {.parts = 2, .count = 4, .tables = tables};
    place(&plan);
    assert_int_equal(tables[2].placement, EB_PLACEMENT_WHOLE);
    eb_split_plan_deinit(&plan);
    tables[2].rows_touched = 51;
    tables[2].bytes = 451;
    tables[1].rows_touched = 9000;
    place(&plan);
    assert_int_equal(tables[2].placement, EB_PLACEMENT_ROWS);
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
    struct eb_split_plan plan = {.parts = 2,
        .everywhere_below = 10,
        .everywhere_bytes_max = 10,
        .count = 4,
        .tables = tables};
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
        cmocka_unit_test(those_with_the_most_bags_per_byte_lie_everywhere),
        cmocka_unit_test(given_tables_do_not_count_for_the_limit),
        cmocka_unit_test(the_largest_are_placed_first),
        cmocka_unit_test(busy_tables_are_divided),
        cmocka_unit_test(tables_are_not_divided_if_each_part_would_have_all_their_bags),
        cmocka_unit_test(one_divided_table_does_not_divide_the_rest),
        cmocka_unit_test(bytes_and_lookups_are_balanced_together),
        cmocka_unit_test(small_tables_are_never_divided),
        cmocka_unit_test(given_placements_are_kept),
        cmocka_unit_test(model_yaml_keeps_what_requests_need),
        cmocka_unit_test(nothing_is_left_of_an_empty_model_yaml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
