#include "server/net/watchers.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* Returns how many descriptors there can be; the highest number is one less. Returns a negative
 * libuv code if getrlimit fails. */
static int64_t count_descriptors(uint64_t connections_max)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return uv_translate_sys_error(errno);
    }
    uint64_t wanted = connections_max + EB_WATCHERS_FILES_RESERVED;
    return (int64_t)(limit.rlim_cur < wanted ? limit.rlim_cur : wanted);
}

/* Opens a descriptor whose number is at least `count` - 1, or as close below that as possible.
 * Returns the descriptor or a negative libuv code. */
static int open_high_descriptor(int64_t count)
{
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0) {
        return uv_translate_sys_error(errno);
    }
    int high = -1;
    errno = EMFILE;
    for (int64_t number = count - 1; high < 0 && errno == EMFILE && number >= 0; number--) {
        high = fcntl(event, F_DUPFD_CLOEXEC, (int)number);
    }
    int rc = high < 0 ? uv_translate_sys_error(errno) : high;
    close(event);
    return rc;
}

/* Returns whether memory for a table of `count` entries is available. This is an estimate: libuv,
 * which rounds up to a power of two, offers no way to ask. */
static bool can_have_table(int64_t count)
{
    /* volatile: the compiler would omit the call otherwise. */
    void *volatile table = malloc((size_t)count * 2 * sizeof(void *));
    bool has_memory = table;
    free(table);
    return has_memory;
}

static void on_watcher_event(uv_poll_t *watch, int status, int events)
{
    (void)watch;
    (void)status;
    (void)events;
}

/* Returns a high descriptor, which makes the table large enough once it is watched, or a negative
 * libuv code. */
static int open_watched(uint64_t connections_max)
{
    int64_t count = count_descriptors(connections_max);
    if (count < 0) {
        return (int)count;
    }
    if (!can_have_table(count)) {
        return UV_ENOMEM;
    }
    return open_high_descriptor(count);
}

int eb_watchers_reserve(uv_loop_t *uv, uint64_t connections_max)
{
    int high = open_watched(connections_max);
    if (high < 0) {
        return high;
    }
    uv_poll_t watch;
    int rc = uv_poll_init(uv, &watch, high);
    if (rc == 0) {
        rc = uv_poll_start(
            &watch, UV_READABLE, on_watcher_event); /* libuv enlarges its table here. */
        uv_close((uv_handle_t *)&watch, NULL);
        uv_run(uv, UV_RUN_NOWAIT);
        assert(!uv_loop_alive(uv));
    }
    close(high);
    return rc;
}

static void on_extension_closed(uv_handle_t *watch)
{
    free(watch);
}

int eb_watchers_extend(uv_loop_t *uv, uint64_t connections_max)
{
    int high = open_watched(connections_max);
    if (high < 0) {
        return high;
    }
    uv_poll_t *watch = malloc(sizeof *watch);
    int rc = watch ? uv_poll_init(uv, watch, high) : UV_ENOMEM;
    if (rc == 0) {
        rc = uv_poll_start(watch, UV_READABLE, on_watcher_event);
        uv_close((uv_handle_t *)watch, on_extension_closed);
    } else {
        free(watch);
    }
    close(high);
    return rc;
}

/* ---- hangup watch ---- */

#define ENDS_AT_ONCE_MAX 256 /* most hang-ups handled before the loop serves other connections */

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
    int rc = uv_poll_init(loop, &watch->poll, watch->epoll);
    if (rc == 0) {
        watch->poll.data = watch;
        rc = uv_poll_start(&watch->poll, UV_READABLE, on_ends);
        assert(rc == 0);
    } else {
        close(watch->epoll);
    }
    return rc;
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
    int rc = epoll_ctl(watch->epoll, EPOLL_CTL_DEL, socket, NULL);
    assert(rc == 0);
}
