/* Reads YAML of bounded size with a schema of libcyaml. Every scalar is read as a text. Accepts
 * only UTF-8 without aliases, NULs and directives, one document, and no key that is unknown to the
 * schema or given twice.
 *
 * Hostile bytes must not cost more than their size:
 * - An alias is refused at once, so nothing multiplies.
 * - Data nested deeper than the schema is refused at its first level, and libyaml reads at most
 *   1024 characters beyond that point.
 * - libcyaml keeps its own stack, so nothing recurses.
 * - No line may begin with a directive, because libyaml compares each directive with all others.
 * - A sequence has at most as many entries as its schema allows.
 *
 * Thread: any. Memory: the values are on the heap, allocated with malloc. */
#pragma once

#include "server/base/failure.h"

#include <cyaml/cyaml.h>

/* Schema of a text. */
extern const cyaml_schema_value_t eb_yaml_text;

/* Schema of the field `key` of struct `type`, which is optional: a text, NULL if the key is
 * missing. */
#define EB_YAML_TEXT(type, key)                                                                    \
    CYAML_FIELD_STRING_PTR(                                                                        \
        #key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct type, key, 0, CYAML_UNLIMITED)
/* The same for a list of at most `max` entries with the schema `entry`. The struct also has the
 * number of entries, key_count. */
#define EB_YAML_LIST(type, key, entry, max)                                                        \
    CYAML_FIELD_SEQUENCE(#key, CYAML_FLAG_POINTER_NULL_STR | CYAML_FLAG_OPTIONAL, struct type,     \
        key, &(entry), 0, max)

/* Sets *values to the data in the form that `schema`, a mapping with CYAML_FLAG_POINTER, describes;
 * to NULL if the document is empty. On failure returns false, with *values NULL and *failure set:
 * what is wrong, then where, from the inside out. It is transient if libcyaml is out of memory. */
bool eb_yaml_load(const uint8_t *yaml, size_t yaml_bytes, const cyaml_schema_value_t *schema,
    void **values, struct eb_failure *failure);
/* Accepts NULL. */
void eb_yaml_free(const cyaml_schema_value_t *schema, void *values);
