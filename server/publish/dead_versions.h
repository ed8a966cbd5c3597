/* Versions that killed the process while they loaded, according to the load markers
 * (load_marker.h): finds them in the registry, and forgets deaths that say nothing about the files
 * on disk. Thread: the owner's. Memory: none. */
#pragma once

#include "server/models/registry.h"
#include "server/publish/load_marker.h"

/* Sets aside the versions that killed the process and are not in memory. Forgets the deaths of a
 * version if it is gone or if its files, as far as they are read on these terms, have changed since
 * then. `markers` may be NULL. The registry must know what is in the repository. */
void eb_dead_versions_suspect(struct eb_load_markers *markers, struct eb_registry *registry,
    const struct eb_repository_terms *terms);
/* Forgets deaths of versions that are gone. `markers` may be NULL. */
void eb_dead_versions_forget(struct eb_load_markers *markers, struct eb_registry *registry);
