#include "server/net/listener.h"

#include "server/base/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 4096 /* the system lowers it to its own maximum */
/* Most connections accepted in a row, so that a storm of connections does not hold up the loop:
 * accepting one takes some 30 us. While 40 peers reconnect at once, the p50 of other callers is 1.3
 * ms with 8, and 3.1 ms with 64. */
#define ACCEPTS_PER_TURN_MAX 8

static int fail_listener(const char *step, struct eb_failure *failure)
{
    int error = errno;
    eb_failure_set(failure, "%s: %s", step, strerror(error));
    return -error;
}

/* Returns whether somebody may be listening on a unix socket's file. Only a refused connection
 * shows that nobody is. */
static bool is_answered(const struct eb_address *address)
{
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) {
        return true;
    }
    int rc = connect(probe, (const struct sockaddr *)&address->socket_address, address->size);
    bool answered = rc == 0 || errno != ECONNREFUSED;
    close(probe);
    return answered;
}

static int open_unix(struct eb_listener *listener, struct eb_failure *failure)
{
    const struct eb_address *address = &listener->address;
    const char *path = eb_address_unix_path(address);
    struct stat status;
    if (lstat(path, &status) == 0) {
        if (!S_ISSOCK(status.st_mode) || is_answered(address)) {
            errno = EADDRINUSE;
            return fail_listener("bind", failure);
        }
        if (unlink(path) != 0) {
            return fail_listener("unlink of a stale socket", failure);
        }
    }
    listener->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->socket < 0) {
        return fail_listener("socket", failure);
    }
    /* Linux gives the file the socket's mode, so it is never open to others. */
    if (listener->is_admin && fchmod(listener->socket, S_IRUSR | S_IWUSR) != 0) {
        return fail_listener("fchmod", failure);
    }
    if (bind(listener->socket, (const struct sockaddr *)&address->socket_address, address->size) !=
        0) {
        return fail_listener("bind", failure);
    }
    return 0;
}

/* Returns a bound TCP socket, or -1. If `shared`, other sockets of this user may bind the same
 * port. */
static int bind_tcp(const struct eb_address *address, bool shared)
{
    int yes = 1;
    int family = address->socket_address.ss_family;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    bool ready =
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        (!shared || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes) == 0) &&
        (family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes) == 0) &&
        bind(fd, (const struct sockaddr *)&address->socket_address, address->size) == 0;
    if (!ready) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int open_tcp(struct eb_listener *listener, bool probe, struct eb_failure *failure)
{
    struct eb_address *address = &listener->address;
    if (probe) {
        /* With SO_REUSEPORT alone, a second server would silently take half of the connections. The
         * probe does not listen, so that nobody connects to a socket that is about to be closed. */
        int fd = bind_tcp(address, false);
        if (fd < 0) {
            return fail_listener("bind", failure);
        }
        close(fd);
    }
    listener->socket = bind_tcp(address, true);
    if (listener->socket < 0) {
        return fail_listener("bind", failure);
    }
    if (getsockname(
            listener->socket, (struct sockaddr *)&address->socket_address, &address->size) != 0) {
        return fail_listener("getsockname", failure);
    }
    return 0;
}

int eb_listener_open(struct eb_listener *listener, const struct eb_address *address,
    struct eb_listener_options options, struct eb_failure *failure)
{
    *listener =
        (struct eb_listener){.socket = -1, .is_admin = options.is_admin, .address = *address};
    int rc = eb_address_is_unix(address) ? open_unix(listener, failure)
                                         : open_tcp(listener, options.probe, failure);
    if (rc == 0 && listen(listener->socket, BACKLOG) != 0) {
        rc = fail_listener("listen", failure);
    }
    if (rc != 0 && listener->socket >= 0) {
        close(listener->socket);
        listener->socket = -1;
    }
    return rc;
}

static bool is_listening_stream(int fd)
{
    int type = 0;
    int listens = 0;
    socklen_t type_size = sizeof type;
    socklen_t listens_size = sizeof listens;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) == 0 && listens;
}

/* Returns whether users other than the owner and the group may connect. Assumes so if the address
 * is abstract or its file is not visible from here. */
static bool is_open_to_all(const struct eb_address *address)
{
    struct stat status;
    return lstat(eb_address_unix_path(address), &status) != 0 || (status.st_mode & S_IWOTH) != 0;
}

