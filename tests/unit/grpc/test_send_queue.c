#include "proto/send_queue.h"
#include "tests/lib/test_group.h"
#include "tests/unit/grpc/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct lender lender;
    struct eb_send_queue *queue;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture) {
        return -1;
    }
    lender_init(&fixture->lender, 0);
    fixture->queue = eb_send_queue_create(&fixture->lender.memory);
    *state = fixture;
    return fixture->queue ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    eb_send_queue_destroy(fixture->queue);
    bool clean = fixture->lender.lent_count == 0 && host_outgoing_live() == 0;
    free(fixture);
    return clean ? 0 : -1;
}

static void is_empty_at_first(void **state)
{
    struct fixture *fixture = *state;
    struct iovec part;
    assert_int_equal(eb_send_queue_bytes(fixture->queue), 0);
    assert_int_equal(eb_send_queue_peek(fixture->queue, &part, 1), 0);
    eb_send_queue_drop(fixture->queue, 0);
    eb_send_queue_destroy(NULL);
}

static void joins_copies_that_follow_each_other(void **state)
{
    struct fixture *fixture = *state;
    assert_true(eb_send_queue_copy(fixture->queue, "ab", 2));
    assert_true(eb_send_queue_copy(fixture->queue, "", 0));
    assert_true(eb_send_queue_copy(fixture->queue, "cd", 2));
    struct iovec parts[4];
    assert_int_equal(eb_send_queue_peek(fixture->queue, parts, 4), 1);
    assert_int_equal(parts[0].iov_len, 4);
    assert_memory_equal(parts[0].iov_base, "abcd", 4);
}

static void lends_without_copying(void **state)
{
    struct fixture *fixture = *state;
    struct eb_outgoing *message = host_outgoing(100);
    assert_true(eb_send_queue_copy(fixture->queue, "x", 1));
    assert_true(eb_send_queue_lend(fixture->queue, message, 5, 60));
    assert_true(eb_send_queue_lend(fixture->queue, message, 65, 40));
    struct iovec parts[4];
    assert_int_equal(eb_send_queue_peek(fixture->queue, parts, 4), 3);
    assert_ptr_equal(parts[1].iov_base, message->bytes + 5);
    assert_ptr_equal(parts[2].iov_base, message->bytes + 65);
    assert_int_equal(message->holds, 3);
    eb_outgoing_drop(message);
    eb_send_queue_drop(fixture->queue, 61);
    assert_int_equal(message->holds, 1);
    assert_int_equal(host_outgoing_live(), 1);
    eb_send_queue_drop(fixture->queue, 39);
    assert_int_equal(host_outgoing_live(), 1);
    eb_send_queue_drop(fixture->queue, 1);
    assert_int_equal(host_outgoing_live(), 0);
}

static void gives_memory_back_once_empty(void **state)
{
    struct fixture *fixture = *state;
    uint8_t block[5000];
    memset(block, 7, sizeof block);
    for (int i = 0; i < 20; i++) {
        assert_true(eb_send_queue_copy(fixture->queue, block, sizeof block));
    }
    assert_true(fixture->lender.lent_bytes >= 100000);
    eb_send_queue_drop(fixture->queue, 99999);
    assert_true(fixture->lender.lent_bytes < 20000);
    eb_send_queue_drop(fixture->queue, 1);
    assert_true(fixture->lender.lent_bytes < 1000);
}

static void takes_a_block_larger_than_its_chunks(void **state)
{
    struct fixture *fixture = *state;
    struct eb_outgoing *message = host_outgoing(200000);
    assert_true(eb_send_queue_copy(fixture->queue, "x", 1));
    assert_true(eb_send_queue_copy(fixture->queue, message->bytes, message->size));
    struct frames out = {0};
    host_drain_queue(fixture->queue, &out);
    assert_int_equal(out.size, message->size + 1);
    assert_memory_equal(out.bytes + 1, message->bytes, message->size);
    eb_outgoing_drop(message);
    frames_deinit(&out);
}

/* Alternately adds and removes pseudo-random amounts, and compares the output with the input. */
static void keeps_the_order_over_partial_drops(void **state)
{
    struct fixture *fixture = *state;
    struct eb_outgoing *message = host_outgoing(70000);
    struct frames in = {0};
    struct frames out = {0};
    uint32_t seed = 1;
    for (int i = 0; i < 3000; i++) {
        seed = seed * 1664525u + 1013904223u;
        size_t first = (seed >> 8) % 60000;
        size_t count = (seed >> 4) % 300;
        bool added = seed & 0x80000000u
                         ? eb_send_queue_lend(fixture->queue, message, first, count)
                         : eb_send_queue_copy(fixture->queue, message->bytes + first, count);
        assert_true(added);
        frames_put(&in, message->bytes + first, count);
        struct iovec parts[2];
        size_t part_count = eb_send_queue_peek(fixture->queue, parts, 2);
        size_t drop = part_count > 0 ? (seed >> 16) % (parts[0].iov_len + 1) : 0;
        if (drop > 0) {
            frames_put(&out, parts[0].iov_base, drop);
            eb_send_queue_drop(fixture->queue, drop);
        }
    }
    assert_int_equal(eb_send_queue_bytes(fixture->queue), in.size - out.size);
    host_drain_queue(fixture->queue, &out);
    assert_int_equal(out.size, in.size);
    assert_memory_equal(out.bytes, in.bytes, in.size);
    eb_outgoing_drop(message);
    frames_deinit(&in);
    frames_deinit(&out);
}

static void is_as_before_where_memory_fails(void **state)
{
    struct fixture *fixture = *state;
    struct eb_outgoing *message = host_outgoing(10);
    for (size_t fail_at = 1; fail_at <= 2; fail_at++) {
        lender_init(&fixture->lender, fail_at);
        struct eb_send_queue *queue = eb_send_queue_create(&fixture->lender.memory);
        assert_non_null(queue);
        assert_false(eb_send_queue_copy(queue, "ab", 2));
        assert_int_equal(eb_send_queue_bytes(queue), 0);
        assert_true(eb_send_queue_copy(queue, "cd", 2));
        for (int i = 0; i < 31; i++) {
            assert_true(eb_send_queue_lend(queue, message, 0, 10));
        }
        fixture->lender.fail_at = fixture->lender.taken_count + 1;
        assert_false(eb_send_queue_lend(queue, message, 0, 10));
        assert_int_equal(eb_send_queue_bytes(queue), 312);
        assert_int_equal(message->holds, 32);
        eb_send_queue_destroy(queue);
        assert_int_equal(message->holds, 1);
    }
    eb_outgoing_drop(message);
}

EB_TEST_GROUP(send_queue)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(is_empty_at_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(joins_copies_that_follow_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lends_without_copying, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gives_memory_back_once_empty, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_a_block_larger_than_its_chunks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keeps_the_order_over_partial_drops, set_up, tear_down),
        cmocka_unit_test_setup_teardown(is_as_before_where_memory_fails, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
