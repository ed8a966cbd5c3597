#include "proto/link/alarms.h"

#include "proto/list.h"
#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define COUNT 200

struct bell {
    struct eb_alarm alarm;
    unsigned ring_count;
};

static uint64_t last_ns; /* time of the last ring */
static bool in_order;
static struct eb_alarms *ringing;
static struct bell *victim; /* the alarm that the next ring clears, or NULL */

static void on_ring(struct eb_alarm *alarm)
{
    in_order = in_order && alarm->at_ns >= last_ns && alarm->slot == 0;
    last_ns = alarm->at_ns;
    EB_CONTAINER_OF(alarm, struct bell, alarm)->ring_count++;
    if (victim) {
        eb_alarms_clear(ringing, &victim->alarm);
        victim = NULL;
    }
}

static int set_up(void **state)
{
    static struct eb_alarms alarms;
    *state = &alarms;
    ringing = &alarms;
    last_ns = 0;
    in_order = true;
    victim = NULL;
    return eb_alarms_init(&alarms, COUNT) ? 0 : -1;
}

static int tear_down(void **state)
{
    eb_alarms_deinit(*state);
    return 0;
}

static void rings_what_is_due_in_order(void **state)
{
    struct eb_alarms *alarms = *state;
    struct bell bells[COUNT] = {0};
    for (unsigned i = 0; i < COUNT; i++) {
        bells[i].alarm.ring = on_ring;
        eb_alarms_set(alarms, &bells[i].alarm, i * 7919 % COUNT + 1);
    }
    assert_int_equal(eb_alarms_next_ns(alarms), 1);
    eb_alarms_ring(alarms, COUNT / 2);
    assert_int_equal(last_ns, COUNT / 2);
    assert_int_equal(eb_alarms_next_ns(alarms), COUNT / 2 + 1);
    eb_alarms_ring(alarms, UINT64_MAX - 1);
    assert_true(in_order);
    assert_int_equal(eb_alarms_next_ns(alarms), UINT64_MAX);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(bells[i].ring_count, 1);
    }
}

static void forgets_what_is_cleared_and_moves_what_is_set_again(void **state)
{
    struct eb_alarms *alarms = *state;
    struct bell bells[COUNT] = {0};
    for (unsigned i = 0; i < COUNT; i++) {
        bells[i].alarm.ring = on_ring;
        eb_alarms_set(alarms, &bells[i].alarm, i * 31 % COUNT + 1);
    }
    for (unsigned i = 0; i < COUNT; i += 3) {
        eb_alarms_clear(alarms, &bells[i].alarm);
        eb_alarms_clear(alarms, &bells[i].alarm);
    }
    for (unsigned i = 1; i < COUNT; i += 3) {
        eb_alarms_set(alarms, &bells[i].alarm, COUNT + i);
    }
    eb_alarms_ring(alarms, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(bells[i].ring_count, i % 3 == 2);
    }
    eb_alarms_ring(alarms, 2 * COUNT);
    assert_true(in_order);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(bells[i].ring_count, i % 3 != 0);
    }
}

static void lets_a_ring_clear_another(void **state)
{
    struct eb_alarms *alarms = *state;
    struct bell bells[2] = {{.alarm.ring = on_ring}, {.alarm.ring = on_ring}};
    eb_alarms_set(alarms, &bells[0].alarm, 1);
    eb_alarms_set(alarms, &bells[1].alarm, 1);
    struct bell *first = &bells[alarms->heap[1] == &bells[1].alarm];
    victim = first == &bells[0] ? &bells[1] : &bells[0];
    struct bell *spared = victim;
    eb_alarms_ring(alarms, 1);
    assert_int_equal(first->ring_count, 1);
    assert_int_equal(spared->ring_count, 0);
}

EB_TEST_GROUP(alarms)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rings_what_is_due_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            forgets_what_is_cleared_and_moves_what_is_set_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lets_a_ring_clear_another, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
