/* Which version a router serves, waits for and claims: each rule. */
#include "tests/lib/test_group.h"
#include "tests/unit/route/flip_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Time after which no version waits if all have failed. */
#define RETRY_NS (600 * SECOND)

static void begins_with_the_highest_complete_version(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.input.has_all_answers = false;
    flip_world_complete(&world, 1, true);
    flip_world_complete(&world, 2, true);
    assert_int_equal(world.flip.served, 0);
    world.input.has_all_answers = true;
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.next, 3);
}

static void begins_with_what_other_routers_serve(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.input.has_all_answers = false;
    flip_world_complete(&world, 1, true);
    world.versions[1].is_complete = true;
    world.versions[2].is_complete = true; /* with too few replicas, as 2 has */
    struct flip_world other = world;
    world.versions[1].is_served = true;
    world.input.has_all_answers = true;
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 2);
    /* Nothing is served elsewhere: the highest, although it has too few replicas. */
    other.input.has_all_answers = true;
    flip_world_step(&other);
    assert_int_equal(other.flip.served, 3);
    /* A higher version with enough replicas goes before one that is served elsewhere. */
    other.flip = (struct eb_flip){0};
    other.versions[0].is_served = true;
    other.versions[2].has_replicas = true;
    flip_world_step(&other);
    assert_int_equal(other.flip.served, 3);
    /* A complete version goes before one that is served elsewhere but incomplete. */
    flip_world_init(&world, 3);
    world.versions[2].is_served = true;
    flip_world_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 1);
    /* An incomplete one, if none is complete. */
    flip_world_init(&world, 3);
    world.versions[1].is_served = true;
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 2);
}

static void waits_for_answers_at_most_until_it_is_settled(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    world.input.has_all_answers = false;
    world.input.settle_until_ns = world.input.now_ns + 3 * SECOND;
    flip_world_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 0);
    assert_int_equal(world.flip.next, 2);
    assert_int_equal(world.flip.due_ns, world.input.settle_until_ns);
    flip_world_pass(&world, 3 * SECOND - 1);
    assert_int_equal(world.flip.served, 0);
    flip_world_pass(&world, 1);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.flips, 0);
    /* Addresses that are resolved later are not waited for. */
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 2);
}

static void begins_with_the_first_complete_version(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 0);
    assert_int_equal(world.flip.next, 3);
    assert_int_equal(world.flip.claim_count, 1);
    assert_false(world.flip.claims[0].is_served);
    flip_world_complete(&world, 2, true);
    assert_int_equal(world.flip.served, 2);
}

static void begins_with_what_a_command_serves(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.input.serve = 2;
    flip_world_complete(&world, 3, true);
    flip_world_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 0);
    assert_int_equal(world.flip.next, 2);
    flip_world_complete(&world, 2, true);
    assert_int_equal(world.flip.served, 2);
}

static void does_not_wait_after_beginning_with_an_incomplete_version(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    world.versions[1].is_served = true;
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 2);
    flip_world_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 1);
    flip_world_complete(&world, 2, true);
    assert_int_equal(world.flip.served, 2);
}

static void flips_after_two_seconds(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    flip_world_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 1);
    flip_world_complete(&world, 2, true);
    assert_int_equal(world.flip.due_ns, world.input.now_ns + 2 * SECOND);
    flip_world_pass(&world, 2 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    /* It must be complete all the time. */
    flip_world_complete(&world, 2, false);
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, 2 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    flip_world_pass(&world, 1);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.next, 0);
    assert_int_equal(world.flip.flips, 1);
}

static void flips_at_once_to_what_another_router_serves(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    flip_world_complete(&world, 1, true);
    world.versions[1].is_served = true;
    world.versions[1].is_complete = true; /* also with too few replicas */
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 2);
}

static void waits_for_enough_replicas(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    flip_world_complete(&world, 1, true);
    world.versions[1].is_complete = true;
    flip_world_pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 1);
    world.versions[1].has_replicas = true;
    flip_world_step(&world);
    flip_world_pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 2);
}

