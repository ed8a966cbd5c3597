#include "proto/link/replica_choice.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define REPLICAS 8
#define NOW (100 * SECOND)
#define CHOICES 100000

struct fixture {
    struct eb_replica replicas[REPLICAS];
    struct eb_replica *pointers[REPLICAS];
    struct eb_replica_group group;
    struct eb_choice_terms terms;
    uint32_t chosen[REPLICAS + 1]; /* how often; the last one: none */
};

/* All are old, and have a latency of 1 ms. */
static void begin_choices(struct fixture *f, uint32_t count)
{
    *f = (struct fixture){.group = {f->pointers, count}, .terms = {.random = 1, .now_ns = NOW}};
    for (uint32_t i = 0; i < count; i++) {
        f->pointers[i] = &f->replicas[i];
        eb_replica_init(&f->replicas[i]);
        f->replicas[i].is_up = true;
        f->replicas[i].joined_ns = SECOND;
        eb_peak_latency_set(&f->replicas[i].latency, MS, NOW);
    }
}

static void eject(struct eb_replica *replica)
{
    eb_ejection_begin(&replica->ejection, NOW - 1);
}

static void count_choices(struct fixture *f)
{
    for (uint32_t i = 0; i <= REPLICAS; i++) {
        f->chosen[i] = 0;
    }
    for (uint32_t i = 0; i < CHOICES; i++) {
        f->terms.random = i;
        const struct eb_replica *chosen = eb_replica_choose(&f->group, &f->terms);
        f->chosen[chosen ? chosen - f->replicas : REPLICAS]++;
    }
}

static void assert_share(uint32_t chosen, uint32_t of)
{
    assert_in_range(chosen, CHOICES / of * 97 / 100, CHOICES / of * 103 / 100);
}

static void finds_none_where_none_is_up(void **state)
{
    (void)state;
    struct fixture f;
    for (uint32_t count = 0; count <= 3; count++) {
        begin_choices(&f, count);
        for (uint32_t i = 0; i < count; i++) {
            f.replicas[i].is_up = false;
        }
        assert_null(eb_replica_choose(&f.group, &f.terms));
    }
}

static void takes_the_only_one(void **state)
{
    (void)state;
    struct fixture f;
    begin_choices(&f, 1);
    f.replicas[0].joined_ns = NOW;
    count_choices(&f);
    assert_int_equal(f.chosen[0], CHOICES);
}

static void depends_on_the_random_number_alone(void **state)
{
    (void)state;
    struct fixture f;
    begin_choices(&f, 5);
    for (uint32_t i = 0; i < 1000; i++) {
        f.terms.random = i * 2654435761u;
        const struct eb_replica *chosen = eb_replica_choose(&f.group, &f.terms);
        assert_ptr_equal(chosen, eb_replica_choose(&f.group, &f.terms));
    }
}

static void spreads_calls_evenly_over_equal_replicas(void **state)
{
    (void)state;
    struct fixture f;
    for (uint32_t count = 2; count <= REPLICAS; count++) {
        begin_choices(&f, count);
        count_choices(&f);
        for (uint32_t i = 0; i < count; i++) {
            assert_share(f.chosen[i], count);
        }
    }
}

/* The neighbours of one that gets none must not get more than others. */
static void spreads_calls_evenly_over_those_that_are_left(void **state)
{
    (void)state;
    struct fixture f;
    begin_choices(&f, 6);
    f.replicas[0].is_up = false;
    eject(&f.replicas[2]);
    f.replicas[3].suspicion.is_suspect = true;
    count_choices(&f);
    for (uint32_t i = 0; i < 6; i++) {
        if (i == 1 || i >= 4) {
            assert_share(f.chosen[i], 3);
        } else {
            assert_int_equal(f.chosen[i], 0);
        }
    }
}

/* Of two, the cheaper one gets everything. */
static void prefers_the_cheaper_one(void **state)
{
    (void)state;
    struct fixture f;
    struct eb_replica_attempt attempts[3];
    begin_choices(&f, 2);
    eb_peak_latency_set(&f.replicas[0].latency, MS + 1, NOW);
    count_choices(&f);
    assert_int_equal(f.chosen[1], CHOICES);

    /* Twice the latency, but idle: 2 * 1 against 1 * 3. */
    begin_choices(&f, 2);
    eb_peak_latency_set(&f.replicas[0].latency, 2 * MS, NOW);
    eb_replica_send(&f.replicas[1], &attempts[0], SECOND, NOW);
    eb_replica_send(&f.replicas[1], &attempts[1], SECOND, NOW);
    count_choices(&f);
    assert_int_equal(f.chosen[0], CHOICES);

    /* The age of the oldest attempt counts if it is larger than the latency. */
    begin_choices(&f, 2);
    eb_replica_send(&f.replicas[0], &attempts[0], SECOND, NOW - 2 * MS);
    eb_replica_send(&f.replicas[1], &attempts[1], SECOND, NOW);
    eb_replica_send(&f.replicas[1], &attempts[2], SECOND, NOW);
    count_choices(&f);
    assert_int_equal(f.chosen[1], CHOICES);
}

