#include "client/embag_servers.h"

#include "tests/lib/test_group.h"
#include "tests/unit/client/client_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SERVERS 3
#define UNUSED_ADDRESS "127.0.0.1:1" /* nobody listens there */

/* Several servers with one client. */
struct group {
    struct fake_server servers[SERVERS];
    bool is_stopped[SERVERS];
    char addresses[SERVERS * sizeof(((struct fake_server *)0)->address)];
    struct embag_client *client;
    struct embag_error error;
};

/* Starts the servers, and writes their addresses, divided by commas. */
static struct group *start_group_with(enum fake_server_mode others, enum fake_server_mode last)
{
    struct group *group = calloc(1, sizeof *group);
    assert_non_null(group);
    for (int i = 0; i < SERVERS; i++) {
        enum fake_server_mode mode = i == SERVERS - 1 ? last : others;
        assert_true(fake_server_start(&group->servers[i], mode, NULL));
        (void)strcat(group->addresses, i > 0 ? "," : "");
        (void)strcat(group->addresses, group->servers[i].address);
    }
    return group;
}

static struct group *start_group(void)
{
    return start_group_with(FAKE_SERVER_SPEAKS_GRPC, FAKE_SERVER_SPEAKS_GRPC);
}

static void open_group(struct group *group, struct embag_options options)
{
    options.mode = client_mode;
    options.timeout_us = CLIENT_FIXTURE_LONG_US;
    assert_int_equal(
        embag_open(group->addresses, &options, &group->client, &group->error), EMBAG_OK);
    assert_int_equal(embag_wait_ready(group->client, 0, 0, &group->error), EMBAG_OK);
}

static void stop_one(struct group *group, int which)
{
    assert_true(fake_server_stop(&group->servers[which]));
    group->is_stopped[which] = true;
}

static void close_group(struct group *group)
{
    embag_close(group->client);
    for (int i = 0; i < SERVERS; i++) {
        if (!group->is_stopped[i]) {
            stop_one(group, i);
        }
    }
    free(group);
}

/* Looks one index up. The request may name a model, and a version or a label. */
static enum embag_status look_up_in(struct group *group, struct embag_request request)
{
    int64_t index = 5;
    struct embag_query query = {.table = "t", .indices = {&index, 1, 8}, .num_bags = 1};
    request.queries = &query;
    request.query_count = 1;
    struct embag_answer *answer = NULL;
    enum embag_status status = embag_lookup(group->client, &request, &answer, &group->error);
    embag_answer_free(answer);
    return status;
}

static enum embag_status look_up_one(struct group *group, const char *model)
{
    return look_up_in(group, (struct embag_request){.model = model});
}

static unsigned count_calls(struct group *group)
{
    unsigned count = 0;
    for (int i = 0; i < SERVERS; i++) {
        count += atomic_load(&group->servers[i].call_count);
    }
    return count;
}

/* Makes lookups until each server has got at least `calls`. On a busy machine that takes a while: a
 * server that was slow once is avoided for some time. */
static void look_up_until_all_have(struct group *group, unsigned calls)
{
    for (int i = 0; i < SERVERS; i++) {
        while (atomic_load(&group->servers[i].call_count) < calls) {
            assert_int_equal(look_up_one(group, "echo"), EMBAG_OK);
        }
    }
}

static void spreads_lookups_over_all_servers(void **state)
{
    (void)state;
    struct group *group = start_group();
    open_group(group, (struct embag_options){0});
    look_up_until_all_have(group, 50);
    for (int i = 0; i < SERVERS; i++) {
        assert_int_equal(atomic_load(&group->servers[i].conn_count), 1);
    }
    close_group(group);
}

static void loses_no_lookup_when_a_server_goes(void **state)
{
    (void)state;
    struct group *group = start_group();
    open_group(group, (struct embag_options){0});
    for (int i = 0; i < 200; i++) {
        if (i == 50) {
            stop_one(group, 1);
        }
        assert_int_equal(look_up_one(group, "echo"), EMBAG_OK);
    }
    close_group(group);
}

