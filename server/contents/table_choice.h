/* Chooses a version's tables by the patterns only and exclude of model.yaml, and finds patterns
 * that match no table.
 * Thread: one at a time. Memory: is_matched is on the heap; the configuration is borrowed. */
#pragma once

#include "server/contents/load_notes.h"
#include "server/contents/model_config.h"

struct eb_table_choice {
    const struct eb_model_config *config; /* NULL: every table is chosen */
    bool *is_matched;                     /* per pattern: those of only, then those of exclude */
};

/* Returns false if out of memory (*failure). `config` may be NULL. */
bool eb_table_choice_init(struct eb_table_choice *choice, const struct eb_model_config *config,
    struct eb_failure *failure);
/* Returns whether the table is chosen that its file calls `source`, and marks the patterns that
 * match it. */
bool eb_table_choice_take(struct eb_table_choice *choice, const char *source);
/* Adds the patterns that have matched no table to `note`. */
void eb_table_choice_note_unmatched(
    const struct eb_table_choice *choice, struct eb_load_note *note);
/* Accepts a zeroed choice. */
void eb_table_choice_deinit(struct eb_table_choice *choice);
