/* Which version a router serves, waits for and claims: each rule, then every short order of events,
 * then long random ones. */
#include "proto/splitmix64.h"
#include "server/route/flip.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)
#define NEXT_WAIT_NS (1800 * SECOND)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEPTH 4
#define ORDERS (12 + 144 + 1728 + 20736)
#define WALK_STEPS 100000
#else
#define DEPTH 6
#define ORDERS (12 + 144 + 1728 + 20736 + 248832 + 2985984)
#define WALK_STEPS 1000000
#endif

#define WALK_RESTART 500

/* A model of up to four published versions, and the router's state. */
struct world {
    struct eb_flip flip;
    struct eb_flip_input input; /* `count` is that of the published versions */
    struct eb_flip_version versions[4];
    struct eb_flip_version
        kept; /* the served version if other files have its number; or number 0 */
    /* What the rules are checked against. */
    uint64_t fit_since_ns[4]; /* EB_FLIP_NEVER: it cannot be served */
    uint64_t return_ns[4];
    uint64_t served_high; /* the highest version served since a command chose one */
    bool was_complete;    /* the served version, since it is served */
};

static void world_init(struct world *world, size_t count)
{
    *world = (struct world){.input = {.count = count,
                                .has_all_answers = true,
                                .settle_until_ns = EB_FLIP_NEVER,
                                .now_ns = 100 * SECOND,
                                .next_wait_ns = NEXT_WAIT_NS}};
    for (size_t i = 0; i < 4; i++) {
        world->versions[i] =
            (struct eb_flip_version){.number = i + 1, .digest = 10 + i, .lineage = "l"};
        world->fit_since_ns[i] = EB_FLIP_NEVER;
    }
}

static void step(struct world *world)
{
    struct eb_flip_version list[5];
    struct eb_flip_input input = world->input;
    size_t count = 0;
    for (size_t i = 0; i < world->input.count; i++) {
        if (world->kept.number == world->versions[i].number) {
            list[count++] = world->kept;
        }
        list[count++] = world->versions[i];
    }
    input.versions = list;
    input.count = count;
    eb_flip_step(&world->flip, &input);
    if (world->flip.served != world->kept.number ||
        world->flip.served_digest != world->kept.digest) {
        world->kept.number = 0;
    }
}

static void pass(struct world *world, uint64_t ns)
{
    world->input.now_ns += ns;
    step(world);
}

/* Makes version `number` complete, with enough replicas, or no longer. */
static void set_complete(struct world *world, uint64_t number, bool is_complete)
{
    world->versions[number - 1].is_complete = is_complete;
    world->versions[number - 1].has_replicas = is_complete;
    step(world);
}

/* Publishes other files under the number of a version. */
static void replace_files(struct world *world, uint64_t number)
{
    struct eb_flip_version *version = &world->versions[number - 1];
    if (world->flip.served == number && world->kept.number == 0) {
        world->kept = *version;
    }
    version->digest += 10;
    version->is_complete = false;
    step(world);
}

static void begins_with_the_highest_complete_version(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    world.input.has_all_answers = false;
    set_complete(&world, 1, true);
    set_complete(&world, 2, true);
    assert_int_equal(world.flip.served, 0);
    world.input.has_all_answers = true;
    step(&world);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.next, 3);
}

static void begins_with_what_other_routers_serve(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    world.input.has_all_answers = false;
    set_complete(&world, 1, true);
    world.versions[1].is_complete = true;
    world.versions[2].is_complete = true; /* with too few replicas, as 2 has */
    struct world other = world;
    world.versions[1].is_served = true;
    world.input.has_all_answers = true;
    step(&world);
    assert_int_equal(world.flip.served, 2);
    /* Nothing is served elsewhere: the highest, although it has too few replicas. */
    other.input.has_all_answers = true;
    step(&other);
    assert_int_equal(other.flip.served, 3);
    /* A higher version with enough replicas goes before one that is served elsewhere. */
    other.flip = (struct eb_flip){0};
    other.versions[0].is_served = true;
    other.versions[2].has_replicas = true;
    step(&other);
    assert_int_equal(other.flip.served, 3);
    /* A complete version goes before one that is served elsewhere but incomplete. */
    world_init(&world, 3);
    world.versions[2].is_served = true;
    set_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 1);
    /* An incomplete one, if none is complete. */
    world_init(&world, 3);
    world.versions[1].is_served = true;
    step(&world);
    assert_int_equal(world.flip.served, 2);
}

