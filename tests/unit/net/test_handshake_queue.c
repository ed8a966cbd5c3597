#include "proto/splitmix64.h"
#include "server/net/handshake_queue.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define BEGUN_AT UINT64_C(1000000000000)
#define ENTRIES 1200
#define PER_S 20 /* one handshake each 50 ms, and two in a burst besides the first */
#define COST_MS 50
#define BURST_MS 100
#define NEVER UINT64_MAX

struct fixture {
    struct eb_handshake_queue queue;
    struct eb_handshake_entry entries[ENTRIES];
};

static int set_up(void **state)
{
    static struct fixture fixture;
    eb_handshake_queue_init(&fixture.queue);
    for (int i = 0; i < ENTRIES; i++) {
        eb_handshake_entry_init(&fixture.entries[i]);
    }
    *state = &fixture;
    return 0;
}

static bool push_number(struct fixture *fixture, int number, uint64_t per_s, uint64_t now_ns)
{
    return eb_handshake_queue_push(
        &fixture->queue, &fixture->entries[number], per_s, now_ns + 5000 * MS, now_ns);
}

/* Returns the number of the entry that takes a step, or -1 if none does. */
static int pop_step(struct fixture *fixture, uint64_t per_s, uint64_t now_ns)
{
    const struct eb_handshake_entry *entry = eb_handshake_queue_pop(&fixture->queue, per_s, now_ns);
    return entry ? (int)(entry - fixture->entries) : -1;
}

static void begins_handshakes_in_the_order_of_arrival(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(pop_step(fixture, 0, BEGUN_AT), -1);
    for (int i = 0; i < ENTRIES; i++) {
        assert_true(push_number(fixture, i, 0, BEGUN_AT));
    }
    assert_int_equal(eb_handshake_queue_count(&fixture->queue), ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        assert_int_equal(pop_step(fixture, 0, BEGUN_AT), i);
        assert_true(fixture->entries[i].has_begun);
        assert_false(fixture->entries[i].is_waiting);
    }
    assert_int_equal(eb_handshake_queue_count(&fixture->queue), 0);
    assert_int_equal(pop_step(fixture, 0, BEGUN_AT), -1);
}

static void begins_no_more_per_second_than_allowed_after_a_first_burst(void **state)
{
    struct fixture *fixture = *state;
    int begun_count = 0;
    for (int i = 0; i < 100; i++) {
        assert_true(push_number(fixture, i, PER_S, BEGUN_AT));
    }
    for (uint64_t ms = 0; ms < 1000; ms++) {
        while (pop_step(fixture, PER_S, BEGUN_AT + ms * MS) >= 0) {
            begun_count++;
        }
        assert_int_equal(begun_count, 1 + (ms + BURST_MS) / COST_MS);
    }
}

static void reports_when_the_next_step_is(void **state)
{
    struct fixture *fixture = *state;
    struct eb_handshake_queue *queue = &fixture->queue;
    assert_true(eb_handshake_queue_pause_ns(queue, PER_S, BEGUN_AT) == NEVER);
    for (int i = 0; i < 5; i++) {
        assert_true(push_number(fixture, i, PER_S, BEGUN_AT));
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(eb_handshake_queue_pause_ns(queue, PER_S, BEGUN_AT), 0);
        assert_int_equal(pop_step(fixture, PER_S, BEGUN_AT), i);
    }
    assert_int_equal(eb_handshake_queue_pause_ns(queue, PER_S, BEGUN_AT), COST_MS * MS);
    assert_int_equal(pop_step(fixture, PER_S, BEGUN_AT + COST_MS * MS - 1), -1);
    assert_int_equal(eb_handshake_queue_pause_ns(queue, PER_S, BEGUN_AT + COST_MS * MS), 0);
    assert_int_equal(pop_step(fixture, PER_S, BEGUN_AT + COST_MS * MS), 3);
    /* A handshake that has begun may go on at any time. */
    assert_true(push_number(fixture, 0, PER_S, BEGUN_AT));
    assert_int_equal(eb_handshake_queue_pause_ns(queue, PER_S, BEGUN_AT), 0);
    assert_int_equal(pop_step(fixture, PER_S, BEGUN_AT), 0);
}

