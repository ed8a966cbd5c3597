#include "server/work/rate.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TILE 131072

static void add_tiles(struct eb_rate *rate, int count, uint64_t bytes, uint64_t ns)
{
    for (int i = 0; i < count; i++) {
        eb_rate_add(rate, bytes, ns);
    }
}

static void begins_with_what_is_assumed(void **state)
{
    (void)state;
    struct eb_rate rate;
    eb_rate_init(&rate);
    assert_in_range(eb_rate_bytes_per_us(&rate), EB_RATE_DEFAULT_BYTES_PER_US - 1,
        EB_RATE_DEFAULT_BYTES_PER_US);
}

static void comes_to_what_is_measured(void **state)
{
    (void)state;
    const uint64_t speeds[] = {1, 100, 2000, 50000};
    for (int i = 0; i < 4; i++) {
        struct eb_rate rate;
        eb_rate_init(&rate);
        add_tiles(&rate, 20 * EB_RATE_TILES, TILE, TILE * UINT64_C(1000) / speeds[i]);
        uint64_t speed = eb_rate_bytes_per_us(&rate);
        assert_in_range(speed, speeds[i] - speeds[i] / 50, speeds[i] + speeds[i] / 50);
    }
}

static void weighs_tiles_by_their_bytes(void **state)
{
    (void)state;
    struct eb_rate rate;
    eb_rate_init(&rate);
    for (int i = 0; i < 20 * EB_RATE_TILES; i++) {
        eb_rate_add(&rate, TILE, TILE / 4);
        eb_rate_add(&rate, TILE / 64, TILE / 64);
    }
    /* 65/64 tiles in (1/4 + 1/64) of a tile's ns at 1000 bytes per us. */
    assert_in_range(eb_rate_bytes_per_us(&rate), 3700, 3950);
}

static void is_hardly_moved_by_one_thread_that_was_not_run(void **state)
{
    (void)state;
    struct eb_rate rate;
    eb_rate_init(&rate);
    eb_rate_add(&rate, TILE, UINT64_C(60000000000));
    assert_true(eb_rate_bytes_per_us(&rate) > EB_RATE_DEFAULT_BYTES_PER_US * 4 / 5);
}

static void is_never_nothing(void **state)
{
    (void)state;
    struct eb_rate rate;
    eb_rate_init(&rate);
    add_tiles(&rate, 100000, 0, UINT64_C(1000000000));
    assert_true(eb_rate_bytes_per_us(&rate) >= 1);
    add_tiles(&rate, 100000, 1, 0);
    assert_true(eb_rate_bytes_per_us(&rate) >= 1);
}

EB_TEST_GROUP(rate)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_with_what_is_assumed),
        cmocka_unit_test(comes_to_what_is_measured),
        cmocka_unit_test(weighs_tiles_by_their_bytes),
        cmocka_unit_test(is_hardly_moved_by_one_thread_that_was_not_run),
        cmocka_unit_test(is_never_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