static void waits_for_the_next_version_to_its_end(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    flip_world_complete(&world, 1, true);
    assert_int_equal(world.flip.next, 2);
    world.input.count = 4; /* Versions come faster than they are loaded. */
    flip_world_step(&world);
    assert_int_equal(world.flip.next, 2);
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.next, 4);
}

static void skips_a_next_version_that_fails_or_takes_too_long(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    flip_world_complete(&world, 1, true);
    world.input.count = 3;
    world.versions[1].is_failed = true;
    flip_world_step(&world);
    assert_int_equal(world.flip.next, 3);
    world.input.count = 4;
    flip_world_step(&world);
    flip_world_pass(&world, NEXT_WAIT_NS - 1);
    assert_int_equal(world.flip.next, 3);
    flip_world_pass(&world, 1);
    assert_int_equal(world.flip.next, 4);
}

static void does_not_give_way_to_a_version_that_has_failed(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    flip_world_complete(&world, 1, true);
    world.input.count = 3;
    world.versions[2].is_failed = true;
    for (int i = 0; i < 3; i++) {
        flip_world_pass(&world, NEXT_WAIT_NS);
        assert_int_equal(world.flip.next, 2);
        assert_int_equal(world.flip.claim_count, 2);
    }
    /* If all have failed, nothing is waited for. */
    world.versions[1].is_failed = true;
    flip_world_step(&world);
    assert_int_equal(world.flip.next, 0);
    world.versions[1].is_failed = false;
    flip_world_step(&world);
    assert_int_equal(world.flip.next, 2);
}

static void does_not_wait_again_for_what_took_too_long(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 4);
    world.versions[1].is_claimed = true; /* by other routers too, which have not given up */
    flip_world_complete(&world, 1, true);
    flip_world_pass(&world, NEXT_WAIT_NS);
    assert_int_equal(world.flip.next, 4);
    /* It is waited for again if the higher ones fail. */
    world.versions[2].is_failed = true;
    world.versions[3].is_failed = true;
    flip_world_step(&world);
    assert_int_equal(world.flip.next, 2);
    /* The lowest above it that another router waits for is joined. */
    flip_world_init(&world, 4);
    world.versions[1].is_claimed = true;
    world.versions[2].is_claimed = true;
    flip_world_complete(&world, 1, true);
    flip_world_pass(&world, NEXT_WAIT_NS);
    assert_int_equal(world.flip.next, 3);
}

static void does_not_wait_for_what_it_claims_for_another_reason(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 4);
    world.versions[1].is_claimed = true;
    world.versions[1].is_kept = true;
    world.versions[2].is_claimed = true;
    world.versions[2].is_pinned = true;
    flip_world_complete(&world, 1, true);
    assert_int_equal(world.flip.next, 4);
}

static void knows_versions_by_their_files(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    flip_world_complete(&world, 1, true);
    /* The two seconds begin again with other files. */
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, SECOND);
    world.versions[1].digest++;
    flip_world_pass(&world, 2 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    flip_world_pass(&world, 1);
    assert_int_equal(world.flip.served, 1);
    flip_world_pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 2);
    /* Other files under the served number come once the served ones are no longer complete. */
    uint64_t digest = world.flip.served_digest;
    flip_world_complete(&world, 1, false);
    flip_world_replace(&world, 2);
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, 100 * SECOND);
    assert_true(world.flip.served_digest == digest);
    world.kept.is_complete = false;
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 2);
    assert_true(world.flip.served_digest == digest + 10);
}

static void serves_on_what_is_not_listed(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    flip_world_complete(&world, 1, true);
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, 2 * SECOND);
    world.input.count = 1;
    flip_world_pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.claims[0].number, 2);
    assert_true(world.flip.claims[0].is_served);
    world.input.count = 0;
    flip_world_pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 2);
}

