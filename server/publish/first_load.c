#include "server/publish/first_load.h"

#include "server/load_log.h"

#include <stdlib.h>
#include <uv.h>

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* What stops a start, though models that come later may wait until it is mended. */
static bool check_model(const struct eb_repository_model *model, struct eb_file_fault *fault)
{
    const char *why = model->fault ? model->fault : model->config_fault;
    if (why) {
        return eb_file_fault_set(fault, "%s", why);
    }
    return model->version_count > 0 ||
           eb_file_fault_set(fault,
               "%s: there is no version in it; put its tables into a directory called 1",
               model->path);
}

static bool look(const struct eb_first_load *load, struct eb_file_fault *fault)
{
    if (!eb_repository_scan(
            load->directory, load->tables->name_bytes_max, NULL, load->seen, fault)) {
        return false;
    }
    for (size_t i = 0; i < load->seen->count; i++) {
        if (!check_model(&load->seen->models[i], fault)) {
            return false;
        }
    }
    return eb_roster_update(load->roster, load->seen) ||
           eb_file_fault_set(fault, "%s: out of memory", load->directory);
}

/* Loads one version, on this thread, and says so. */
static bool load_version(const struct eb_first_load *load, const struct eb_roster_model *model,
    const struct eb_roster_version *version, struct eb_file_fault *fault)
{
    struct eb_table_memory_options memory = load->tables->memory;
    const struct eb_load_progress progress = {.report = eb_load_log_progress};
    char *path = eb_roster_path(model, version);
    size_t resident_count;
    struct eb_model_version **residents = eb_roster_residents(model, &resident_count);
    if (!path || !residents) {
        free(path);
        free(residents);
        return eb_file_fault_set(fault, "%s: out of memory", model->path);
    }
    const struct eb_version_source source = {
        model->name, version->number, path, model->settings, residents, resident_count};
    const uint64_t start_ms = now_ms();
    struct eb_model_version *loaded =
        eb_model_version_load(&source, load->tables, &progress, fault);
    free(path);
    free(residents);
    if (loaded) {
        eb_load_log_loaded(&memory, loaded, now_ms() - start_ms);
        eb_roster_put(load->roster, loaded, now_ms());
    } else {
        eb_roster_fail(load->roster, model->name, version->number, fault->text,
            fault->may_pass ? EB_ROSTER_HINDERED : EB_ROSTER_BROKEN);
    }
    return true;
}

/* Whether every model has a version to answer with. */
static bool check_served(const struct eb_roster *roster, struct eb_file_fault *fault)
{
    for (size_t i = 0; i < roster->count; i++) {
        const struct eb_roster_model *model = &roster->models[i];
        if (!model->served) {
            const char *why = model->versions[0].fault;
            return eb_file_fault_set(fault, "model '%.64s': no version loads: %s", model->name,
                why ? why : "model.yaml serves another one, which is not there");
        }
    }
    return true;
}

bool eb_first_load_run(const struct eb_first_load *load, struct eb_file_fault *fault)
{
    struct eb_roster_version *version;
    const struct eb_roster_model *model;
    uint64_t wake_ms;
    if (!look(load, fault)) {
        return false;
    }
    while ((model = eb_roster_next(load->roster, &version))) {
        if (!load_version(load, model, version, fault)) {
            return false;
        }
    }
    eb_roster_decide(load->roster, now_ms(), &wake_ms);
    return check_served(load->roster, fault);
}
