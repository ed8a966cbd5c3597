#include "server/publish/dead_versions.h"

#include <stdlib.h>

/* Returns the version on disk that a death is of, and sets *model to its model. Returns NULL if it
 * is gone. */
static struct eb_registry_version *find_dead(struct eb_registry *registry,
    const struct eb_load_death *death, struct eb_registry_model **model)
{
    for (size_t i = 0; i < registry->count; i++) {
        *model = &registry->models[i];
        if (eb_load_death_is_of(death, (*model)->name, death->version)) {
            struct eb_registry_version *version = eb_registry_find_version(*model, death->version);
            return version && version->is_on_disk ? version : NULL;
        }
    }
    return NULL;
}

void eb_dead_versions_forget(struct eb_load_markers *markers, struct eb_registry *registry)
{
    struct eb_registry_model *model;
    for (size_t i = markers ? eb_load_markers_count(markers) : 0; i-- > 0;) {
        struct eb_load_death death = eb_load_markers_death(markers, i);
        if (!find_dead(registry, &death, &model)) {
            eb_load_markers_forget(markers, &death);
        }
    }
}

void eb_dead_versions_suspect(struct eb_load_markers *markers, struct eb_registry *registry,
    const struct eb_repository_terms *terms)
{
    for (size_t i = markers ? eb_load_markers_count(markers) : 0; i-- > 0;) {
        struct eb_load_death death = eb_load_markers_death(markers, i);
        struct eb_registry_model *model = NULL;
        struct eb_registry_version *version = find_dead(registry, &death, &model);
        if (version && version->loaded) {
            continue;
        }
        char *path = version ? eb_registry_path(model, version) : NULL;
        if (path && eb_repository_stamp_files(path, terms) == death.files) {
            eb_registry_suspect(registry, model, version, death.files, death.count);
        } else {
            eb_load_markers_forget(markers, &death);
        }
        free(path);
    }
}
