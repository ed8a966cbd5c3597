/* How far some work on bytes is, on stderr: a bar on a terminal, else, of many
 * bytes, a line now and then.
 * Thread: one at a time. Memory: none; the name is borrowed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct eb_progress_bar {
    const char *name; /* of what is worked on; its control characters are shown as escapes */
    uint64_t total_bytes;
    uint64_t done_bytes;
    unsigned shown_percent;
    bool is_terminal;
    bool is_line_open;
};

/* Of no bytes nothing is ever shown. */
void eb_progress_bar_init(struct eb_progress_bar *bar, const char *name, uint64_t total_bytes);
/* So many bytes more are done. */
void eb_progress_bar_advance(struct eb_progress_bar *bar, uint64_t bytes);
/* Leaves the line of a bar that is not complete, so that something else can be said. */
void eb_progress_bar_end(struct eb_progress_bar *bar);