static void refuses_who_could_not_begin_in_time(void **state)
{
    struct fixture *fixture = *state;
    struct eb_handshake_queue *queue = &fixture->queue;
    /* The entry with this number begins after 5 000 ms, when its time is over. */
    int first_late = (5000 + BURST_MS) / COST_MS;
    for (int i = 0; i < first_late; i++) {
        assert_true(push_number(fixture, i, PER_S, BEGUN_AT));
    }
    assert_false(push_number(fixture, first_late, PER_S, BEGUN_AT));
    assert_false(fixture->entries[first_late].is_waiting);
    assert_int_equal(eb_handshake_queue_count(queue), first_late);
    /* Without a limit nobody is refused, except those whose time is over. */
    assert_true(push_number(fixture, first_late, 0, BEGUN_AT));
    assert_false(
        eb_handshake_queue_push(queue, &fixture->entries[first_late + 1], 0, BEGUN_AT, BEGUN_AT));
    /* A handshake that has begun is not refused. */
    assert_int_equal(pop_step(fixture, PER_S, BEGUN_AT), 0);
    assert_true(eb_handshake_queue_push(queue, &fixture->entries[0], PER_S, BEGUN_AT, BEGUN_AT));
    /* Whoever leaves makes room. */
    eb_handshake_queue_remove(queue, &fixture->entries[first_late]);
    eb_handshake_queue_remove(queue, &fixture->entries[7]);
    assert_true(push_number(fixture, first_late, PER_S, BEGUN_AT + COST_MS * MS));
}

static void alternates_between_beginning_and_going_on(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 8; i++) {
        assert_true(push_number(fixture, i, 0, BEGUN_AT));
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pop_step(fixture, 0, BEGUN_AT), i);
    }
    for (int i = 0; i < 4; i++) {
        assert_true(push_number(fixture, i, 0, BEGUN_AT));
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pop_step(fixture, 0, BEGUN_AT), i);
        assert_int_equal(pop_step(fixture, 0, BEGUN_AT), 4 + i);
    }
}

static void gives_up_who_has_waited_too_long_to_begin(void **state)
{
    struct fixture *fixture = *state;
    struct eb_handshake_queue *queue = &fixture->queue;
    for (int i = 0; i < 3; i++) {
        assert_true(push_number(fixture, i, 0, BEGUN_AT + (uint64_t)i * MS));
    }
    assert_int_equal(pop_step(fixture, 0, BEGUN_AT), 0);
    assert_true(push_number(fixture, 0, 0, BEGUN_AT));
    assert_null(eb_handshake_queue_pop_late(queue, BEGUN_AT + 5001 * MS - 1));
    assert_ptr_equal(
        eb_handshake_queue_pop_late(queue, BEGUN_AT + 5001 * MS), &fixture->entries[1]);
    assert_null(eb_handshake_queue_pop_late(queue, BEGUN_AT + 5001 * MS));
    assert_ptr_equal(
        eb_handshake_queue_pop_late(queue, BEGUN_AT + 9000 * MS), &fixture->entries[2]);
    assert_null(eb_handshake_queue_pop_late(queue, BEGUN_AT + 9000 * MS));
    assert_int_equal(eb_handshake_queue_count(queue), 1);
}

static void follows_a_limit_that_changes(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 6; i++) {
        assert_true(push_number(fixture, i, 1, BEGUN_AT));
    }
    assert_int_equal(pop_step(fixture, 1, BEGUN_AT), 0);
    assert_int_equal(pop_step(fixture, 1, BEGUN_AT), -1);
    assert_int_equal(pop_step(fixture, 0, BEGUN_AT), 1);
    assert_int_equal(pop_step(fixture, 0, BEGUN_AT), 2);
}

