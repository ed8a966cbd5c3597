/* What is left in memory when a manager ends: the versions that its registry knows, and those that
 * only the last snapshot holds.
 * Thread: the manager's. Memory: none. */
#pragma once

#include "server/models/registry.h"

/* Returns how many retired versions the last snapshot holds. No other snapshot will replace it, so
 * these versions are freed together with it. `last` may be NULL. */
unsigned eb_last_versions_withheld(struct eb_registry *registry, const struct eb_snapshot *last);
/* Lets all these versions be freed without their loader (eb_loader_abandon). `last` may be NULL. */
void eb_last_versions_abandon(const struct eb_registry *registry, const struct eb_snapshot *last);
