/* What the log says of a registry's events (models/registry.h), but of those that its owner counts.
 * Thread: the registry's. Memory: none. `context` is not looked at. */
#pragma once

#include <stdint.h>

void eb_model_log_served(void *context, const char *model, uint64_t version, uint64_t before);
void eb_model_log_missing(void *context, const char *model, uint64_t version, const char *label);
void eb_model_log_changed(void *context, const char *model, uint64_t version);
void eb_model_log_described(void *context, const char *model, uint64_t version);
void eb_model_log_evicted(void *context, const char *model, uint64_t version, const char *setting);
