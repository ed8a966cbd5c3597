/* Writes JSON piece by piece: commas, quotes and escapes. Texts may hold any bytes. Those that are
 * not UTF-8 become U+FFFD; `<` is escaped, so that no text ends a script element.
 * Thread: its owner's. Memory: on the heap; starts zeroed. If memory runs out nothing more is
 * written, and eb_json_text_take reports it. */
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

/* In all functions below, `key` is the member's name, one of ours that needs no escapes. It is NULL
 * if the value is an element of a list, or the whole text. */

/* Opens an object '{' or a list '['. */
void eb_json_text_begin(struct eb_json_text *text, const char *key, char bracket);
/* Closes an object '}' or a list ']'. */
void eb_json_text_end(struct eb_json_text *text, char bracket);
void eb_json_text_count(struct eb_json_text *text, const char *key, uint64_t count);
/* Writes a number of 64 bits as a text, for readers whose numbers are doubles. */
void eb_json_text_id(struct eb_json_text *text, const char *key, int64_t id);
void eb_json_text_unsigned_id(struct eb_json_text *text, const char *key, uint64_t id);
void eb_json_text_flag(struct eb_json_text *text, const char *key, bool flag);
/* Writes a share, bounded to 0..1, with four decimal places; 0 if it is not finite. */
void eb_json_text_share(struct eb_json_text *text, const char *key, double share);
/* Writes a text; null if `string` is NULL. */
void eb_json_text_string(struct eb_json_text *text, const char *key, const char *string);

/* Returns everything that was written, with a NUL after it that *size does not count; the caller
 * frees it. Returns NULL if out of memory. The text is empty again in either case. */
char *eb_json_text_take(struct eb_json_text *text, size_t *size);
