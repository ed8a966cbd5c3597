#include "server/models/version_policy.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define NOW_MS UINT64_C(10000000)
#define KEEP_S 600

#define ON_DISK .is_on_disk = true
#define RESIDENT .is_on_disk = true, .is_resident = true
#define FAILED .is_on_disk = true, .is_failed = true

static struct eb_model_config config;

static int reset_config(void **state)
{
    (void)state;
    config = (struct eb_model_config){.keep = 2, .keep_s = KEEP_S};
    return 0;
}

static struct eb_policy_model model_of(
    const struct eb_policy_version *versions, size_t count, uint64_t served)
{
    return (struct eb_policy_model){
        .config = &config, .served = served, .count = count, .versions = versions};
}

static void expect_choice(const struct eb_policy_model *model, size_t target, size_t load)
{
    struct eb_policy_choice choice = eb_version_policy_choose(model);
    assert_int_equal(choice.target, target);
    assert_int_equal(choice.load, load);
}

static void serves_the_highest_that_may_load(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {{.number = 9, FAILED}, {.number = 8, ON_DISK},
        {.number = 7, RESIDENT}, {.number = 6, ON_DISK}};
    struct eb_policy_model model = model_of(versions, 4, 7);
    expect_choice(&model, 1, 1);
    model = model_of(versions + 2, 2, 7);
    expect_choice(&model, 0, EB_POLICY_NONE);
    model = model_of(versions, 1, 0);
    expect_choice(&model, EB_POLICY_NONE, EB_POLICY_NONE);
}

static void serves_a_better_one_while_the_highest_is_loaded(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {{.number = 9, ON_DISK}, {.number = 8, ON_DISK},
        {.number = 7, RESIDENT}, {.number = 6, RESIDENT}, {.number = 5, ON_DISK}};
    struct eb_policy_model model = model_of(versions, 5, 6);
    expect_choice(&model, 0, 0);
    assert_int_equal(eb_version_policy_choose(&model).serve, 2);
    /* A load in progress continues if its version is better than the served one. */
    assert_true(eb_version_policy_is_due(&model, 1));
    assert_false(eb_version_policy_is_due(&model, 4));
    model.served = 7;
    assert_int_equal(eb_version_policy_choose(&model).serve, EB_POLICY_NONE);
    /* While a particular version is wanted and not yet loaded, the model switches to no other
     * version. */
    model.served = 6;
    model.commanded = 9;
    assert_int_equal(eb_version_policy_choose(&model).serve, EB_POLICY_NONE);
    assert_false(eb_version_policy_is_due(&model, 1));
    assert_true(eb_version_policy_is_due(&model, 0));
}

static void goes_back_when_the_highest_leaves_the_disk(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {
        {.number = 9, .is_resident = true}, {.number = 8, ON_DISK}};
    struct eb_policy_model model = model_of(versions, 2, 9);
    expect_choice(&model, 1, 1);
}

static void keeps_serving_what_nothing_replaces(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {
        {.number = 9, .is_resident = true, .since_ms = NOW_MS - KEEP_S * 1000 * 2},
        {.number = 8, FAILED}};
    struct eb_policy_model model = model_of(versions, 2, 9);
    expect_choice(&model, 0, EB_POLICY_NONE);
    assert_int_equal(eb_version_policy_decide(&model, 0, NOW_MS), EB_POLICY_WANTED);
    /* A model that has left the disk is dropped when its time is over. */
    model = model_of(versions, 1, 9);
    assert_int_equal(eb_version_policy_decide(&model, 0, NOW_MS), EB_POLICY_DROPPED);
    assert_int_equal(eb_version_policy_decide(&model, 0, versions[0].since_ms + KEEP_S * 1000 - 1),
        EB_POLICY_KEPT);
}

static void serves_a_fixed_version_and_loads_it_first(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {
        {.number = 9, RESIDENT}, {.number = 8, FAILED}, {.number = 7, ON_DISK}};
    struct eb_policy_model model = model_of(versions, 3, 9);
    config.serve = 7;
    expect_choice(&model, 2, 2);
    /* If the version cannot be loaded, the served one stays. If none is served, the next lower one
     * is taken. */
    config.serve = 8;
    expect_choice(&model, 0, EB_POLICY_NONE);
    model.served = 0;
    expect_choice(&model, 2, 2);
    config.serve = 5;
    expect_choice(&model, EB_POLICY_NONE, EB_POLICY_NONE);
    /* A command takes precedence over the configuration. */
    model.commanded = 9;
    expect_choice(&model, 0, EB_POLICY_NONE);
}

