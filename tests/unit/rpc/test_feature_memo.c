#include "server/rpc/feature_memo.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct eb_feature first_features[2];
static const struct eb_feature other_features[2];
static const struct eb_model_version versions[2];

/* A group of two features with these encoded bytes, as the decoder returns it. */
struct asked {
    char run[32];
    const char *names[2];
    struct eb_wire_group group;
};

static void ask_memo(struct asked *asked, const struct eb_feature_memo *memo, unsigned number)
{
    snprintf(asked->run, sizeof asked->run, "\x12 run of list %u", number);
    asked->names[0] = "user";
    asked->names[1] = "item";
    asked->group = (struct eb_wire_group){.name = "",
        .feature_count = 2,
        .features = asked->names,
        .run = (const uint8_t *)asked->run,
        .run_bytes = strlen(asked->run)};
    for (size_t i = 0; i < memo->count; i++) {
        const struct eb_known_features *list = &memo->lists[i];
        if (list->run_bytes == asked->group.run_bytes &&
            memcmp(list->run, asked->run, list->run_bytes) == 0) {
            asked->group.known = list;
        }
    }
}

/* Looks up a list and keeps it if it was not known. Returns whether it was known. */
static bool ask_and_keep(struct eb_feature_memo *memo, unsigned number,
    const struct eb_model_version *version, const struct eb_feature *features)
{
    const struct eb_feature *const list[2] = {features, features + 1};
    struct asked asked;
    ask_memo(&asked, memo, number);
    const struct eb_feature *const *found = eb_feature_memo_find(memo, &asked.group, version);
    if (found) {
        assert_ptr_equal(found[0], features);
        assert_ptr_equal(found[1], features + 1);
        return true;
    }
    eb_feature_memo_keep(memo, &asked.group, version, list);
    return false;
}

static void knows_what_it_has_kept(void **state)
{
    (void)state;
    struct eb_feature_memo memo = {0};
    assert_false(ask_and_keep(&memo, 1, &versions[0], first_features));
    assert_true(ask_and_keep(&memo, 1, &versions[0], first_features));
    assert_int_equal(memo.count, 1);
    assert_int_equal(memo.lists[0].count, 2);
    assert_int_equal(memo.lists[0].text_bytes, 8);
    assert_string_equal(memo.lists[0].names[0], "user");
    assert_string_equal(memo.lists[0].names[1], "item");
    assert_int_equal(memo.lists[0].run_bytes, strlen("\x12 run of list 1"));
    assert_memory_equal(memo.lists[0].run, "\x12 run of list 1", memo.lists[0].run_bytes);
    eb_feature_memo_deinit(&memo);
    assert_int_equal(memo.count, 0);
}

static void tells_versions_apart(void **state)
{
    (void)state;
    struct eb_feature_memo memo = {0};
    assert_false(ask_and_keep(&memo, 1, &versions[0], first_features));
    assert_false(ask_and_keep(&memo, 1, &versions[1], other_features));
    assert_true(ask_and_keep(&memo, 1, &versions[1], other_features));
    assert_int_equal(memo.count, 1);
    eb_feature_memo_forget_versions(&memo);
    assert_false(ask_and_keep(&memo, 1, &versions[1], first_features));
    assert_true(ask_and_keep(&memo, 1, &versions[1], first_features));
    assert_int_equal(memo.count, 1);
    eb_feature_memo_deinit(&memo);
}

/* A list that comes only once never displaces one that comes repeatedly. It displaces another list
 * that came only once if that list is old. */
static void gives_up_only_what_nobody_names(void **state)
{
    (void)state;
    struct eb_feature_memo memo = {0};
    for (unsigned i = 0; i < EB_FEATURE_MEMO_LISTS; i++) {
        assert_false(ask_and_keep(&memo, i, &versions[0], first_features));
    }
    assert_int_equal(memo.count, EB_FEATURE_MEMO_LISTS);
    assert_false(ask_and_keep(&memo, 100, &versions[0], first_features));
    assert_false(ask_and_keep(&memo, 100, &versions[0], first_features));
    for (unsigned i = 0; i < 2 * EB_FEATURE_MEMO_AGE_MIN; i++) {
        assert_true(ask_and_keep(&memo, 3, &versions[0], first_features));
    }
    for (unsigned i = 0; i < 5 * EB_FEATURE_MEMO_AGE_MIN; i++) {
        (void)ask_and_keep(&memo, 200 + i, &versions[0], first_features);
        assert_true(ask_and_keep(&memo, 3, &versions[0], first_features));
    }
    assert_int_equal(memo.count, EB_FEATURE_MEMO_LISTS);
    assert_false(ask_and_keep(&memo, 0, &versions[0], first_features));
    eb_feature_memo_deinit(&memo);
}

/* If several lists are old, the oldest is dropped. */
static void gives_up_the_oldest_first(void **state)
{
    (void)state;
    struct eb_feature_memo memo = {0};
    for (unsigned i = 0; i < EB_FEATURE_MEMO_LISTS; i++) {
        (void)ask_and_keep(&memo, i, &versions[0], first_features);
    }
    for (unsigned i = 0; i < EB_FEATURE_MEMO_LISTS; i++) {
        if (i != 5) {
            assert_true(ask_and_keep(&memo, i, &versions[0], first_features));
        }
    }
    memo.group_count += 2 * EB_FEATURE_MEMO_AGE_MIN;
    assert_false(ask_and_keep(&memo, 100, &versions[0], first_features));
    for (unsigned i = 0; i < EB_FEATURE_MEMO_LISTS; i++) {
        if (i != 5) {
            assert_true(ask_and_keep(&memo, i, &versions[0], first_features));
        }
    }
    assert_true(ask_and_keep(&memo, 100, &versions[0], first_features));
    eb_feature_memo_deinit(&memo);
}

static void keeps_nothing_of_what_it_cannot_tell_again(void **state)
{
    (void)state;
    static uint8_t run[EB_FEATURE_MEMO_RUN_BYTES_MAX + 1] = {0x92, 0};
    const struct eb_feature *const list[2] = {first_features, first_features + 1};
    struct eb_feature_memo memo = {0};
    struct asked asked;
    ask_memo(&asked, &memo, 1);
    asked.group.run = NULL;
    asked.group.run_bytes = 0;
    eb_feature_memo_keep(&memo, &asked.group, &versions[0], list);
    assert_int_equal(memo.count, 0);
    asked.group.run = run;
    asked.group.run_bytes = sizeof run;
    eb_feature_memo_keep(&memo, &asked.group, &versions[0], list);
    assert_int_equal(memo.count, 0);
    /* The first tag has two bytes. The decoder does not look for lists with such a tag. */
    asked.group.run_bytes--;
    eb_feature_memo_keep(&memo, &asked.group, &versions[0], list);
    assert_int_equal(memo.count, 0);
    run[0] = 0x12;
    eb_feature_memo_keep(&memo, &asked.group, &versions[0], list);
    assert_int_equal(memo.count, 1);
    eb_feature_memo_deinit(&memo);
}

EB_TEST_GROUP(feature_memo)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_what_it_has_kept),
        cmocka_unit_test(tells_versions_apart),
        cmocka_unit_test(gives_up_only_what_nobody_names),
        cmocka_unit_test(gives_up_the_oldest_first),
        cmocka_unit_test(keeps_nothing_of_what_it_cannot_tell_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
