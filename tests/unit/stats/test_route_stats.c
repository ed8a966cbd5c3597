/* What a router adds to the stats: sums over loops, and the parts of server processes. */
#include "server/stats/route_stats.h"

#include "tests/lib/faults.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LOOPS 2

static int disarm_faults(void **state)
{
    (void)state;
    eb_faults_disarm();
    return 0;
}

static void gives_parts_from_64_on_one_row(void **state)
{
    (void)state;
    assert_int_equal(eb_route_row(0), 0);
    assert_int_equal(eb_route_row(63), 63);
    assert_int_equal(eb_route_row(64), 64);
    assert_int_equal(eb_route_row(4095), 64);
    assert_int_equal(eb_route_stats_row_count(0), 0);
    assert_int_equal(eb_route_stats_row_count(64), 64);
    assert_int_equal(eb_route_stats_row_count(65), 65);
    assert_int_equal(eb_route_stats_row_count(4096), 65);
}

static void knows_the_parts_of_processes(void **state)
{
    (void)state;
    struct eb_route_facts *facts = eb_route_facts_make(0);
    assert_non_null(facts);
    assert_int_equal(eb_route_facts_part(facts, 5), EB_ROUTE_NO_PART);
    facts->instance_count = 3;
    facts->instances[0] = (struct eb_route_instance){5, 7};
    facts->instances[1] = (struct eb_route_instance){9, 0};
    facts->instances[2] = (struct eb_route_instance){UINT64_MAX, 4095};
    assert_int_equal(eb_route_facts_part(facts, 5), 7);
    assert_int_equal(eb_route_facts_part(facts, 9), 0);
    assert_int_equal(eb_route_facts_part(facts, UINT64_MAX), 4095);
    assert_int_equal(eb_route_facts_part(facts, 0), EB_ROUTE_NO_PART);
    assert_int_equal(eb_route_facts_part(facts, 6), EB_ROUTE_NO_PART);
    eb_route_facts_drop(facts);
}

static void frees_facts_with_the_last_hold(void **state)
{
    (void)state;
    struct eb_route_facts *facts = eb_route_facts_make(1);
    assert_non_null(facts);
    facts->models[facts->model_count++].name = strdup("m");
    facts->holds++;
    eb_route_facts_drop(facts);
    assert_string_equal(facts->models[0].name, "m");
    eb_route_facts_drop(facts);
    eb_route_facts_drop(NULL);
}

/* Makes the counts of two loops, which see servers "a" and "b" in another order. */
static void make_loops(struct eb_route_counts *loops[LOOPS])
{
    for (int i = 0; i < LOOPS; i++) {
        loops[i] = eb_route_counts_make(2);
        assert_non_null(loops[i]);
        loops[i]->peer_count = 2;
        strcpy(loops[i]->peers[i].address, "a");
        strcpy(loops[i]->peers[1 - i].address, "b");
        loops[i]->peers[i].instance = 1;
        loops[i]->peers[1 - i].instance = (uint64_t)(2 + i); /* It was restarted in between. */
        loops[i]->peers[i].sent = 10;
        loops[i]->peers[i].failed = (uint64_t)i;
        loops[i]->peers[i].latency_ns = (uint64_t)(100 + i);
        loops[i]->rows[3].outcomes[EB_LEG_UNREACHED] = 2;
        loops[i]->rows[3].resends[EB_LEG_RESEND_SILENT] = 3;
        loops[i]->rows[64].hedges_won = 4;
        loops[i]->rows[64].hedges_lost = 5;
        loops[i]->rows[64].sent_bytes = 6;
        loops[i]->totals =
            (struct eb_leg_totals){.received_bytes = 7, .slab_waits = 9, .unreached = 8};
        eb_histogram_add(&loops[i]->rows[3].answers, 5000);
    }
    loops[0]->peers[0].is_connected = true;
    loops[1]->peers[1].is_suspect = true;
    loops[1]->peers[1].is_ejected = true;
}

static void adds_up_the_counts_of_all_loops(void **state)
{
    (void)state;
    struct eb_route_counts *loops[LOOPS];
    make_loops(loops);
    struct eb_route_counts *sum =
        eb_route_counts_merge((const struct eb_route_counts *const *)loops, LOOPS);
    assert_non_null(sum);
    assert_int_equal(sum->rows[3].outcomes[EB_LEG_UNREACHED], 4);
    assert_int_equal(sum->rows[3].outcomes[EB_LEG_OK], 0);
    assert_int_equal(sum->rows[3].resends[EB_LEG_RESEND_SILENT], 6);
    assert_int_equal(eb_histogram_count(&sum->rows[3].answers), 2);
    assert_int_equal(sum->rows[64].hedges_won, 8);
    assert_int_equal(sum->rows[64].hedges_lost, 10);
    assert_int_equal(sum->rows[64].sent_bytes, 12);
    assert_int_equal(sum->totals.received_bytes, 14);
    assert_int_equal(sum->totals.unreached, 16);
    assert_int_equal(sum->totals.slab_waits, 18);
    assert_int_equal(sum->peer_count, 3);
    const struct eb_leg_peer *first = &sum->peers[0];
    assert_string_equal(first->address, "a");
    assert_true(first->is_connected && first->is_suspect && first->is_ejected);
    assert_int_equal(first->sent, 20);
    assert_int_equal(first->failed, 1);
    assert_int_equal(first->latency_ns, 101);
    assert_string_equal(sum->peers[1].address, "b");
    assert_int_equal(sum->peers[1].instance, 2);
    assert_int_equal(sum->peers[2].instance, 3);
    free(sum);
    for (int i = 0; i < LOOPS; i++) {
        free(loops[i]);
    }
}

static void says_when_memory_is_short(void **state)
{
    (void)state;
    const struct eb_route_counts *loops[1] = {NULL};
    for (unsigned step = 1; step <= 2; step++) {
        eb_faults_fail_allocation(step);
        assert_null(eb_route_facts_make(3));
    }
    eb_faults_fail_allocation(1);
    assert_null(eb_route_counts_merge(loops, 0));
}

EB_TEST_GROUP(route_stats)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_parts_from_64_on_one_row),
        cmocka_unit_test(knows_the_parts_of_processes),
        cmocka_unit_test(frees_facts_with_the_last_hold),
        cmocka_unit_test(adds_up_the_counts_of_all_loops),
        cmocka_unit_test_teardown(says_when_memory_is_short, disarm_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
