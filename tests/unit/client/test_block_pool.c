#include "client/block_pool.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void *take(struct eb_block_pool *pool, size_t bytes)
{
    return pool->memory.take(pool->memory.context, bytes);
}

static void give(struct eb_block_pool *pool, void *block, size_t bytes)
{
    pool->memory.give(pool->memory.context, block, bytes);
}

static void lends_the_same_block_again(void **state)
{
    (void)state;
    struct eb_block_pool pool;
    assert_int_equal(eb_block_pool_init(&pool, 1 << 20, 1 << 20), 0);
    void *first = take(&pool, 1000);
    assert_non_null(first);
    assert_int_equal((uintptr_t)first % 64, 0);
    memset(first, 1, 1000);
    give(&pool, first, 1000);
    /* 600 bytes are rounded up to the same size as 1000. */
    void *second = take(&pool, 600);
    assert_ptr_equal(second, first);
    void *third = take(&pool, 600);
    assert_ptr_not_equal(third, first);
    void *other = take(&pool, 3000);
    assert_non_null(other);
    give(&pool, third, 600);
    give(&pool, second, 600);
    give(&pool, other, 3000);
    eb_block_pool_deinit(&pool);
}

static void lends_no_more_than_it_may(void **state)
{
    (void)state;
    struct eb_block_pool pool;
    assert_int_equal(eb_block_pool_init(&pool, 4096, 0), 0);
    void *all = take(&pool, 4096);
    assert_non_null(all);
    assert_null(take(&pool, 1));
    give(&pool, all, 4096);
    assert_null(take(&pool, 4097));
    assert_null(take(&pool, SIZE_MAX));
    all = take(&pool, 4096);
    assert_non_null(all);
    give(&pool, all, 4096);
    assert_int_equal(pool.bins.kept_bytes, 0);
    eb_block_pool_deinit(&pool);
}

static void keeps_no_more_than_it_may(void **state)
{
    (void)state;
    struct eb_block_pool pool;
    void *blocks[4];
    assert_int_equal(eb_block_pool_init(&pool, SIZE_MAX / 2, 8192), 0);
    for (int i = 0; i < 4; i++) {
        blocks[i] = take(&pool, 4096);
        assert_non_null(blocks[i]);
    }
    for (int i = 0; i < 4; i++) {
        give(&pool, blocks[i], 4096);
    }
    assert_int_equal(pool.bins.kept_bytes, 8192);
    assert_int_equal(pool.lent_bytes, 0);
    /* Larger than any block that the pool keeps. */
    void *huge = take(&pool, ((size_t)64 << 20) + 1);
    assert_non_null(huge);
    give(&pool, huge, ((size_t)64 << 20) + 1);
    assert_int_equal(pool.bins.kept_bytes, 8192);
    eb_block_pool_deinit(&pool);
}

EB_TEST_GROUP(block_pool)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lends_the_same_block_again),
        cmocka_unit_test(lends_no_more_than_it_may),
        cmocka_unit_test(keeps_no_more_than_it_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
