#include "proto/link/suspicion.h"

#include "tests/lib/test_group.h"
#include "tests/unit/link/event_orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SILENCE (50 * MS)

static enum eb_suspicion_step check(struct eb_suspicion *suspicion, uint64_t now_ns)
{
    return eb_suspicion_check(suspicion, SILENCE, true, now_ns);
}

static void follows_the_hedge_delay(void **state)
{
    (void)state;
    assert_int_equal(eb_suspicion_silence_ns(0), 50 * MS);
    assert_int_equal(eb_suspicion_silence_ns(16 * MS), 50 * MS);
    assert_int_equal(eb_suspicion_silence_ns(17 * MS), 51 * MS);
}

static void waits_for_a_replica_without_calls(void **state)
{
    (void)state;
    struct eb_suspicion suspicion = {0};
    assert_true(eb_suspicion_due_ns(&suspicion, SILENCE) == UINT64_MAX);
    assert_int_equal(check(&suspicion, 3600000 * MS), EB_SUSPICION_WAIT);
}

static void probes_then_suspects(void **state)
{
    (void)state;
    struct eb_suspicion suspicion = {0};
    eb_suspicion_note_sent(&suspicion, 10 * MS);
    /* Later calls do not prolong the silence. */
    eb_suspicion_note_sent(&suspicion, 55 * MS);
    assert_int_equal(check(&suspicion, 60 * MS - 1), EB_SUSPICION_WAIT);
    assert_int_equal(check(&suspicion, 60 * MS), EB_SUSPICION_PROBE);
    assert_int_equal(check(&suspicion, 60 * MS), EB_SUSPICION_WAIT);
    assert_int_equal(check(&suspicion, 110 * MS - 1), EB_SUSPICION_WAIT);
    assert_false(suspicion.is_suspect);
    assert_int_equal(check(&suspicion, 110 * MS), EB_SUSPICION_SUSPECT);
    assert_true(suspicion.is_suspect);
}

/* A check that comes late must leave the probe time to be answered. */
static void suspects_only_after_a_probe(void **state)
{
    (void)state;
    struct eb_suspicion suspicion = {0};
    eb_suspicion_note_sent(&suspicion, MS);
    assert_int_equal(check(&suspicion, 1000 * MS), EB_SUSPICION_PROBE);
    assert_int_equal(check(&suspicion, 1050 * MS - 1), EB_SUSPICION_WAIT);
    assert_int_equal(check(&suspicion, 1050 * MS), EB_SUSPICION_SUSPECT);
}

static void is_over_with_the_first_byte(void **state)
{
    (void)state;
    struct eb_suspicion suspicion = {0};
    for (unsigned steps = 0; steps <= 2; steps++) {
        uint64_t now_ns = 1000 * MS * (steps + 1);
        eb_suspicion_note_sent(&suspicion, now_ns);
        for (unsigned i = 0; i < steps; i++) {
            now_ns += SILENCE;
            assert_int_not_equal(check(&suspicion, now_ns), EB_SUSPICION_WAIT);
        }
        assert_int_equal(suspicion.is_suspect, steps == 2);
        eb_suspicion_note_heard(&suspicion);
        assert_false(suspicion.is_suspect);
        assert_int_equal(check(&suspicion, now_ns + 900 * MS), EB_SUSPICION_WAIT);
    }
}

static void probes_a_suspect_each_second(void **state)
{
    (void)state;
    struct eb_suspicion suspicion = {0};
    eb_suspicion_note_sent(&suspicion, 100 * MS);
    assert_int_equal(check(&suspicion, 150 * MS), EB_SUSPICION_PROBE);
    assert_int_equal(check(&suspicion, 200 * MS), EB_SUSPICION_SUSPECT);
    assert_int_equal(check(&suspicion, 1150 * MS - 1), EB_SUSPICION_WAIT);
    assert_int_equal(check(&suspicion, 1150 * MS), EB_SUSPICION_PROBE);
    assert_int_equal(check(&suspicion, 2150 * MS), EB_SUSPICION_PROBE);
    assert_true(suspicion.is_suspect);
}

static void waits_until_it_may_suspect(void **state)
{
    (void)state;
    struct eb_suspicion suspicion = {0};
    eb_suspicion_note_sent(&suspicion, 100 * MS);
    assert_int_equal(check(&suspicion, 150 * MS), EB_SUSPICION_PROBE);
    assert_int_equal(eb_suspicion_check(&suspicion, SILENCE, false, 200 * MS), EB_SUSPICION_WAIT);
    assert_false(suspicion.is_suspect);
    assert_int_equal(eb_suspicion_check(&suspicion, SILENCE, true, 200 * MS), EB_SUSPICION_SUSPECT);
}

static void begins_anew_on_a_new_connection(void **state)
{
    (void)state;
    struct eb_suspicion suspicion = {0};
    eb_suspicion_note_sent(&suspicion, 100 * MS);
    eb_suspicion_note_lost(&suspicion);
    eb_suspicion_note_connected(&suspicion, 120 * MS);
    assert_true(eb_suspicion_due_ns(&suspicion, SILENCE) == UINT64_MAX);
}

