#include "server/publish/first_load.h"

#include "server/publish/load_log.h"

#include <stdlib.h>
#include <uv.h>

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

static bool look(const struct eb_first_load *load, struct eb_file_fault *fault)
{
    return eb_repository_scan(
               load->directory, load->tables->name_bytes_max, NULL, load->seen, fault) &&
           (eb_roster_update(load->roster, load->seen) ||
               eb_file_fault_set(fault, "%s: out of memory", load->directory));
}

/* A version that is being loaded. */
struct progress {
    const struct eb_first_load *load;
    bool is_short;
};

static void on_progress(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct eb_first_load *load = ((const struct progress *)context)->load;
    eb_load_log_progress(NULL, path, done_bytes, total_bytes);
    if (load->on_loading) {
        load->on_loading(load->context, path, done_bytes, total_bytes);
    }
}

static void on_short(void *context, uint64_t missing_bytes)
{
    ((struct progress *)context)->is_short = missing_bytes > 0;
}

/* Loads one version, on this thread, and says so. */
static bool load_version(const struct eb_first_load *load, const struct eb_roster_model *model,
    const struct eb_roster_version *version, struct eb_file_fault *fault)
{
    struct eb_table_memory_options memory = load->tables->memory;
    struct progress told = {.load = load};
    const struct eb_load_progress progress = {
        .report = on_progress, .run_short = on_short, .context = &told};
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
    const uint64_t files = eb_repository_look_files(path);
    const uint64_t start_ms = now_ms();
    struct eb_model_version *loaded =
        eb_model_version_load(&source, load->tables, &progress, fault);
    free(path);
    free(residents);
    if (loaded) {
        eb_load_log_loaded(&memory, loaded, now_ms() - start_ms);
        eb_roster_put(load->roster, loaded, now_ms());
    } else {
        const enum eb_roster_failure why = fault->may_pass ? EB_ROSTER_HINDERED : EB_ROSTER_BROKEN;
        eb_roster_note_files(load->roster, model->name, version->number, files);
        eb_roster_fail(load->roster, model->name, version->number, fault->text,
            told.is_short ? EB_ROSTER_SHORT : why);
    }
    return true;
}

/* Why a model has no version to answer with. */
static void find_reason(const struct eb_roster_model *model, struct eb_file_fault *fault)
{
    const char *why = model->fault ? model->fault : model->config_fault;
    if (why) {
        eb_file_fault_set(fault, "%s", why);
    } else if (model->count == 0) {
        eb_file_fault_set(fault,
            "%s: there is no version in it; put its tables into a directory called 1", model->path);
    } else {
        why = model->versions[0].fault;
        eb_file_fault_set(fault, "model '%.64s': no version loads: %s", model->name,
            why ? why : "model.yaml serves another one, which is not there");
    }
}

/* Whether any model has a version to answer with; says which ones have none. */
static bool check_served(const struct eb_roster *roster, struct eb_file_fault *fault)
{
    bool is_any_served = false;
    for (size_t i = 0; i < roster->count; i++) {
        is_any_served = is_any_served || roster->models[i].served;
    }
    for (size_t i = 0; i < roster->count; i++) {
        const struct eb_roster_model *model = &roster->models[i];
        if (model->served) {
            continue;
        }
        find_reason(model, fault);
        if (!is_any_served) {
            return false;
        }
        eb_load_log_unserved(model->name, fault->text);
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