/* ---- every order of events ---- */

#define ACTORS 3
#define ORDER_LENGTH 6
#define TIMEOUT_MS 120

enum event {
    PUSH_FIRST, /* one for each actor */
    REMOVE_FIRST = PUSH_FIRST + ACTORS,
    POP = REMOVE_FIRST + ACTORS,
    POP_LATE,
    PASS_20_MS,
    PASS_90_MS,
    EVENTS
};

/* What the queue should do, written down without lists. */
struct model {
    struct fixture *fixture;
    uint64_t now_ms;
    uint64_t paid_ms;
    bool was_fresh;
    uint64_t arrival;
    struct {
        bool is_waiting;
        bool has_begun;
        uint64_t arrival;
        uint64_t late_ms;
    } actors[ACTORS];
};

static uint64_t now_of(const struct model *model)
{
    return BEGUN_AT + model->now_ms * MS;
}

/* Returns the actor of a kind that came first, or -1 if none waits. */
static int find_first(const struct model *model, bool has_begun)
{
    int first = -1;
    for (int i = 0; i < ACTORS; i++) {
        if (model->actors[i].is_waiting && model->actors[i].has_begun == has_begun &&
            (first < 0 || model->actors[i].arrival < model->actors[first].arrival)) {
            first = i;
        }
    }
    return first;
}

static uint64_t count_actors(const struct model *model, bool has_begun)
{
    uint64_t count = 0;
    for (int i = 0; i < ACTORS; i++) {
        count += model->actors[i].is_waiting && model->actors[i].has_begun == has_begun;
    }
    return count;
}

/* Returns the time until a handshake may begin after `count` others. */
static uint64_t model_pause_ms(const struct model *model, uint64_t count)
{
    uint64_t paid_ms = model->paid_ms > model->now_ms ? model->paid_ms : model->now_ms;
    uint64_t ahead_ms = paid_ms + count * COST_MS - model->now_ms;
    return ahead_ms > BURST_MS ? ahead_ms - BURST_MS : 0;
}

static void push_actor(struct model *model, int actor)
{
    if (model->actors[actor].is_waiting) {
        return;
    }
    bool is_taken = model->actors[actor].has_begun ||
                    model_pause_ms(model, count_actors(model, false)) < TIMEOUT_MS;
    assert_int_equal(
        eb_handshake_queue_push(&model->fixture->queue, &model->fixture->entries[actor], PER_S,
            now_of(model) + TIMEOUT_MS * MS, now_of(model)),
        is_taken);
    model->actors[actor].is_waiting = is_taken;
    model->actors[actor].arrival = model->arrival++;
    model->actors[actor].late_ms = model->now_ms + TIMEOUT_MS;
}

static void pop_actor(struct model *model)
{
    int fresh = model_pause_ms(model, 0) == 0 ? find_first(model, false) : -1;
    int begun = find_first(model, true);
    bool is_fresh = fresh >= 0 && (begun < 0 || !model->was_fresh);
    int expected = is_fresh ? fresh : begun;
    assert_int_equal(pop_step(model->fixture, PER_S, now_of(model)), expected);
    if (expected < 0) {
        return;
    }
    if (is_fresh) {
        model->paid_ms =
            (model->paid_ms > model->now_ms ? model->paid_ms : model->now_ms) + COST_MS;
    }
    model->was_fresh = is_fresh;
    model->actors[expected].is_waiting = false;
    model->actors[expected].has_begun = true;
}

static void pop_late_actor(struct model *model)
{
    int expected = find_first(model, false);
    if (expected >= 0 && model->actors[expected].late_ms > model->now_ms) {
        expected = -1;
    }
    const struct eb_handshake_entry *late =
        eb_handshake_queue_pop_late(&model->fixture->queue, now_of(model));
    assert_ptr_equal(late, expected < 0 ? NULL : &model->fixture->entries[expected]);
    if (expected >= 0) {
        model->actors[expected].is_waiting = false;
    }
}