static void loads_what_has_a_label_or_is_held(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {{.number = 9, RESIDENT},
        {.number = 4, ON_DISK, .is_held = true}, {.number = 3, ON_DISK, .is_labelled = true},
        {.number = 2, .is_failed = true, .is_labelled = true}, {.number = 1, ON_DISK}};
    struct eb_policy_model model = model_of(versions, 5, 9);
    expect_choice(&model, 0, 1);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(eb_version_policy_is_due(&model, i), i == 1 || i == 2);
    }
    const struct eb_policy_version later[] = {{.number = 9, RESIDENT},
        {.number = 4, RESIDENT, .is_held = true}, {.number = 3, ON_DISK, .is_labelled = true}};
    model = model_of(later, 3, 9);
    expect_choice(&model, 0, 2);
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_WANTED);
}

static void loads_claimed_versions_in_order(void **state)
{
    (void)state;
    struct eb_policy_version versions[] = {{.number = 9, ON_DISK}, {.number = 8, RESIDENT},
        {.number = 7, ON_DISK, .is_claimed = true}, {.number = 6, ON_DISK, .is_held = true},
        {.number = 5, ON_DISK, .is_claimed = true}, {.number = 4, FAILED, .is_claimed = true},
        {.number = 3, .is_claimed = true}};
    struct eb_policy_model model = model_of(versions, 7, 8);
    expect_choice(&model, 0, 4);
    versions[4].is_resident = true;
    expect_choice(&model, 0, 2);
    versions[2].is_resident = true;
    expect_choice(&model, 0, 0);
    versions[0].is_resident = true;
    expect_choice(&model, 0, 3);
    /* A version to be served that is older comes first. */
    versions[2].is_resident = false;
    model.commanded = 6;
    expect_choice(&model, 3, 3);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(eb_version_policy_is_due(&model, i), i == 2 || i == 3);
    }
}

/* Makes the model one of a part server. */
static struct eb_policy_model part_model_of(
    const struct eb_policy_version *versions, size_t count, uint64_t served)
{
    struct eb_policy_model model = model_of(versions, count, served);
    model.is_part = true;
    return model;
}

static void loads_on_a_part_server_only_what_is_claimed(void **state)
{
    (void)state;
    struct eb_policy_version versions[] = {{.number = 9, ON_DISK}, {.number = 8, ON_DISK},
        {.number = 7, ON_DISK}, {.number = 6, ON_DISK, .is_labelled = true},
        {.number = 5, ON_DISK}};
    struct eb_policy_model model = part_model_of(versions, 5, 0);
    expect_choice(&model, 0, 0);
    versions[1].is_claimed = versions[2].is_claimed = true;
    expect_choice(&model, 1, 2);
    versions[2].is_resident = true;
    expect_choice(&model, 1, 1);
    assert_int_equal(eb_version_policy_choose(&model).serve, 2);
    versions[1].is_resident = true;
    expect_choice(&model, 1, 3);
    versions[3].is_resident = true;
    expect_choice(&model, 1, EB_POLICY_NONE);
    /* A number that is chosen counts as before. */
    model.commanded = 5;
    expect_choice(&model, 4, 4);
    model.commanded = 0;
    /* Without the claims, the newest is loaded. */
    versions[1].is_claimed = versions[2].is_claimed = false;
    expect_choice(&model, 0, 0);
    /* A claim on what cannot be loaded has no effect. */
    versions[4] = (struct eb_policy_version){.number = 5, FAILED, .is_claimed = true};
    expect_choice(&model, 0, 0);
    versions[4].is_on_disk = false;
    versions[4].is_retried = true;
    expect_choice(&model, 0, 0);
    /* If it can be loaded later, nothing newer is loaded before. */
    versions[4].is_on_disk = true;
    expect_choice(&model, EB_POLICY_NONE, EB_POLICY_NONE);
    model.served = 8;
    expect_choice(&model, 1, EB_POLICY_NONE);
    model.is_part = false;
    expect_choice(&model, 0, 0);
}

static void keeps_on_a_part_server_what_is_claimed_and_gone_from_the_disk(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {
        {.number = 9, ON_DISK}, {.number = 8, .is_resident = true, .is_claimed = true}};
    struct eb_policy_model model = part_model_of(versions, 2, 8);
    expect_choice(&model, 1, EB_POLICY_NONE);
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_WANTED);
}

