/* What the log says of models: how loads get on, what became of each version, in which pages its
 * tables really lie, and what a registry tells (models/registry.h).
 * Thread: any one. Memory: none. */
#pragma once

#include "server/models/model_version.h"

void eb_model_log_progress(const char *path, uint64_t done_bytes, uint64_t total_bytes);
/* One line for the version, one for each table (those that share a page with others at level
 * debug), and a warning with the hint if memory is not as `options` ask for. */
void eb_model_log_loaded(const struct eb_table_memory_options *options,
    const struct eb_model_version *version, uint64_t elapsed_ms);
/* A model with which the server begins has no version that loads; others have. */
void eb_model_log_unserved(const char *model, const char *why);

/* Events of a registry, for its struct eb_registry_events. `context` is not looked at. */
void eb_model_log_failed(void *context, const char *model, uint64_t version, const char *why);
void eb_model_log_served(void *context, const char *model, uint64_t version, uint64_t before);
void eb_model_log_missing(void *context, const char *model, uint64_t version, const char *label);
void eb_model_log_changed(void *context, const char *model, uint64_t version);
void eb_model_log_described(void *context, const char *model, uint64_t version);
void eb_model_log_evicted(void *context, const char *model, uint64_t version, const char *setting);