static void waits_for_answers_at_most_until_it_is_settled(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    world.input.has_all_answers = false;
    world.input.settle_until_ns = world.input.now_ns + 3 * SECOND;
    set_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 0);
    assert_int_equal(world.flip.next, 2);
    assert_int_equal(world.flip.due_ns, world.input.settle_until_ns);
    pass(&world, 3 * SECOND - 1);
    assert_int_equal(world.flip.served, 0);
    pass(&world, 1);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.flips, 0);
    /* Addresses that are resolved later are not waited for. */
    set_complete(&world, 2, true);
    pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 2);
}

static void begins_with_the_first_complete_version(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    step(&world);
    assert_int_equal(world.flip.served, 0);
    assert_int_equal(world.flip.next, 3);
    assert_int_equal(world.flip.claim_count, 1);
    assert_false(world.flip.claims[0].is_served);
    set_complete(&world, 2, true);
    assert_int_equal(world.flip.served, 2);
}

static void begins_with_what_a_command_serves(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    world.input.serve = 2;
    set_complete(&world, 3, true);
    set_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 0);
    assert_int_equal(world.flip.next, 2);
    set_complete(&world, 2, true);
    assert_int_equal(world.flip.served, 2);
}

static void does_not_wait_after_beginning_with_an_incomplete_version(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    world.versions[1].is_served = true;
    step(&world);
    assert_int_equal(world.flip.served, 2);
    set_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 1);
    set_complete(&world, 2, true);
    assert_int_equal(world.flip.served, 2);
}

static void flips_after_two_seconds(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    set_complete(&world, 1, true);
    assert_int_equal(world.flip.served, 1);
    set_complete(&world, 2, true);
    assert_int_equal(world.flip.due_ns, world.input.now_ns + 2 * SECOND);
    pass(&world, 2 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    /* It must be complete all the time. */
    set_complete(&world, 2, false);
    set_complete(&world, 2, true);
    pass(&world, 2 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    pass(&world, 1);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.next, 0);
    assert_int_equal(world.flip.flips, 1);
}

static void flips_at_once_to_what_another_router_serves(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    set_complete(&world, 1, true);
    world.versions[1].is_served = true;
    world.versions[1].is_complete = true; /* also with too few replicas */
    step(&world);
    assert_int_equal(world.flip.served, 2);
}

static void waits_for_enough_replicas(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    set_complete(&world, 1, true);
    world.versions[1].is_complete = true;
    pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 1);
    world.versions[1].has_replicas = true;
    step(&world);
    pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 2);
}

static void waits_for_the_next_version_to_its_end(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    set_complete(&world, 1, true);
    assert_int_equal(world.flip.next, 2);
    world.input.count = 4; /* Versions come faster than they are loaded. */
    step(&world);
    assert_int_equal(world.flip.next, 2);
    set_complete(&world, 2, true);
    pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.next, 4);
}

static void skips_a_next_version_that_fails_or_takes_too_long(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    set_complete(&world, 1, true);
    world.input.count = 3;
    world.versions[1].is_failed = true;
    step(&world);
    assert_int_equal(world.flip.next, 3);
    world.input.count = 4;
    step(&world);
    pass(&world, NEXT_WAIT_NS - 1);
    assert_int_equal(world.flip.next, 3);
    pass(&world, 1);
    assert_int_equal(world.flip.next, 4);
}