/* A proxy accepts connections for a stopped process. */
static void suspects_on_a_new_connection_until_a_byte_comes(void **state)
{
    (void)state;
    struct eb_suspicion suspicion = {0};
    eb_suspicion_note_sent(&suspicion, 100 * MS);
    assert_int_equal(check(&suspicion, 150 * MS), EB_SUSPICION_PROBE);
    assert_int_equal(check(&suspicion, 200 * MS), EB_SUSPICION_SUSPECT);
    eb_suspicion_note_lost(&suspicion);
    assert_true(eb_suspicion_due_ns(&suspicion, SILENCE) == UINT64_MAX);
    eb_suspicion_note_connected(&suspicion, 300 * MS);
    assert_true(suspicion.is_suspect);
    assert_int_equal(check(&suspicion, 300 * MS), EB_SUSPICION_PROBE);
    eb_suspicion_note_heard(&suspicion);
    assert_false(suspicion.is_suspect);
}

/* The same, told from the history of events: looks at the times of all that happened since the last
 * byte or the last loss. */
struct model {
    struct eb_suspicion suspicion;
    uint64_t now_ns;
    bool is_up;
    bool is_suspect;
    uint64_t first_sent_ns; /* 0: none */
    uint64_t last_probe_ns; /* 0: none */
};

static void reset_suspicion_model(void *state)
{
    struct model *model = state;
    *model = (struct model){.now_ns = MS, .is_up = true};
}

static void check_both(struct model *model, bool may_suspect)
{
    bool was_suspect = model->is_suspect;
    enum eb_suspicion_step expected = EB_SUSPICION_WAIT;
    if (model->first_sent_ns != 0 && was_suspect) {
        bool is_due =
            model->last_probe_ns == 0 || model->now_ns - model->last_probe_ns >= 1000 * MS;
        expected = is_due ? EB_SUSPICION_PROBE : EB_SUSPICION_WAIT;
    } else if (model->first_sent_ns != 0 && model->last_probe_ns == 0) {
        bool is_due = model->now_ns - model->first_sent_ns >= SILENCE;
        expected = is_due ? EB_SUSPICION_PROBE : EB_SUSPICION_WAIT;
    } else if (model->first_sent_ns != 0 && may_suspect) {
        bool is_due = model->now_ns - model->last_probe_ns >= SILENCE;
        expected = is_due ? EB_SUSPICION_SUSPECT : EB_SUSPICION_WAIT;
    }
    bool is_due = model->now_ns >= eb_suspicion_due_ns(&model->suspicion, SILENCE);
    enum eb_suspicion_step step =
        eb_suspicion_check(&model->suspicion, SILENCE, may_suspect, model->now_ns);
    assert_int_equal(step, expected);
    assert_true(is_due || step == EB_SUSPICION_WAIT);
    if (step == EB_SUSPICION_PROBE) {
        model->last_probe_ns = model->now_ns;
    }
    model->is_suspect |= step == EB_SUSPICION_SUSPECT;
}

enum model_event { SEND, HEAR, LOSE, CONNECT, CHECK, CHECK_FULL, WAIT_10, WAIT_50, WAIT_1000 };

static void change_connection(struct model *model, bool is_up)
{
    if (is_up == model->is_up) {
        return;
    }
    model->is_up = is_up;
    model->last_probe_ns = 0;
    model->first_sent_ns = is_up && model->is_suspect ? model->now_ns : 0;
    if (is_up) {
        eb_suspicion_note_connected(&model->suspicion, model->now_ns);
    } else {
        eb_suspicion_note_lost(&model->suspicion);
    }
}

static void step_suspicion_model(void *state, unsigned kind, uint64_t random)
{
    struct model *model = state;
    (void)random;
    switch ((enum model_event)kind) {
    case SEND:
        if (model->is_up) {
            eb_suspicion_note_sent(&model->suspicion, model->now_ns);
            model->first_sent_ns = model->first_sent_ns ? model->first_sent_ns : model->now_ns;
        }
        break;
    case HEAR:
        if (model->is_up) {
            eb_suspicion_note_heard(&model->suspicion);
            model->first_sent_ns = 0;
            model->last_probe_ns = 0;
            model->is_suspect = false;
        }
        break;
    case LOSE: change_connection(model, false); break;
    case CONNECT: change_connection(model, true); break;
    case CHECK: check_both(model, true); break;
    case CHECK_FULL: check_both(model, false); break;
    case WAIT_10: model->now_ns += 10 * MS; break;
    case WAIT_50: model->now_ns += 50 * MS; break;
    case WAIT_1000: model->now_ns += 1000 * MS; break;
    }
    assert_int_equal(model->suspicion.is_suspect, model->is_suspect);
}

static const struct eb_event_machine machine = {
    WAIT_1000 + 1, reset_suspicion_model, step_suspicion_model};

static void suspicion_agrees_with_a_model_in_every_order(void **state)
{
    (void)state;
    struct model model;
    eb_run_every_order(&machine, &model);
}

static void suspicion_agrees_with_a_model_on_random_walks(void **state)
{
    (void)state;
    struct model model;
    eb_run_walk(&machine, &model, 1);
}

EB_TEST_GROUP(suspicion)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_hedge_delay),
        cmocka_unit_test(waits_for_a_replica_without_calls),
        cmocka_unit_test(probes_then_suspects),
        cmocka_unit_test(suspects_only_after_a_probe),
        cmocka_unit_test(is_over_with_the_first_byte),
        cmocka_unit_test(probes_a_suspect_each_second),
        cmocka_unit_test(waits_until_it_may_suspect),
        cmocka_unit_test(begins_anew_on_a_new_connection),
        cmocka_unit_test(suspects_on_a_new_connection_until_a_byte_comes),
        cmocka_unit_test(suspicion_agrees_with_a_model_in_every_order),
        cmocka_unit_test(suspicion_agrees_with_a_model_on_random_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
