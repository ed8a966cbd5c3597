#include "server/rpc/reply.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define PREFIX_BYTES 5

static void writes_the_prefix_in_front_of_the_message(void **state)
{
    (void)state;
    static const uint8_t prefix[PREFIX_BYTES] = {0, 0, 1, 0x11, 0x70};
    struct eb_buffer_pool pool;
    eb_buffer_pool_init(&pool, 1 << 20);
    struct eb_outgoing *reply = eb_reply_take(&pool, 70000);
    assert_non_null(reply);
    assert_int_equal(reply->size, PREFIX_BYTES + 70000);
    assert_memory_equal(reply->bytes, prefix, PREFIX_BYTES);
    assert_ptr_equal(eb_reply_body(reply), reply->bytes + PREFIX_BYTES);
    assert_int_equal((uintptr_t)reply->bytes % 64, 0);
    memset(eb_reply_body(reply), 0xff, 70000);
    assert_memory_equal(reply->bytes, prefix, PREFIX_BYTES);
    eb_outgoing_drop(reply);
    eb_buffer_pool_deinit(&pool);
}

static void goes_back_to_the_pool_with_the_last_hold(void **state)
{
    (void)state;
    struct eb_buffer_pool pool;
    eb_buffer_pool_init(&pool, 1 << 20);
    struct eb_outgoing *reply = eb_reply_take(&pool, 5000);
    assert_non_null(reply);
    assert_int_equal(reply->holds, 1);
    assert_int_equal(pool.taken_bytes, 8192);
    eb_outgoing_hold(reply);
    eb_outgoing_drop(reply);
    assert_int_equal(pool.taken_bytes, 8192);
    eb_outgoing_drop(reply);
    assert_int_equal(pool.taken_bytes, 0);
    eb_buffer_pool_deinit(&pool);
}

static void holds_a_message_of_no_bytes(void **state)
{
    (void)state;
    static const uint8_t prefix[PREFIX_BYTES] = {0};
    struct eb_buffer_pool pool;
    eb_buffer_pool_init(&pool, 1 << 20);
    struct eb_outgoing *reply = eb_reply_take(&pool, 0);
    assert_non_null(reply);
    assert_int_equal(reply->size, PREFIX_BYTES);
    assert_memory_equal(reply->bytes, prefix, PREFIX_BYTES);
    eb_outgoing_drop(reply);
    assert_int_equal(pool.taken_bytes, 0);
    eb_buffer_pool_deinit(&pool);
}

static void is_not_made_beyond_the_pools_cap(void **state)
{
    (void)state;
    struct eb_buffer_pool pool;
    eb_buffer_pool_init(&pool, 4096);
    assert_null(eb_reply_take(&pool, 4096));
    assert_null(eb_reply_take(&pool, UINT32_MAX));
    struct eb_outgoing *reply = eb_reply_take(&pool, 3900);
    assert_non_null(reply);
    assert_null(eb_reply_take(&pool, 0));
    assert_int_equal(pool.refusals, 3);
    eb_outgoing_drop(reply);
    eb_buffer_pool_deinit(&pool);
}

static void is_counted_as_what_it_holds_until_its_last_hold_goes(void **state)
{
    (void)state;
    struct eb_buffer_pool pool;
    uint64_t sum = 7;
    eb_buffer_pool_init(&pool, 1 << 20);
    struct eb_outgoing *small = eb_reply_take(&pool, 1);
    struct eb_outgoing *large = eb_reply_take(&pool, 5000);
    assert_int_equal(eb_reply_held_bytes(small), 1024);
    assert_int_equal(eb_reply_held_bytes(large), 8192);
    eb_reply_charge(small, &sum);
    eb_reply_charge(large, &sum);
    assert_int_equal(sum, 7 + pool.taken_bytes);
    eb_outgoing_hold(large);
    eb_outgoing_drop(large);
    eb_outgoing_drop(small);
    assert_int_equal(sum, 7 + 8192);
    eb_outgoing_drop(large);
    assert_int_equal(sum, 7);
    eb_buffer_pool_deinit(&pool);
}

static unsigned gone_count;
static unsigned left_count;

static void on_gone(const struct eb_reply_terms *terms, bool has_left)
{
    assert_int_equal(terms->request_id, 7);
    gone_count++;
    left_count += has_left;
}

static void says_once_that_it_is_gone_and_whether_it_has_left(void **state)
{
    (void)state;
    struct eb_buffer_pool pool;
    struct eb_reply_terms terms = {.request_id = 7, .on_gone = on_gone};
    eb_buffer_pool_init(&pool, 1 << 20);
    for (unsigned i = 0; i < 3; i++) {
        struct eb_outgoing *reply = eb_reply_take(&pool, 1);
        eb_reply_set_terms(reply, &terms);
        reply->has_left = i == 1;
        eb_outgoing_hold(reply);
        eb_outgoing_drop(reply);
        assert_int_equal(gone_count, i);
        if (i == 2) {
            eb_reply_drop(reply);
        } else {
            eb_outgoing_drop(reply);
        }
    }
    assert_int_equal(gone_count, 2);
    assert_int_equal(left_count, 1);
    eb_buffer_pool_deinit(&pool);
}

EB_TEST_GROUP(reply)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_prefix_in_front_of_the_message),
        cmocka_unit_test(goes_back_to_the_pool_with_the_last_hold),
        cmocka_unit_test(holds_a_message_of_no_bytes),
        cmocka_unit_test(is_not_made_beyond_the_pools_cap),
        cmocka_unit_test(is_counted_as_what_it_holds_until_its_last_hold_goes),
        cmocka_unit_test(says_once_that_it_is_gone_and_whether_it_has_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
