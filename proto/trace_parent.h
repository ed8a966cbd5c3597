/* Reads the header field `traceparent` of W3C Trace Context, by which a caller names the trace that
 * a call belongs to: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.
 * Thread: pure. Memory: none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define EB_TRACE_ID_BYTES 33   /* 32 hexadecimal digits and a NUL */
#define EB_TRACE_SPAN_BYTES 17 /* 16 hexadecimal digits and a NUL */

/* Zeroed if there is no trace; trace_id is then "". */
struct eb_trace_parent {
    char trace_id[EB_TRACE_ID_BYTES];
    char parent_id[EB_TRACE_SPAN_BYTES]; /* the caller's span */
    bool is_sampled;                     /* the caller may have recorded its span */
};

/* Reads a field's value, `size` bytes. If its version is unknown, reads the parts that version 00
 * has, as the recommendation asks. Returns false if the value is invalid; *out is zeroed. */
bool eb_trace_parent_parse(const char *text, size_t size, struct eb_trace_parent *out);

/* Room for a field's value with its NUL. */
#define EB_TRACE_PARENT_BYTES 56
/* Writes the value of the field for a call made on behalf of this one. Returns its length; 0 if
 * there is no trace. */
size_t eb_trace_parent_format(const struct eb_trace_parent *trace, char out[EB_TRACE_PARENT_BYTES]);
