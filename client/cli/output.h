/* How values are printed: for people, and as JSON.
 * Thread: pure but for the stream. Memory: none. */
#pragma once

#include "client/embag.h"

#include <stdio.h>

/* Names by number, ended by NULL; position 0 stands for "unspecified". */
extern const char *const eb_output_types[];

/* "f32"; "unspecified" for a number that is no type. */
const char *eb_output_type(enum embag_type type);

/* The element at `position` of a result. Integers exactly; floating-point numbers by the fewest
 * digits that read back as the same number (f16 and bf16 as the f32 of their value), with an
 * exponent below 1e-4 and from 1e16. JSON knows no NaN and no infinity: there they are strings. */
void eb_output_value(FILE *out, const struct embag_result *result, uint64_t position, bool as_json);

/* "[3, 2]", which is JSON too. */
void eb_output_shape(FILE *out, const uint64_t *shape, uint32_t rank);
/* A JSON string, quotes included. `text` is UTF-8. */
void eb_output_json_text(FILE *out, const char *text);

#define EB_OUTPUT_TEXT_BYTES 1024

struct eb_output_text {
    char bytes[EB_OUTPUT_TEXT_BYTES]; /* NUL-terminated */
};

/* What a server sent, for people: control characters, which a terminal might obey, become \x1b and
 * the like, byte by byte. `text` is UTF-8; its end is cut off where there is no room. */
struct eb_output_text eb_output_printable(const char *text);

/* "loading"; "unknown" for a number that is no state. */
const char *eb_output_state(enum embag_version_state state);

struct eb_output_size {
    char bytes[16];
};

/* "1.5 GiB" */
struct eb_output_size eb_output_size(uint64_t bytes);

/* Says on stderr why a call failed. Returns the exit status for that: 1. */
int eb_output_error(const struct embag_error *error);