static void tells_of_other_files(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 2);
    flip_world_step(&world);
    assert_false(world.flip.has_conflict);
    world.versions[0].is_conflict = true;
    flip_world_step(&world);
    assert_true(world.flip.has_conflict);
    world.versions[0].is_conflict = false;
    flip_world_step(&world);
    assert_false(world.flip.has_conflict);
}

/* A version that is complete only now and then does not keep lower ones from being served. */
static void flips_to_a_steady_version_below_an_unsteady_one(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    flip_world_complete(&world, 1, true);
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, SECOND);
    flip_world_complete(&world, 3, true);
    flip_world_pass(&world, SECOND);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.due_ns, world.input.now_ns + SECOND);
    flip_world_pass(&world, SECOND);
    assert_int_equal(world.flip.served, 3);
}

static void joins_the_version_that_another_router_waits_for(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 4);
    world.versions[1].is_claimed = true;
    flip_world_complete(&world, 1, true);
    assert_int_equal(world.flip.next, 2);
}

static void backs_out_within_the_lineage(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.versions[0].lineage = "other";
    flip_world_complete(&world, 1, true);
    world.flip = (struct eb_flip){0};
    flip_world_complete(&world, 2, true);
    world.flip = (struct eb_flip){0};
    flip_world_complete(&world, 3, true);
    flip_world_pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 3);
    flip_world_complete(&world, 3, false);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.back_outs, 1);
    /* No complete version of the lineage is left: this one stays. */
    flip_world_complete(&world, 2, false);
    assert_int_equal(world.flip.served, 2);
    world.versions[1].lineage = "";
    world.versions[0].lineage = "";
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 2);
}

static void goes_forward_before_it_goes_back(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    flip_world_complete(&world, 1, true);
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, 2 * SECOND);
    flip_world_complete(&world, 3, true);
    world.input.now_ns += 2 * SECOND;
    flip_world_complete(&world, 2, false);
    assert_int_equal(world.flip.served, 3);
    assert_int_equal(world.flip.back_outs, 0);
}

/* Fills a list: version 1 is served, and all others can be, the lowest of them for two seconds, the
 * others for less. Returns what is served then. */
static uint64_t serve_lowest(size_t count)
{
    struct eb_flip_version many[EB_FLIP_TIMES_MAX + 1] = {0};
    struct eb_flip flip = {0};
    struct eb_flip_input input = {count, many, 0, true, 0, 100 * SECOND, NEXT_WAIT_NS};
    for (size_t i = 0; i < count; i++) {
        many[i].number = i + 1;
        many[i].lineage = "";
    }
    many[0].is_complete = many[0].has_replicas = true;
    eb_flip_step(&flip, &input);
    assert_int_equal(flip.served, 1);
    many[1].is_complete = many[1].has_replicas = true;
    eb_flip_step(&flip, &input);
    for (size_t i = 2; i < count; i++) {
        many[i].is_complete = many[i].has_replicas = true;
    }
    input.now_ns += SECOND;
    eb_flip_step(&flip, &input);
    input.now_ns += SECOND;
    eb_flip_step(&flip, &input);
    return flip.served;
}

static void remembers_a_limited_number_of_versions(void **state)
{
    (void)state;
    assert_int_equal(serve_lowest(EB_FLIP_TIMES_MAX), 2);
    assert_int_equal(serve_lowest(EB_FLIP_TIMES_MAX + 1), 1);
}

/* However many versions are published, one that is complete is not overlooked. */
static void flips_to_a_complete_version_below_many_others(void **state)
{
    struct eb_flip_version many[100] = {0};
    struct eb_flip flip = {0};
    struct eb_flip_input input = {100, many, 0, true, 0, 100 * SECOND, NEXT_WAIT_NS};
    (void)state;
    for (size_t i = 0; i < 100; i++) {
        many[i].number = i + 1;
        many[i].lineage = "";
    }
    many[0].is_complete = true;
    eb_flip_step(&flip, &input);
    assert_int_equal(flip.served, 1);
    assert_int_equal(flip.next, 100);
    many[1].is_complete = many[1].has_replicas = true;
    eb_flip_step(&flip, &input);
    assert_int_equal(flip.due_ns, input.now_ns + 2 * SECOND);
    input.now_ns += 2 * SECOND;
    eb_flip_step(&flip, &input);
    assert_int_equal(flip.served, 2);
}

