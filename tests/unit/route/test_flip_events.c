/* Which version a router serves, waits for and claims: what holds after every short order of
 * events, and after long random ones. */
#include "proto/splitmix64.h"
#include "tests/lib/test_group.h"
#include "tests/unit/route/flip_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    const struct flip_world *world, const struct eb_flip *flip)
{
    if (flip->served == 0) {
        return NULL;
    }
    const struct eb_flip_version *version = &world->versions[flip->served - 1];
    return version->digest == flip->served_digest ? version : &world->kept;
}

/* Notes since when each published version could be served. */
static void follow_fitness(struct flip_world *world)
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

static void happen(struct flip_world *world, enum event event)
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
    flip_world_step(world);
}

/* Checks a change from the version `before` to the version `served`. */
static void check_flip(struct flip_world *world, const struct eb_flip_version *before,
    const struct eb_flip_version *served)
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

static void check_back_out(struct flip_world *world, const struct eb_flip_version *before,
    const struct eb_flip_version *served)
{
    assert_true(served->number < before->number);
    assert_true(served->is_complete && !before->is_complete);
    assert_string_equal(served->lineage, before->lineage);
    assert_true(before->lineage[0] != '\0');
    if (world->was_complete && before->digest == world->versions[before->number - 1].digest) {
        world->return_ns[before->number - 1] = EB_FLIP_RETURN_NS; /* or longer */
    }
}

static void check_claims(const struct flip_world *world)
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
static void check_world(const struct flip_world *from, struct flip_world *world)
{
    const struct eb_flip *flip = &world->flip;
    struct flip_world former = *world; /* for what the version served before looks like now */
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
static void check_due(const struct flip_world *world)
{
    struct flip_world later = *world;
    flip_world_step(&later);
    assert_true(is_same_result(&world->flip, &later.flip));
    assert_true(later.flip.due_ns == world->flip.due_ns);
    if (world->flip.due_ns != EB_FLIP_NEVER) {
        later.input.now_ns = world->flip.due_ns - 1;
    } else {
        later.input.now_ns += 1000000 * SECOND;
    }
    flip_world_step(&later);
    assert_true(is_same_result(&world->flip, &later.flip));
}

static void try_events(const struct flip_world *from, uint64_t *count)
{
    /* A stack in place of recursion: the event that is tried next at each depth. */
    struct flip_world worlds[DEPTH + 1];
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
static void prepare_events(struct flip_world *world)
{
    flip_world_init(world, 3);
    world->versions[1].lineage = "other";
    for (size_t i = 0; i < 4; i++) {
        world->versions[i].has_replicas = true;
    }
}

static void holds_after_every_order_of_events(void **state)
{
    (void)state;
    struct flip_world world;
    uint64_t count = 0;
    prepare_events(&world);
    world.versions[0].is_complete = true;
    follow_fitness(&world);
    flip_world_step(&world);
    assert_int_equal(world.flip.served, 1);
    world.served_high = 1;
    world.was_complete = true;
    try_events(&world, &count);
    assert_int_equal(count, ORDERS);
}

static void holds_after_every_order_of_events_from_the_highest_version(void **state)
{
    (void)state;
    struct flip_world world;
    uint64_t count = 0;
    prepare_events(&world);
    for (size_t i = 0; i < 3; i++) {
        world.versions[i].is_complete = true;
    }
    follow_fitness(&world);
    flip_world_step(&world);
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
        struct flip_world world;
        uint64_t random = seed;
        prepare_events(&world);
        world.versions[1].lineage = seed % 2 != 0 ? "other" : "l";
        world.input.next_wait_ns = seed % 3 != 0 ? NEXT_WAIT_NS : 20 * SECOND;
        for (int i = 0; i < WALK_RESTART; i++) {
            struct flip_world from = world;
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

EB_TEST_GROUP(flip_events)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_after_every_order_of_events),
        cmocka_unit_test(holds_after_every_order_of_events_from_the_highest_version),
        cmocka_unit_test(holds_after_random_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
