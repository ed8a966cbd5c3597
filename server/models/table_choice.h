/* Which of a version's tables model.yaml chooses, by only and exclude, and which of those patterns
 * match none.
 * Thread: one at a time. Memory: its marks are on the heap; the configuration is borrowed. */
#pragma once

#include "server/models/load_notes.h"
#include "server/models/model_config.h"

struct eb_table_choice {
    const struct eb_model_config *config; /* NULL: every table is chosen */
    bool *is_matched;                     /* by pattern: those of only, then those of exclude */
};

/* false: *fault, out of memory. `config` may be NULL. */
bool eb_table_choice_init(struct eb_table_choice *choice, const struct eb_model_config *config,
    struct eb_file_fault *fault);
/* Returns whether what the files call `source` is to be a table, and marks the patterns that it
 * matches. */
bool eb_table_choice_take(struct eb_table_choice *choice, const char *source);
/* Adds the patterns that nothing has matched. */
void eb_table_choice_note_unmatched(
    const struct eb_table_choice *choice, struct eb_load_note *note);
/* Accepts a zeroed choice. */
void eb_table_choice_deinit(struct eb_table_choice *choice);
