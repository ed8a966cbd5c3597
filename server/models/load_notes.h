/* Notes of a load for the log: what the version's directory holds that did not become a table, and
 * patterns of model.yaml that chose nothing.
 * Thread: one at a time. Memory: plain data. */
#pragma once

#include "server/models/file_fault.h"

#include <stddef.h>

/* How many of a kind a note names; the others it counts. */
#define EB_LOAD_NOTES_NAMED_MAX 3

struct eb_load_note {
    size_t count;
    struct eb_file_fault first; /* the first one with its reason; empty: none */
    struct eb_file_fault named; /* the first ones, each with its reason; empty: none */
};

struct eb_load_notes {
    struct eb_load_note tensors;  /* in safetensors files, which cannot be tables */
    struct eb_load_note files;    /* of formats that are converted first */
    struct eb_load_note patterns; /* of only and exclude, which match no table */
};

/* Counts one more, and names it while there is room: "'NAME': WHY", or "'NAME'" if `why` is NULL.
 */
void eb_load_note_add(struct eb_load_note *note, const char *name, const char *why);
