#include "server/rpc/model_choice.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct eb_model_version alpha_7 = {.version = 7};
static struct eb_model_version alpha_5 = {.version = 5};
static struct eb_model_version beta_1 = {.version = 1};
static struct eb_snapshot_version alpha_versions[] = {{.number = 7, .loaded = &alpha_7},
    {.number = 6, .state = EB_VERSION_LOADING}, {.number = 5, .loaded = &alpha_5}};
static struct eb_snapshot_label alpha_labels[] = {{"stable", 5}, {"next", 6}};
static struct eb_snapshot_model models[] = {
    {.name = "alpha",
        .served = &alpha_7,
        .version_count = 3,
        .versions = alpha_versions,
        .label_count = 2,
        .labels = alpha_labels},
    {.name = "beta", .served = &beta_1},
    {.name = "gamma"},
};
static const struct eb_snapshot several = {.count = 3, .models = models};
static const struct eb_snapshot alone = {.count = 1, .models = models};

static char *beta_only[] = {"beta"};
static const struct eb_principal beta_caller = {
    .name = "caller", .models = beta_only, .model_count = 1};
static const struct eb_principal admin = {.name = "chief", .is_admin = true};

static struct eb_model_choice choose(const struct eb_principal *caller, const char *model)
{
    return (struct eb_model_choice){
        .snapshot = &several, .caller = caller, .right = EB_MODEL_RIGHT_LOOK_UP, .model = model};
}

static void expect_choice_refused(
    const struct eb_model_choice *choice, enum eb_status status, const char *text)
{
    struct eb_error error;
    assert_null(eb_model_choice_find(choice, &error));
    assert_int_equal(error.status, status);
    assert_string_equal(error.text, text);
}

static void tells_of_models_to_those_who_may_know(void **state)
{
    (void)state;
    struct eb_error error;
    struct eb_model_choice choice = choose(&beta_caller, "beta");
    assert_ptr_equal(eb_model_choice_find(&choice, &error), &models[1]);
    choice = choose(&eb_auth_anybody, "none");
    expect_choice_refused(&choice, EB_STATUS_NOT_FOUND, "no model \"none\"");
}

static void hides_whether_there_is_what_a_caller_may_not_know(void **state)
{
    (void)state;
    struct eb_model_choice choice = choose(&beta_caller, "alpha");
    expect_choice_refused(
        &choice, EB_STATUS_PERMISSION_DENIED, "\"caller\" may not look up model \"alpha\"");
    choice = choose(&beta_caller, "none");
    expect_choice_refused(
        &choice, EB_STATUS_PERMISSION_DENIED, "\"caller\" may not look up model \"none\"");
    choice.right = EB_MODEL_RIGHT_SEE;
    expect_choice_refused(
        &choice, EB_STATUS_PERMISSION_DENIED, "\"caller\" may not see model \"none\"");
}

static void tells_seeing_from_looking_up(void **state)
{
    (void)state;
    struct eb_error error;
    struct eb_model_choice choice = choose(&admin, "alpha");
    expect_choice_refused(
        &choice, EB_STATUS_PERMISSION_DENIED, "\"chief\" may not look up model \"alpha\"");
    choice.right = EB_MODEL_RIGHT_SEE;
    assert_ptr_equal(eb_model_choice_find(&choice, &error), &models[0]);
}

static void says_the_same_of_an_empty_name_to_all(void **state)
{
    (void)state;
    static const struct eb_principal *const callers[] = {&beta_caller, &admin, &eb_auth_anybody};
    for (size_t i = 0; i < 3; i++) {
        struct eb_model_choice choice = choose(callers[i], "");
        expect_choice_refused(&choice, EB_STATUS_NOT_FOUND,
            "model is empty, which is allowed only if there is exactly one model");
    }
    struct eb_error error;
    struct eb_model_choice choice = choose(&eb_auth_anybody, "");
    choice.snapshot = &alone;
    assert_ptr_equal(eb_model_choice_find(&choice, &error), &models[0]);
    choice.caller = &beta_caller;
    expect_choice_refused(
        &choice, EB_STATUS_PERMISSION_DENIED, "\"caller\" may not look up model \"\"");
}

static void expect_no_version(
    const struct eb_model_choice *choice, const struct eb_snapshot_model *model, const char *text)
{
    struct eb_error error;
    assert_null(eb_model_choice_find_version(choice, model, &error));
    assert_int_equal(error.status, EB_STATUS_NOT_FOUND);
    assert_string_equal(error.text, text);
}

static void finds_versions_by_number_and_by_label(void **state)
{
    (void)state;
    struct eb_error error;
    struct eb_model_choice choice = choose(&eb_auth_anybody, "alpha");
    assert_ptr_equal(eb_model_choice_find_version(&choice, &models[0], &error), &alpha_7);
    choice.version = 5;
    assert_ptr_equal(eb_model_choice_find_version(&choice, &models[0], &error), &alpha_5);
    choice.version = 6;
    expect_no_version(&choice, &models[0], "model \"alpha\" has no version 6 in memory");
    choice.label = "stable";
    assert_ptr_equal(eb_model_choice_find_version(&choice, &models[0], &error), &alpha_5);
    choice.label = "next";
    expect_no_version(&choice, &models[0], "model \"alpha\" has no version 6 in memory");
    choice.label = "none";
    expect_no_version(
        &choice, &models[0], "model \"alpha\" has no version with the label \"none\"");
    choice = choose(&eb_auth_anybody, "gamma");
    expect_no_version(&choice, &models[2], "model \"gamma\" has no version in memory yet");
}

static void says_of_a_router_that_versions_may_become_complete(void **state)
{
    (void)state;
    struct eb_error error;
    struct eb_model_choice choice = choose(&eb_auth_anybody, "gamma");
    choice.is_router = true;
    assert_null(eb_model_choice_find_version(&choice, &models[2], &error));
    assert_int_equal(error.status, EB_STATUS_UNAVAILABLE);
    assert_string_equal(error.text, "model \"gamma\" has no complete version yet");
    choice.version = 6;
    assert_null(eb_model_choice_find_version(&choice, &models[0], &error));
    assert_int_equal(error.status, EB_STATUS_UNAVAILABLE);
    assert_string_equal(error.text, "version 6 of model \"alpha\" is not complete yet");
    choice.version = 4;
    expect_no_version(&choice, &models[0], "model \"alpha\" has no version 4 in memory");
}

EB_TEST_GROUP(model_choice)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_of_models_to_those_who_may_know),
        cmocka_unit_test(hides_whether_there_is_what_a_caller_may_not_know),
        cmocka_unit_test(tells_seeing_from_looking_up),
        cmocka_unit_test(says_the_same_of_an_empty_name_to_all),
        cmocka_unit_test(finds_versions_by_number_and_by_label),
        cmocka_unit_test(says_of_a_router_that_versions_may_become_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
