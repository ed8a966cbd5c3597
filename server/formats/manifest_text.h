/* Limits of VERSION/manifest.yaml, and functions that read and write its texts. Both forms of the
 * manifest use them (manifest.h, parts_manifest.h).
 * Thread: any. Memory: results are on the heap. */
#pragma once

#include "server/base/failure.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cyaml_schema_value;
struct eb_table_file;

#define EB_MANIFEST_NAME "manifest.yaml"
/* Limits. A manifest that exceeds one of them is refused. They bound the memory and the time that
 * reading it takes. */
#define EB_MANIFEST_BYTES_MAX (16 << 20) /* bytes of the manifest */

/* Loads a manifest (yaml_load.h). Returns false with *values NULL and *failure set if it is too
 * long, empty or not as the schema describes. `expected` names the fields that an empty manifest
 * lacks. */
bool eb_manifest_text_load(const uint8_t *yaml, size_t yaml_bytes,
    const struct cyaml_schema_value *schema, const char *expected, void **values,
    struct eb_failure *failure);
/* Sets *failure to a lack of memory, which is transient. Always returns false. */
bool eb_manifest_text_no_memory(struct eb_failure *failure);
/* Reads a manifest from an open file. Returns a buffer of file->bytes bytes, with room for one
 * more, which the caller frees, or NULL with *failure set if the file is too large or cannot be
 * read. */
uint8_t *eb_manifest_text_read(struct eb_table_file *file, struct eb_failure *failure);

/* Finds the first line that begins with `key`, such as "parts:". Returns the text that follows the
 * key and sets *rest_bytes to its length, up to the end of the manifest. Returns NULL if no line
 * begins with the key. */
const char *eb_manifest_text_find(
    const uint8_t *yaml, size_t yaml_bytes, const char *key, size_t *rest_bytes);

/* Reads decimal digits. Returns false if there are others, or if the number is larger than `max`.
 */
bool eb_manifest_text_number(const char *text, uint64_t max, uint64_t *value);
/* Reads 16 hex digits in small letters. */
bool eb_manifest_text_digest(const char *text, uint64_t *digest);
/* Checks a field of which only 1 is supported. `text` is NULL if it is missing. `hint` follows the
 * value of another number. */
bool eb_manifest_text_one(
    const char *field, const char *text, const char *hint, struct eb_failure *failure);
/* Returns NULL if a file of a version may have the name. Otherwise returns what is wrong, to be
 * read after the name. */
const char *eb_manifest_text_name_error(const char *name, uint32_t bytes_max);

/* Returns the text that `write` prints, which the caller frees, and its length. Returns NULL with
 * *failure set if out of memory or if the text is too long for a manifest. */
char *eb_manifest_text_print(void (*write)(FILE *out, const void *manifest), const void *manifest,
    size_t *text_bytes, struct eb_failure *failure);
/* Prints a name in double quotes. */
void eb_manifest_text_quote(FILE *out, const char *name);
