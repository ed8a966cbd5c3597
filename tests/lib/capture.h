/* What a piece of a test writes to standard output or error, as a string.
 * Thread: one at a time for each descriptor. Memory: the string is the caller's. */
#pragma once

#include <stddef.h>

struct eb_capture {
    int descriptor; /* the one captured */
    int before;     /* where it led */
    int file;
};

/* From now on what is written to `descriptor` is kept. Fails the test where it cannot. */
void eb_capture_start(struct eb_capture *capture, int descriptor);
/* Ends that and fills `out`, NUL-terminated; what does not fit fails the test. */
void eb_capture_stop(struct eb_capture *capture, char *out, size_t out_bytes);