/* Returns what is wrong with a passed socket, or NULL if it can be used. */
static const char *find_listener_failure(const struct eb_listener *listener)
{
    int family = listener->address.socket_address.ss_family;
    if (!is_listening_stream(listener->socket)) {
        return "is not a listening stream socket";
    }
    if (family != AF_INET && family != AF_INET6 && family != AF_UNIX) {
        return "is of the wrong address family; expected IPv4, IPv6 or unix";
    }
    if (listener->is_admin && family != AF_UNIX) {
        return "is for commands, but not a unix socket";
    }
    if (listener->is_admin && is_open_to_all(&listener->address)) {
        return "is for commands, but every user can connect to it";
    }
    return NULL;
}

int eb_listener_adopt(
    struct eb_listener *listener, int socket, bool is_admin, struct eb_failure *failure)
{
    *listener = (struct eb_listener){.socket = socket, .is_admin = is_admin, .is_passed = true};
    struct eb_address *address = &listener->address;
    address->size = sizeof address->socket_address;
    int rc = 0;
    if (getsockname(socket, (struct sockaddr *)&address->socket_address, &address->size) != 0) {
        rc = fail_listener("getsockname", failure);
        address->size = 0;
    } else if (fcntl(socket, F_SETFL, O_NONBLOCK) != 0 || fcntl(socket, F_SETFD, FD_CLOEXEC) != 0) {
        rc = fail_listener("fcntl", failure);
    } else if (find_listener_failure(listener)) {
        eb_failure_set(failure, "%s", find_listener_failure(listener));
        rc = -EINVAL;
    }
    if (rc != 0) {
        eb_listener_close(listener);
    }
    return rc;
}

void eb_listener_close(struct eb_listener *listener)
{
    if (listener->socket < 0) {
        return;
    }
    if (eb_address_is_unix(&listener->address) && !listener->is_passed) {
        /* Somebody may have removed it already. */
        (void)unlink(eb_address_unix_path(&listener->address));
    }
    close(listener->socket);
    listener->socket = -1;
}

/* Returns whether accepting failed for a reason that may be gone at the next attempt. */
static bool is_passing(int error)
{
    return error == EINTR || error == ECONNABORTED || error == EPROTO || error == ENETDOWN ||
           error == ENOPROTOOPT || error == EHOSTDOWN || error == EHOSTUNREACH ||
           error == ENETUNREACH || error == EPERM;
}

static void log_exhausted(const struct eb_listener *listener, int error)
{
    char address[EB_ADDRESS_TEXT_BYTES];
    eb_address_format(&listener->address, address);
    eb_log(EB_LOG_WARN, "accept_failed", eb_log_text("address", address),
        eb_log_text("reason", strerror(error)),
        eb_log_text("remedy", "raise the limit of open files, or lower connections_max"));
}

static int find_accepts_max(const struct eb_listener *listener)
{
    return listener->accepts_one ? 1 : ACCEPTS_PER_TURN_MAX;
}

static void on_readable(uv_poll_t *watch, int status, int events)
{
    struct eb_listener *listener = watch->data;
    (void)status;
    (void)events;
    for (int i = 0; i < find_accepts_max(listener) && listener->watching; i++) {
        int accepted = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (accepted >= 0) {
            listener->on_accept(listener, accepted);
            continue;
        }
        if (errno == EAGAIN) {
            return;
        }
        if (!is_passing(errno)) {
            log_exhausted(listener, errno);
            uv_poll_stop(watch);
            listener->on_exhausted(listener);
            return;
        }
    }
}

int eb_listener_start(struct eb_listener *listener, uv_loop_t *loop)
{
    int rc = uv_poll_init(loop, &listener->watch, listener->socket);
    if (rc < 0) {
        return rc;
    }
    listener->watch.data = listener;
    listener->watching = true;
    eb_listener_resume(listener);
    return 0;
}

static void on_watch_closed(uv_handle_t *watch)
{
    eb_listener_close(watch->data);
}

void eb_listener_stop(struct eb_listener *listener)
{
    if (listener->watching) {
        listener->watching = false;
        uv_close((uv_handle_t *)&listener->watch, on_watch_closed);
    }
}

void eb_listener_resume(struct eb_listener *listener)
{
    if (listener->watching) {
        int rc = uv_poll_start(&listener->watch, UV_READABLE, on_readable);
        assert(rc == 0);
    }
}