static void leaves_on_a_part_server_no_load_for_a_newer_version(void **state)
{
    (void)state;
    struct eb_policy_version versions[] = {{.number = 9, ON_DISK}, {.number = 8, ON_DISK},
        {.number = 7, RESIDENT}, {.number = 6, ON_DISK}};
    struct eb_policy_model model = part_model_of(versions, 4, 7);
    assert_true(eb_version_policy_is_due(&model, 0));
    assert_true(eb_version_policy_is_due(&model, 1));
    versions[0].is_claimed = true;
    assert_true(eb_version_policy_is_due(&model, 1)); /* goes on before version 9 */
    versions[3].is_claimed = true;
    assert_false(eb_version_policy_is_due(&model, 1)); /* version 6 is needed first */
    assert_true(eb_version_policy_is_due(&model, 0));
    assert_true(eb_version_policy_is_due(&model, 3));
    versions[0].is_claimed = versions[3].is_claimed = false;
    versions[2].is_claimed = true;
    assert_false(eb_version_policy_is_due(&model, 0)); /* all that is claimed is in memory */
    assert_false(eb_version_policy_is_due(&model, 1));
    model.is_part = false;
    assert_true(eb_version_policy_is_due(&model, 0));
}

static void spares_on_a_part_server_what_was_never_claimed(void **state)
{
    (void)state;
    struct eb_policy_version versions[] = {{.number = 10, FAILED},
        {.number = 9, RESIDENT, .since_ms = NOW_MS},
        {.number = 8, RESIDENT, .since_ms = NOW_MS - 1},
        {.number = 7, RESIDENT, .since_ms = NOW_MS, .is_claimed = true, .grace_end_ms = NOW_MS}};
    struct eb_policy_model model = part_model_of(versions, 4, 7);
    config.keep = 3;
    /* The newest that loads is kept as elsewhere. */
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_KEPT);
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_SPARE);
    assert_int_equal(eb_version_policy_decide(&model, 3, NOW_MS), EB_POLICY_WANTED);
    config.keep = 2;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_DROPPED);
    versions[2].grace_end_ms = NOW_MS - 1;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_KEPT);
    versions[2].grace_end_ms = 0;
    model.is_part = false;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_KEPT);
    /* A version that is being loaded counts as newer, one that is gone does not. */
    model.is_part = true;
    config.keep = 3;
    versions[0] = (struct eb_policy_version){.number = 10, ON_DISK};
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_SPARE);
    versions[0].is_on_disk = false;
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_KEPT);
}

static void keeps_what_was_claimed_for_its_grace(void **state)
{
    (void)state;
    struct eb_policy_version versions[] = {{.number = 9, RESIDENT, .since_ms = NOW_MS},
        {.number = 8, RESIDENT, .since_ms = NOW_MS - 1},
        {.number = 7, RESIDENT, .is_claimed = true, .since_ms = NOW_MS - 2}};
    struct eb_policy_model model = model_of(versions, 3, 9);
    model.kept_max = 1;
    config.keep_s = 0;
    config.keep = 1;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_WANTED);
    assert_false(eb_version_policy_may_evict(&model, 2, NOW_MS));
    versions[2].is_claimed = false;
    versions[2].grace_end_ms = NOW_MS;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS - 1), EB_POLICY_GRACE);
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_DROPPED);
    config.keep_s = KEEP_S;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS - 1), EB_POLICY_GRACE);
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_EVICTED);
}

static void keeps_a_pinned_version_until_keep_s_after_its_pin(void **state)
{
    (void)state;
    struct eb_policy_version versions[] = {{.number = 9, RESIDENT, .since_ms = NOW_MS},
        {.number = 8, RESIDENT, .since_ms = NOW_MS},
        {.number = 7, RESIDENT, .since_ms = 0, .pin_end_ms = NOW_MS},
        {.number = 6, ON_DISK, .pin_end_ms = NOW_MS + 1}};
    struct eb_policy_model model = model_of(versions, 4, 9);
    config.keep = 1;
    model.kept_max = 1;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS - 1), EB_POLICY_PINNED);
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_EVICTED);
    model.kept_max = 0;
    uint64_t keep_end_ms = NOW_MS + KEEP_S * 1000;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_KEPT);
    assert_int_equal(eb_version_policy_decide(&model, 2, keep_end_ms - 1), EB_POLICY_KEPT);
    assert_int_equal(eb_version_policy_decide(&model, 2, keep_end_ms), EB_POLICY_DROPPED);
    /* A pin loads nothing. */
    assert_false(eb_version_policy_is_due(&model, 3));
    expect_choice(&model, 0, EB_POLICY_NONE);
    /* It keeps nothing whose model is gone. */
    for (size_t i = 0; i < 4; i++) {
        versions[i].is_on_disk = false;
    }
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS - 1), EB_POLICY_DROPPED);
}

