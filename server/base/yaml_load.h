/* Reads YAML of bounded size by a schema of libcyaml's, with every scalar as a text. Accepts only
 * UTF-8 without aliases, NULs and directives, one document, and no key that is unknown to the
 * schema or given twice.
 *
 * Hostile bytes must not cost more than their size:
 * - An alias is refused where it stands, so nothing multiplies.
 * - Data nested deeper than the schema is refused at its first level, and libyaml looks at most
 *   1024 characters ahead of there.
 * - libcyaml keeps its own stack, so nothing recurses.
 * - No line may begin with a directive, because libyaml compares each directive with all others.
 * - A sequence has at most as many entries as its schema says.
 *
 * Thread: any one. Memory: the values are on the heap, by malloc. */
#pragma once

#include "server/base/failure.h"

#include <cyaml/cyaml.h>

/* Sets *values to the data in the form that `schema`, a mapping with CYAML_FLAG_POINTER, describes.
 * NULL: the document is empty. Returns false with *values NULL and *failure set: what is wrong,
 * then where, from the inside out. */
bool eb_yaml_load(const uint8_t *yaml, size_t yaml_bytes, const cyaml_schema_value_t *schema,
    void **values, struct eb_failure *failure);
/* Accepts NULL. */
void eb_yaml_free(const cyaml_schema_value_t *schema, void *values);