/* Compares the queue with the model. */
static void check_actors(const struct model *model)
{
    const struct eb_handshake_queue *queue = &model->fixture->queue;
    uint64_t fresh_count = count_actors(model, false);
    uint64_t begun_count = count_actors(model, true);
    uint64_t pause_ns = begun_count > 0   ? 0
                        : fresh_count > 0 ? model_pause_ms(model, 0) * MS
                                          : NEVER;
    assert_int_equal(eb_handshake_queue_count(queue), fresh_count + begun_count);
    assert_true(eb_handshake_queue_pause_ns(queue, PER_S, now_of(model)) == pause_ns);
    for (int i = 0; i < ACTORS; i++) {
        assert_int_equal(model->fixture->entries[i].is_waiting, model->actors[i].is_waiting);
    }
}

static void take_event(struct model *model, unsigned event)
{
    if (event < REMOVE_FIRST) {
        push_actor(model, (int)event);
    } else if (event < POP) {
        int actor = (int)event - REMOVE_FIRST;
        eb_handshake_queue_remove(&model->fixture->queue, &model->fixture->entries[actor]);
        model->actors[actor].is_waiting = false;
    } else if (event == POP) {
        pop_actor(model);
    } else if (event == POP_LATE) {
        pop_late_actor(model);
    } else {
        model->now_ms += event == PASS_20_MS ? 20 : 90;
    }
    check_actors(model);
}

static void begin_model(struct model *model, struct fixture *fixture)
{
    *model = (struct model){.fixture = fixture};
    eb_handshake_queue_init(&fixture->queue);
    for (int i = 0; i < ACTORS; i++) {
        eb_handshake_entry_init(&fixture->entries[i]);
    }
}

static void does_as_specified_in_every_order_of_six_events(void **state)
{
    unsigned order_count = 1;
    for (unsigned i = 0; i < ORDER_LENGTH; i++) {
        order_count *= EVENTS;
    }
    for (unsigned order = 0; order < order_count; order++) {
        struct model model;
        begin_model(&model, *state);
        unsigned rest = order;
        for (unsigned i = 0; i < ORDER_LENGTH; i++) {
            take_event(&model, rest % EVENTS);
            rest /= EVENTS;
        }
    }
}

static void does_as_specified_in_a_long_random_order(void **state)
{
    struct model model;
    uint64_t seed = 20261127;
    begin_model(&model, *state);
    for (int i = 0; i < 1000000; i++) {
        uint64_t drawn = eb_splitmix64_next(&seed);
        if (drawn >> 32 & 1) {
            take_event(&model, (unsigned)(drawn % EVENTS));
        } else {
            /* A new connection takes the place of an actor, so that some have not begun. */
            int actor = (int)(drawn % ACTORS);
            eb_handshake_queue_remove(&model.fixture->queue, &model.fixture->entries[actor]);
            eb_handshake_entry_init(&model.fixture->entries[actor]);
            memset(&model.actors[actor], 0, sizeof model.actors[actor]);
            push_actor(&model, actor);
            check_actors(&model);
        }
    }
}

EB_TEST_GROUP(handshake_queue)
{
#define FIXTURE(test) cmocka_unit_test_setup(test, set_up)
    const struct CMUnitTest tests[] = {
        FIXTURE(begins_handshakes_in_the_order_of_arrival),
        FIXTURE(begins_no_more_per_second_than_allowed_after_a_first_burst),
        FIXTURE(reports_when_the_next_step_is),
        FIXTURE(refuses_who_could_not_begin_in_time),
        FIXTURE(alternates_between_beginning_and_going_on),
        FIXTURE(gives_up_who_has_waited_too_long_to_begin),
        FIXTURE(follows_a_limit_that_changes),
        FIXTURE(does_as_specified_in_every_order_of_six_events),
        FIXTURE(does_as_specified_in_a_long_random_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
