/* Listening sockets. All are opened on the main thread before the first loop runs, so that a start
 * fails whole; then each loop watches its own.
 * Thread: open and close on main; start and stop on the loop's. Memory: inside the struct. */
#pragma once

#include "proto/net/address.h"

#include <uv.h>

struct eb_listener {
    int socket;     /* -1: none */
    bool is_admin;  /* its connections are, see conn.h */
    bool is_passed; /* a unix socket's file is not ours to remove */
    struct eb_address address;
    uv_poll_t watch;
    bool watching;
    /* Called on the loop's thread with a connected, non-blocking socket, which it takes. */
    void (*on_accept)(struct eb_listener *listener, int socket);
    /* Called when the process is out of sockets, as a log line has said; the listener rests until
     * it is resumed. */
    void (*on_exhausted)(struct eb_listener *listener);
    void *context;
};

/* How a socket is opened. */
struct eb_listener_options {
    bool probe;    /* false for all sockets but the first that share a TCP port */
    bool is_admin; /* a unix socket's file is then its owner's alone */
};

/* Fails with -EADDRINUSE where anybody, also another embagd, listens on the address. A port of 0
 * is replaced by the one the system gave. For TCP the socket shares its port with others of this
 * process. A stale unix socket's file is replaced. 0, or a negative errno and `why` says what was
 * tried. */
int eb_listener_open(struct eb_listener *listener, const struct eb_address *address,
    struct eb_listener_options options, char *why, size_t why_bytes);
/* Takes a socket that somebody else has bound and that listens. 0, or a negative errno, `why` says
 * what is wrong, and the socket is closed; where it has no address, the listener's has size 0. One
 * for commands is a unix socket that is not open to every user. */
int eb_listener_adopt(
    struct eb_listener *listener, int socket, bool is_admin, char *why, size_t why_bytes);
/* Closes the socket and removes a unix socket's file: for a listener that was never started.
 * Accepts one that is closed already. */
void eb_listener_close(struct eb_listener *listener);

/* Watches the socket on this loop. 0 or a negative libuv code. */
int eb_listener_start(struct eb_listener *listener, uv_loop_t *loop);
/* Accepts nothing more and closes the socket with the loop's next turn; may be called twice. */
void eb_listener_stop(struct eb_listener *listener);
/* After on_exhausted: watches again. */
void eb_listener_resume(struct eb_listener *listener);
