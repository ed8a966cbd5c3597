#include "proto/net/fine_timer.h"

#include "proto/list.h"

#include <assert.h>
#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

static void on_fine_timer(uv_poll_t *poll, int status, int events)
{
    struct eb_fine_timer *timer = EB_CONTAINER_OF(poll, struct eb_fine_timer, poll);
    uint64_t count = 0;
    (void)status;
    (void)events;
    /* Nothing can be read if the time was changed after the timer had rung. */
    if (read(timer->fd, &count, sizeof count) == (ssize_t)sizeof count) {
        timer->at_ns = 0;
        timer->on_ring(timer);
    }
}

int eb_fine_timer_open(struct eb_fine_timer *timer, uv_loop_t *loop)
{
    timer->at_ns = 0;
    timer->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer->fd < 0) {
        return uv_translate_sys_error(errno);
    }
    int rc = uv_poll_init(loop, &timer->poll, timer->fd);
    if (rc != 0) {
        (void)close(timer->fd);
        return rc;
    }
    rc = uv_poll_start(&timer->poll, UV_READABLE, on_fine_timer);
    assert(rc == 0);
    return 0;
}

void eb_fine_timer_set(struct eb_fine_timer *timer, uint64_t at_ns)
{
    if (timer->at_ns != 0 && timer->at_ns <= at_ns) {
        return;
    }
    /* A time of 0 would clear the timer. */
    timer->at_ns = at_ns > 0 ? at_ns : 1;
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(timer->at_ns / NS_PER_S),
                                  .tv_nsec = (long)(timer->at_ns % NS_PER_S)}};
    int rc = timerfd_settime(timer->fd, TFD_TIMER_ABSTIME, &when, NULL);
    assert(rc == 0);
}

static void close_fd(uv_handle_t *handle)
{
    struct eb_fine_timer *timer = EB_CONTAINER_OF(handle, struct eb_fine_timer, poll);
    (void)close(timer->fd);
}

void eb_fine_timer_close(struct eb_fine_timer *timer)
{
    uv_close((uv_handle_t *)&timer->poll, close_fd);
}