static void sends_a_lookup_to_another_server_when_its_connection_is_lost(void **state)
{
    (void)state;
    struct group *group = start_group();
    /* Each server hangs up instead of an answer, so the lookup fails on one after the other. */
    open_group(group, (struct embag_options){.retries_max = 2});
    assert_int_equal(look_up_one(group, "hang-up"), EMBAG_UNAVAILABLE);
    for (int i = 0; i < SERVERS; i++) {
        assert_int_equal(atomic_load(&group->servers[i].call_count), 1);
    }
    close_group(group);
}

static void sends_nothing_twice_if_told_not_to(void **state)
{
    (void)state;
    struct group *group = start_group();
    open_group(group, (struct embag_options){.retries_max = -1});
    assert_int_equal(look_up_one(group, "hang-up"), EMBAG_UNAVAILABLE);
    assert_int_equal(count_calls(group), 1);
    close_group(group);
}

static void moves_a_refused_lookup_before_the_pause_that_the_server_asks_for(void **state)
{
    (void)state;
    struct group *group = start_group();
    open_group(group, (struct embag_options){0});
    /* Each server refuses first and answers afterwards. */
    assert_int_equal(look_up_one(group, "busy"), EMBAG_RESOURCE_EXHAUSTED);
    assert_int_equal(count_calls(group), 3);
    assert_int_equal(look_up_one(group, "busy"), EMBAG_OK);
    assert_int_equal(count_calls(group), 4);
    close_group(group);
}

static void gives_up_soon_when_all_servers_refuse(void **state)
{
    (void)state;
    enum { LOOKUPS = 500 };
    struct group *group = start_group();
    open_group(group, (struct embag_options){0});
    for (int i = 0; i < LOOKUPS; i++) {
        assert_int_equal(look_up_one(group, "always-busy"), EMBAG_RESOURCE_EXHAUSTED);
    }
    assert_true(count_calls(group) <= LOOKUPS * 12 / 10);
    close_group(group);
}

static void finds_the_server_that_has_the_version(void **state)
{
    (void)state;
    struct group *group = start_group();
    atomic_store(&group->servers[0].lacks_version, true);
    atomic_store(&group->servers[1].lacks_version, true);
    open_group(group, (struct embag_options){0});
    for (int i = 0; i < 5; i++) {
        struct embag_request request = {.model = "echo",
            .version = i % 2 == 0 ? 7 : 0,
            .version_label = i % 2 == 0 ? NULL : "stable"};
        assert_int_equal(look_up_in(group, request), EMBAG_OK);
    }
    close_group(group);
}

static void asks_each_server_once_for_a_version_that_none_has(void **state)
{
    (void)state;
    struct group *group = start_group();
    for (int i = 0; i < SERVERS; i++) {
        atomic_store(&group->servers[i].lacks_version, true);
    }
    open_group(group, (struct embag_options){0});
    struct embag_request request = {.model = "echo", .version = 7};
    assert_int_equal(look_up_in(group, request), EMBAG_NOT_FOUND);
    assert_string_equal(group->error.text, "no such version");
    assert_int_equal(count_calls(group), SERVERS);
    /* Without a version, NOT_FOUND means that there is no such model, and no other server is asked.
     */
    assert_int_equal(look_up_one(group, "refuse"), EMBAG_NOT_FOUND);
    assert_int_equal(count_calls(group), SERVERS + 1);
    close_group(group);
}

static void opens_if_one_server_answers(void **state)
{
    (void)state;
    struct group *group = start_group();
    char addresses[sizeof group->addresses + sizeof UNUSED_ADDRESS + 1];
    (void)snprintf(addresses, sizeof addresses, "%s,%s", UNUSED_ADDRESS, group->servers[0].address);
    struct embag_options options = {.mode = client_mode};
    assert_int_equal(embag_open(addresses, &options, &group->client, &group->error), EMBAG_OK);
    assert_int_equal(look_up_one(group, "echo"), EMBAG_OK);
    assert_int_equal(embag_wait_ready(group->client, 1, 0, NULL), EMBAG_OK);
    assert_int_equal(
        embag_wait_ready(group->client, 2, 50000, &group->error), EMBAG_DEADLINE_EXCEEDED);
    assert_string_equal(group->error.text, "connected to 1 of 2 known servers; 2 are wanted");
    close_group(group);
}

