#include "client/cli/load_servers.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two snapshots of a client, and what is added up from them. */
struct counted {
    struct eb_load_snapshot before;
    struct eb_load_snapshot after;
    struct eb_load_servers servers;
};

static int make_counted(void **state)
{
    *state = calloc(1, sizeof(struct counted));
    return *state ? 0 : -1;
}

static int free_counted(void **state)
{
    free(*state);
    return 0;
}

/* Appends a server to a snapshot. */
static struct embag_server_stats *know(
    struct eb_load_snapshot *snapshot, const char *address, uint64_t sent)
{
    struct embag_server_stats *server = &snapshot->servers[snapshot->stats.servers++];
    *server = (struct embag_server_stats){.sent = sent, .is_connected = true};
    (void)snprintf(server->address, sizeof server->address, "%s", address);
    return server;
}

static void add(struct counted *counted)
{
    eb_load_servers_add(&counted->servers, &counted->before, &counted->after);
}

static void counts_from_the_first_snapshot_to_the_second(void **state)
{
    struct counted *counted = *state;
    know(&counted->before, "a", 100)->failed = 4;
    know(&counted->before, "b", 50)->left_out = 1;
    counted->before.stats.resends = 3;
    counted->before.stats.hedges = 5;
    counted->before.stats.hedges_won = 2;
    /* The order may differ. */
    struct embag_server_stats *b = know(&counted->after, "b", 150);
    b->left_out = 3;
    b->is_connected = false;
    know(&counted->after, "a", 400)->failed = 11;
    counted->after.stats.resends = 10;
    counted->after.stats.hedges = 6;
    counted->after.stats.hedges_won = 2;
    add(counted);
    const struct eb_load_servers *servers = &counted->servers;
    assert_int_equal(servers->count, 2);
    assert_string_equal(servers->items[0].address, "b");
    assert_int_equal(servers->items[0].sent, 100);
    assert_int_equal(servers->items[0].failed, 0);
    assert_int_equal(servers->items[0].left_out, 2);
    assert_false(servers->items[0].is_connected);
    assert_string_equal(servers->items[1].address, "a");
    assert_int_equal(servers->items[1].sent, 300);
    assert_int_equal(servers->items[1].failed, 7);
    assert_true(servers->items[1].is_connected);
    assert_int_equal(servers->resends, 7);
    assert_int_equal(servers->hedges, 1);
    assert_int_equal(servers->hedges_won, 0);
    assert_true(eb_load_servers_share(servers, &servers->items[0]) == 25);
    assert_true(eb_load_servers_share(servers, &servers->items[1]) == 75);
}

static void adds_up_what_several_clients_have_counted(void **state)
{
    struct counted *counted = *state;
    know(&counted->after, "a", 1);
    know(&counted->after, "b", 2);
    counted->after.stats.resends = 1;
    add(counted);
    memset(&counted->after, 0, sizeof counted->after);
    know(&counted->after, "b", 20)->is_connected = false;
    know(&counted->after, "c", 30);
    counted->after.stats.resends = 2;
    add(counted);
    const struct eb_load_servers *servers = &counted->servers;
    assert_int_equal(servers->count, 3);
    assert_int_equal(servers->items[0].sent, 1);
    assert_int_equal(servers->items[1].sent, 22);
    assert_int_equal(servers->items[2].sent, 30);
    assert_int_equal(servers->resends, 3);
    /* Connected means that every client is. */
    assert_true(servers->items[0].is_connected);
    assert_false(servers->items[1].is_connected);
    assert_true(servers->items[2].is_connected);
}

/* A client may learn of a server within the measured time, forget it, or find it again with counts
 * that begin from 0. */
static void counts_servers_that_come_and_go(void **state)
{
    struct counted *counted = *state;
    know(&counted->before, "gone", 70);
    know(&counted->before, "back", 70);
    know(&counted->after, "back", 6);
    know(&counted->after, "new", 4);
    add(counted);
    const struct eb_load_servers *servers = &counted->servers;
    assert_int_equal(servers->count, 2);
    assert_int_equal(servers->items[0].sent, 6);
    assert_int_equal(servers->items[1].sent, 4);
}

static void has_no_shares_where_nothing_was_sent(void **state)
{
    struct counted *counted = *state;
    know(&counted->before, "a", 9);
    know(&counted->after, "a", 9);
    add(counted);
    assert_true(eb_load_servers_share(&counted->servers, &counted->servers.items[0]) == 0);
}

/* Adds clients that know each a server of its own, until there is no room, and then one more. */
static void leaves_out_servers_that_do_not_fit_in(void **state)
{
    struct counted *counted = *state;
    for (unsigned i = 0; i < EB_LOAD_SERVERS_MAX; i++) {
        char address[16];
        (void)snprintf(address, sizeof address, "%u", i);
        know(&counted->after, address, 1);
    }
    /* The client knows more servers than it had room to describe. */
    counted->after.stats.servers++;
    add(counted);
    assert_int_equal(counted->servers.count, EB_LOAD_SERVERS_MAX);
    memset(&counted->after, 0, sizeof counted->after);
    know(&counted->after, "one more", 1);
    know(&counted->after, "7", 1);
    add(counted);
    assert_int_equal(counted->servers.count, EB_LOAD_SERVERS_MAX);
    assert_int_equal(counted->servers.items[7].sent, 2);
}

EB_TEST_GROUP(load_servers)
{
#define COUNTED(test) cmocka_unit_test_setup_teardown(test, make_counted, free_counted)
    const struct CMUnitTest tests[] = {
        COUNTED(counts_from_the_first_snapshot_to_the_second),
        COUNTED(adds_up_what_several_clients_have_counted),
        COUNTED(counts_servers_that_come_and_go),
        COUNTED(has_no_shares_where_nothing_was_sent),
        COUNTED(leaves_out_servers_that_do_not_fit_in),
    };
    return cmocka_run_group_tests_name("load_servers", tests, NULL, NULL);
}