/* Going back from 3 to 1 and forward to 2 would be going back to another lineage. */
static void does_not_go_back_to_another_lineage_in_two_steps(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.versions[1].lineage = "other";
    for (uint64_t number = 1; number <= 3; number++) {
        flip_world_complete(&world, number, true);
    }
    flip_world_pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 3);
    flip_world_complete(&world, 3, false);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.next, 3);
    flip_world_pass(&world, 1000 * SECOND);
    assert_int_equal(world.flip.served, 1);
    /* A higher version than 3 may have any lineage. */
    world.input.count = 4;
    world.versions[3].lineage = "other";
    flip_world_complete(&world, 4, true);
    flip_world_pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 4);
}

static void backs_out_of_what_a_command_serves(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.input.serve = 2;
    flip_world_complete(&world, 1, true);
    flip_world_complete(&world, 2, true);
    flip_world_complete(&world, 3, true);
    assert_int_equal(world.flip.served, 2);
    flip_world_complete(&world, 2, false);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.next, 2);
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, 30 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    flip_world_pass(&world, 1);
    assert_int_equal(world.flip.served, 2);
}

static void remembers_each_version_that_it_backed_out_of(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    for (uint64_t number = 1; number <= 3; number++) {
        flip_world_complete(&world, number, true);
    }
    flip_world_pass(&world, 2 * SECOND);
    flip_world_complete(&world, 3, false);
    flip_world_complete(&world, 2, false);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.back_outs, 2);
    flip_world_complete(&world, 3, true);
    world.versions[2].is_served = true; /* It waits although another router serves it. */
    flip_world_pass(&world, 30 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    flip_world_pass(&world, 1);
    assert_int_equal(world.flip.served, 3);
    /* After five minutes, the time is the first one again. */
    flip_world_pass(&world, 300 * SECOND);
    flip_world_complete(&world, 1, true);
    flip_world_complete(&world, 3, false);
    assert_int_equal(world.flip.served, 1);
    flip_world_complete(&world, 3, true);
    flip_world_pass(&world, 30 * SECOND);
    assert_int_equal(world.flip.served, 3);
}

static void returns_after_a_longer_time_each_time(void **state)
{
    (void)state;
    struct flip_world world;
    uint64_t wait_s = 30;
    flip_world_init(&world, 2);
    flip_world_complete(&world, 1, true);
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, 2 * SECOND);
    for (int round = 0; round < 8; round++) {
        flip_world_complete(&world, 2, false);
        assert_int_equal(world.flip.served, 1);
        flip_world_complete(&world, 2, true);
        flip_world_pass(&world, wait_s * SECOND - 1);
        assert_int_equal(world.flip.served, 1);
        flip_world_pass(&world, 1);
        assert_int_equal(world.flip.served, 2);
        wait_s = 2 * wait_s < 300 ? 2 * wait_s : 300;
    }
}

static void serves_what_a_command_asks_for(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    flip_world_complete(&world, 1, true);
    flip_world_complete(&world, 3, true);
    flip_world_pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 3);
    world.input.serve = 1;
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 1); /* It has been complete for long enough. */
    assert_int_equal(world.flip.flips, 2);
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.next, 0);
    world.input.serve = 9; /* It is not there. */
    flip_world_pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.next, 0);
    world.input.serve = 0;
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 3);
}

