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

/* Sets *values to the data in the form that `schema`, a mapping with CYAML_FLAG_POINTER, describes;
 * to NULL if the document is empty. On failure returns false, with *values NULL and *failure set:
 * what is wrong, then where, from the inside out. It is transient if libcyaml is out of memory. */
bool eb_yaml_load(const uint8_t *yaml, size_t yaml_bytes, const cyaml_schema_value_t *schema,
    void **values, struct eb_failure *failure);
/* Accepts NULL. */
void eb_yaml_free(const cyaml_schema_value_t *schema, void *values);