static void does_not_give_way_to_a_version_that_has_failed(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    set_complete(&world, 1, true);
    world.input.count = 3;
    world.versions[2].is_failed = true;
    for (int i = 0; i < 3; i++) {
        pass(&world, NEXT_WAIT_NS);
        assert_int_equal(world.flip.next, 2);
        assert_int_equal(world.flip.claim_count, 2);
    }
    /* If all have failed, nothing is waited for. */
    world.versions[1].is_failed = true;
    step(&world);
    assert_int_equal(world.flip.next, 0);
    world.versions[1].is_failed = false;
    step(&world);
    assert_int_equal(world.flip.next, 2);
}

static void does_not_wait_again_for_what_took_too_long(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 4);
    world.versions[1].is_claimed = true; /* by other routers too, which have not given up */
    set_complete(&world, 1, true);
    pass(&world, NEXT_WAIT_NS);
    assert_int_equal(world.flip.next, 4);
    /* It is waited for again if the higher ones fail. */
    world.versions[2].is_failed = true;
    world.versions[3].is_failed = true;
    step(&world);
    assert_int_equal(world.flip.next, 2);
    /* The lowest above it that another router waits for is joined. */
    world_init(&world, 4);
    world.versions[1].is_claimed = true;
    world.versions[2].is_claimed = true;
    set_complete(&world, 1, true);
    pass(&world, NEXT_WAIT_NS);
    assert_int_equal(world.flip.next, 3);
}

static void does_not_wait_for_what_it_claims_for_another_reason(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 4);
    world.versions[1].is_claimed = true;
    world.versions[1].is_kept = true;
    world.versions[2].is_claimed = true;
    world.versions[2].is_pinned = true;
    set_complete(&world, 1, true);
    assert_int_equal(world.flip.next, 4);
}

static void knows_versions_by_their_files(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    set_complete(&world, 1, true);
    /* The two seconds begin again with other files. */
    set_complete(&world, 2, true);
    pass(&world, SECOND);
    world.versions[1].digest++;
    pass(&world, 2 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    pass(&world, 1);
    assert_int_equal(world.flip.served, 1);
    pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 2);
    /* Other files under the served number come once the served ones are no longer complete. */
    uint64_t digest = world.flip.served_digest;
    set_complete(&world, 1, false);
    replace_files(&world, 2);
    set_complete(&world, 2, true);
    pass(&world, 100 * SECOND);
    assert_true(world.flip.served_digest == digest);
    world.kept.is_complete = false;
    step(&world);
    assert_int_equal(world.flip.served, 2);
    assert_true(world.flip.served_digest == digest + 10);
}

static void serves_on_what_is_not_listed(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    set_complete(&world, 1, true);
    set_complete(&world, 2, true);
    pass(&world, 2 * SECOND);
    world.input.count = 1;
    pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.claims[0].number, 2);
    assert_true(world.flip.claims[0].is_served);
    world.input.count = 0;
    pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 2);
}

static void tells_of_other_files(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 2);
    step(&world);
    assert_false(world.flip.has_conflict);
    world.versions[0].is_conflict = true;
    step(&world);
    assert_true(world.flip.has_conflict);
    world.versions[0].is_conflict = false;
    step(&world);
    assert_false(world.flip.has_conflict);
}

/* A version that is complete only now and then does not keep lower ones from being served. */
static void flips_to_a_steady_version_below_an_unsteady_one(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    set_complete(&world, 1, true);
    set_complete(&world, 2, true);
    pass(&world, SECOND);
    set_complete(&world, 3, true);
    pass(&world, SECOND);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.due_ns, world.input.now_ns + SECOND);
    pass(&world, SECOND);
    assert_int_equal(world.flip.served, 3);
}

static void joins_the_version_that_another_router_waits_for(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 4);
    world.versions[1].is_claimed = true;
    set_complete(&world, 1, true);
    assert_int_equal(world.flip.next, 2);
}

