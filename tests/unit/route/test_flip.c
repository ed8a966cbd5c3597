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
#define WALK_STEPS 100000
#else
#define DEPTH 6
#define WALK_STEPS 1000000
#endif

#define WALK_RESTART 500

/* A model of up to four versions, and the router's state. */
struct world {
    struct eb_flip flip;
    struct eb_flip_version versions[4];
    struct eb_flip_input input;
};

static void world_init(struct world *world, size_t count)
{
    *world = (struct world){.input = {.count = count,
                                .is_settled = true,
                                .now_ns = 100 * SECOND,
                                .next_wait_ns = NEXT_WAIT_NS}};
    for (size_t i = 0; i < 4; i++) {
        world->versions[i] =
            (struct eb_flip_version){.number = i + 1, .digest = 10 + i, .lineage = "l"};
    }
}

static void step(struct world *world)
{
    world->input.versions = world->versions;
    eb_flip_step(&world->flip, &world->input);
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

static void begins_with_the_highest_complete_version(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    world.input.is_settled = false;
    set_complete(&world, 1, true);
    set_complete(&world, 2, true);
    assert_int_equal(world.flip.served, 0);
    world.input.is_settled = true;
    step(&world);
    assert_int_equal(world.flip.served, 2);
    assert_int_equal(world.flip.next, 3);
}

static void begins_with_what_other_routers_serve(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, 3);
    world.input.is_settled = false;
    set_complete(&world, 2, true);
    world.versions[2].is_complete = true; /* with too few replicas */
    world.versions[1].is_served = true;
    world.input.is_settled = true;
    step(&world);
    assert_int_equal(world.flip.served, 2);
    /* An incomplete one, if none is complete. */
    world_init(&world, 3);
    world.versions[1].is_served = true;
    step(&world);
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
    assert_int_equal(world.flip.flips, 2);
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
    assert_int_equal(world.flip.next, 1);
    pass(&world, 2 * SECOND);
    assert_int_equal(world.flip.served, 1);
    set_complete(&world, 2, true);
    pass(&world, 100 * SECOND);
    assert_int_equal(world.flip.served, 1);
    assert_int_equal(world.flip.next, 0);
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
    for (size_t i = 0; i < 20; i++) {
        many[i] = (struct eb_flip_version){.number = i + 1, .lineage = "", .is_kept = true};
    }
    world.input.versions = many;
    world.input.count = 20;
    eb_flip_step(&world.flip, &world.input);
    assert_int_equal(world.flip.claim_count, EB_FLIP_CLAIMS_MAX);
    assert_int_equal(world.flip.claims[0].number, 2);
}

/* ---- every order of events ---- */

enum event {
    COMPLETE_2,
    COMPLETE_3,
    LOSE_2,
    LOSE_3,
    FAIL_3,
    SERVED_3,
    PUBLISH_4,
    COMMAND_2,
    COMMAND_NONE,
    OTHER_FILES_2,
    WAIT_SHORT,
    WAIT_LONG,
    EVENTS
};

static void happen(struct world *world, enum event event)
{
    struct eb_flip_version *versions = world->versions;
    switch (event) {
    case COMPLETE_2: set_complete(world, 2, true); return;
    case COMPLETE_3: set_complete(world, 3, true); return;
    case LOSE_2: set_complete(world, 2, false); return;
    case LOSE_3: set_complete(world, 3, false); return;
    case FAIL_3: versions[2].is_failed = !versions[2].is_failed; break;
    case SERVED_3: versions[2].is_served = !versions[2].is_served; break;
    case PUBLISH_4: world->input.count = 4; break;
    case COMMAND_2: world->input.serve = 2; break;
    case COMMAND_NONE: world->input.serve = 0; break;
    case OTHER_FILES_2: versions[1].digest++; break;
    case WAIT_SHORT: world->input.now_ns += SECOND; break;
    case WAIT_LONG: world->input.now_ns += 40 * SECOND; break;
    case EVENTS: break;
    }
    step(world);
}