static void says_why_if_no_server_answers(void **state)
{
    (void)state;
    struct embag_client *client;
    struct embag_error error;
    assert_int_equal(
        embag_open("127.0.0.1:1,127.0.0.1:2", NULL, &client, &error), EMBAG_UNAVAILABLE);
    assert_non_null(strstr(error.text, "cannot connect to 127.0.0.1 port"));
    assert_null(client);
    assert_int_equal(embag_open("127.0.0.1:1,:", NULL, &client, &error), EMBAG_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "invalid address \":\""));
}

static void finds_a_server_by_name(void **state)
{
    (void)state;
    struct group *group = start_group();
    const char *port = strrchr(group->servers[0].address, ':') + 1;
    const char *const forms[] = {"localhost:%s", "dns:localhost:%s", "dns:///localhost:%s"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char address[64];
        (void)snprintf(address, sizeof address, forms[i], port);
        embag_close(group->client);
        assert_int_equal(embag_open(address, NULL, &group->client, &group->error), EMBAG_OK);
        assert_int_equal(look_up_one(group, "echo"), EMBAG_OK);
    }
    close_group(group);
}

/* Stops a server from answering, and sends lookups there. */
static void look_up_beside_a_stalled_server(struct group *group)
{
    unsigned before = atomic_load(&group->servers[2].call_count);
    atomic_store(&group->servers[2].is_stalled, true);
    while (atomic_load(&group->servers[2].call_count) == before) {
        assert_int_equal(look_up_one(group, "echo"), EMBAG_OK);
    }
}

static void hedges_a_lookup_whose_server_has_stalled(void **state)
{
    (void)state;
    struct group *group = start_group();
    struct embag_stats stats;
    open_group(group, (struct embag_options){.hedge_percent = 5});
    look_up_until_all_have(group, 100);
    /* While all servers are slow because the machine is busy, nothing is hedged. Then the lookup is
     * rescued because its server is silent. What the server gets may also be a hedge. */
    do {
        atomic_store(&group->servers[2].is_stalled, false);
        look_up_until_all_have(group, atomic_load(&group->servers[2].call_count) + 1);
        look_up_beside_a_stalled_server(group);
        assert_int_equal(embag_get_stats(group->client, &stats, NULL, 0), EMBAG_OK);
    } while (stats.hedges_won == 0 && stats.resends == 0);
    client_fixture_await(client_mode == EMBAG_MODE_STREAM ? &group->servers[2].cancel_count
                                                          : &group->servers[2].done_count,
        1);
    close_group(group);
}

static void rescues_lookups_from_a_server_that_never_answers(void **state)
{
    (void)state;
    struct group *group = start_group_with(FAKE_SERVER_SPEAKS_GRPC, FAKE_SERVER_IS_MUTE);
    struct embag_server_stats servers[SERVERS] = {0};
    struct embag_stats stats;
    open_group(group, (struct embag_options){0});
    while (!servers[2].is_left_out) {
        assert_int_equal(look_up_one(group, "echo"), EMBAG_OK);
        assert_int_equal(embag_get_stats(group->client, &stats, servers, SERVERS), EMBAG_OK);
    }
    assert_true(stats.resends >= 1);
    close_group(group);
}

static void counts_no_rescued_lookup_as_hedged(void **state)
{
    (void)state;
    struct group *group = start_group();
    struct embag_stats stats;
    /* So few lookups say nothing about latencies, so that none is hedged. */
    open_group(group, (struct embag_options){.hedge_percent = 5});
    look_up_beside_a_stalled_server(group);
    assert_int_equal(embag_get_stats(group->client, &stats, NULL, 0), EMBAG_OK);
    assert_true(stats.resends + stats.hedges >= 1);
    assert_true(stats.hedges_won <= stats.hedges);
    close_group(group);
}