static void backs_out_within_the_lineage(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    world.versions[0].lineage = "other";
    set_complete(&world, 1, true);
    world.flip = (struct eb_flip){0};
    set_complete(&world, 2, true);
    world.flip = (struct eb_flip){0};
    set_complete(&world, 3, true);
    pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 3);
    set_complete(&world, 3, false);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.back_outs, 1);
    /* No complete version of the lineage is left: this one stays. */
    set_complete(&world, 2, false);
    assert_int_equal(world.flip.served, 2);
    world.versions[1].lineage = "";
    world.versions[0].lineage = "";
    step(&world);
    assert_int_equal(world.flip.served, 2);
}

static void goes_forward_before_it_goes_back(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    set_complete(&world, 1, true);
    set_complete(&world, 2, true);
    pass(&world, 2 * SECOND);
    set_complete(&world, 3, true);
    world.input.now_ns += 2 * SECOND;
    set_complete(&world, 2, false);
    assert_int_equal(world.flip.served, 3);
    assert_int_equal(world.flip.back_outs, 0);
}

/* Going back from 3 to 1 and forward to 2 would be going back to another lineage. */
static void does_not_go_back_to_another_lineage_in_two_steps(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    world.versions[1].lineage = "other";
    for (uint64_t number = 1; number <= 3; number++) {
        set_complete(&world, number, true);
    }
    pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 3);
    set_complete(&world, 3, false);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.next, 3);
    pass(&world, 1000 * SECOND);
    assert_int_equal(world.flip.served, 1);
    /* A higher version than 3 may have any lineage. */
    world.input.count = 4;
    world.versions[3].lineage = "other";
    set_complete(&world, 4, true);
    pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 4);
}

static void backs_out_of_what_a_command_serves(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    world.input.serve = 2;
    set_complete(&world, 1, true);
    set_complete(&world, 2, true);
    set_complete(&world, 3, true);
    assert_int_equal(world.flip.served, 2);
    set_complete(&world, 2, false);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.next, 2);
    set_complete(&world, 2, true);
    pass(&world, 30 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    pass(&world, 1);
    assert_int_equal(world.flip.served, 2);
}

static void remembers_each_version_that_it_backed_out_of(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    for (uint64_t number = 1; number <= 3; number++) {
        set_complete(&world, number, true);
    }
    pass(&world, 2 * SECOND);
    set_complete(&world, 3, false);
    set_complete(&world, 2, false);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.back_outs, 2);
    set_complete(&world, 3, true);
    world.versions[2].is_served = true; /* It waits although another router serves it. */
    pass(&world, 30 * SECOND - 1);
    assert_int_equal(world.flip.served, 1);
    pass(&world, 1);
    assert_int_equal(world.flip.served, 3);
    /* After five minutes, the time is the first one again. */
    pass(&world, 300 * SECOND);
    set_complete(&world, 1, true);
    set_complete(&world, 3, false);
    assert_int_equal(world.flip.served, 1);
    set_complete(&world, 3, true);
    pass(&world, 30 * SECOND);
    assert_int_equal(world.flip.served, 3);
}

static void returns_after_a_longer_time_each_time(void **state)
{
    (void)state;
    struct world world;
    uint64_t wait_s = 30;
    world_init(&world, 2);
    set_complete(&world, 1, true);
    set_complete(&world, 2, true);
    pass(&world, 2 * SECOND);
    for (int round = 0; round < 8; round++) {
        set_complete(&world, 2, false);
        assert_int_equal(world.flip.served, 1);
        set_complete(&world, 2, true);
        pass(&world, wait_s * SECOND - 1);
        assert_int_equal(world.flip.served, 1);
        pass(&world, 1);
        assert_int_equal(world.flip.served, 2);
        wait_s = 2 * wait_s < 300 ? 2 * wait_s : 300;
    }
}

