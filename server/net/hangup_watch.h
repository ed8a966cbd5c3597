/* Notices that peers have gone whose connections are not read for now, which libuv does not watch:
 * an epoll of its own, inside the loop's, that reports nothing but ends.
 * Thread: its loop's. Memory: the kernel's; an entry is what epoll keeps of a descriptor. */
#pragma once

#include <uv.h>

struct eb_hangup_watch {
    uv_poll_t poll;
    int epoll;                           /* -1: not open */
    void (*on_hangup)(void *connection); /* whose peer has closed or reset it; may forget it */
};

/* Returns 0, or a negative libuv code with nothing left open. */
int eb_hangup_watch_open(
    struct eb_hangup_watch *watch, uv_loop_t *loop, void (*on_hangup)(void *connection));
/* Frees what it has once the loop has run on. */
void eb_hangup_watch_close(struct eb_hangup_watch *watch);
/* Calls on_hangup(connection) when `socket` has been ended by its peer, until it is forgotten.
 * Returns 0 or a negative libuv code. */
int eb_hangup_watch_add(struct eb_hangup_watch *watch, int socket, void *connection);
/* Forgets a socket that was added. Before it is closed this need not be said. */
void eb_hangup_watch_forget(struct eb_hangup_watch *watch, int socket);
