/* Keeps SIGPIPE from the process while a library writes to a socket: libuv writes without
 * MSG_NOSIGNAL, and what the signal does is the program's business, not ours.
 * Thread: block and restore on the same thread, in pairs. Memory: none. */
#pragma once

#include <signal.h>

struct eb_sigpipe {
    sigset_t mask; /* the thread's before */
    int pending;   /* one was waiting already and is not ours to take */
};

void eb_sigpipe_block(struct eb_sigpipe *state);
/* Takes the signal back that writing may have raised, then restores the thread's mask. */
void eb_sigpipe_restore(const struct eb_sigpipe *state);
