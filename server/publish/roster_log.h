/* What the log says of a roster's events (models/roster.h), but of those that its owner counts.
 * Thread: the roster's. Memory: none. `context` is not looked at. */
#pragma once

#include <stdint.h>

void eb_roster_log_served(void *context, const char *model, uint64_t version, uint64_t before);
void eb_roster_log_missing(void *context, const char *model, uint64_t version, const char *label);
void eb_roster_log_changed(void *context, const char *model, uint64_t version);
void eb_roster_log_described(void *context, const char *model, uint64_t version);
void eb_roster_log_evicted(void *context, const char *model, uint64_t version, const char *setting);