/* Checks what must hold after any step; `before` is the served version before it. */
static void check_world(const struct world *world, uint64_t before)
{
    const struct eb_flip *flip = &world->flip;
    assert_true(flip->served <= world->input.count && flip->next <= world->input.count);
    assert_true(flip->served != 0 || before == 0);
    assert_true(flip->claim_count <= EB_FLIP_CLAIMS_MAX);
    assert_true(flip->served == 0 || flip->claims[0].number == flip->served);
    assert_true(flip->next == 0 || flip->next != flip->served);
    assert_true(flip->due_ns == EB_FLIP_NEVER || flip->due_ns > world->input.now_ns);
    if (flip->served == before) {
        return;
    }
    const struct eb_flip_version *served = &world->versions[flip->served - 1];
    assert_true(served->is_complete || (before == 0 && served->is_served));
    assert_true(world->input.serve == 0 || flip->served == world->input.serve);
    if (flip->served < before && world->input.serve == 0) {
        assert_false(world->versions[before - 1].is_complete);
        assert_string_equal(served->lineage, world->versions[before - 1].lineage);
    }
}

static void try_events(const struct world *from, int depth, uint64_t *count)
{
    /* A stack in place of recursion: the event that is tried next at each depth. */
    struct world worlds[DEPTH + 1];
    int events[DEPTH + 1] = {0};
    int at = 0;
    worlds[0] = *from;
    while (at >= 0) {
        if (at == depth || events[at] == EVENTS) {
            at--;
            continue;
        }
        worlds[at + 1] = worlds[at];
        happen(&worlds[at + 1], (enum event)events[at]++);
        check_world(&worlds[at + 1], worlds[at].flip.served);
        *count += 1;
        events[++at] = 0;
    }
}

static void holds_after_every_order_of_events(void **state)
{
    (void)state;
    struct world world;
    uint64_t count = 0;
    world_init(&world, 3);
    set_complete(&world, 1, true);
    try_events(&world, DEPTH, &count);
    assert_true(count > 20000);
}

static void holds_after_random_events(void **state)
{
    (void)state;
    struct world world;
    uint64_t random = 42;
    uint64_t flips = 0;
    uint64_t back_outs = 0;
    for (int i = 0; i < WALK_STEPS; i++) {
        if (i % WALK_RESTART == 0) { /* Otherwise times become long, and little happens. */
            world_init(&world, 3);
            set_complete(&world, 1, true);
        }
        uint64_t before = world.flip.served;
        uint64_t counted = world.flip.flips + world.flip.back_outs;
        happen(&world, (enum event)(eb_splitmix64_next(&random) % EVENTS));
        check_world(&world, before);
        flips += world.flip.flips + world.flip.back_outs - counted;
        back_outs += before > world.flip.served && world.input.serve == 0;
    }
    assert_true(flips > WALK_STEPS / 1000);
    assert_true(back_outs > WALK_STEPS / 10000);
}

EB_TEST_GROUP(flip)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_with_the_highest_complete_version),
        cmocka_unit_test(begins_with_what_other_routers_serve),
        cmocka_unit_test(flips_after_two_seconds),
        cmocka_unit_test(flips_at_once_to_what_another_router_serves),
        cmocka_unit_test(waits_for_enough_replicas),
        cmocka_unit_test(waits_for_the_next_version_to_its_end),
        cmocka_unit_test(skips_a_next_version_that_fails_or_takes_too_long),
        cmocka_unit_test(joins_the_version_that_another_router_waits_for),
        cmocka_unit_test(backs_out_within_the_lineage),
        cmocka_unit_test(returns_after_a_longer_time_each_time),
        cmocka_unit_test(serves_what_a_command_asks_for),
        cmocka_unit_test(claims_what_it_serves_waits_for_and_keeps),
        cmocka_unit_test(holds_after_every_order_of_events),
        cmocka_unit_test(holds_after_random_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
