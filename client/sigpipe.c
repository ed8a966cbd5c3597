#include "client/sigpipe.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

static void fill_set(sigset_t *set)
{
    int rc = sigemptyset(set) | sigaddset(set, SIGPIPE);
    assert(rc == 0);
}

void eb_sigpipe_block(struct eb_sigpipe *state)
{
    sigset_t set;
    fill_set(&set);
    int rc = pthread_sigmask(SIG_BLOCK, &set, &state->mask);
    assert(rc == 0);
    /* An unblocked signal is delivered at once, so none can be waiting. */
    state->pending = 0;
    if (sigismember(&state->mask, SIGPIPE) == 1) {
        rc = sigpending(&set);
        assert(rc == 0);
        state->pending = sigismember(&set, SIGPIPE) == 1;
    }
}

void eb_sigpipe_restore(const struct eb_sigpipe *state)
{
    sigset_t set;
    fill_set(&set);
    if (!state->pending) {
        const struct timespec now = {0, 0};
        while (sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR) {
        }
    }
    int rc = pthread_sigmask(SIG_SETMASK, &state->mask, NULL);
    assert(rc == 0);
}
