/* Shows on stderr how far a task has come, in bytes: as a bar on a terminal; otherwise, if there
 * are many bytes, as a line now and then.
 * Thread: one at a time. Memory: none; the name is borrowed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct eb_progress_bar {
    const char *name; /* name of the task; its control characters are shown as escapes */
    uint64_t total_bytes;
    uint64_t done_bytes;
    unsigned shown_percent;
    bool is_terminal;
    bool is_line_open;
};

/* Starts the bar. If there are no bytes, nothing is ever shown. */
void eb_progress_bar_init(struct eb_progress_bar *bar, const char *name, uint64_t total_bytes);
/* Adds `bytes` to what is done. */
void eb_progress_bar_advance(struct eb_progress_bar *bar, uint64_t bytes);
/* Ends the line of an incomplete bar, so that other messages can follow. */
void eb_progress_bar_end(struct eb_progress_bar *bar);
