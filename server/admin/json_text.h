/* JSON as it is written, piece by piece: commas, quotes and escapes. Any bytes may be given as
 * texts: what is not UTF-8 becomes U+FFFD, and `<` is escaped, so that no text ends a script.
 * Thread: its owner's. Memory: on the heap; starts zeroed. Where memory cannot be had nothing more
 * is written, and eb_json_text_take says so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct eb_json_text {
    char *bytes;
    size_t size;
    size_t capacity;
    bool is_failed;
};

/* In all of these `key` is the member's name, one of ours that needs no escapes; NULL: it is an
 * element of a list, or the whole. */

/* Opens an object '{' or a list '['. */
void eb_json_text_begin(struct eb_json_text *text, const char *key, char bracket);
/* Closes it: '}' or ']'. */
void eb_json_text_end(struct eb_json_text *text, char bracket);
void eb_json_text_count(struct eb_json_text *text, const char *key, uint64_t count);
/* A number of 64 bits as a text, for readers whose numbers are doubles. */
void eb_json_text_id(struct eb_json_text *text, const char *key, int64_t id);
void eb_json_text_unsigned_id(struct eb_json_text *text, const char *key, uint64_t id);
/* Four places; what is no number is 0. */
void eb_json_text_share(struct eb_json_text *text, const char *key, double share);
/* `string` NULL: null. */
void eb_json_text_string(struct eb_json_text *text, const char *key, const char *string);

/* All that was written, with a NUL behind it that *size does not count; the caller frees it. NULL:
 * out of memory. The text is empty again. */
char *eb_json_text_take(struct eb_json_text *text, size_t *size);