static void claims_what_it_serves_waits_for_and_keeps(void **state)
{
    (void)state;
    struct eb_flip_version many[20];
    struct flip_world world;
    flip_world_init(&world, 3);
    world.versions[0].is_kept = true;
    flip_world_complete(&world, 2, true);
    assert_int_equal(world.flip.claim_count, 3);
    assert_int_equal(world.flip.claims[0].number, 2);
    assert_true(world.flip.claims[0].is_served);
    assert_int_equal(world.flip.claims[0].digest, 11);
    assert_int_equal(world.flip.claims[1].number, 3);
    assert_false(world.flip.claims[1].is_served);
    assert_int_equal(world.flip.claims[2].number, 1);
    /* What has a label goes before what requests have asked for. */
    for (size_t i = 0; i < 20; i++) {
        many[i] = (struct eb_flip_version){
            .number = i + 1, .digest = 10 + i, .lineage = "", .is_pinned = i >= 5};
    }
    many[0].is_kept = true;
    struct eb_flip_input input = world.input;
    input.versions = many;
    input.count = 20;
    eb_flip_step(&world.flip, &input);
    assert_int_equal(world.flip.claim_count, EB_FLIP_CLAIMS_MAX);
    const uint64_t expected[EB_FLIP_CLAIMS_MAX] = {2, 3, 1, 20, 19, 18, 17, 16};
    for (size_t i = 0; i < EB_FLIP_CLAIMS_MAX; i++) {
        assert_int_equal(world.flip.claims[i].number, expected[i]);
    }
    many[19].is_pinned = many[18].is_pinned = many[17].is_pinned = many[16].is_pinned = false;
    input.count = 9; /* with the served, the next and the kept one: exactly 7 */
    eb_flip_step(&world.flip, &input);
    assert_int_equal(world.flip.claim_count, 7);
}

static void lets_pins_keep_the_next_version_waiting_only_for_so_long(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.versions[0].is_pinned = true;
    flip_world_complete(&world, 2, true);
    assert_int_equal(world.flip.claim_count, 3);
    assert_int_equal(world.flip.claims[2].number, 1);
    assert_true(world.flip.due_ns == world.input.now_ns + NEXT_WAIT_NS);
    /* A version that fails, and is tried again, has waited since it was first the next one. */
    world.versions[2].is_failed = true;
    flip_world_pass(&world, NEXT_WAIT_NS - 2);
    assert_int_equal(world.flip.next, 0);
    world.versions[2].is_failed = false;
    flip_world_pass(&world, 1);
    assert_int_equal(world.flip.claim_count, 3);
    flip_world_pass(&world, 1);
    assert_int_equal(world.flip.claim_count, 2);
    assert_int_equal(world.flip.claims[1].number, 3);
    world.versions[2].is_failed = true;
    flip_world_pass(&world, SECOND);
    assert_int_equal(world.flip.claim_count, 1);
    world.versions[2].is_failed = false;
    flip_world_complete(&world, 3, true);
    flip_world_pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 3);
    assert_int_equal(world.flip.claim_count, 2);
    assert_int_equal(world.flip.claims[1].number, 1);
    /* Nothing waits any longer. */
    flip_world_pass(&world, 10 * NEXT_WAIT_NS);
    assert_int_equal(world.flip.claim_count, 2);
    assert_true(world.flip.due_ns == EB_FLIP_NEVER);
}

static void claims_pins_again_when_the_version_that_waits_is_gone(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.versions[0].is_pinned = true;
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, NEXT_WAIT_NS);
    assert_int_equal(world.flip.claim_count, 2);
    world.input.count = 2;
    flip_world_pass(&world, 0);
    assert_int_equal(world.flip.claim_count, 2);
    assert_int_equal(world.flip.claims[1].number, 1);
}

/* Lets version 3 fail for good while version 1 is pinned, then lets pins be void no longer. */
static void fail_for_good(struct flip_world *world, size_t claim_count)
{
    world->versions[2].is_failed = true;
    flip_world_pass(world, 0);
    assert_int_equal(world->flip.claim_count, claim_count);
    assert_true(world->flip.due_ns == world->input.now_ns + RETRY_NS);
    flip_world_pass(world, RETRY_NS - 1);
    assert_int_equal(world->flip.claim_count, claim_count);
    flip_world_pass(world, 1);
    assert_int_equal(world->flip.claim_count, 2);
    assert_int_equal(world->flip.claims[1].number, 1);
    assert_true(world->flip.due_ns == EB_FLIP_NEVER);
}

