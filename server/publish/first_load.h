/* What each model has in memory before a server answers: the version that is to be served, or the
 * next one that loads, and those that have a label.
 * Thread: one at a time; may take long. Memory: what is loaded is the roster's. */
#pragma once

#include "server/models/roster.h"

struct eb_first_load {
    const char *directory; /* of the repository */
    const struct eb_table_options *tables;
    struct eb_repository *seen; /* filled in */
    struct eb_roster *roster;   /* filled in; its events are set */
};

/* false: *fault says which directory or model.yaml cannot be read, that there is no model, or which
 * one has no version that loads and why. */
bool eb_first_load_run(const struct eb_first_load *load, struct eb_file_fault *fault);
