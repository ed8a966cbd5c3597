/* Log lines about models: the progress of loads, the outcome of each version, the pages that its
 * tables really have, and the events of a registry (models/registry.h).
 * Thread: any one. Memory: none. */
#pragma once

#include "server/models/model_version.h"

void eb_model_log_progress(const char *path, uint64_t done_bytes, uint64_t total_bytes);
/* Logs a line for the version, a line for each table (at level debug for tables that share a page
 * with others), and a warning with a hint if memory is not as `options` request. */
void eb_model_log_loaded(const struct eb_table_memory_options *options,
    const struct eb_model_version *version, uint64_t elapsed_ms);
/* Logs that a model has no version that can be loaded when the server starts, while others have
 * one. */
void eb_model_log_unserved(const char *model, const char *why);

/* Events of a registry, for its struct eb_registry_events. `context` is not used. */
void eb_model_log_failed(void *context, const char *model, uint64_t version, const char *why);
void eb_model_log_served(void *context, const char *model, uint64_t version, uint64_t before);
void eb_model_log_missing(void *context, const char *model, uint64_t version, const char *label);
void eb_model_log_changed(void *context, const char *model, uint64_t version);
void eb_model_log_described(void *context, const char *model, uint64_t version);
void eb_model_log_evicted(void *context, const char *model, uint64_t version, const char *setting);
