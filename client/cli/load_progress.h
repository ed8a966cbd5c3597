/* How a run goes, on stderr once a second: one line that is written over on a terminal, else a line
 * each.
 * Thread: one. Memory: none; borrows the connections. */
#pragma once

#include "client/cli/load_connection.h"

struct eb_load_progress {
    struct eb_load_connection *connections; /* [connection_count] */
    unsigned connection_count;
    struct eb_load_window window;
    uint64_t next_ns;      /* when to tell again */
    uint64_t last_ns;      /* when it was told last, */
    uint64_t last_answers; /* and how many answers there were */
    bool is_terminal;
    bool is_line_open;
};

/* Begins now. */
void eb_load_progress_init(struct eb_load_progress *progress,
    struct eb_load_connection *connections, unsigned connection_count,
    const struct eb_load_window *window);
/* Tells where a second has passed. */
void eb_load_progress_show(struct eb_load_progress *progress, uint64_t now_ns);
/* Clears the line. */
void eb_load_progress_end(struct eb_load_progress *progress);
