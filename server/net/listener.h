/* Listening sockets. All are opened on the main thread before the first loop runs, so that the
 * server starts with all of them or not at all. Then each loop watches its own.
 * Thread: open and close on main; start and stop on the loop's. Memory: inside the struct. */
#pragma once

#include "proto/net/address.h"
#include "server/base/failure.h"

#include <uv.h>

struct eb_listener {
    int socket;     /* -1 if there is none */
    bool is_admin;  /* whether its connections are for administration, see eb_conn_is_admin */
    bool is_passed; /* whether the socket was passed to this process, which then must not remove a
                       unix socket's file */
    struct eb_address address;
    uv_poll_t watch;
    bool watching;
    bool accepts_one; /* whether to accept only one connection in a row; set by the owner */
    /* Called on the loop's thread with a connected, non-blocking socket, which the callee owns. */
    void (*on_accept)(struct eb_listener *listener, int socket);
    /* Called when the process cannot open any more sockets, which has been logged. The listener
     * accepts nothing until it is resumed. */
    void (*on_exhausted)(struct eb_listener *listener);
    void *context;
};

/* Options of eb_listener_open. */
struct eb_listener_options {
    bool probe;    /* whether to check that the TCP port is free; only for the first socket of it */
    bool is_admin; /* whether only the owner may access a unix socket's file */
};

/* Opens a socket that listens on the address. Fails with -EADDRINUSE if anyone, including another
 * embagd, listens on the address. The system chooses a port in place of 0. A TCP socket shares its
 * port with other sockets of this process. The file of a stale unix socket is replaced. Returns 0,
 * or a negative errno with the failed step in *failure. */
int eb_listener_open(struct eb_listener *listener, const struct eb_address *address,
    struct eb_listener_options options, struct eb_failure *failure);
/* Takes a socket that is already bound and listens. If `is_admin`, it must be a unix socket that is
 * not open to every user. Returns 0. Otherwise closes the socket and returns a negative errno, with
 * the reason in *failure; the listener's address has size 0 if the socket has none. */
int eb_listener_adopt(
    struct eb_listener *listener, int socket, bool is_admin, struct eb_failure *failure);
/* Closes the socket of a listener that was never started, and removes a unix socket's file. Does
 * nothing if the socket is closed already. */
void eb_listener_close(struct eb_listener *listener);

/* Watches the socket on this loop. Returns 0 or a negative libuv code. */
int eb_listener_start(struct eb_listener *listener, uv_loop_t *loop);
/* Stops accepting, and closes the socket when the loop next runs. May be called twice. */
void eb_listener_stop(struct eb_listener *listener);
/* Watches the socket again after on_exhausted. */
void eb_listener_resume(struct eb_listener *listener);
