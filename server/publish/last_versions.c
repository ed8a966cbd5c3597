#include "server/publish/last_versions.h"

#include "server/publish/loader.h"

unsigned eb_last_versions_withheld(struct eb_registry *registry, const struct eb_snapshot *last)
{
    unsigned count = 0;
    for (size_t i = 0; last && i < last->count; i++) {
        const struct eb_snapshot_model *shown = &last->models[i];
        struct eb_registry_model *model = eb_registry_find(registry, shown->name);
        for (size_t k = 0; k < shown->version_count; k++) {
            const struct eb_snapshot_version *version = &shown->versions[k];
            const struct eb_registry_version *known =
                model ? eb_registry_find_version(model, version->number) : NULL;
            count += version->loaded && !(known && known->loaded == version->loaded);
        }
    }
    return count;
}

void eb_last_versions_abandon(const struct eb_registry *registry, const struct eb_snapshot *last)
{
    for (size_t i = 0; i < registry->count; i++) {
        for (size_t k = 0; k < registry->models[i].count; k++) {
            struct eb_model_version *loaded = registry->models[i].versions[k].loaded;
            if (loaded) {
                eb_loader_abandon(loaded);
            }
        }
    }
    for (size_t i = 0; last && i < last->count; i++) {
        for (size_t k = 0; k < last->models[i].version_count; k++) {
            if (last->models[i].versions[k].loaded) {
                eb_loader_abandon(last->models[i].versions[k].loaded);
            }
        }
    }
}
