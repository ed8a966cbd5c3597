/* The connections of a loop that have something to write, and those whose turn is over and that
 * wait in line for their next one.
 * Thread: the loop's. Memory: its lists run through the connections (eb_conn_links). */
#pragma once

#include "server/net/conn.h"

struct eb_conn_line {
    struct eb_conn *marked; /* to be flushed */
    struct eb_conn *first;  /* of those that wait for their next turn */
    struct eb_conn **end;
};

void eb_conn_line_init(struct eb_conn_line *line);
/* Whether none is marked and none waits. */
bool eb_conn_line_is_empty(const struct eb_conn_line *line);
/* Does nothing where it is marked. */
void eb_conn_line_mark(struct eb_conn_line *line, struct eb_conn *conn);
/* At the end of the line; does nothing where it is in the line. */
void eb_conn_line_join(struct eb_conn_line *line, struct eb_conn *conn);
/* One that is in the line. */
void eb_conn_line_leave(struct eb_conn_line *line, struct eb_conn *conn);
/* It goes away. */
void eb_conn_line_remove(struct eb_conn_line *line, struct eb_conn *conn);
/* eb_conn_flush of all that are marked now: one that marks itself again waits for the next. Those
 * whose turn is over come last: what they write takes time too. */
void eb_conn_line_flush(struct eb_conn_line *line);
