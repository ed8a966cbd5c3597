#include "server/rpc/model_choice.h"

static bool may_know(const struct eb_model_choice *choice, const char *name)
{
    return choice->right == EB_MODEL_RIGHT_LOOK_UP ? eb_principal_may_look_up(choice->caller, name)
                                                   : eb_principal_may_see(choice->caller, name);
}

const struct eb_snapshot_model *eb_model_choice_find(
    const struct eb_model_choice *choice, struct eb_error *error)
{
    const char *asked = choice->model;
    const struct eb_snapshot_model *model = eb_snapshot_find(choice->snapshot, asked);
    if (!model && asked[0] == '\0') {
        eb_error_set(error, EB_STATUS_NOT_FOUND,
            "model is empty, which is allowed only if there is exactly one model");
        return NULL;
    }
    if (!may_know(choice, model ? model->name : asked)) {
        eb_error_set(error, EB_STATUS_PERMISSION_DENIED, "\"%s\" may not %s model \"%s\"",
            choice->caller->name, choice->right == EB_MODEL_RIGHT_LOOK_UP ? "look up" : "see",
            asked);
        return NULL;
    }
    if (!model) {
        eb_error_set(error, EB_STATUS_NOT_FOUND, "no model \"%s\"", asked);
    }
    return model;
}

/* Returns whether a version is listed that may answer later. */
static bool is_version_loading(const struct eb_snapshot_model *model, uint64_t number)
{
    for (size_t i = 0; i < model->version_count; i++) {
        const struct eb_snapshot_version *version = &model->versions[i];
        if (version->number == number) {
            return version->state == EB_VERSION_LOADING;
        }
    }
    return false;
}

struct eb_model_version *eb_model_choice_find_version(const struct eb_model_choice *choice,
    const struct eb_snapshot_model *model, struct eb_error *error)
{
    bool has_label = choice->label && choice->label[0] != '\0';
    uint64_t number = has_label ? eb_snapshot_find_label(model, choice->label) : choice->version;
    if (has_label && number == 0) {
        eb_error_set(error, EB_STATUS_NOT_FOUND,
            "model \"%s\" has no version with the label \"%s\"", model->name, choice->label);
        return NULL;
    }
    struct eb_model_version *version = eb_snapshot_find_version(model, number);
    if (!version && choice->is_router && number == 0) {
        eb_error_set(
            error, EB_STATUS_UNAVAILABLE, "model \"%s\" has no complete version yet", model->name);
    } else if (!version && choice->is_router && is_version_loading(model, number)) {
        eb_error_set(error, EB_STATUS_UNAVAILABLE,
            "version %llu of model \"%s\" is not complete yet", (unsigned long long)number,
            model->name);
    } else if (!version && number == 0) {
        eb_error_set(
            error, EB_STATUS_NOT_FOUND, "model \"%s\" has no version in memory yet", model->name);
    } else if (!version) {
        eb_error_set(error, EB_STATUS_NOT_FOUND, "model \"%s\" has no version %llu in memory",
            model->name, (unsigned long long)number);
    }
    return version;
}
