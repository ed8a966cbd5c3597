#include "server/models/snapshot.h"

#include <stdlib.h>
#include <string.h>

const char *eb_version_state_name(enum eb_version_state state)
{
    static const char *const names[] = {
#define X(name, number, text) [EB_VERSION_##name] = text,
        EB_VERSION_STATE_LIST(X)
#undef X
    };
    return names[state];
}

static void free_snapshot_model(struct eb_snapshot_model *model)
{
    for (size_t i = 0; i < model->version_count; i++) {
        if (model->versions[i].loaded) {
            eb_model_version_give(model->versions[i].loaded);
        }
        free(model->versions[i].failure);
    }
    for (size_t i = 0; i < model->label_count; i++) {
        free(model->labels[i].name);
    }
    free(model->versions);
    free(model->labels);
    free(model->failure);
    free(model->name);
}

void eb_snapshot_free(struct eb_snapshot *snapshot)
{
    if (!snapshot) {
        return;
    }
    for (size_t i = 0; i < snapshot->count; i++) {
        free_snapshot_model(&snapshot->models[i]);
    }
    free(snapshot->models);
    free(snapshot->not_ready);
    free(snapshot);
}

static int compare_snapshot_model_name(const void *name, const void *model)
{
    return strcmp(name, ((const struct eb_snapshot_model *)model)->name);
}

/* Returns the only model that is served or, if none is, the only model. Returns NULL if there are
 * several. */
static const struct eb_snapshot_model *find_only(const struct eb_snapshot *snapshot)
{
    const struct eb_snapshot_model *only = NULL;
    for (size_t i = 0; i < snapshot->count; i++) {
        if (!snapshot->models[i].served) {
            continue;
        }
        if (only) {
            return NULL;
        }
        only = &snapshot->models[i];
    }
    return only || snapshot->count != 1 ? only : snapshot->models;
}

const struct eb_snapshot_model *eb_snapshot_find(
    const struct eb_snapshot *snapshot, const char *name)
{
    if (name[0] == '\0') {
        return find_only(snapshot);
    }
    if (snapshot->count == 0) {
        return NULL;
    }
    return bsearch(name, snapshot->models, snapshot->count, sizeof *snapshot->models,
        compare_snapshot_model_name);
}

struct eb_model_version *eb_snapshot_find_version(
    const struct eb_snapshot_model *model, uint64_t number)
{
    if (number == 0 || (model->served && model->served->version == number)) {
        return model->served;
    }
    for (size_t i = 0; i < model->version_count; i++) {
        if (model->versions[i].number == number && model->versions[i].loaded) {
            return model->versions[i].loaded;
        }
    }
    return NULL;
}

uint64_t eb_snapshot_find_label(const struct eb_snapshot_model *model, const char *label)
{
    for (size_t i = 0; i < model->label_count; i++) {
        if (strcmp(model->labels[i].name, label) == 0) {
            return model->labels[i].version;
        }
    }
    return 0;
}
