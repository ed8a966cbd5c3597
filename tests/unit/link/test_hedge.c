#include "proto/link/hedge.h"

#include "tests/lib/test_group.h"
#include "tests/unit/link/event_orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define NOW (100 * SECOND)
#define BYTES 8192

static const struct eb_hedge_call CALL = {.bytes = BYTES, .deadline_ns = UINT64_MAX};

static void note_some(
    struct eb_hedge *hedge, unsigned count, uint64_t bytes, uint64_t latency_ns, uint64_t now_ns)
{
    for (unsigned i = 0; i < count; i++) {
        eb_hedge_note_latency(hedge, bytes, latency_ns, now_ns);
    }
}

/* Initialises a hedge that has latencies of 1 ms and all tokens. */
static void begin_hedging(struct eb_hedge *hedge)
{
    eb_hedge_init(hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
    note_some(hedge, 1000, BYTES, MS, NOW);
    for (unsigned i = 0; i < 10000; i++) {
        (void)eb_hedge_begin(hedge, &CALL, NOW);
    }
}

/* Returns the delay of a call that is sent now, in us; 0 if it is not hedged. */
static uint64_t delay_us(struct eb_hedge *hedge, const struct eb_hedge_call *call, uint64_t now_ns)
{
    uint64_t at_ns = eb_hedge_begin(hedge, call, now_ns);
    return at_ns == EB_HEDGE_NEVER ? 0 : (at_ns - now_ns) / 1000;
}

static unsigned take_all(struct eb_hedge *hedge, uint64_t now_ns)
{
    unsigned taken = 0;
    while (eb_hedge_take(hedge, &CALL, now_ns)) {
        taken++;
    }
    return taken;
}

static void waits_for_the_98th_percentile(void **state)
{
    (void)state;
    struct eb_hedge hedge;
    eb_hedge_init(&hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
    note_some(&hedge, 970, BYTES, MS, NOW);
    note_some(&hedge, 30, BYTES, 20 * MS, NOW);
    assert_in_range(delay_us(&hedge, &CALL, NOW), 19000, 21000);
    note_some(&hedge, 1000, BYTES, MS, NOW);
    assert_in_range(delay_us(&hedge, &CALL, NOW + EB_HEDGE_SUMMARY_NS), 950, 1060);
}

static void waits_at_least_the_least_delay(void **state)
{
    (void)state;
    struct eb_hedge hedge;
    eb_hedge_init(&hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
    note_some(&hedge, 1000, BYTES, 100000, NOW);
    assert_int_equal(delay_us(&hedge, &CALL, NOW), 300);
}

static void needs_a_hundred_latencies(void **state)
{
    (void)state;
    struct eb_hedge hedge;
    eb_hedge_init(&hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
    note_some(&hedge, EB_HEDGE_SAMPLES_MIN - 1, BYTES, MS, NOW);
    assert_int_equal(delay_us(&hedge, &CALL, NOW), 0);
    note_some(&hedge, 1, BYTES, MS, NOW);
    assert_int_not_equal(delay_us(&hedge, &CALL, NOW + EB_HEDGE_SUMMARY_NS), 0);
    /* They are forgotten. */
    assert_int_equal(delay_us(&hedge, &CALL, NOW + 10 * SECOND), 0);
}

static void knows_size_classes(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1024, 1025, 4096, 4097, 16384, 64 << 20, (64 << 20) + 1};
    static const bool is_new[] = {true, false, true, false, true, false, true, true};
    struct eb_hedge hedge;
    eb_hedge_init(&hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct eb_hedge_call call = {.bytes = sizes[i], .deadline_ns = UINT64_MAX};
        uint64_t now_ns = NOW + i * EB_HEDGE_SUMMARY_NS;
        assert_int_equal(delay_us(&hedge, &call, now_ns) == 0, is_new[i]);
        note_some(&hedge, 100, sizes[i], (i + 1) * MS, now_ns);
    }
    struct eb_hedge_call huge = {.bytes = UINT64_MAX, .deadline_ns = UINT64_MAX};
    assert_int_not_equal(delay_us(&hedge, &huge, NOW + SECOND), 0);
}

static void leaves_batch_calls_alone(void **state)
{
    (void)state;
    static struct eb_hedge hedge;
    struct eb_hedge_call batch = CALL;
    batch.is_batch = true;
    begin_hedging(&hedge);
    assert_int_equal(delay_us(&hedge, &batch, NOW), 0);
    assert_false(eb_hedge_take(&hedge, &batch, NOW));
    assert_true(eb_hedge_take(&hedge, &CALL, NOW));
}

static void does_nothing_at_zero_percent(void **state)
{
    (void)state;
    struct eb_hedge hedge;
    eb_hedge_init(&hedge, 0, EB_HEDGE_DELAY_MIN_NS);
    note_some(&hedge, 1000, BYTES, MS, NOW);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(delay_us(&hedge, &CALL, NOW), 0);
    }
    assert_false(eb_hedge_take(&hedge, &CALL, NOW));
}

/* All latencies are in one range of the histogram, so the median may be less than 1 ms. */
static void needs_a_median_until_the_deadline(void **state)
{
    (void)state;
    static struct eb_hedge hedge;
    begin_hedging(&hedge);
    struct eb_hedge_call call = CALL;
    call.deadline_ns = NOW + 1030000;
    assert_true(eb_hedge_take(&hedge, &call, NOW));
    call.deadline_ns = NOW + 940000;
    assert_false(eb_hedge_take(&hedge, &call, NOW));
    call.deadline_ns = NOW;
    assert_false(eb_hedge_take(&hedge, &call, NOW));
    call.deadline_ns = NOW - SECOND;
    assert_false(eb_hedge_take(&hedge, &call, NOW));
    /* One that could not be hedged in time gets no time at all. */
    call.deadline_ns = NOW + 1800000;
    assert_int_equal(delay_us(&hedge, &call, NOW), 0);
    call.deadline_ns = NOW + 2200000;
    assert_int_not_equal(delay_us(&hedge, &call, NOW), 0);
}

static void earns_one_token_in_twenty_calls(void **state)
{
    (void)state;
    struct eb_hedge hedge;
    eb_hedge_init(&hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
    note_some(&hedge, 1000, BYTES, MS, NOW);
    for (unsigned i = 1; i <= 19; i++) {
        (void)eb_hedge_begin(&hedge, &CALL, NOW);
    }
    assert_false(eb_hedge_take(&hedge, &CALL, NOW));
    (void)eb_hedge_begin(&hedge, &CALL, NOW);
    assert_int_equal(take_all(&hedge, NOW), 1);
}

static void saves_a_bounded_number_of_tokens(void **state)
{
    (void)state;
    static struct eb_hedge hedge;
    begin_hedging(&hedge);
    assert_int_equal(take_all(&hedge, NOW), EB_HEDGE_TOKENS_MAX);
}

static void stops_after_a_push_back(void **state)
{
    (void)state;
    static struct eb_hedge hedge;
    begin_hedging(&hedge);
    eb_hedge_note_pushback(&hedge, NOW);
    assert_int_equal(take_all(&hedge, NOW + EB_HEDGE_PUSHBACK_NS - 1), 0);
    assert_int_equal(take_all(&hedge, NOW + EB_HEDGE_PUSHBACK_NS), EB_HEDGE_TOKENS_MAX);
}

/* After a change, hedges stop when the median of ten seconds is slow, and begin again when that is
 * usual. */
static void stops_while_all_are_slow(void **state)
{
    (void)state;
    struct eb_hedge hedge;
    eb_hedge_init(&hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
    unsigned hedged[80] = {0};
    for (uint64_t second = 0; second < 80; second++) {
        for (uint64_t i = 0; i < 50; i++) {
            uint64_t now_ns = NOW + second * SECOND + i * 20 * MS;
            hedged[second] += delay_us(&hedge, &CALL, now_ns) > 0;
            note_some(&hedge, 1, BYTES, second < 30 ? MS : 10 * MS, now_ns);
        }
    }
    assert_int_equal(hedged[29], 50);
    for (unsigned second = 38; second < 58; second++) {
        assert_int_equal(hedged[second], 0);
    }
    assert_int_equal(hedged[79], 50);
}

/* Less than twice as slow is not slow. */
static void goes_on_while_all_are_a_little_slower(void **state)
{
    (void)state;
    struct eb_hedge hedge;
    eb_hedge_init(&hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
    note_some(&hedge, 1000, BYTES, MS, NOW);
    note_some(&hedge, 500, BYTES, 17 * MS / 10, NOW + 20 * SECOND);
    assert_int_not_equal(delay_us(&hedge, &CALL, NOW + 20 * SECOND), 0);
}

static void knows_the_longest_delay(void **state)
{
    (void)state;
    static struct eb_hedge hedge;
    struct eb_hedge_call large = {.bytes = 1 << 20, .deadline_ns = UINT64_MAX};
    eb_hedge_init(&hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
    assert_int_equal(eb_hedge_delay_max_ns(&hedge, NOW), 0);
    note_some(&hedge, 100, BYTES, MS, NOW);
    note_some(&hedge, 100, large.bytes, 30 * MS, NOW);
    (void)eb_hedge_begin(&hedge, &CALL, NOW);
    assert_in_range(eb_hedge_delay_max_ns(&hedge, NOW), 940000, 1060000);
    (void)eb_hedge_begin(&hedge, &large, NOW);
    assert_in_range(eb_hedge_delay_max_ns(&hedge, NOW), 28 * MS, 32 * MS);
    assert_int_equal(eb_hedge_delay_max_ns(&hedge, NOW + 10 * SECOND), 0);
}

/* The rules, told by what happened when. The model does not know quantiles, only that the latencies
 * are all fast (1 ms) or all slow (10 ms). */
struct model {
    struct eb_hedge hedge;
    uint64_t now_ns;
    uint64_t calls;
    uint64_t hedges;
    uint32_t hundredths;
    uint64_t pushback_ns;  /* of the last push-back; 0: none */
    uint64_t samples_ns;   /* of the last samples; 0: none */
    bool has_slow_samples; /* there were slow ones at some time */
};

enum model_event {
    BEGIN_MANY,
    TAKE,
    TAKE_LATE,
    PUSH_BACK,
    NOTE_FAST,
    NOTE_SLOW,
    WAIT_100_MS,
    WAIT_SECONDS,
    MODEL_EVENTS /* few, because a hedge is large */
};

static void reset_hedge_model(void *state)
{
    struct model *model = state;
    *model = (struct model){.now_ns = NOW};
    eb_hedge_init(&model->hedge, EB_HEDGE_PERCENT, EB_HEDGE_DELAY_MIN_NS);
}

static void begin_in_model(struct model *model, unsigned calls)
{
    for (unsigned i = 0; i < calls; i++) {
        uint64_t at_ns = eb_hedge_begin(&model->hedge, &CALL, model->now_ns);
        assert_true(at_ns >= model->now_ns + EB_HEDGE_DELAY_MIN_NS);
        bool has_samples = model->samples_ns > 0 && model->now_ns < model->samples_ns + 11 * SECOND;
        assert_true(has_samples || at_ns == EB_HEDGE_NEVER);
        model->calls++;
        model->hundredths = model->hundredths < 6395 ? model->hundredths + 5 : 6400;
    }
}

static void take_in_model(struct model *model, uint64_t left_ns)
{
    struct eb_hedge_call call = {.bytes = BYTES, .deadline_ns = model->now_ns + left_ns};
    bool is_pushed_back =
        model->pushback_ns > 0 && model->now_ns < model->pushback_ns + EB_HEDGE_PUSHBACK_NS;
    bool has_samples = model->samples_ns > 0 && model->now_ns < model->samples_ns + 11 * SECOND;
    bool is_fresh = has_samples && model->now_ns < model->samples_ns + 7 * SECOND &&
                    model->now_ns >= model->samples_ns + EB_HEDGE_SUMMARY_NS;
    bool may = has_samples && !is_pushed_back && model->hundredths >= 100 && left_ns > 500000;
    bool must = may && is_fresh && !model->has_slow_samples;
    bool takes = eb_hedge_take(&model->hedge, &call, model->now_ns);
    assert_true(!takes || may);
    assert_true(takes || !must);
    model->hedges += takes;
    model->hundredths -= takes ? 100 : 0;
}

static void note_in_model(struct model *model, uint64_t latency_ns)
{
    note_some(&model->hedge, 100, BYTES, latency_ns, model->now_ns);
    model->samples_ns = model->now_ns;
    model->has_slow_samples |= latency_ns > MS;
}

static void step_hedge_model(void *state, unsigned kind, uint64_t random)
{
    struct model *model = state;
    switch ((enum model_event)kind) {
    case BEGIN_MANY: begin_in_model(model, 21); break;
    case TAKE: take_in_model(model, SECOND); break;
    case TAKE_LATE: take_in_model(model, 500000); break;
    case PUSH_BACK:
        eb_hedge_note_pushback(&model->hedge, model->now_ns);
        model->pushback_ns = model->now_ns;
        break;
    case NOTE_FAST: note_in_model(model, MS); break;
    case NOTE_SLOW: note_in_model(model, 10 * MS); break;
    case WAIT_100_MS: model->now_ns += 100 * MS; break;
    case WAIT_SECONDS: model->now_ns += (1 + random % 12) * SECOND; break;
    case MODEL_EVENTS: break;
    }
    assert_int_equal(model->hedge.saved, model->hundredths);
    assert_true(model->hedges * 100 <= model->calls * EB_HEDGE_PERCENT);
}

static const struct eb_event_machine machine = {MODEL_EVENTS, reset_hedge_model, step_hedge_model};

static void hedge_holds_its_rules_in_every_order(void **state)
{
    (void)state;
    static struct model model;
    eb_run_every_order(&machine, &model);
}

static void hedge_holds_its_rules_on_random_walks(void **state)
{
    (void)state;
    static struct model model;
    eb_run_walk(&machine, &model, 1);
}

EB_TEST_GROUP(hedge)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_the_98th_percentile),
        cmocka_unit_test(waits_at_least_the_least_delay),
        cmocka_unit_test(needs_a_hundred_latencies),
        cmocka_unit_test(knows_size_classes),
        cmocka_unit_test(leaves_batch_calls_alone),
        cmocka_unit_test(does_nothing_at_zero_percent),
        cmocka_unit_test(needs_a_median_until_the_deadline),
        cmocka_unit_test(earns_one_token_in_twenty_calls),
        cmocka_unit_test(saves_a_bounded_number_of_tokens),
        cmocka_unit_test(stops_after_a_push_back),
        cmocka_unit_test(stops_while_all_are_slow),
        cmocka_unit_test(goes_on_while_all_are_a_little_slower),
        cmocka_unit_test(knows_the_longest_delay),
        cmocka_unit_test(hedge_holds_its_rules_in_every_order),
        cmocka_unit_test(hedge_holds_its_rules_on_random_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
