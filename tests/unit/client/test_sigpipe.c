#include "client/sigpipe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static int is_pending(void)
{
    sigset_t set;
    assert_int_equal(sigpending(&set), 0);
    return sigismember(&set, SIGPIPE);
}

static void write_to_nobody(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(write(ends[1], "x", 1), -1);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(close(ends[1]), 0);
}

static void survives_a_write_to_a_closed_pipe(void **state)
{
    (void)state;
    struct eb_sigpipe sigpipe;
    sigset_t mask;
    eb_sigpipe_block(&sigpipe);
    write_to_nobody();
    eb_sigpipe_restore(&sigpipe);
    assert_int_equal(is_pending(), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_int_equal(sigismember(&mask, SIGPIPE), 0);
}

static void leaves_the_programs_own_signal_waiting(void **state)
{
    (void)state;
    struct eb_sigpipe outer, inner;
    eb_sigpipe_block(&outer);
    assert_int_equal(raise(SIGPIPE), 0);
    eb_sigpipe_block(&inner);
    write_to_nobody();
    eb_sigpipe_restore(&inner);
    assert_int_equal(is_pending(), 1);
    eb_sigpipe_restore(&outer);
    assert_int_equal(is_pending(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_a_write_to_a_closed_pipe),
        cmocka_unit_test(leaves_the_programs_own_signal_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
