#include "proto/link/replica.h"

#include "proto/link/replica_choice.h"
#include "proto/splitmix64.h"
#include "tests/lib/test_group.h"
#include "tests/unit/link/event_orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define SILENCE (50 * MS)
#define REPLICAS 6

struct fixture {
    struct eb_replica replicas[REPLICAS];
    struct eb_replica *pointers[REPLICAS];
    struct eb_replica_group group;
};

static void init_group(struct fixture *f, uint32_t count, uint64_t now_ns)
{
    f->group = (struct eb_replica_group){f->pointers, count};
    for (uint32_t i = 0; i < count; i++) {
        f->pointers[i] = &f->replicas[i];
        eb_replica_init(&f->replicas[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        eb_replica_join(&f->group, &f->replicas[i], now_ns);
    }
}

/* Sends an attempt that ends after a time. */
static void run_attempt(
    struct fixture *f, uint32_t number, enum eb_attempt_end end, uint64_t time_ns, uint64_t now_ns)
{
    struct eb_replica_attempt attempt;
    eb_replica_send(&f->replicas[number], &attempt, SECOND, now_ns - time_ns);
    eb_replica_end(&f->group, &f->replicas[number], &attempt, end, now_ns);
}

static uint64_t latency_of(const struct fixture *f, uint32_t number, uint64_t now_ns)
{
    return eb_peak_latency_now(&f->replicas[number].latency, now_ns);
}

static void fail_often(struct fixture *f, uint32_t number, uint64_t now_ns)
{
    for (unsigned i = 0; i < EB_EJECTION_CALLS; i++) {
        run_attempt(f, number, EB_ATTEMPT_FAILED, 1000, now_ns);
    }
}

static void knows_the_oldest_attempt(void **state)
{
    (void)state;
    struct fixture f;
    init_group(&f, 1, MS);
    struct eb_replica_attempt attempts[3];
    assert_true(f.replicas[0].oldest_ns == UINT64_MAX);
    for (unsigned i = 0; i < 3; i++) {
        eb_replica_send(&f.replicas[0], &attempts[i], SECOND, (2 + i) * MS);
    }
    assert_int_equal(f.replicas[0].in_flight, 3);
    assert_int_equal(f.replicas[0].oldest_ns, 2 * MS);
    eb_replica_end(&f.group, &f.replicas[0], &attempts[1], EB_ATTEMPT_ANSWERED, 9 * MS);
    assert_int_equal(f.replicas[0].oldest_ns, 2 * MS);
    eb_replica_end(&f.group, &f.replicas[0], &attempts[0], EB_ATTEMPT_ANSWERED, 9 * MS);
    assert_int_equal(f.replicas[0].oldest_ns, 4 * MS);
    eb_replica_end(&f.group, &f.replicas[0], &attempts[2], EB_ATTEMPT_ANSWERED, 9 * MS);
    assert_true(f.replicas[0].oldest_ns == UINT64_MAX);
    assert_int_equal(f.replicas[0].in_flight, 0);
}

static void counts_each_end_as_what_it_says(void **state)
{
    (void)state;
    static const struct {
        enum eb_attempt_end end;
        uint64_t time_ns, before_ns, latency_ns;
        uint32_t calls, failed;
    } cases[] = {
        {EB_ATTEMPT_ANSWERED, MS, 0, MS, 1, 0},
        {EB_ATTEMPT_FAILED, 1000, 0, SECOND, 1, 1},
        {EB_ATTEMPT_REJECTED, MS, 0, 0, 0, 0},
        {EB_ATTEMPT_REJECTED, 1000, 2 * MS, 2 * MS, 0, 0},
        {EB_ATTEMPT_CANCELLED, MS, 0, MS, 0, 0},
        {EB_ATTEMPT_CANCELLED, MS, 2 * MS, 2 * MS, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        init_group(&f, 2, MS);
        eb_peak_latency_set(&f.replicas[0].latency, cases[i].before_ns, 5 * MS);
        run_attempt(&f, 0, cases[i].end, cases[i].time_ns, 5 * MS);
        assert_int_equal(latency_of(&f, 0, 5 * MS), cases[i].latency_ns);
        const uint32_t *sums = f.replicas[0].ejection.recent.sums;
        assert_int_equal(sums[EB_RECENT_CALLS], cases[i].calls);
        assert_int_equal(sums[EB_RECENT_MARKED], cases[i].failed);
    }
}

static void knows_whose_error_a_status_is(void **state)
{
    (void)state;
    assert_int_equal(eb_attempt_end_of(EB_STATUS_OK), EB_ATTEMPT_ANSWERED);
    assert_int_equal(eb_attempt_end_of(EB_STATUS_CANCELLED), EB_ATTEMPT_FAILED);
    assert_int_equal(eb_attempt_end_of(EB_STATUS_INVALID_ARGUMENT), EB_ATTEMPT_REJECTED);
    assert_int_equal(eb_attempt_end_of(EB_STATUS_OUT_OF_RANGE), EB_ATTEMPT_REJECTED);
    assert_int_equal(eb_attempt_end_of(EB_STATUS_NOT_FOUND), EB_ATTEMPT_FAILED);
    assert_int_equal(eb_attempt_end_of(EB_STATUS_UNAVAILABLE), EB_ATTEMPT_FAILED);
    assert_int_equal(eb_attempt_end_of(EB_STATUS_INTERNAL), EB_ATTEMPT_FAILED);
    assert_int_equal(eb_attempt_end_of(EB_STATUS_RESOURCE_EXHAUSTED), EB_ATTEMPT_FAILED);
    assert_int_equal(eb_attempt_end_of(EB_STATUS_DEADLINE_EXCEEDED), EB_ATTEMPT_FAILED);
}

static void joins_with_the_median_latency(void **state)
{
    (void)state;
    struct fixture f;
    init_group(&f, 6, MS);
    static const uint64_t latencies_ns[] = {0, 5 * MS, MS, 2 * MS, 9 * MS, 0};
    for (uint32_t i = 1; i < 5; i++) {
        eb_peak_latency_set(&f.replicas[i].latency, latencies_ns[i], 5 * MS);
    }
    /* Two in the middle: the lower one. Those that were not measured do not count. */
    eb_peak_latency_set(&f.replicas[0].latency, 100 * MS, 5 * MS);
    eb_replica_leave(&f.replicas[0]);
    eb_replica_join(&f.group, &f.replicas[0], 5 * MS);
    assert_int_equal(latency_of(&f, 0, 5 * MS), 2 * MS);
    /* Those that are down do not count either. */
    eb_replica_leave(&f.replicas[2]);
    eb_replica_leave(&f.replicas[3]);
    eb_replica_leave(&f.replicas[0]);
    eb_replica_join(&f.group, &f.replicas[0], 5 * MS);
    assert_int_equal(latency_of(&f, 0, 5 * MS), 5 * MS);
}

static void ramps_up_after_joining(void **state)
{
    (void)state;
    struct fixture f;
    init_group(&f, 2, SECOND);
    const struct eb_replica *replica = &f.replicas[0];
    assert_int_equal(eb_replica_share(replica, SECOND), EB_REPLICA_SHARE_MIN);
    assert_int_equal(eb_replica_share(replica, SECOND + 2500 * MS), 25);
    assert_int_equal(eb_replica_share(replica, 11 * SECOND - 1), 99);
    assert_int_equal(eb_replica_share(replica, 11 * SECOND), EB_REPLICA_SHARE_FULL);
    assert_int_equal(eb_replica_share(replica, 0), EB_REPLICA_SHARE_MIN);
}

static void ramps_up_after_an_ejection(void **state)
{
    (void)state;
    struct fixture f;
    init_group(&f, 2, SECOND);
    eb_peak_latency_set(&f.replicas[1].latency, MS, 50 * SECOND);
    fail_often(&f, 0, 50 * SECOND);
    assert_true(f.replicas[0].ejection.is_out);
    eb_replica_readmit(&f.group, &f.replicas[0], 51 * SECOND - 1);
    assert_true(f.replicas[0].ejection.is_out);
    eb_peak_latency_set(&f.replicas[1].latency, MS, 51 * SECOND);
    eb_replica_readmit(&f.group, &f.replicas[0], 51 * SECOND);
    assert_false(f.replicas[0].ejection.is_out);
    assert_int_equal(latency_of(&f, 0, 51 * SECOND), MS);
    assert_int_equal(eb_replica_share(&f.replicas[0], 51 * SECOND), EB_REPLICA_SHARE_MIN);
}

static void excludes_at_most_half_for_failures(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= REPLICAS; count++) {
        struct fixture f;
        init_group(&f, count, SECOND);
        for (uint32_t i = 0; i < count; i++) {
            fail_often(&f, i, 2 * SECOND);
        }
        assert_int_equal(eb_replica_group_excluded(&f.group), count / 2);
        /* When one is back, another one may be ejected. */
        if (count >= 3) {
            eb_replica_readmit(&f.group, &f.replicas[0], 3 * SECOND);
            fail_often(&f, count - 1, 3 * SECOND);
            assert_int_equal(eb_replica_group_excluded(&f.group), count / 2);
            assert_true(f.replicas[count - 1].ejection.is_out);
        }
    }
}

/* One attempt is answered, and then nothing comes for the other one. */
static void watches_attempts_that_were_sent_before_the_last_byte(void **state)
{
    (void)state;
    struct fixture f;
    struct eb_replica_attempt attempts[2];
    uint64_t heard_ns = SECOND + SILENCE / 2;
    init_group(&f, 2, SECOND);
    eb_replica_send(&f.replicas[0], &attempts[0], SECOND, SECOND);
    eb_replica_send(&f.replicas[0], &attempts[1], SECOND, SECOND);
    eb_replica_note_heard(&f.replicas[0], heard_ns);
    eb_replica_end(&f.group, &f.replicas[0], &attempts[0], EB_ATTEMPT_ANSWERED, heard_ns);
    assert_int_equal(
        eb_replica_check_silence(&f.group, &f.replicas[0], SILENCE, heard_ns + SILENCE - 1),
        EB_SUSPICION_WAIT);
    assert_int_equal(
        eb_replica_check_silence(&f.group, &f.replicas[0], SILENCE, heard_ns + SILENCE),
        EB_SUSPICION_PROBE);
    assert_int_equal(
        eb_replica_check_silence(&f.group, &f.replicas[0], SILENCE, heard_ns + 2 * SILENCE),
        EB_SUSPICION_SUSPECT);
}

static void is_not_silent_if_everything_is_answered(void **state)
{
    (void)state;
    struct fixture f;
    struct eb_replica_attempt attempt;
    init_group(&f, 2, SECOND);
    eb_replica_send(&f.replicas[0], &attempt, SECOND, SECOND);
    eb_replica_note_heard(&f.replicas[0], SECOND + MS);
    eb_replica_end(&f.group, &f.replicas[0], &attempt, EB_ATTEMPT_ANSWERED, SECOND + MS);
    assert_int_equal(
        eb_replica_check_silence(&f.group, &f.replicas[0], SILENCE, SECOND + 1000 * SILENCE),
        EB_SUSPICION_WAIT);
}

static void excludes_at_most_half_for_silence(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= REPLICAS; count++) {
        struct fixture f;
        struct eb_replica_attempt attempts[REPLICAS];
        init_group(&f, count, SECOND);
        for (uint32_t i = 0; i < count; i++) {
            eb_replica_send(&f.replicas[i], &attempts[i], SECOND, SECOND);
        }
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(
                eb_replica_check_silence(&f.group, &f.replicas[i], SILENCE, SECOND + SILENCE),
                EB_SUSPICION_PROBE);
        }
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(
                eb_replica_check_silence(&f.group, &f.replicas[i], SILENCE, SECOND + 2 * SILENCE),
                i < count / 2 ? EB_SUSPICION_SUSPECT : EB_SUSPICION_WAIT);
        }
        assert_int_equal(eb_replica_group_excluded(&f.group), count / 2);
    }
}

