#include "client/cli/publish_plan.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NEW 7 /* the version that is published */
#define EVENTS_MAX 6
#define LIST_BYTES ((size_t)EB_PUBLISH_SERVERS_MAX * 8 + 64)

/* ---- lists of addresses ---- */

static void reads_addresses_and_drops_the_spaces_around_them(void **state)
{
    (void)state;
    static const char *const lists[] = {"a:1,unix:/b c,[::1]:3", " a:1 , unix:/b c  ,  [::1]:3 "};
    for (size_t i = 0; i < 2; i++) {
        struct eb_publish_list list;
        struct eb_failure failure;
        assert_true(eb_publish_list_init(&list, lists[i], &failure));
        assert_int_equal(list.count, 3);
        assert_string_equal(list.servers[0].address, "a:1");
        assert_string_equal(list.servers[1].address, "unix:/b c");
        assert_string_equal(list.servers[2].address, "[::1]:3");
        eb_publish_list_deinit(&list);
    }
}

static void refuse_list(const char *addresses, const char *wanted)
{
    struct eb_publish_list list;
    struct eb_failure failure;
    assert_false(eb_publish_list_init(&list, addresses, &failure));
    assert_non_null(strstr(failure.text, wanted));
    assert_null(list.servers);
    assert_null(list.text);
}

static void refuses_addresses_that_are_empty(void **state)
{
    (void)state;
    refuse_list("", "address 1 is empty");
    refuse_list("  ", "address 1 is empty");
    refuse_list(",a:1", "address 1 is empty");
    refuse_list("a:1,,b:1", "address 2 is empty");
    refuse_list("a:1, ,b:1", "address 2 is empty");
    refuse_list("a:1,b:1,", "address 3 is empty");
}

static void refuses_addresses_that_occur_twice_or_stand_for_several_servers(void **state)
{
    (void)state;
    refuse_list("a:1,b:1, a:1", "\"a:1\" occurs twice");
    refuse_list("a:1,dns:b:1", "invalid address \"dns:b:1\"");
}

/* Writes a list of `count` different addresses. */
static void write_addresses(char out[LIST_BYTES], unsigned count)
{
    int used = 0;
    for (unsigned i = 0; i < count; i++) {
        used += snprintf(out + used, LIST_BYTES - (size_t)used, "%sh:%u", i > 0 ? "," : "", i);
    }
}

static void reads_as_many_addresses_as_are_allowed_and_not_one_more(void **state)
{
    (void)state;
    struct eb_publish_list list;
    struct eb_failure failure;
    char text[LIST_BYTES];
    write_addresses(text, EB_PUBLISH_SERVERS_MAX);
    assert_true(eb_publish_list_init(&list, text, &failure));
    assert_int_equal(list.count, EB_PUBLISH_SERVERS_MAX);
    eb_publish_list_deinit(&list);
    write_addresses(text, EB_PUBLISH_SERVERS_MAX + 1);
    refuse_list(text, "at most 256");
}

/* ---- what servers have ---- */

/* Observes a model that serves one version by command, with version NEW in this state. */
static void observe(struct eb_publish_server *server, enum embag_version_state state,
    uint64_t served, uint64_t commanded)
{
    const struct embag_model_version versions[] = {
        {.version = NEW + 1, .state = EMBAG_STATE_FAILED, .error = "another"},
        {.version = NEW, .state = state, .error = state == EMBAG_STATE_FAILED ? "torn" : ""},
    };
    struct embag_model model = {.name = "m",
        .served_version = served,
        .commanded_version = commanded,
        .version_count = 2,
        .versions = versions};
    eb_publish_observe(server, &model, NEW);
}

static void tells_what_a_server_has(void **state)
{
    (void)state;
    static const struct {
        enum embag_version_state listed;
        enum eb_publish_state wanted;
    } cases[] = {
        {EMBAG_STATE_LOADING, EB_PUBLISH_LOADING},
        {EMBAG_STATE_READY, EB_PUBLISH_READY},
        {EMBAG_STATE_SERVING, EB_PUBLISH_READY},
        {EMBAG_STATE_RETIRED, EB_PUBLISH_ABSENT},
        {EMBAG_STATE_FAILED, EB_PUBLISH_FAILED},
        {EMBAG_STATE_UNSPECIFIED, EB_PUBLISH_ABSENT},
        {(enum embag_version_state)99, EB_PUBLISH_ABSENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_publish_server server = {0};
        observe(&server, cases[i].listed, 1, 0);
        assert_int_equal(server.state, cases[i].wanted);
        assert_string_equal(server.reason, cases[i].wanted == EB_PUBLISH_FAILED ? "torn" : "");
    }
    struct eb_publish_server server = {0};
    eb_publish_observe(&server, NULL, NEW);
    assert_int_equal(server.state, EB_PUBLISH_ABSENT);
    eb_publish_observe(&server, &(struct embag_model){.name = "m"}, NEW);
    assert_int_equal(server.state, EB_PUBLISH_ABSENT);
}

static void keeps_the_reason_while_the_version_is_absent(void **state)
{
    (void)state;
    struct eb_publish_server server = {.reason = "no files"};
    observe(&server, EMBAG_STATE_UNSPECIFIED, 1, 0);
    assert_string_equal(server.reason, "no files");
    observe(&server, EMBAG_STATE_LOADING, 1, 0);
    assert_string_equal(server.reason, "");
}

static void loads_again_after_pauses_that_double_while_nobody_answers(void **state)
{
    (void)state;
    struct eb_publish_server server = {0};
    observe(&server, EMBAG_STATE_LOADING, 1, 0);
    assert_false(eb_publish_is_load_due(&server, 100));
    observe(&server, EMBAG_STATE_UNSPECIFIED, 1, 0);
    assert_true(eb_publish_is_load_due(&server, 100));
    uint64_t now_ms = 100;
    for (uint64_t pause_ms = 1000; pause_ms < 1000000; pause_ms *= 2) {
        eb_publish_note_load(&server, now_ms, false);
        assert_false(eb_publish_is_load_due(&server, now_ms + pause_ms - 1));
        now_ms += pause_ms;
        assert_true(eb_publish_is_load_due(&server, now_ms));
    }
    eb_publish_note_load(&server, now_ms, true);
    assert_false(eb_publish_is_load_due(&server, now_ms + 999));
    assert_true(eb_publish_is_load_due(&server, now_ms + 1000));
}

/* ---- undoing ---- */

static void knows_which_errors_leave_everything_as_it_was(void **state)
{
    (void)state;
    static const enum embag_status refusals[] = {EMBAG_INVALID_ARGUMENT, EMBAG_NOT_FOUND,
        EMBAG_PERMISSION_DENIED, EMBAG_FAILED_PRECONDITION, EMBAG_UNIMPLEMENTED,
        EMBAG_UNAUTHENTICATED};
    unsigned found = 0;
    for (int status = 0; status <= 16; status++) {
        found += eb_publish_is_refusal((enum embag_status)status);
    }
    assert_int_equal(found, sizeof refusals / sizeof refusals[0]);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        assert_true(eb_publish_is_refusal(refusals[i]));
    }
}

