/* The connections of a loop that have something to write.
 * Thread: the loop's. Memory: none; its list runs through the connections (eb_conn_links). */
#pragma once

#include "server/net/conn.h"

struct eb_write_queue {
    struct eb_list marked;
    struct eb_list late; /* those that the last flush did not come to */
};

void eb_write_queue_init(struct eb_write_queue *queue);
bool eb_write_queue_is_empty(const struct eb_write_queue *queue);
/* Marks a connection. Does nothing if it is marked already. */
void eb_write_queue_mark(struct eb_write_queue *queue, struct eb_conn *conn);
/* Calls eb_conn_flush for all that are marked now, until `deadline_ns` (uv_hrtime) has passed: one
 * that is marked again meanwhile waits for the next call. Those that the last call did not come to
 * are first; those whose time slice is over are last, as their writes take time too. */
void eb_write_queue_flush(struct eb_write_queue *queue, uint64_t deadline_ns);
