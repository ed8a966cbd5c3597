/* Reads JSON text value by value, without building a tree: memory does not grow with the text. Text
 * must be valid UTF-8, and no string may contain NUL. Source: RFC 8259.
 *
 *     struct eb_json_text name;
 *     if (eb_json_enter(&reader, '{')) {
 *         for (bool is_first = true; eb_json_next(&reader, '}', &is_first);) {
 *             if (!eb_json_name(&reader, &name) || !eb_json_skip(&reader)) ...
 *         }
 *     }
 *
 * Once the text proves invalid, every function returns false (eb_json_peek: 0), and `error` says
 * why.
 * Thread: one each. Memory: none; texts point into the text that is read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most arrays and objects inside each other in a value that is skipped. */
#define EB_JSON_DEPTH_MAX 64

struct eb_json_reader {
    const uint8_t *bytes; /* [size] */
    size_t size;
    size_t at;         /* next byte to read, or that of the error */
    const char *error; /* why the text is not valid JSON; NULL: no error so far */
};

/* A string as it is written in the text, without its quotes. */
struct eb_json_text {
    size_t at;
    size_t bytes;
};

/* Returns the first byte of the next value or punctuation mark, past white space; 0 at the end of
 * the text. */
uint8_t eb_json_peek(struct eb_json_reader *reader);

/* Reads '{' or '['. Returns false if something else follows. */
bool eb_json_enter(struct eb_json_reader *reader, char open);
/* Returns whether another member or element follows, which the caller must read. Otherwise reads
 * '}' or ']'. *is_first must be true in the first call. */
bool eb_json_next(struct eb_json_reader *reader, char close, bool *is_first);
/* Reads the name of a member, and the colon. */
bool eb_json_name(struct eb_json_reader *reader, struct eb_json_text *name);
bool eb_json_string(struct eb_json_reader *reader, struct eb_json_text *text);
/* Reads a number. Sets *is_count to whether it is an integer from 0 to 2^63 - 1 without fraction
 * and exponent; if so, sets *count. */
bool eb_json_count(struct eb_json_reader *reader, uint64_t *count, bool *is_count);
/* Skips a value of any kind, and checks that it is valid. */
bool eb_json_skip(struct eb_json_reader *reader);
/* Returns whether nothing but white space follows. */
bool eb_json_end(struct eb_json_reader *reader);

/* Writes a text that was read from `bytes`, with its escapes resolved, and a NUL to `out`, which
 * has room for text->bytes + 1 bytes. It may point to the text itself. */
void eb_json_decode(const uint8_t *bytes, const struct eb_json_text *text, char *out);
