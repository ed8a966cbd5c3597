/* Notices when a peer closes or resets a connection that is not being read at present, and that
 * libuv therefore does not watch. It has its own epoll instance, which the loop polls and which
 * reports only hang-ups.
 * Thread: its loop's. Memory: only the kernel's, for each descriptor that epoll watches. */
#pragma once

#include <uv.h>

struct eb_hangup_watch {
    uv_poll_t poll;
    int epoll;                           /* -1: not open */
    void (*on_hangup)(void *connection); /* its peer has closed or reset it; may call forget */
};

/* Returns 0, or a negative libuv code with nothing left open. */
int eb_hangup_watch_open(
    struct eb_hangup_watch *watch, uv_loop_t *loop, void (*on_hangup)(void *connection));
/* Closes the handle; the epoll instance is closed when the loop next runs. */
void eb_hangup_watch_close(struct eb_hangup_watch *watch);
/* Calls on_hangup(connection) once the peer has closed or reset `socket`, and again in every cycle
 * of the loop until the socket is forgotten. Returns 0 or a negative libuv code. */
int eb_hangup_watch_add(struct eb_hangup_watch *watch, int socket, void *connection);
/* Stops watching a socket that was added. Not needed before the socket is closed. */
void eb_hangup_watch_forget(struct eb_hangup_watch *watch, int socket);
