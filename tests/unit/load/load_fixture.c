#include "tests/unit/load/load_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define WORDS_MAX 64

static char text[1024];

enum eb_arguments_outcome load_fixture_read(struct eb_load_options *options, const char *words)
{
    static char program[] = "embag-load";
    static char flag[] = "--server";
    static char server[] = "x:1";
    char *arguments[WORDS_MAX] = {program, flag, server};
    int count = 3;
    assert_true(strlen(words) < sizeof text);
    memcpy(text, words, strlen(words) + 1);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        assert_true(count < WORDS_MAX - 1);
        arguments[count++] = word;
    }
    return eb_load_options_read(options, count, arguments);
}

const struct embag_model_list *load_fixture_models(void)
{
    static const struct embag_table tables[] = {
        {.name = "a", .rows = 100, .rank = 1, .shape = {4}, .type = EMBAG_F32, .storage = "f32"},
        {.name = "b", .rows = 7, .rank = 1, .shape = {3}, .type = EMBAG_F32, .storage = "f32"},
        {.name = "c", .rows = 5, .rank = 1, .shape = {2}, .type = EMBAG_BF16, .storage = "bf16"},
        {.name = "k",
            .rows = 3,
            .rank = 1,
            .shape = {2},
            .type = EMBAG_F32,
            .storage = "f32",
            .keyed = true},
        {.name = "l", .rows = 3, .rank = 1, .type = EMBAG_F32, .storage = "f32", .keyed = true},
    };
    static const struct embag_feature features[] = {
        {.name = "f", .table = "b", .reduction = EMBAG_MAX, .id_map = "none"},
        {.name = "of_k", .table = "k", .reduction = EMBAG_SUM, .id_map = "none"},
        {.name = "g", .table = "a", .reduction = EMBAG_SUM, .id_map = "modulo"},
    };
    static const char *const pair[] = {"g", "f"};
    static const struct embag_feature_list groups[] = {{"pair", 2, pair}};
    static const struct embag_model_version versions[] = {
        {.version = 8, .error = "", .table_count = 0},
        {.version = 9,
            .serving = true,
            .error = "",
            .table_count = 5,
            .tables = tables,
            .feature_count = 3,
            .features = features,
            .group_count = 1,
            .groups = groups},
    };
    static const struct embag_model model = {
        .name = "m", .served_version = 9, .version_count = 2, .versions = versions};
    static const struct embag_model_list list = {.count = 1, .models = &model};
    return &list;
}

void load_fixture_make(struct eb_load_options *options, struct eb_load_target *target,
    struct eb_load_pool *pool, const char *words)
{
    assert_int_equal(load_fixture_read(options, words), EB_ARGUMENTS_READ);
    assert_true(eb_load_target_init(target, options, load_fixture_models()));
    assert_true(eb_load_pool_init(pool, options, target));
}