/* A replica that is down cannot take the calls of one that is excluded. */
static void excludes_at_most_half_of_those_that_are_up(void **state)
{
    (void)state;
    struct fixture f;
    init_group(&f, 4, SECOND);
    eb_replica_leave(&f.replicas[3]);
    fail_often(&f, 0, 2 * SECOND);
    fail_often(&f, 1, 2 * SECOND);
    assert_int_equal(eb_replica_group_excluded(&f.group), 1);
}

/* Three replicas under all events. What must hold is told by counting. */
#define GROUP 3
#define FLIGHTS 8

struct model {
    struct fixture f;
    uint64_t now_ns;
    struct flight {
        struct eb_replica_attempt attempt;
        uint32_t replica;
        bool is_used;
    } flights[FLIGHTS];
};

enum model_event {
    SEND,
    ANSWER,
    FAIL,
    FAIL_OFTEN,
    GIVE_UP,
    HEAR,
    CHECK,
    FLIP,
    WAIT_60_MS,
    WAIT_SECONDS,
    MODEL_EVENTS
};

static void reset_replica_model(void *state)
{
    struct model *model = state;
    model->now_ns = SECOND;
    init_group(&model->f, GROUP, SECOND);
    for (unsigned i = 0; i < FLIGHTS; i++) {
        model->flights[i].is_used = false;
    }
}

