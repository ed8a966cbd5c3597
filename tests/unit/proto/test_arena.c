#include "proto/arena.h"
#include "tests/lib/test_group.h"
#include "tests/unit/proto/lender.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static void gives_aligned_pieces_that_do_not_overlap(void **state)
{
    (void)state;
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, MIB);
    uint8_t *pieces[200];
    for (size_t i = 0; i < 200; i++) {
        pieces[i] = eb_arena_take(&arena, i * 7);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)i, i * 7);
    }
    for (size_t i = 0; i < 200; i++) {
        for (size_t b = 0; b < i * 7; b++) {
            assert_int_equal(pieces[i][b], i);
        }
    }
    eb_arena_deinit(&arena);
}

static void hands_out_nothing_before_the_first_reset(void **state)
{
    (void)state;
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    assert_null(eb_arena_take(&arena, 0));
    assert_true(arena.is_exhausted);
    eb_arena_deinit(&arena);
}

static void hands_out_its_cap_and_no_more(void **state)
{
    (void)state;
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 4096);
    assert_non_null(eb_arena_take(&arena, 4096 - 16));
    assert_null(eb_arena_take(&arena, 17));
    assert_true(arena.is_exhausted);
    assert_non_null(eb_arena_take(&arena, 16));
    assert_null(eb_arena_take(&arena, 0));
    eb_arena_reset(&arena, 4096);
    assert_false(arena.is_exhausted);
    assert_non_null(eb_arena_take(&arena, 4096));
    eb_arena_deinit(&arena);
}

static void refuses_sizes_that_wrap_around(void **state)
{
    (void)state;
    struct eb_arena arena;
    eb_arena_init(&arena, &eb_memory_heap);
    for (size_t less = 0; less < 32; less++) {
        eb_arena_reset(&arena, SIZE_MAX - 64);
        assert_null(eb_arena_take(&arena, SIZE_MAX - less));
    }
    eb_arena_deinit(&arena);
}

static void takes_few_blocks_for_many_pieces(void **state)
{
    (void)state;
    struct lender lender;
    lender_init(&lender, 0);
    struct eb_arena arena;
    eb_arena_init(&arena, &lender.memory);
    eb_arena_reset(&arena, 8 * MIB);
    for (size_t i = 0; i < 60000; i++) {
        assert_non_null(eb_arena_take(&arena, 100));
    }
    assert_in_range(lender.taken_count, 5, 20);
    assert_true(lender.largest_bytes <= MIB);
    eb_arena_deinit(&arena);
    assert_int_equal(lender.lent_bytes, 0);
}

static void keeps_a_small_first_block_over_a_reset(void **state)
{
    (void)state;
    struct lender lender;
    lender_init(&lender, 0);
    struct eb_arena arena;
    eb_arena_init(&arena, &lender.memory);
    eb_arena_reset(&arena, MIB);
    void *first = eb_arena_take(&arena, 100);
    assert_non_null(eb_arena_take(&arena, MIB / 2));
    eb_arena_reset(&arena, MIB);
    assert_int_equal(lender.lent_count, 1);
    assert_ptr_equal(eb_arena_take(&arena, 100), first);
    eb_arena_deinit(&arena);
    assert_int_equal(lender.lent_count, 0);
}

static void gives_a_large_first_block_back_at_a_reset(void **state)
{
    (void)state;
    struct lender lender;
    lender_init(&lender, 0);
    struct eb_arena arena;
    eb_arena_init(&arena, &lender.memory);
    eb_arena_reset(&arena, MIB);
    assert_non_null(eb_arena_take(&arena, MIB / 2));
    eb_arena_reset(&arena, MIB);
    assert_int_equal(lender.lent_count, 0);
    eb_arena_deinit(&arena);
}

static void survives_a_lender_that_has_none(void **state)
{
    (void)state;
    for (size_t fail_at = 1; fail_at <= 4; fail_at++) {
        struct lender lender;
        lender_init(&lender, fail_at);
        struct eb_arena arena;
        eb_arena_init(&arena, &lender.memory);
        eb_arena_reset(&arena, MIB);
        size_t refused = 0;
        for (size_t i = 0; i < 10; i++) {
            refused += !eb_arena_take(&arena, 30000);
        }
        assert_int_equal(refused, 1);
        assert_true(arena.is_exhausted);
        eb_arena_deinit(&arena);
        assert_int_equal(lender.lent_bytes, 0);
    }
}

static void deinit_accepts_zeroes_and_may_be_repeated(void **state)
{
    (void)state;
    struct eb_arena arena = {.memory = NULL};
    eb_arena_deinit(&arena);
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, 4096);
    assert_non_null(eb_arena_take(&arena, 1));
    eb_arena_deinit(&arena);
    eb_arena_deinit(&arena);
}

EB_TEST_GROUP(arena)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_aligned_pieces_that_do_not_overlap),
        cmocka_unit_test(hands_out_nothing_before_the_first_reset),
        cmocka_unit_test(hands_out_its_cap_and_no_more),
        cmocka_unit_test(refuses_sizes_that_wrap_around),
        cmocka_unit_test(takes_few_blocks_for_many_pieces),
        cmocka_unit_test(keeps_a_small_first_block_over_a_reset),
        cmocka_unit_test(gives_a_large_first_block_back_at_a_reset),
        cmocka_unit_test(survives_a_lender_that_has_none),
        cmocka_unit_test(deinit_accepts_zeroes_and_may_be_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
