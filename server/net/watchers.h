/* Reserves memory for a libuv loop's table of watchers, which has an entry for each descriptor up
 * to the highest one that the loop watches. libuv aborts the process if it cannot enlarge the
 * table, so the table gets its full size before there are connections that need it.
 * Thread: the loop's, or the one that creates the loop. Memory: the loop's. */
#pragma once

#include <stdint.h>
#include <uv.h>

/* Files that the process has open in addition to its connections. */
#define EB_WATCHERS_FILES_RESERVED 256

/* Makes room for the descriptors of `connections_max` connections and EB_WATCHERS_FILES_RESERVED
 * files, or for as many descriptors as RLIMIT_NOFILE allows if that is fewer. The loop must have no
 * open handle and must not be running. Returns 0 or a negative libuv code: UV_ENOMEM, UV_EMFILE. */
int eb_watchers_reserve(uv_loop_t *uv, uint64_t connections_max);
/* Does the same for a loop that has handles or is running; on the loop's thread. A handle that it
 * opens is closed when the loop runs next. */
int eb_watchers_extend(uv_loop_t *uv, uint64_t connections_max);

/* ---- hangup watch ---- */

/* Notices when a peer closes or resets a connection that is not being read at present, and that
 * libuv therefore does not watch. Has an epoll instance of its own, which the loop polls and which
 * reports only hang-ups.
 * Thread: its loop's. Memory: only the kernel's, for each descriptor that epoll watches. */

struct eb_hangup_watch {
    uv_poll_t poll;
    int epoll;                           /* -1 if not open */
    void (*on_hangup)(void *connection); /* called when the connection's peer has closed or reset
                                            it; may call eb_hangup_watch_forget */
};

/* Opens the epoll instance and its handle. Returns 0, or a negative libuv code with nothing left
 * open. */
int eb_hangup_watch_open(
    struct eb_hangup_watch *watch, uv_loop_t *loop, void (*on_hangup)(void *connection));
/* Closes the handle; the epoll instance is closed when the loop next runs. */
void eb_hangup_watch_close(struct eb_hangup_watch *watch);
/* Calls on_hangup(connection) once the peer has closed or reset `socket`, and again in every cycle
 * of the loop until the socket is forgotten. Returns 0 or a negative libuv code. */
int eb_hangup_watch_add(struct eb_hangup_watch *watch, int socket, void *connection);
/* Stops watching a socket that was added. Not needed before the socket is closed. */
void eb_hangup_watch_forget(struct eb_hangup_watch *watch, int socket);