/* The worst one of several is never the better one of two. */
static void never_takes_the_worst(void **state)
{
    (void)state;
    struct fixture f;
    begin_choices(&f, 4);
    for (uint32_t i = 0; i < 4; i++) {
        eb_peak_latency_set(&f.replicas[i].latency, (i + 1) * MS, NOW);
    }
    count_choices(&f);
    assert_share(f.chosen[0], 2);
    assert_share(f.chosen[1], 3);
    assert_share(f.chosen[2], 6);
    assert_int_equal(f.chosen[3], 0);
}

/* Before any answer has come, attempts in flight still count. */
static void spreads_the_first_calls(void **state)
{
    (void)state;
    struct fixture f;
    struct eb_replica_attempt attempts[90];
    begin_choices(&f, 3);
    for (uint32_t i = 0; i < 3; i++) {
        eb_peak_latency_set(&f.replicas[i].latency, 0, NOW);
    }
    for (uint32_t i = 0; i < 90; i++) {
        f.terms.random = i;
        eb_replica_send(eb_replica_choose(&f.group, &f.terms), &attempts[i], SECOND, NOW);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_in_range(f.replicas[i].in_flight, 25, 35);
    }
}

static void never_takes_one_that_was_tried(void **state)
{
    (void)state;
    struct fixture f;
    begin_choices(&f, 4);
    const struct eb_replica *tried[] = {
        &f.replicas[1], &f.replicas[3], &f.replicas[0], &f.replicas[2]};
    f.terms.tried = tried;
    f.terms.tried_count = 2;
    count_choices(&f);
    assert_share(f.chosen[0], 2);
    assert_share(f.chosen[2], 2);
    f.terms.tried_count = 3;
    count_choices(&f);
    assert_int_equal(f.chosen[2], CHOICES);
    f.terms.tried_count = 4;
    assert_null(eb_replica_choose(&f.group, &f.terms));
}

static bool is_not_second(const void *context, const struct eb_replica *replica)
{
    const struct fixture *f = context;
    return replica != &f->replicas[1];
}

static bool is_nobody(const void *context, const struct eb_replica *replica)
{
    (void)context;
    (void)replica;
    return false;
}

static void takes_only_one_with_room(void **state)
{
    (void)state;
    struct fixture f;
    begin_choices(&f, 3);
    f.terms.takes = is_not_second;
    f.terms.context = &f;
    count_choices(&f);
    assert_share(f.chosen[0], 2);
    assert_share(f.chosen[2], 2);
    /* A call waits for room at good replicas, and does not go to ejected ones. */
    eject(&f.replicas[0]);
    eject(&f.replicas[2]);
    assert_null(eb_replica_choose(&f.group, &f.terms));
    f.terms.takes = is_nobody;
    assert_null(eb_replica_choose(&f.group, &f.terms));
}

static void falls_back_to_ejected_then_to_suspect_ones(void **state)
{
    (void)state;
    struct fixture f;
    begin_choices(&f, 3);
    eject(&f.replicas[0]);
    f.replicas[1].suspicion.is_suspect = true;
    f.replicas[2].is_up = false;
    count_choices(&f);
    assert_int_equal(f.chosen[0], CHOICES);
    f.replicas[0].is_up = false;
    count_choices(&f);
    assert_int_equal(f.chosen[1], CHOICES);
}

static void readmits_one_whose_ejection_is_over(void **state)
{
    (void)state;
    struct fixture f;
    begin_choices(&f, 2);
    eject(&f.replicas[0]);
    f.terms.now_ns = NOW - 1 + EB_EJECTION_FIRST_NS;
    count_choices(&f);
    assert_false(f.replicas[0].ejection.is_out);
    assert_true(f.replicas[0].joined_ns == f.terms.now_ns);
}

/* A new one is chosen in proportion to its share. If all are new, they are equal. */
static void passes_over_new_ones(void **state)
{
    (void)state;
    struct fixture f;
    begin_choices(&f, 2);
    f.replicas[0].joined_ns = NOW - 4 * SECOND;
    count_choices(&f);
    /* Costs are equal, so that it gets half of the 40 / 160 in which it is not passed over. */
    assert_in_range(f.chosen[0], CHOICES * 12 / 100, CHOICES * 13 / 100);
    /* If it is cheaper, it gets them all. */
    eb_peak_latency_set(&f.replicas[0].latency, MS / 2, NOW);
    count_choices(&f);
    assert_in_range(f.chosen[0], CHOICES * 24 / 100, CHOICES * 26 / 100);
    eb_peak_latency_set(&f.replicas[0].latency, MS, NOW);
    f.replicas[1].joined_ns = NOW - 4 * SECOND;
    count_choices(&f);
    assert_share(f.chosen[0], 2);
}

EB_TEST_GROUP(replica_choice)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_none_where_none_is_up),
        cmocka_unit_test(takes_the_only_one),
        cmocka_unit_test(depends_on_the_random_number_alone),
        cmocka_unit_test(spreads_calls_evenly_over_equal_replicas),
        cmocka_unit_test(spreads_calls_evenly_over_those_that_are_left),
        cmocka_unit_test(prefers_the_cheaper_one),
        cmocka_unit_test(never_takes_the_worst),
        cmocka_unit_test(spreads_the_first_calls),
        cmocka_unit_test(never_takes_one_that_was_tried),
        cmocka_unit_test(takes_only_one_with_room),
        cmocka_unit_test(falls_back_to_ejected_then_to_suspect_ones),
        cmocka_unit_test(readmits_one_whose_ejection_is_over),
        cmocka_unit_test(passes_over_new_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
