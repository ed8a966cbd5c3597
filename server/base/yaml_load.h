/* YAML of bounded size read by a schema of libcyaml's, every scalar as a text: UTF-8, no aliases,
 * no NULs, no directives, one document, no key that the schema does not know or that stands twice.
 *
 * What keeps hostile bytes from costing more than their size: an alias is refused where it stands,
 * so nothing multiplies; what is nested deeper than the schema is refused at its first level, and
 * libyaml looks no more than 1024 characters ahead of there; libcyaml keeps its own stack, so that
 * nothing recurses; no line begins with a directive, each of which libyaml compares with all
 * others; a sequence has at most as many entries as its schema says. Thread: any one. Memory: what
 * is read is on the heap, by malloc. */
#pragma once

#include "server/base/failure.h"

#include <cyaml/cyaml.h>

/* Sets *values (NULL: the document is empty) to what `schema`, a mapping with CYAML_FLAG_POINTER,
 * says. false: *failure has what is wrong, then where, from the inside out; *values is NULL. */
bool eb_yaml_load(const uint8_t *yaml, size_t yaml_bytes, const cyaml_schema_value_t *schema,
    void **values, struct eb_failure *failure);
/* Accepts NULL. */
void eb_yaml_free(const cyaml_schema_value_t *schema, void *values);