static void send_in_model(struct model *model, struct eb_replica *replica)
{
    for (unsigned i = 0; i < FLIGHTS; i++) {
        struct flight *flight = &model->flights[i];
        if (!flight->is_used) {
            flight->is_used = true;
            flight->replica = (uint32_t)(replica - model->f.replicas);
            eb_replica_send(replica, &flight->attempt, SECOND, model->now_ns);
            return;
        }
    }
}

static void end_in_model(struct model *model, enum eb_attempt_end end, uint64_t random)
{
    for (unsigned i = 0; i < FLIGHTS; i++) {
        struct flight *flight = &model->flights[(i + random) % FLIGHTS];
        if (flight->is_used) {
            flight->is_used = false;
            eb_replica_end(&model->f.group, &model->f.replicas[flight->replica], &flight->attempt,
                end, model->now_ns);
            return;
        }
    }
}

static void assert_flights(const struct model *model)
{
    for (uint32_t i = 0; i < GROUP; i++) {
        uint32_t in_flight = 0;
        uint64_t oldest_ns = UINT64_MAX;
        for (unsigned j = 0; j < FLIGHTS; j++) {
            const struct flight *flight = &model->flights[j];
            if (flight->is_used && flight->replica == i) {
                in_flight++;
                uint64_t sent_ns = flight->attempt.sent_ns;
                oldest_ns = sent_ns < oldest_ns ? sent_ns : oldest_ns;
            }
        }
        assert_int_equal(model->f.replicas[i].in_flight, in_flight);
        assert_true(model->f.replicas[i].oldest_ns == oldest_ns);
    }
}