static void counts_no_pinned_version_as_kept(void **state)
{
    (void)state;
    struct eb_policy_version versions[] = {{.number = 9, RESIDENT, .since_ms = NOW_MS},
        {.number = 8, RESIDENT, .since_ms = NOW_MS - 1, .pin_end_ms = NOW_MS + 1},
        {.number = 7, RESIDENT, .since_ms = NOW_MS - 2}};
    struct eb_policy_model model = model_of(versions, 3, 9);
    config.keep = 1;
    model.kept_max = 1;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_KEPT);
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS + 1), EB_POLICY_EVICTED);
    /* What is wanted stays wanted. */
    versions[0].pin_end_ms = NOW_MS + 1;
    assert_int_equal(eb_version_policy_decide(&model, 0, NOW_MS), EB_POLICY_WANTED);
}

static void keeps_the_one_before_for_its_time_and_while_there_is_room(void **state)
{
    (void)state;
    uint64_t long_ago_ms = NOW_MS - KEEP_S * 1000;
    const struct eb_policy_version versions[] = {{.number = 9, RESIDENT, .since_ms = NOW_MS},
        {.number = 8, RESIDENT, .since_ms = long_ago_ms},
        {.number = 7, RESIDENT, .since_ms = long_ago_ms - 1},
        {.number = 6, RESIDENT, .since_ms = long_ago_ms + 1}};
    struct eb_policy_model model = model_of(versions, 4, 9);
    assert_int_equal(eb_version_policy_decide(&model, 0, NOW_MS), EB_POLICY_WANTED);
    assert_int_equal(eb_version_policy_decide(&model, 3, NOW_MS), EB_POLICY_KEPT);
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_DROPPED);
    model = model_of(versions, 3, 9);
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_SPARE);
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_DROPPED);
    config.keep = 3;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_SPARE);
    config.keep = 1;
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_DROPPED);
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS - 1), EB_POLICY_KEPT);
}

static void does_not_keep_what_has_left_the_disk_beyond_its_time(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {
        {.number = 9, RESIDENT}, {.number = 8, .is_resident = true}};
    struct eb_policy_model model = model_of(versions, 2, 9);
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_DROPPED);
    assert_int_equal(eb_version_policy_decide(&model, 1, KEEP_S * 1000 - 1), EB_POLICY_KEPT);
}

static void evicts_the_oldest_of_too_many_that_are_kept(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {{.number = 9, RESIDENT, .since_ms = NOW_MS},
        {.number = 8, RESIDENT, .since_ms = NOW_MS - 1},
        {.number = 7, RESIDENT, .since_ms = NOW_MS - 2},
        {.number = 6, RESIDENT, .since_ms = NOW_MS - 2},
        {.number = 5, RESIDENT, .is_held = true, .since_ms = NOW_MS - 9},
        {.number = 4, RESIDENT, .is_labelled = true, .since_ms = NOW_MS - 9}};
    struct eb_policy_model model = model_of(versions, 6, 9);
    assert_int_equal(eb_version_policy_decide(&model, 3, NOW_MS), EB_POLICY_KEPT);
    model.kept_max = 3;
    assert_int_equal(eb_version_policy_decide(&model, 3, NOW_MS), EB_POLICY_KEPT);
    model.kept_max = 2;
    assert_int_equal(eb_version_policy_decide(&model, 3, NOW_MS), EB_POLICY_EVICTED);
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_KEPT);
    model.kept_max = 1;
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_EVICTED);
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_KEPT);
    for (size_t i = 0; i < 6; i++) {
        bool is_wanted = i == 0 || i >= 4;
        assert_int_equal(
            eb_version_policy_decide(&model, i, NOW_MS) == EB_POLICY_WANTED, is_wanted);
        assert_int_equal(eb_version_policy_may_evict(&model, i, NOW_MS), i == 2 || i == 3);
    }
    /* As many versions as `keep` says stay in any case. */
    config.keep = 4;
    assert_int_equal(eb_version_policy_decide(&model, 3, NOW_MS), EB_POLICY_KEPT);
    config.keep = 3;
    assert_int_equal(eb_version_policy_decide(&model, 3, NOW_MS), EB_POLICY_EVICTED);
}

