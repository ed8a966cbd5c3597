/* Memory for a libuv loop's table of watchers, which has an entry for each descriptor up to the
 * highest one that the loop watches. libuv ends the process if it cannot enlarge the table, so that
 * is done at start, before there are connections.
 * Thread: that of the loop, or the one that makes it. Memory: the loop's. */
#pragma once

#include <stdint.h>
#include <uv.h>

/* Open files of the process itself, beside its connections. */
#define EB_WATCHERS_FILES_RESERVED 256

/* Makes room for all descriptors that `connections_max` connections and EB_WATCHERS_FILES_RESERVED
 * files can have, or that RLIMIT_NOFILE allows, if those are fewer. The loop has no open handle and
 * does not run. Returns 0, or a negative libuv code: UV_ENOMEM, UV_EMFILE. */
int eb_watchers_reserve(uv_loop_t *uv, uint64_t connections_max);
