#include "client/inbox.h"

#include "tests/lib/test_group.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define THREADS 4
#define LETTERS_EACH 2000

struct numbered {
    struct eb_letter letter; /* first: found from it */
    int sender;
    int number;
};

struct sender {
    int index;
    struct numbered letters[LETTERS_EACH];
};

static uv_loop_t loop;
static struct eb_inbox inbox;
static struct sender senders[THREADS];
static int next_number[THREADS];
static int read_count, disorder_count;

static void on_read(struct eb_letter *letter)
{
    struct numbered *numbered = (struct numbered *)letter;
    disorder_count += next_number[numbered->sender]++ != numbered->number;
    if (++read_count == THREADS * LETTERS_EACH) {
        eb_inbox_close(&inbox);
    }
}

static void post_all(void *context)
{
    struct sender *sender = context;
    for (int i = 0; i < LETTERS_EACH; i++) {
        sender->letters[i] = (struct numbered){{.read = on_read}, sender->index, i};
        eb_inbox_post(&inbox, &sender->letters[i].letter);
    }
}

static void brings_every_letter_once_in_each_senders_order(void **state)
{
    (void)state;
    uv_thread_t threads[THREADS];
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(eb_inbox_open(&inbox, &loop), 0);
    for (int i = 0; i < THREADS; i++) {
        senders[i].index = i;
        assert_int_equal(uv_thread_create(&threads[i], post_all, &senders[i]), 0);
    }
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(uv_thread_join(&threads[i]), 0);
    }
    assert_int_equal(read_count, THREADS * LETTERS_EACH);
    assert_int_equal(disorder_count, 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void on_own(struct eb_letter *letter)
{
    struct numbered *numbered = (struct numbered *)letter;
    read_count += numbered->number;
}

/* The wake-up would be a system call and a round of the loop for each call that a callback makes.
 */
static void wakes_nobody_for_the_readers_own_letters(void **state)
{
    (void)state;
    struct numbered own = {{.read = on_own}, 0, 1};
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(eb_inbox_open(&inbox, &loop), 0);
    eb_inbox_set_reader(&inbox);
    read_count = 0;
    assert_true(eb_inbox_is_empty(&inbox));
    eb_inbox_post(&inbox, &own.letter);
    assert_false(eb_inbox_is_empty(&inbox));
    struct pollfd wakeups = {.fd = uv_backend_fd(&loop), .events = POLLIN};
    assert_int_equal(uv_run(&loop, UV_RUN_NOWAIT), 1);
    assert_int_equal(poll(&wakeups, 1, 0), 0);
    assert_int_equal(read_count, 0);
    eb_inbox_read(&inbox);
    assert_int_equal(read_count, 1);
    assert_true(eb_inbox_is_empty(&inbox));
    eb_inbox_close(&inbox);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

EB_TEST_GROUP(inbox)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brings_every_letter_once_in_each_senders_order),
        cmocka_unit_test(wakes_nobody_for_the_readers_own_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