/* Returns how badly a replica suits: 0 well, 3 not at all. */
static unsigned rank_of(const struct model *model, uint32_t number, unsigned tried_set)
{
    const struct eb_replica *replica = &model->f.replicas[number];
    if (!replica->is_up || tried_set >> number & 1) {
        return 3;
    }
    return replica->suspicion.is_suspect ? 2 : model->now_ns < replica->ejection.until_ns;
}

/* Asserts that no replica suits better than the chosen one, if some were tried. */
static void assert_choice(struct model *model, unsigned tried_set, uint64_t random)
{
    const struct eb_replica *tried[GROUP];
    struct eb_choice_terms terms = {
        .random = (uint32_t)random, .now_ns = model->now_ns, .tried = tried};
    for (uint32_t i = 0; i < GROUP; i++) {
        if (tried_set >> i & 1) {
            tried[terms.tried_count++] = &model->f.replicas[i];
        }
    }
    const struct eb_replica *chosen = eb_replica_choose(&model->f.group, &terms);
    unsigned best = 3;
    unsigned rank_chosen = 3;
    for (uint32_t i = 0; i < GROUP; i++) {
        unsigned rank = rank_of(model, i, tried_set);
        best = rank < best ? rank : best;
        rank_chosen = chosen == &model->f.replicas[i] ? rank : rank_chosen;
    }
    assert_int_equal(!chosen, best == 3);
    assert_int_equal(rank_chosen, best);
}

