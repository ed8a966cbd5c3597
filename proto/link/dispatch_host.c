#include "proto/link/dispatch_host.h"

#include <assert.h>
#include <stdlib.h>

#define READ_BYTES ((size_t)256 << 10) /* most bytes of one read from a socket */
#define ROUNDS_MAX 8                   /* most rounds in a row before the loop handles I/O */

static void on_host_ring(struct eb_fine_timer *timer)
{
    (void)timer; /* The round that precedes the next sleep does the work. */
}

int eb_dispatch_host_open(struct eb_dispatch_host *host, uv_loop_t *loop)
{
    struct eb_dispatcher *dispatcher = &host->dispatcher;
    uint32_t alarms_max =
        EB_DISPATCH_CALL_ALARMS * host->calls_max + EB_DISPATCHER_ALARMS + host->alarms_max;
    host->read_buffer = malloc(READ_BYTES);
    if (!host->read_buffer || !eb_alarms_init(&host->alarms, alarms_max)) {
        eb_dispatch_host_deinit(host);
        return UV_ENOMEM;
    }
    dispatcher->alarms = &host->alarms;
    host->timer.on_ring = on_host_ring;
    int rc = eb_fine_timer_open(&host->timer, loop);
    if (rc == 0) {
        rc = eb_dispatcher_open(
            dispatcher, loop, &eb_memory_heap, uv_buf_init(host->read_buffer, READ_BYTES));
        if (rc != 0) {
            eb_fine_timer_close(&host->timer);
        }
    }
    if (rc != 0) {
        eb_dispatch_host_deinit(host);
        return rc;
    }
    host->is_open = true;
    return 0;
}

bool eb_dispatch_host_run(struct eb_dispatch_host *host)
{
    bool again = true;
    for (int i = 0; again && i < ROUNDS_MAX; i++) {
        again = eb_dispatcher_run(&host->dispatcher);
    }
    uint64_t next_ns = eb_alarms_next_ns(&host->alarms);
    if (next_ns < UINT64_MAX && host->is_open) {
        eb_fine_timer_set(&host->timer, next_ns);
    }
    return again;
}

void eb_dispatch_host_close(struct eb_dispatch_host *host)
{
    assert(host->is_open);
    host->is_open = false;
    eb_dispatcher_end(&host->dispatcher);
    eb_fine_timer_close(&host->timer);
}

void eb_dispatch_host_deinit(struct eb_dispatch_host *host)
{
    eb_dispatcher_deinit(&host->dispatcher);
    eb_alarms_deinit(&host->alarms);
    free(host->read_buffer);
    host->read_buffer = NULL;
}
