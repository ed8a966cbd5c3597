/* Captures the output that a part of a test writes to standard output or standard error.
 * Thread: one at a time for each descriptor. Memory: the caller owns the string. */
#pragma once

#include <stddef.h>

struct eb_capture {
    int descriptor; /* captured descriptor */
    int before;     /* duplicate of its earlier target */
    int file;       /* memory file that receives the output */
};

/* Starts to capture the output to `descriptor`. Fails the test if it cannot. */
void eb_capture_start(struct eb_capture *capture, int descriptor);
/* Ends the capture and copies the output to `out`, NUL-terminated. Fails the test if it does not
 * fit. */
void eb_capture_stop(struct eb_capture *capture, char *out, size_t out_bytes);