static void apply_event(struct model *model, enum model_event event, uint64_t random)
{
    struct fixture *f = &model->f;
    uint32_t number = (uint32_t)(random >> 32) % GROUP;
    struct eb_replica *replica = &f->replicas[number];
    switch (event) {
    case SEND:
        if (replica->is_up) {
            send_in_model(model, replica);
        }
        break;
    case ANSWER: end_in_model(model, EB_ATTEMPT_ANSWERED, random); break;
    case FAIL: end_in_model(model, EB_ATTEMPT_FAILED, random); break;
    case FAIL_OFTEN: fail_often(f, number, model->now_ns); break;
    case GIVE_UP:
        end_in_model(model, random % 2 ? EB_ATTEMPT_REJECTED : EB_ATTEMPT_CANCELLED, random);
        break;
    case HEAR: eb_replica_note_heard(replica, model->now_ns); break;
    case CHECK:
        for (uint32_t i = 0; i < GROUP; i++) {
            eb_replica_check_silence(&f->group, &f->replicas[i], SILENCE, model->now_ns);
        }
        break;
    case FLIP:
        if (replica->is_up) {
            eb_replica_leave(replica);
        } else {
            eb_replica_join(&f->group, replica, model->now_ns);
        }
        break;
    case WAIT_60_MS: model->now_ns += 60 * MS; break;
    case WAIT_SECONDS: model->now_ns += (1 + random % 11) * SECOND; break;
    case MODEL_EVENTS: break;
    }
}

static void step_replica_model(void *state, unsigned kind, uint64_t random)
{
    struct model *model = state;
    uint32_t before = eb_replica_group_excluded(&model->f.group);
    apply_event(model, (enum model_event)kind, random);
    assert_flights(model);
    /* The others must be able to take the calls. A replica that comes back may still be suspect. */
    uint32_t excluded = eb_replica_group_excluded(&model->f.group);
    assert_true(excluded <= GROUP / 2 || excluded <= before || kind == FLIP);
    assert_choice(model, (unsigned)(random >> 60) & ((1u << GROUP) - 1), random);
    for (uint32_t i = 0; i < GROUP; i++) {
        assert_true(latency_of(&model->f, i, model->now_ns) <= EB_PEAK_LATENCY_MAX_NS);
    }
}

static const struct eb_event_machine machine = {
    MODEL_EVENTS, reset_replica_model, step_replica_model};

static void group_holds_its_rules_in_every_order(void **state)
{
    (void)state;
    static struct model model;
    eb_run_every_order(&machine, &model);
}

static void group_holds_its_rules_on_random_walks(void **state)
{
    (void)state;
    static struct model model;
    eb_run_walk(&machine, &model, 1);
}

EB_TEST_GROUP(replica)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_the_oldest_attempt),
        cmocka_unit_test(counts_each_end_as_what_it_says),
        cmocka_unit_test(knows_whose_error_a_status_is),
        cmocka_unit_test(joins_with_the_median_latency),
        cmocka_unit_test(ramps_up_after_joining),
        cmocka_unit_test(ramps_up_after_an_ejection),
        cmocka_unit_test(excludes_at_most_half_for_failures),
        cmocka_unit_test(watches_attempts_that_were_sent_before_the_last_byte),
        cmocka_unit_test(is_not_silent_if_everything_is_answered),
        cmocka_unit_test(excludes_at_most_half_for_silence),
        cmocka_unit_test(excludes_at_most_half_of_those_that_are_up),
        cmocka_unit_test(group_holds_its_rules_in_every_order),
        cmocka_unit_test(group_holds_its_rules_on_random_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