static void evicts_nothing_that_is_served_though_its_model_has_left_the_disk(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {
        {.number = 9, .is_resident = true, .is_held = true, .since_ms = NOW_MS},
        {.number = 8, .is_resident = true, .is_labelled = true, .since_ms = NOW_MS},
        {.number = 7, .is_resident = true, .since_ms = NOW_MS},
        {.number = 6, .is_resident = true, .since_ms = NOW_MS}};
    struct eb_policy_model model = model_of(versions, 4, 7);
    model.kept_max = 1;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(eb_version_policy_decide(&model, i, NOW_MS),
            i == 3 ? EB_POLICY_EVICTED : EB_POLICY_KEPT);
    }
}

/* ---- routers ---- */

static struct eb_policy_model routed_model_of(
    const struct eb_policy_version *versions, size_t count, uint64_t served)
{
    struct eb_policy_model model = model_of(versions, count, served);
    model.is_routed = true;
    return model;
}

static void loads_and_serves_nothing_by_itself_on_a_router(void **state)
{
    (void)state;
    const struct eb_policy_version versions[] = {
        {.number = 9, RESIDENT}, {.number = 8, ON_DISK}, {.number = 7, RESIDENT}};
    struct eb_policy_model model = routed_model_of(versions, 3, 0);
    for (config.serve = 0; config.serve < 10; config.serve++) {
        model.commanded = 17 - config.serve;
        expect_choice(&model, EB_POLICY_NONE, EB_POLICY_NONE);
        assert_int_equal(eb_version_policy_choose(&model).serve, EB_POLICY_NONE);
        assert_false(eb_version_policy_is_due(&model, 1));
    }
    model.served = 7;
    expect_choice(&model, 2, EB_POLICY_NONE);
    assert_int_equal(eb_version_policy_choose(&model).serve, 2);
}

static void serves_what_is_chosen_once_it_is_resident_on_a_router(void **state)
{
    (void)state;
    struct eb_policy_version versions[] = {{.number = 9, RESIDENT},
        {.number = 8, ON_DISK, .wanted_rank = 2}, {.number = 7, RESIDENT, .wanted_rank = 1},
        {.number = 6, FAILED}};
    struct eb_policy_model model = routed_model_of(versions, 4, 7);
    model.chosen = 8;
    expect_choice(&model, 1, 1);
    assert_int_equal(eb_version_policy_choose(&model).serve, EB_POLICY_NONE);
    versions[1].is_resident = true;
    expect_choice(&model, 1, EB_POLICY_NONE);
    assert_int_equal(eb_version_policy_choose(&model).serve, 1);
    /* A version that cannot be loaded, or does not exist, does not take the served one's place. */
    for (model.chosen = 5; model.chosen < 7; model.chosen++) {
        expect_choice(&model, 2, EB_POLICY_NONE);
        assert_int_equal(eb_version_policy_choose(&model).serve, 2);
    }
    model.served = 0;
    model.chosen = 6;
    expect_choice(&model, EB_POLICY_NONE, EB_POLICY_NONE);
}

static void loads_what_is_wanted_in_its_order_on_a_router(void **state)
{
    (void)state;
    struct eb_policy_version versions[] = {{.number = 9, ON_DISK},
        {.number = 8, ON_DISK, .wanted_rank = 3}, {.number = 7, ON_DISK, .is_held = true},
        {.number = 6, ON_DISK, .wanted_rank = 2}, {.number = 5, ON_DISK, .is_labelled = true},
        {.number = 4, FAILED, .wanted_rank = 1}, {.number = 3, .wanted_rank = 4}};
    static const size_t order[] = {3, 1, 2, 4};
    struct eb_policy_model model = routed_model_of(versions, 7, 0);
    for (size_t i = 0; i < 4; i++) {
        expect_choice(&model, EB_POLICY_NONE, order[i]);
        assert_true(eb_version_policy_is_due(&model, order[i]));
        versions[order[i]].is_resident = true;
        assert_false(eb_version_policy_is_due(&model, order[i]));
    }
    expect_choice(&model, EB_POLICY_NONE, EB_POLICY_NONE);
    for (size_t i = 0; i < 7; i++) {
        assert_false(eb_version_policy_is_due(&model, i));
    }
}