static void rescues_lookups_from_a_server_that_is_silent(void **state)
{
    (void)state;
    struct group *group = start_group();
    struct embag_server_stats servers[SERVERS];
    struct embag_stats stats;
    open_group(group, (struct embag_options){0});
    look_up_until_all_have(group, 1);
    look_up_beside_a_stalled_server(group);
    assert_int_equal(embag_get_stats(group->client, &stats, servers, SERVERS), EMBAG_OK);
    assert_int_equal(stats.hedges, 0);
    assert_true(stats.resends >= 1);
    assert_true(servers[2].is_left_out);
    /* It answers again, and is used again. */
    unsigned before = atomic_load(&group->servers[2].call_count);
    atomic_store(&group->servers[2].is_stalled, false);
    look_up_until_all_have(group, before + 3);
    assert_int_equal(embag_get_stats(group->client, &stats, servers, SERVERS), EMBAG_OK);
    assert_false(servers[2].is_left_out);
    close_group(group);
}

static void submit_one(struct group *group, const char *model)
{
    int64_t index = 5;
    struct embag_query query = {.table = "t", .indices = {&index, 1, 8}, .num_bags = 1};
    struct embag_request request = {.model = model, .queries = &query, .query_count = 1};
    assert_int_equal(embag_submit(group->client, &request, NULL, NULL, NULL), EMBAG_OK);
}

/* Submits so many lookups that the other servers have no room when one is found silent. Returns the
 * longest time without an answer. */
static uint64_t look_up_many_beside_a_stalled_server(struct group *group, int lookups)
{
    uint64_t longest_ns = 0;
    atomic_store(&group->servers[2].is_stalled, true);
    for (int i = 0; i < lookups; i++) {
        submit_one(group, "echo");
    }
    uint64_t last_ns = uv_hrtime();
    for (int i = 0; i < lookups; i++) {
        struct embag_completion completion;
        assert_true(embag_next(group->client, CLIENT_FIXTURE_PATIENCE_US, &completion));
        assert_int_equal(completion.error.status, EMBAG_OK);
        embag_answer_free(completion.answer);
        uint64_t now_ns = uv_hrtime();
        longest_ns = now_ns - last_ns > longest_ns ? now_ns - last_ns : longest_ns;
        last_ns = now_ns;
    }
    return longest_ns;
}

/* If the lookups at the silent server had to wait for its next probe, nothing would be answered for
 * most of a second. A busy machine may pause for as long, but not each time. */
static void rescues_lookups_once_the_other_servers_have_room(void **state)
{
    (void)state;
    enum { LOOKUPS = 8000, TURNS_MAX = 20, PAUSE_NS = 400000000 };
    bool is_prompt = false;
    for (int i = 0; i < TURNS_MAX && !is_prompt; i++) {
        struct group *group = start_group_with(FAKE_SERVER_IS_FAR, FAKE_SERVER_SPEAKS_GRPC);
        open_group(group, (struct embag_options){.in_flight_max = LOOKUPS});
        is_prompt = look_up_many_beside_a_stalled_server(group, LOOKUPS) < PAUSE_NS;
        close_group(group);
    }
    assert_true(is_prompt);
}

/* Returns the number of servers that are connected. */
static int count_connected(struct group *group)
{
    struct embag_server_stats servers[SERVERS];
    struct embag_stats stats;
    int count = 0;
    assert_int_equal(embag_get_stats(group->client, &stats, servers, SERVERS), EMBAG_OK);
    for (uint32_t i = 0; i < stats.servers; i++) {
        count += servers[i].is_connected;
    }
    return count;
}

static void uses_a_process_with_several_addresses_once(void **state)
{
    (void)state;
    struct group *group = start_group();
    for (int i = 0; i < SERVERS; i++) {
        group->servers[i].instance = i < 2 ? 77 : 78;
    }
    open_group(group, (struct embag_options){0});
    while (count_connected(group) != 2) {
        assert_int_equal(look_up_one(group, "echo"), EMBAG_OK);
    }
    /* The address that is not used replaces the one that is lost. */
    struct embag_server_stats servers[SERVERS];
    struct embag_stats stats;
    assert_int_equal(embag_get_stats(group->client, &stats, servers, SERVERS), EMBAG_OK);
    stop_one(group, servers[0].is_connected ? 0 : 1);
    stop_one(group, 2);
    assert_int_equal(embag_wait_ready(group->client, 1, 0, NULL), EMBAG_OK);
    assert_int_equal(look_up_one(group, "echo"), EMBAG_OK);
    close_group(group);
}

