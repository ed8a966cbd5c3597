/* Prints values: as text, and as JSON.
 * Thread: pure, except for the stream. Memory: none. */
#pragma once

#include "client/embag.h"

#include <stdio.h>

/* The name of each type at the position of its number, then NULL. Position 0 is "unspecified". */
extern const char *const eb_output_types[];

/* Returns the name of a type, such as "f32"; "unspecified" if the number is not a type. */
const char *eb_output_type(enum embag_type type);

/* Prints the element at `position` of a result. Integers are exact. Floating-point numbers have the
 * fewest digits that read back as the same number (f16 and bf16: as the f32 of their value). They
 * have an exponent below 1e-4 and from 1e16 on. NaN and infinities are strings in JSON, which has
 * no numbers for them. */
void eb_output_value(FILE *out, const struct embag_result *result, uint64_t position, bool as_json);

/* Prints "[3, 2]", which is also JSON. */
void eb_output_shape(FILE *out, const uint64_t *shape, uint32_t rank);
/* Prints a JSON string with its quotes. `text` is UTF-8. */
void eb_output_json_text(FILE *out, const char *text);

#define EB_OUTPUT_TEXT_BYTES 1024

struct eb_output_text {
    char bytes[EB_OUTPUT_TEXT_BYTES]; /* NUL-terminated */
};

/* Makes text from a server safe to print: control characters, which a terminal might obey, become
 * \x1b and the like, byte by byte. `text` is UTF-8. Its end is cut off if it is too long. */
struct eb_output_text eb_output_printable(const char *text);

/* Returns the name of a state, such as "loading"; "unknown" if the number is not a state. */
const char *eb_output_state(enum embag_version_state state);

struct eb_output_size {
    char bytes[16];
};

/* Returns a number of bytes as text, such as "1.5 GiB". */
struct eb_output_size eb_output_size(uint64_t bytes);

/* Prints to stderr why a call failed. Returns the exit status for that: 1. */
int eb_output_error(const struct embag_error *error);
