/* Log lines about models: the progress of loads, the outcome of each version, the pages that its
 * tables really have, and the events of a registry (models/registry.h).
 * Thread: any one. Memory: a flag for the process. */
#pragma once

#include "server/models/registry.h"

/* Logs how far the load that is reading the file at `path` has come, and how long the rest will
 * take at `bytes_per_s`, the rate since the last such line. */
void eb_model_log_progress(
    const char *path, uint64_t done_bytes, uint64_t total_bytes, double bytes_per_s);
/* Logs that a load has waited `seconds` for a read from the file at `path`. */
void eb_model_log_stalled(const char *path, uint64_t seconds);
/* Logs a line for the version, a line for each table (at level debug for tables that share a page
 * with others), and a warning with a hint if memory is not as `options` request. That pages cannot
 * be placed on nodes is logged only once. */
void eb_model_log_loaded(const struct eb_table_memory_options *options,
    const struct eb_model_version *version, uint64_t elapsed_ms);
/* Logs that pages of the version's tables were joined, and that all of them are huge now. */
void eb_model_log_joined(const struct eb_model_version *version);
/* Logs each model that has no version to serve when the server has started. */
void eb_model_log_unserved(const struct eb_registry *registry);

/* Logs that a table of a version in memory, which was adopted from the resident file `file`,
 * differs from the version's files in the directory `source`. */
void eb_model_log_differs(
    const char *model, uint64_t version, const char *table, const char *file, const char *source);
/* Logs that the adopted tables of a version are not compared with the version's files. */
void eb_model_log_uncompared(const char *model, uint64_t version, const char *why);

/* Events of a registry, for its struct eb_registry_events. `context` is not used. */
void eb_model_log_failed(void *context, const char *model, uint64_t version, const char *why);
void eb_model_log_served(void *context, const char *model, uint64_t version, uint64_t before);
void eb_model_log_missing(void *context, const char *model, uint64_t version, const char *label);
void eb_model_log_changed(void *context, const char *model, uint64_t version);
void eb_model_log_described(void *context, const char *model, uint64_t version);
void eb_model_log_suspected(void *context, const char *model, uint64_t version, unsigned deaths);
void eb_model_log_postponed(void *context, const char *model, uint64_t version, uint64_t wait_ms);
void eb_model_log_evicted(void *context, const char *model, uint64_t version, const char *setting);
