/* Reserves memory for a libuv loop's table of watchers, which has an entry for each descriptor up
 * to the highest one that the loop watches. libuv aborts the process if it cannot enlarge the
 * table, so the table gets its full size at start, before there are connections.
 * Thread: the loop's, or the one that creates the loop. Memory: the loop's. */
#pragma once

#include <stdint.h>
#include <uv.h>

/* Files that the process has open in addition to its connections. */
#define EB_WATCHERS_FILES_RESERVED 256

/* Makes room for the descriptors of `connections_max` connections and EB_WATCHERS_FILES_RESERVED
 * files, or for as many as RLIMIT_NOFILE allows if that is fewer. The loop must have no open handle
 * and must not be running. Returns 0 or a negative libuv code: UV_ENOMEM, UV_EMFILE. */
int eb_watchers_reserve(uv_loop_t *uv, uint64_t connections_max);
