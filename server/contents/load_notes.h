/* Notes of a load for the log: files and tensors of the version that did not become tables, and
 * patterns of model.yaml that match nothing.
 * Thread: one at a time. Memory: plain data. */
#pragma once

#include "server/base/failure.h"

#include <stddef.h>

/* How many items of a kind a note names; the rest are only counted. */
#define EB_LOAD_NOTES_NAMED_MAX 3

struct eb_load_note {
    size_t count;
    struct eb_failure first; /* the first one with its reason; empty: none */
    struct eb_failure named; /* the first ones, each with its reason; empty: none */
};

struct eb_load_notes {
    struct eb_load_note tensors;  /* those of safetensors files that cannot be tables */
    struct eb_load_note files;    /* files of formats that must be converted first */
    struct eb_load_note patterns; /* patterns of only and exclude that match no table */
};

/* Counts one more item. Names it, as "'NAME': WHY" or as "'NAME'" if `why` is NULL, unless
 * EB_LOAD_NOTES_NAMED_MAX are named already. */
void eb_load_note_add(struct eb_load_note *note, const char *name, const char *why);
