/* What the log says while models are loaded: progress, what became of each version, and in which
 * pages its tables really lie.
 * Thread: any one. Memory: none. */
#pragma once

#include "server/models/model_version.h"

void eb_load_log_progress(const char *path, uint64_t done_bytes, uint64_t total_bytes);
/* One line for the version, one for each table (those that share a page with others at level
 * debug), and a warning with the hint if memory is not as `options` ask for. */
void eb_load_log_loaded(const struct eb_table_memory_options *options,
    const struct eb_model_version *version, uint64_t elapsed_ms);
/* An event of the registry, which needs no context. */
void eb_load_log_failed(void *context, const char *model, uint64_t version, const char *why);
/* A model with which the server begins has no version that loads; others have. */
void eb_load_log_unserved(const char *model, const char *why);