static void claims_pins_again_when_the_version_that_waits_has_failed_for_good(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.versions[0].is_pinned = true;
    flip_world_complete(&world, 2, true);
    flip_world_pass(&world, NEXT_WAIT_NS);
    assert_int_equal(world.flip.claim_count, 2);
    assert_int_equal(world.flip.claims[1].number, 3);
    fail_for_good(&world, 1);
}

static void does_not_count_the_time_in_which_no_version_waits(void **state)
{
    (void)state;
    struct flip_world world;
    flip_world_init(&world, 3);
    world.versions[0].is_pinned = true;
    flip_world_complete(&world, 2, true);
    assert_int_equal(world.flip.claim_count, 3);
    fail_for_good(&world, 2);
    flip_world_pass(&world, NEXT_WAIT_NS);
    world.input.count = 4;
    flip_world_pass(&world, 0);
    assert_int_equal(world.flip.next, 4);
    assert_int_equal(world.flip.claim_count, 3);
    flip_world_pass(&world, NEXT_WAIT_NS - 1);
    assert_int_equal(world.flip.claim_count, 3);
    flip_world_pass(&world, 1);
    assert_int_equal(world.flip.claim_count, 2);
}

EB_TEST_GROUP(flip)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_with_the_highest_complete_version),
        cmocka_unit_test(begins_with_what_other_routers_serve),
        cmocka_unit_test(waits_for_answers_at_most_until_it_is_settled),
        cmocka_unit_test(begins_with_the_first_complete_version),
        cmocka_unit_test(begins_with_what_a_command_serves),
        cmocka_unit_test(does_not_wait_after_beginning_with_an_incomplete_version),
        cmocka_unit_test(flips_after_two_seconds),
        cmocka_unit_test(flips_at_once_to_what_another_router_serves),
        cmocka_unit_test(waits_for_enough_replicas),
        cmocka_unit_test(waits_for_the_next_version_to_its_end),
        cmocka_unit_test(skips_a_next_version_that_fails_or_takes_too_long),
        cmocka_unit_test(does_not_give_way_to_a_version_that_has_failed),
        cmocka_unit_test(does_not_wait_again_for_what_took_too_long),
        cmocka_unit_test(does_not_wait_for_what_it_claims_for_another_reason),
        cmocka_unit_test(knows_versions_by_their_files),
        cmocka_unit_test(serves_on_what_is_not_listed),
        cmocka_unit_test(tells_of_other_files),
        cmocka_unit_test(flips_to_a_steady_version_below_an_unsteady_one),
        cmocka_unit_test(joins_the_version_that_another_router_waits_for),
        cmocka_unit_test(backs_out_within_the_lineage),
        cmocka_unit_test(goes_forward_before_it_goes_back),
        cmocka_unit_test(remembers_a_limited_number_of_versions),
        cmocka_unit_test(flips_to_a_complete_version_below_many_others),
        cmocka_unit_test(does_not_go_back_to_another_lineage_in_two_steps),
        cmocka_unit_test(backs_out_of_what_a_command_serves),
        cmocka_unit_test(remembers_each_version_that_it_backed_out_of),
        cmocka_unit_test(returns_after_a_longer_time_each_time),
        cmocka_unit_test(serves_what_a_command_asks_for),
        cmocka_unit_test(claims_what_it_serves_waits_for_and_keeps),
        cmocka_unit_test(lets_pins_keep_the_next_version_waiting_only_for_so_long),
        cmocka_unit_test(claims_pins_again_when_the_version_that_waits_is_gone),
        cmocka_unit_test(claims_pins_again_when_the_version_that_waits_has_failed_for_good),
        cmocka_unit_test(does_not_count_the_time_in_which_no_version_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
