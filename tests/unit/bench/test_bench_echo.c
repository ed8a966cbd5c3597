#include "tests/bench/bench_echo.h"

#include "tests/lib/test_group.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define REQUEST_BYTES 10
#define ANSWER_BYTES 7
#define ANSWERS 3

static uint8_t made_count;

/* Writes the answer's number into its first byte. */
static void number(void *self, uint8_t *answer)
{
    assert_ptr_equal(self, &made_count);
    answer[0] = ++made_count;
}

static void init(struct eb_bench_echo *echo)
{
    struct eb_bench_echo_sizes sizes = {REQUEST_BYTES, ANSWER_BYTES, ANSWERS};
    assert_true(eb_bench_echo_init(echo, &sizes));
    echo->make = number;
    echo->self = &made_count;
    made_count = 0;
}

static void owes_an_answer_to_each_whole_request(void **state)
{
    (void)state;
    struct eb_bench_echo echo;
    struct eb_bench_echo_flow flow = {0};
    init(&echo);
    for (unsigned bytes = 1; bytes <= 2 * REQUEST_BYTES; bytes++) {
        eb_bench_echo_receive(&echo, &flow, 1);
        assert_int_equal(flow.owed_bytes, bytes / REQUEST_BYTES * ANSWER_BYTES);
    }
    eb_bench_echo_receive(&echo, &flow, 3 * REQUEST_BYTES + 1);
    assert_int_equal(flow.owed_bytes, 5 * ANSWER_BYTES);
    assert_int_equal(flow.unanswered_bytes, 1);
    eb_bench_echo_deinit(&echo);
}

static void gathers_no_place_twice(void **state)
{
    (void)state;
    struct eb_bench_echo echo;
    struct eb_bench_echo_flow flow = {0};
    struct iovec pieces[EB_BENCH_ECHO_GATHER_MAX];
    init(&echo);
    assert_int_equal(eb_bench_echo_gather(&echo, &flow, pieces), 0);
    eb_bench_echo_receive(&echo, &flow, (ANSWERS + 1) * REQUEST_BYTES);
    assert_int_equal(eb_bench_echo_gather(&echo, &flow, pieces), ANSWERS);
    assert_int_equal(made_count, ANSWERS);
    for (unsigned i = 0; i < ANSWERS; i++) {
        assert_ptr_equal(pieces[i].iov_base, echo.answers + (size_t)i * ANSWER_BYTES);
        assert_int_equal(pieces[i].iov_len, ANSWER_BYTES);
    }
    eb_bench_echo_deinit(&echo);
}

/* Sends 20 answers, at most `bytes_max` bytes per write, and recognises them by their first
 * bytes. */
static void send_in_pieces(uint64_t bytes_max)
{
    unsigned answers = 20;
    struct eb_bench_echo echo;
    struct eb_bench_echo_flow flow = {0};
    struct iovec pieces[EB_BENCH_ECHO_GATHER_MAX];
    init(&echo);
    eb_bench_echo_receive(&echo, &flow, (uint64_t)answers * REQUEST_BYTES);
    while (flow.owed_bytes > 0) {
        unsigned count = eb_bench_echo_gather(&echo, &flow, pieces);
        uint64_t bytes = bytes_max;
        for (unsigned i = 0; i < count && bytes > 0; i++) {
            uint64_t taken = pieces[i].iov_len < bytes ? pieces[i].iov_len : bytes;
            uint8_t first = *(const uint8_t *)pieces[i].iov_base;
            bool begins = flow.sent_bytes % ANSWER_BYTES == 0;
            assert_int_equal(first, begins ? flow.sent_bytes / ANSWER_BYTES + 1 : 1);
            eb_bench_echo_send(&flow, taken);
            bytes -= taken;
        }
    }
    assert_int_equal(flow.sent_bytes, answers * ANSWER_BYTES);
    assert_int_equal(made_count, answers);
    eb_bench_echo_deinit(&echo);
}

static void makes_each_answer_once_however_much_a_write_takes(void **state)
{
    (void)state;
    for (uint64_t bytes = 1; bytes <= (ANSWERS + 1) * ANSWER_BYTES; bytes++) {
        send_in_pieces(bytes);
    }
}

static void sends_what_lies_there_where_nothing_is_made(void **state)
{
    (void)state;
    struct eb_bench_echo echo;
    struct eb_bench_echo_flow flow = {0};
    struct iovec pieces[EB_BENCH_ECHO_GATHER_MAX];
    init(&echo);
    echo.make = NULL;
    eb_bench_echo_receive(&echo, &flow, REQUEST_BYTES);
    assert_int_equal(eb_bench_echo_gather(&echo, &flow, pieces), 1);
    for (unsigned i = 0; i < ANSWER_BYTES; i++) {
        assert_int_equal(((const uint8_t *)pieces[0].iov_base)[i], 1);
    }
    assert_int_equal(made_count, 0);
    eb_bench_echo_deinit(&echo);
}

EB_TEST_GROUP(bench_echo)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owes_an_answer_to_each_whole_request),
        cmocka_unit_test(gathers_no_place_twice),
        cmocka_unit_test(makes_each_answer_once_however_much_a_write_takes),
        cmocka_unit_test(sends_what_lies_there_where_nothing_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