static void asks_the_first_server_for_its_models(void **state)
{
    (void)state;
    struct group *group = start_group();
    open_group(group, (struct embag_options){0});
    for (int i = 0; i < 20; i++) {
        struct embag_model_list *list = NULL;
        assert_int_equal(embag_list_models(group->client, &list, &group->error), EMBAG_OK);
        embag_model_list_free(list);
    }
    assert_int_equal(atomic_load(&group->servers[0].call_count), 20);
    assert_int_equal(atomic_load(&group->servers[1].call_count), 0);
    assert_int_equal(atomic_load(&group->servers[2].call_count), 0);
    /* Then it goes to the next one. */
    stop_one(group, 0);
    struct embag_model_list *list = NULL;
    assert_int_equal(embag_list_models(group->client, &list, &group->error), EMBAG_OK);
    embag_model_list_free(list);
    assert_int_equal(atomic_load(&group->servers[1].call_count), 1);
    assert_int_equal(atomic_load(&group->servers[2].call_count), 0);
    close_group(group);
}

static void tells_what_each_server_got(void **state)
{
    (void)state;
    struct group *group = start_group();
    struct embag_server_stats servers[SERVERS + 1] = {0};
    struct embag_stats stats;
    open_group(group, (struct embag_options){0});
    for (int i = 0; i < 30; i++) {
        assert_int_equal(look_up_one(group, "echo"), EMBAG_OK);
    }
    assert_int_equal(embag_get_stats(group->client, &stats, servers, SERVERS + 1), EMBAG_OK);
    assert_int_equal(stats.lookups, 30);
    assert_int_equal(stats.servers, SERVERS);
    uint64_t sent = 0;
    for (int i = 0; i < SERVERS; i++) {
        assert_string_equal(servers[i].address, group->servers[i].address);
        assert_true(servers[i].is_connected);
        /* The client may just ask the server for its instance. */
        assert_true(servers[i].in_flight <= 1);
        /* On a busy machine a server may seem silent. Then another one gets its lookup. */
        assert_true(
            stats.resends > 0 || servers[i].sent == atomic_load(&group->servers[i].call_count));
        sent += servers[i].sent;
    }
    assert_int_equal(sent, stats.lookups + stats.resends);
    assert_string_equal(servers[SERVERS].address, "");
    close_group(group);
}

EB_TEST_GROUP(servers)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spreads_lookups_over_all_servers),
        cmocka_unit_test(loses_no_lookup_when_a_server_goes),
        cmocka_unit_test(sends_a_lookup_to_another_server_when_its_connection_is_lost),
        cmocka_unit_test(sends_nothing_twice_if_told_not_to),
        cmocka_unit_test(moves_a_refused_lookup_before_the_pause_that_the_server_asks_for),
        cmocka_unit_test(gives_up_soon_when_all_servers_refuse),
        cmocka_unit_test(finds_the_server_that_has_the_version),
        cmocka_unit_test(asks_each_server_once_for_a_version_that_none_has),
        cmocka_unit_test(opens_if_one_server_answers),
        cmocka_unit_test(says_why_if_no_server_answers),
        cmocka_unit_test(finds_a_server_by_name),
        cmocka_unit_test(hedges_a_lookup_whose_server_has_stalled),
        cmocka_unit_test(rescues_lookups_from_a_server_that_never_answers),
        cmocka_unit_test(counts_no_rescued_lookup_as_hedged),
        cmocka_unit_test(rescues_lookups_from_a_server_that_is_silent),
        cmocka_unit_test(rescues_lookups_once_the_other_servers_have_room),
        cmocka_unit_test(uses_a_process_with_several_addresses_once),
        cmocka_unit_test(asks_the_first_server_for_its_models),
        cmocka_unit_test(tells_what_each_server_got),
    };
    client_mode = EMBAG_MODE_STREAM;
    int failures = cmocka_run_group_tests_name("over streams", tests, NULL, NULL);
    client_mode = EMBAG_MODE_UNARY;
    return failures + cmocka_run_group_tests_name("unary", tests, NULL, NULL);
}