static void keeps_what_is_wanted_and_drops_the_rest_on_a_router(void **state)
{
    (void)state;
    uint64_t long_ago_ms = NOW_MS - KEEP_S * 1000;
    struct eb_policy_version versions[] = {{.number = 9, RESIDENT, .since_ms = long_ago_ms},
        {.number = 8, RESIDENT, .wanted_rank = 1}, {.number = 7, RESIDENT},
        {.number = 6, RESIDENT, .since_ms = long_ago_ms + 2},
        {.number = 5, RESIDENT, .since_ms = long_ago_ms + 1}, {.number = 4, RESIDENT}};
    struct eb_policy_model model = routed_model_of(versions, 6, 7);
    model.chosen = 4;
    static const enum eb_policy_fate fates[] = {EB_POLICY_DROPPED, EB_POLICY_WANTED,
        EB_POLICY_WANTED, EB_POLICY_KEPT, EB_POLICY_KEPT, EB_POLICY_WANTED};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(eb_version_policy_decide(&model, i, NOW_MS), fates[i]);
    }
    model.kept_max = 1;
    assert_int_equal(eb_version_policy_decide(&model, 4, NOW_MS), EB_POLICY_EVICTED);
    /* When the model has left the disk, all go when their time is over, but none is evicted that
     * has a reason to stay. */
    for (size_t i = 0; i < 6; i++) {
        versions[i].is_on_disk = false;
        versions[i].since_ms = NOW_MS - i;
    }
    assert_int_equal(eb_version_policy_decide(&model, 1, NOW_MS), EB_POLICY_KEPT);
    assert_int_equal(eb_version_policy_decide(&model, 2, NOW_MS), EB_POLICY_KEPT);
    assert_int_equal(eb_version_policy_decide(&model, 3, NOW_MS), EB_POLICY_EVICTED);
    assert_int_equal(
        eb_version_policy_decide(&model, 1, NOW_MS + KEEP_S * 1000), EB_POLICY_DROPPED);
}

EB_TEST_GROUP(version_policy)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(serves_the_highest_that_may_load, reset_config),
        cmocka_unit_test_setup(serves_a_better_one_while_the_highest_is_loaded, reset_config),
        cmocka_unit_test_setup(goes_back_when_the_highest_leaves_the_disk, reset_config),
        cmocka_unit_test_setup(keeps_serving_what_nothing_replaces, reset_config),
        cmocka_unit_test_setup(serves_a_fixed_version_and_loads_it_first, reset_config),
        cmocka_unit_test_setup(loads_what_has_a_label_or_is_held, reset_config),
        cmocka_unit_test_setup(loads_claimed_versions_in_order, reset_config),
        cmocka_unit_test_setup(loads_on_a_part_server_only_what_is_claimed, reset_config),
        cmocka_unit_test_setup(
            keeps_on_a_part_server_what_is_claimed_and_gone_from_the_disk, reset_config),
        cmocka_unit_test_setup(leaves_on_a_part_server_no_load_for_a_newer_version, reset_config),
        cmocka_unit_test_setup(spares_on_a_part_server_what_was_never_claimed, reset_config),
        cmocka_unit_test_setup(keeps_what_was_claimed_for_its_grace, reset_config),
        cmocka_unit_test_setup(keeps_a_pinned_version_until_keep_s_after_its_pin, reset_config),
        cmocka_unit_test_setup(counts_no_pinned_version_as_kept, reset_config),
        cmocka_unit_test_setup(
            keeps_the_one_before_for_its_time_and_while_there_is_room, reset_config),
        cmocka_unit_test_setup(does_not_keep_what_has_left_the_disk_beyond_its_time, reset_config),
        cmocka_unit_test_setup(evicts_the_oldest_of_too_many_that_are_kept, reset_config),
        cmocka_unit_test_setup(
            evicts_nothing_that_is_served_though_its_model_has_left_the_disk, reset_config),
        cmocka_unit_test_setup(loads_and_serves_nothing_by_itself_on_a_router, reset_config),
        cmocka_unit_test_setup(serves_what_is_chosen_once_it_is_resident_on_a_router, reset_config),
        cmocka_unit_test_setup(loads_what_is_wanted_in_its_order_on_a_router, reset_config),
        cmocka_unit_test_setup(keeps_what_is_wanted_and_drops_the_rest_on_a_router, reset_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
