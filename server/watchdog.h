/* Tells the service manager, where it wants to be told, that the process is alive: as long as
 * main's loop turns, every other loop looks at its mail, and the executor's lock can be had. The
 * service manager ends a process that is silent for too long, and starts it again.
 * Thread: main's. Memory: on the heap from start until destroy. */
#pragma once

#include "server/net/loop.h"

struct eb_executor;
struct eb_watchdog; /* opaque */

/* Of whom it is known by their answers that they do not hang. */
struct eb_watchdog_subjects {
    struct eb_loop *const *loops;
    size_t loop_count;
    struct eb_executor *executor;
};

/* On main's loop, whose mailbox the loops answer to. *out is NULL where nobody wants to be told. 0,
 * or a negative libuv code and nothing is started. Borrows all until it is destroyed. */
int eb_watchdog_start(struct eb_watchdog **out, uv_loop_t *uv, struct eb_mailbox *mailbox,
    const struct eb_watchdog_subjects *subjects);
/* Once, while the loops still look at their mail. `on_stopped` is called, at once or later, when
 * nothing more will come to the mailbox. Accepts NULL. */
void eb_watchdog_stop(
    struct eb_watchdog *watchdog, void (*on_stopped)(void *context), void *context);
/* When it has stopped and main's loop has run out. Accepts NULL. */
void eb_watchdog_destroy(struct eb_watchdog *watchdog);
