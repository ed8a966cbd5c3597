#include "client/cli/load_interrupt.h"

#include <assert.h>
#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t has_come;

static void on_interrupt_signal(int number)
{
    (void)number;
    has_come = 1;
}

void eb_load_interrupt_init(void)
{
    /* Without SA_RESTART, so that sleeps end; once, so that the next signal does what it does. */
    const struct sigaction action = {
        .sa_handler = on_interrupt_signal, .sa_flags = (int)SA_RESETHAND};
    has_come = 0;
    int rc = sigaction(SIGINT, &action, NULL);
    assert(rc == 0);
    rc = sigaction(SIGTERM, &action, NULL);
    assert(rc == 0);
}

bool eb_load_interrupt_has_come(void)
{
    return has_come != 0;
}