static void undoes_by_serving_what_was_served_before(void **state)
{
    (void)state;
    static const struct {
        uint64_t served, commanded;
        bool may_serve;
        enum eb_publish_undo wanted;
        uint64_t version;
    } cases[] = {
        {3, 0, false, EB_PUBLISH_UNDO_NOTHING, 0},
        {3, 0, true, EB_PUBLISH_UNDO_SERVE, 3},
        {3, 3, true, EB_PUBLISH_UNDO_SERVE, 3},
        {3, 5, true, EB_PUBLISH_UNDO_SERVE, 3},
        {0, 0, true, EB_PUBLISH_UNDO_IMPOSSIBLE, 0},
        {0, 3, true, EB_PUBLISH_UNDO_IMPOSSIBLE, 0},
        {0, 0, false, EB_PUBLISH_UNDO_NOTHING, 0},
        {NEW, 0, true, EB_PUBLISH_UNDO_SERVE, 0},
        {NEW, NEW, true, EB_PUBLISH_UNDO_NOTHING, 0},
        {NEW, 5, true, EB_PUBLISH_UNDO_SERVE, 5},
        {NEW, 0, false, EB_PUBLISH_UNDO_NOTHING, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct eb_publish_server server = {0};
        uint64_t version = 99;
        observe(&server, EMBAG_STATE_READY, cases[i].served, cases[i].commanded);
        server.may_serve = cases[i].may_serve;
        assert_int_equal(eb_publish_find_undo(&server, NEW, &version), cases[i].wanted);
        if (cases[i].wanted == EB_PUBLISH_UNDO_SERVE) {
            assert_int_equal(version, cases[i].version);
        }
    }
}

/* Observes one order of events, given as the digits of `order`: what the server serves each time.
 * Checks the result against a second reading of the same order. */
static void check_order(unsigned order, unsigned length)
{
    static const uint64_t events[] = {0, 3, 5, NEW};
    struct eb_publish_server server = {0};
    uint64_t before = NEW;
    uint64_t last = 0;
    for (unsigned i = 0; i < length; i++, order /= 4) {
        last = events[order % 4];
        before = last != NEW ? last : before;
        observe(&server, EMBAG_STATE_READY, last, last == 5 ? 5 : 0);
    }
    uint64_t version;
    enum eb_publish_undo undo = eb_publish_find_undo(&server, NEW, &version);
    assert_int_equal(server.served_before, before);
    assert_int_equal(server.commanded_before, before == 5 ? 5 : 0);
    if (last != NEW || before == NEW) {
        assert_int_equal(undo, EB_PUBLISH_UNDO_NOTHING);
    } else if (before == 0) {
        assert_int_equal(undo, EB_PUBLISH_UNDO_IMPOSSIBLE);
    } else {
        assert_int_equal(undo, EB_PUBLISH_UNDO_SERVE);
        assert_int_equal(version, before);
    }
}

static void remembers_what_was_served_in_every_order_of_events(void **state)
{
    (void)state;
    unsigned orders = 1;
    for (unsigned length = 1; length <= EVENTS_MAX; length++) {
        orders *= 4;
        for (unsigned order = 0; order < orders; order++) {
            check_order(order, length);
        }
    }
}

EB_TEST_GROUP(publish_plan)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_addresses_and_drops_the_spaces_around_them),
        cmocka_unit_test(refuses_addresses_that_are_empty),
        cmocka_unit_test(refuses_addresses_that_occur_twice_or_stand_for_several_servers),
        cmocka_unit_test(reads_as_many_addresses_as_are_allowed_and_not_one_more),
        cmocka_unit_test(tells_what_a_server_has),
        cmocka_unit_test(keeps_the_reason_while_the_version_is_absent),
        cmocka_unit_test(loads_again_after_pauses_that_double_while_nobody_answers),
        cmocka_unit_test(knows_which_errors_leave_everything_as_it_was),
        cmocka_unit_test(undoes_by_serving_what_was_served_before),
        cmocka_unit_test(remembers_what_was_served_in_every_order_of_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
