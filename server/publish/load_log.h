/* What the log says while models are loaded: progress, what became of each version, and in which
 * pages its tables really lie. `options` are the struct eb_table_memory_options that were asked
 * for; progress and failures, whose form is that of events, do without. Thread: the one that loads.
 * Memory: none. */
#pragma once

#include "server/models/model_version.h"

void eb_load_log_progress(
    void *options, const char *path, uint64_t done_bytes, uint64_t total_bytes);
/* One line for the version, one for each table (those that share a page with others at level
 * debug), and a warning with the hint where memory is not as it was asked for. */
void eb_load_log_loaded(void *options, const struct eb_model_version *version, uint64_t elapsed_ms);
void eb_load_log_failed(void *options, const char *model, uint64_t version, const char *why);
/* A model with which the server begins has no version that loads; others have. */
void eb_load_log_unserved(const char *model, const char *why);