static void serves_what_a_command_asks_for(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    set_complete(&world, 1, true);
    set_complete(&world, 3, true);
    pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 3);
    world.input.serve = 1;
    step(&world);
    assert_int_equal(world.flip.served, 1); /* It has been complete for long enough. */
    assert_int_equal(world.flip.flips, 2);
    set_complete(&world, 2, true);
    pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.next, 0);
    world.input.serve = 9; /* It is not there. */
    pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.next, 0);
    world.input.serve = 0;
    step(&world);
    assert_int_equal(world.flip.served, 3);
}

static void claims_what_it_serves_waits_for_and_keeps(void **state)
{
    (void)state;
    struct eb_flip_version many[20];
    struct world world;
    world_init(&world, 3);
    world.versions[0].is_kept = true;
    set_complete(&world, 2, true);
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

/* ---- every order of events ---- */

enum event {
    TOGGLE_1,
    TOGGLE_2,
    TOGGLE_3,
    FAIL_3,
    SERVED_3,
    REPLICAS_3,
    PUBLISH_4,
    TOGGLE_4,
    COMMAND,
    OTHER_FILES_2,
    WAIT_SHORT,
    WAIT_LONG,
    EVENTS
};

/* Returns the version that is served, as the router sees it. */
static const struct eb_flip_version *find_served_version(
    const struct world *world, const struct eb_flip *flip)
{
    if (flip->served == 0) {
        return NULL;
    }
    const struct eb_flip_version *version = &world->versions[flip->served - 1];
    return version->digest == flip->served_digest ? version : &world->kept;
}

/* Notes since when each published version could be served. */
static void follow_fitness(struct world *world)
{
    for (size_t i = 0; i < world->input.count; i++) {
        const struct eb_flip_version *version = &world->versions[i];
        bool is_fit = version->is_complete && (version->has_replicas || version->is_served);
        if (!is_fit) {
            world->fit_since_ns[i] = EB_FLIP_NEVER;
        } else if (world->fit_since_ns[i] == EB_FLIP_NEVER) {
            world->fit_since_ns[i] = world->input.now_ns;
        }
    }
}

static void happen(struct world *world, enum event event)
{
    struct eb_flip_version *versions = world->versions;
    switch (event) {
    case TOGGLE_1: versions[0].is_complete = !versions[0].is_complete; break;
    case TOGGLE_2: versions[1].is_complete = !versions[1].is_complete; break;
    case TOGGLE_3: versions[2].is_complete = !versions[2].is_complete; break;
    case TOGGLE_4: versions[3].is_complete = !versions[3].is_complete; break;
    case FAIL_3: versions[2].is_failed = !versions[2].is_failed; break;
    case SERVED_3: versions[2].is_served = !versions[2].is_served; break;
    case REPLICAS_3: versions[2].has_replicas = !versions[2].has_replicas; break;
    case PUBLISH_4: world->input.count = world->input.count == 3 ? 4 : world->input.count; break;
    case COMMAND: world->input.serve = (world->input.serve + 2) % 3; break; /* 2, 1, none */
    case OTHER_FILES_2:
        if (world->flip.served == 2 && world->kept.number == 0) {
            world->kept = versions[1];
        }
        versions[1].digest += 10;
        versions[1].is_complete = false;
        world->return_ns[1] = 0;
        break;
    case WAIT_SHORT: world->input.now_ns += SECOND; break;
    case WAIT_LONG:
        world->input.now_ns += 40 * SECOND;
        world->kept.is_complete = false; /* The servers that had it have ended. */
        break;
    case EVENTS: break;
    }
    follow_fitness(world);
    step(world);
}

/* Checks a change from the version `before` to the version `served`. */
static void check_flip(
    struct world *world, const struct eb_flip_version *before, const struct eb_flip_version *served)
{
    uint64_t serve = world->input.serve;
    uint64_t since_ns = world->fit_since_ns[served->number - 1];
    uint64_t return_ns = world->return_ns[served->number - 1];
    uint64_t steady_ns = served->is_served ? 0 : EB_FLIP_STEADY_NS;
    assert_true(served->is_complete && (served->has_replicas || served->is_served));
    assert_true(since_ns != EB_FLIP_NEVER);
    assert_true(world->input.now_ns - since_ns >= (return_ns != 0 ? return_ns : steady_ns));
    assert_true(serve == 0 || served->number == serve);
    if (served->number == before->number) {
        assert_true(served->digest != before->digest && !before->is_complete);
    } else if (serve == 0) {
        assert_true(served->number > before->number);
        assert_true(
            served->number >= world->served_high || strcmp(served->lineage, before->lineage) == 0);
    }
    if (serve != 0) {
        world->served_high = 0;
    }
}

static void check_back_out(
    struct world *world, const struct eb_flip_version *before, const struct eb_flip_version *served)
{
    assert_true(served->number < before->number);
    assert_true(served->is_complete && !before->is_complete);
    assert_string_equal(served->lineage, before->lineage);
    assert_true(before->lineage[0] != '\0');
    if (world->was_complete && before->digest == world->versions[before->number - 1].digest) {
        world->return_ns[before->number - 1] = EB_FLIP_RETURN_NS; /* or longer */
    }
}

static void check_claims(const struct world *world)
{
    const struct eb_flip *flip = &world->flip;
    size_t served_count = 0;
    size_t next_count = 0;
    assert_true(flip->claim_count <= EB_FLIP_CLAIMS_MAX);
    for (size_t i = 0; i < flip->claim_count; i++) {
        const struct eb_flip_claim *claim = &flip->claims[i];
        served_count += claim->number == flip->served && claim->digest == flip->served_digest;
        next_count += claim->number == flip->next && claim->digest == flip->next_digest;
        assert_true(claim->is_served ==
                    (claim->number == flip->served && claim->digest == flip->served_digest));
    }
    assert_int_equal(served_count, flip->served != 0);
    assert_int_equal(next_count, flip->next != 0);
}

/* Checks what must hold after any step. `from` is the world before it. */
static void check_world(const struct world *from, struct world *world)
{
    const struct eb_flip *flip = &world->flip;
    struct world former = *world; /* for what the version served before looks like now */
    former.kept = from->kept.number != 0 ? from->kept : world->kept;
    former.kept.is_complete =
        former.kept.is_complete && world->input.now_ns < 40 * SECOND + from->input.now_ns;
    const struct eb_flip_version *before = find_served_version(&former, &from->flip);
    const struct eb_flip_version *served = find_served_version(world, flip);
    assert_true(!served || (served->number == flip->served && served->number != 0 &&
                               served->digest == flip->served_digest));
    assert_true(served || !before);
    assert_true(flip->next <= world->input.count);
    assert_true(flip->next == 0 || flip->next != flip->served || world->kept.number != 0);
    assert_true(flip->due_ns > world->input.now_ns);
    check_claims(world);
    uint64_t flips = flip->flips - from->flip.flips;
    uint64_t back_outs = flip->back_outs - from->flip.back_outs;
    bool is_other =
        before && (served->number != before->number || served->digest != before->digest);
    assert_int_equal(flips + back_outs, is_other);
    if (flips != 0) {
        check_flip(world, before, served);
    } else if (back_outs != 0) {
        check_back_out(world, before, served);
    } else if (served && !before) {
        assert_true(served->is_complete || served->is_served);
        assert_true(world->input.serve == 0 || world->input.serve == served->number);
    }
    world->was_complete = served && (served->is_complete || (!is_other && world->was_complete));
    if (served && served->number > world->served_high) {
        world->served_high = served->number;
    }
}

static bool is_same_result(const struct eb_flip *a, const struct eb_flip *b)
{
    return a->served == b->served && a->served_digest == b->served_digest && a->next == b->next &&
           a->next_digest == b->next_digest && a->claim_count == b->claim_count;
}

/* Checks that nothing changes until due_ns, or until something else changes. */
static void check_due(const struct world *world)
{
    struct world later = *world;
    step(&later);
    assert_true(is_same_result(&world->flip, &later.flip));
    assert_true(later.flip.due_ns == world->flip.due_ns);
    if (world->flip.due_ns != EB_FLIP_NEVER) {
        later.input.now_ns = world->flip.due_ns - 1;
    } else {
        later.input.now_ns += 1000000 * SECOND;
    }
    step(&later);
    assert_true(is_same_result(&world->flip, &later.flip));
}

static void try_events(const struct world *from, uint64_t *count)
{
    /* A stack in place of recursion: the event that is tried next at each depth. */
    struct world worlds[DEPTH + 1];
    int events[DEPTH + 1] = {0};
    int at = 0;
    worlds[0] = *from;
    while (at >= 0) {
        if (at == DEPTH || events[at] == EVENTS) {
            at--;
            continue;
        }
        worlds[at + 1] = worlds[at];
        happen(&worlds[at + 1], (enum event)events[at]++);
        check_world(&worlds[at], &worlds[at + 1]);
        *count += 1;
        events[++at] = 0;
    }
}

/* Prepares a router that has just started, with three versions, the second of another lineage. */
static void prepare_events(struct world *world)
{
    world_init(world, 3);
    world->versions[1].lineage = "other";
    for (size_t i = 0; i < 4; i++) {
        world->versions[i].has_replicas = true;
    }
}

static void holds_after_every_order_of_events(void **state)
{
    (void)state;
    struct world world;
    uint64_t count = 0;
    prepare_events(&world);
    world.versions[0].is_complete = true;
    follow_fitness(&world);
    step(&world);
    assert_int_equal(world.flip.served, 1);
    world.served_high = 1;
    world.was_complete = true;
    try_events(&world, &count);
    assert_int_equal(count, ORDERS);
}

static void holds_after_every_order_of_events_from_the_highest_version(void **state)
{
    (void)state;
    struct world world;
    uint64_t count = 0;
    prepare_events(&world);
    for (size_t i = 0; i < 3; i++) {
        world.versions[i].is_complete = true;
    }
    follow_fitness(&world);
    step(&world);
    assert_int_equal(world.flip.served, 3);
    world.served_high = 3;
    world.was_complete = true;
    try_events(&world, &count);
    assert_int_equal(count, ORDERS);
}

static void holds_after_random_events(void **state)
{
    (void)state;
    uint64_t flips = 0;
    uint64_t back_outs = 0;
    for (uint64_t seed = 0; seed < WALK_STEPS / WALK_RESTART; seed++) {
        struct world world;
        uint64_t random = seed;
        prepare_events(&world);
        world.versions[1].lineage = seed % 2 != 0 ? "other" : "l";
        world.input.next_wait_ns = seed % 3 != 0 ? NEXT_WAIT_NS : 20 * SECOND;
        for (int i = 0; i < WALK_RESTART; i++) {
            struct world from = world;
            happen(&world, (enum event)(eb_splitmix64_next(&random) % EVENTS));
            check_world(&from, &world);
            check_due(&world);
        }
        flips += world.flip.flips;
        back_outs += world.flip.back_outs;
    }
    assert_true(flips > WALK_STEPS / 1000);
    assert_true(back_outs > WALK_STEPS / 10000);
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
        cmocka_unit_test(does_not_go_back_to_another_lineage_in_two_steps),
        cmocka_unit_test(backs_out_of_what_a_command_serves),
        cmocka_unit_test(remembers_each_version_that_it_backed_out_of),
        cmocka_unit_test(returns_after_a_longer_time_each_time),
        cmocka_unit_test(serves_what_a_command_asks_for),
        cmocka_unit_test(claims_what_it_serves_waits_for_and_keeps),
        cmocka_unit_test(holds_after_every_order_of_events),
        cmocka_unit_test(holds_after_every_order_of_events_from_the_highest_version),
        cmocka_unit_test(holds_after_random_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
