#include "server/net/buffer_pool.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void gives_the_same_buffer_again(void **state)
{
    (void)state;
    struct eb_buffer_pool pool;
    eb_buffer_pool_init(&pool, 1 << 20);
    void *first = eb_buffer_pool_take(&pool, 3000);
    assert_non_null(first);
    assert_int_equal((uintptr_t)first % 64, 0);
    memset(first, 1, 3000);
    assert_int_equal(pool.taken_bytes, 4096);
    eb_buffer_pool_give(&pool, first, 3000);
    assert_int_equal(pool.taken_bytes, 0);
    assert_ptr_equal(eb_buffer_pool_take(&pool, 4096), first);
    eb_buffer_pool_give(&pool, first, 4096);
    eb_buffer_pool_deinit(&pool);
}

static void says_what_taking_counts_for(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 1024, 1025, 40000, 1 << 24, (1 << 24) + 1};
    static const uint64_t rounded[] = {1024, 1024, 2048, 65536, 1 << 24, (1 << 24) + 64};
    struct eb_buffer_pool pool;
    eb_buffer_pool_init(&pool, UINT64_C(1) << 30);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *buffer = eb_buffer_pool_take(&pool, sizes[i]);
        assert_int_equal(pool.taken_bytes, rounded[i]);
        assert_int_equal(eb_buffer_pool_rounded(sizes[i]), rounded[i]);
        eb_buffer_pool_give(&pool, buffer, sizes[i]);
    }
    eb_buffer_pool_deinit(&pool);
}

static void refuses_what_is_over_the_cap_and_nothing_below(void **state)
{
    (void)state;
    struct eb_buffer_pool pool;
    eb_buffer_pool_init(&pool, 8192);
    void *most = eb_buffer_pool_take(&pool, 8192);
    assert_non_null(most);
    assert_null(eb_buffer_pool_take(&pool, 1));
    eb_buffer_pool_give(&pool, most, 8192);
    assert_null(eb_buffer_pool_take(&pool, 8193));
    assert_null(eb_buffer_pool_take(&pool, SIZE_MAX));
    void *again = eb_buffer_pool_take(&pool, 1);
    assert_non_null(again);
    eb_buffer_pool_give(&pool, again, 1);
    eb_buffer_pool_deinit(&pool);
}

static void does_not_keep_large_buffers(void **state)
{
    (void)state;
    struct eb_buffer_pool pool;
    eb_buffer_pool_init(&pool, UINT64_C(1) << 30);
    void *large = eb_buffer_pool_take(&pool, (1 << 24) + 1);
    assert_non_null(large);
    assert_int_equal(pool.taken_bytes, (1 << 24) + 64);
    eb_buffer_pool_give(&pool, large, (1 << 24) + 1);
    assert_int_equal(pool.bins.kept_bytes, 0);
    eb_buffer_pool_deinit(&pool);
}

static void keeps_no_more_than_its_bound(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    struct eb_buffer_pool pool;
    void *buffers[COUNT];
    eb_buffer_pool_init(&pool, UINT64_C(1) << 30);
    for (int i = 0; i < COUNT; i++) {
        buffers[i] = eb_buffer_pool_take(&pool, 1 << 20);
        assert_non_null(buffers[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        eb_buffer_pool_give(&pool, buffers[i], 1 << 20);
    }
    assert_int_equal(pool.bins.kept_bytes, EB_BUFFER_POOL_KEPT_MAX);
    eb_buffer_pool_deinit(&pool);
}

EB_TEST_GROUP(buffer_pool)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_same_buffer_again),
        cmocka_unit_test(says_what_taking_counts_for),
        cmocka_unit_test(refuses_what_is_over_the_cap_and_nothing_below),
        cmocka_unit_test(does_not_keep_large_buffers),
        cmocka_unit_test(keeps_no_more_than_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
