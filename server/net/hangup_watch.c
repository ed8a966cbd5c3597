#include "server/net/hangup_watch.h"

#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ENDS_AT_ONCE_MAX 256 /* handled before the loop's other connections are served */

static void on_ends(uv_poll_t *poll, int status, int events)
{
    struct eb_hangup_watch *watch = poll->data;
    struct epoll_event ends[ENDS_AT_ONCE_MAX];
    (void)status;
    (void)events;
    int count = epoll_wait(watch->epoll, ends, ENDS_AT_ONCE_MAX, 0);
    for (int i = 0; i < count; i++) {
        watch->on_hangup(ends[i].data.ptr);
    }
}

int eb_hangup_watch_open(
    struct eb_hangup_watch *watch, uv_loop_t *loop, void (*on_hangup)(void *connection))
{
    *watch = (struct eb_hangup_watch){.epoll = epoll_create1(EPOLL_CLOEXEC)};
    if (watch->epoll < 0) {
        return uv_translate_sys_error(errno);
    }
    watch->on_hangup = on_hangup;
    int code = uv_poll_init(loop, &watch->poll, watch->epoll);
    if (code == 0) {
        watch->poll.data = watch;
        code = uv_poll_start(&watch->poll, UV_READABLE, on_ends);
        assert(code == 0);
    } else {
        close(watch->epoll);
    }
    return code;
}

static void on_epoll_closed(uv_handle_t *poll)
{
    struct eb_hangup_watch *watch = poll->data;
    close(watch->epoll);
    watch->epoll = -1;
}

void eb_hangup_watch_close(struct eb_hangup_watch *watch)
{
    uv_close((uv_handle_t *)&watch->poll, on_epoll_closed);
}

int eb_hangup_watch_add(struct eb_hangup_watch *watch, int socket, void *connection)
{
    /* EPOLLHUP and EPOLLERR are always reported. */
    struct epoll_event end = {.events = EPOLLRDHUP, .data.ptr = connection};
    return epoll_ctl(watch->epoll, EPOLL_CTL_ADD, socket, &end) == 0
               ? 0
               : uv_translate_sys_error(errno);
}

void eb_hangup_watch_forget(struct eb_hangup_watch *watch, int socket)
{
    int code = epoll_ctl(watch->epoll, EPOLL_CTL_DEL, socket, NULL);
    assert(code == 0);
    (void)code;
}
