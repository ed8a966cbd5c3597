/* Runs a dispatcher on a libuv loop that its owner also uses for other things: the memory, the
 * alarms and the timer that a dispatcher needs. The owner can set alarms of its own, which ring in
 * rounds. Thread: the loop's. Memory: open allocates 256 KiB and 16 bytes per call; deinit frees
 * them. A host must not move. */
#pragma once

#include "proto/link/dispatcher.h"
#include "proto/net/fine_timer.h"

struct eb_dispatch_host {
    /* Set by the owner before open. In the dispatcher: options, handler and context. After the
     * handler's on_ended, the host closes its timer; the loop must then run until no handle is
     * left. */
    struct eb_dispatcher dispatcher;
    uint32_t calls_max;  /* most calls at the same time */
    uint32_t alarms_max; /* most alarms that the owner sets in `alarms` at the same time */

    struct eb_alarms alarms;
    /* Private. */
    struct eb_fine_timer timer;
    char *read_buffer;
    bool is_open;
};

/* Returns 0, or a negative libuv code with nothing left but handles that are being closed. */
int eb_dispatch_host_open(struct eb_dispatch_host *host, uv_loop_t *loop);
/* Runs rounds of the dispatcher until nothing is due, or a few, and sets the timer. Must be called
 * before the loop sleeps. Returns whether it must be called again before that. */
bool eb_dispatch_host_run(struct eb_dispatch_host *host);
/* Begins to close everything. The dispatcher must not have any calls. */
void eb_dispatch_host_close(struct eb_dispatch_host *host);
/* Frees the memory, once the loop has closed all handles. Accepts a zeroed host. */
void eb_dispatch_host_deinit(struct eb_dispatch_host *host);
