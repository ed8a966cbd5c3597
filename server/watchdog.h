/* Tells the service manager, if it wants reports, that the process is alive: main's loop turns,
 * every other loop reads its mailbox, and the executor's lock can be taken. The service manager
 * kills and restarts a process that does not report for too long.
 * Thread: main's. Memory: on the heap from start until destroy. */
#pragma once

#include "server/net/loop.h"

struct eb_executor;
struct eb_watchdog; /* opaque */

/* The loops and the executor that are checked for hanging. */
struct eb_watchdog_subjects {
    struct eb_loop *const *loops;
    size_t loop_count;
    struct eb_executor *executor;
};

/* Starts on main's loop; `mailbox` is its mailbox, which receives the loops' answers. *out is NULL
 * if the service manager does not want reports. Returns 0, or a negative libuv code with nothing
 * started. Everything given is borrowed until destroy. */
int eb_watchdog_start(struct eb_watchdog **out, uv_loop_t *uv, struct eb_mailbox *mailbox,
    const struct eb_watchdog_subjects *subjects);
/* Stops. Call it once, while the loops still read their mailboxes. Calls `on_stopped`, at once or
 * later, when no more mail will come. Accepts NULL. */
void eb_watchdog_stop(
    struct eb_watchdog *watchdog, void (*on_stopped)(void *context), void *context);
/* Frees the watchdog. It must have stopped, and main's loop must have ended. Accepts NULL. */
void eb_watchdog_destroy(struct eb_watchdog *watchdog);
