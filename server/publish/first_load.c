#include "server/publish/first_load.h"

#include "server/publish/load_log.h"

#include <stdlib.h>
#include <uv.h>

static uint64_t first_load_now_ms(void)
{
    return uv_hrtime() / 1000000;
}

static bool scan_first(const struct eb_first_load *load, struct eb_failure *failure)
{
    return eb_repository_scan(
               load->directory, load->tables->name_bytes_max, NULL, load->seen, failure) &&
           (eb_registry_update(load->registry, load->seen) ||
               eb_failure_set(failure, "%s: out of memory", load->directory));
}

/* A version that is being loaded. */
struct progress {
    const struct eb_first_load *load;
    bool is_short;
};

static void on_first_progress(
    void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct eb_first_load *load = ((const struct progress *)context)->load;
    eb_load_log_progress(NULL, path, done_bytes, total_bytes);
    if (load->on_loading) {
        load->on_loading(load->context, path, done_bytes, total_bytes);
    }
}

static void on_first_short(void *context, uint64_t missing_bytes)
{
    ((struct progress *)context)->is_short = missing_bytes > 0;
}

/* Loads one version, on this thread, and says so. */
static bool load_version(const struct eb_first_load *load, const struct eb_registry_model *model,
    const struct eb_registry_version *version, struct eb_failure *failure)
{
    struct eb_table_memory_options memory = load->tables->memory;
    struct progress told = {.load = load};
    const struct eb_load_progress progress = {
        .report = on_first_progress, .run_short = on_first_short, .context = &told};
    char *path = eb_registry_path(model, version);
    size_t resident_count;
    struct eb_model_version **residents = eb_registry_residents(model, &resident_count);
    if (!path || !residents) {
        free(path);
        free(residents);
        return eb_failure_set(failure, "%s: out of memory", model->path);
    }
    const struct eb_version_source source = {
        model->name, version->number, path, model->settings, residents, resident_count};
    const uint64_t files = eb_repository_stamp_files(path);
    const uint64_t start_ms = first_load_now_ms();
    struct eb_model_version *loaded =
        eb_model_version_load(&source, load->tables, &progress, failure);
    free(path);
    free(residents);
    if (loaded) {
        eb_load_log_loaded(&memory, loaded, first_load_now_ms() - start_ms);
        eb_registry_note_loaded(load->registry, loaded, first_load_now_ms());
    } else {
        const enum eb_registry_failure why =
            failure->is_transient ? EB_REGISTRY_HINDERED : EB_REGISTRY_BROKEN;
        eb_registry_note_files(load->registry, model->name, version->number, files);
        eb_registry_fail(load->registry, model->name, version->number, failure->text,
            told.is_short ? EB_REGISTRY_SHORT : why);
    }
    return true;
}

/* Why a model has no version to answer with. */
static void find_first_reason(const struct eb_registry_model *model, struct eb_failure *failure)
{
    const char *why = model->failure ? model->failure : model->config_failure;
    if (why) {
        eb_failure_set(failure, "%s", why);
    } else if (model->count == 0) {
        eb_failure_set(failure,
            "%s: there is no version in it; put its tables into a directory called 1", model->path);
    } else {
        why = model->versions[0].failure;
        eb_failure_set(failure, "model '%.64s': no version loads: %s", model->name,
            why ? why : "model.yaml serves another one, which is not there");
    }
}

/* Whether any model has a version to answer with; says which ones have none. */
static bool check_served(const struct eb_registry *registry, struct eb_failure *failure)
{
    bool is_any_served = false;
    for (size_t i = 0; i < registry->count; i++) {
        is_any_served = is_any_served || registry->models[i].served;
    }
    for (size_t i = 0; i < registry->count; i++) {
        const struct eb_registry_model *model = &registry->models[i];
        if (model->served) {
            continue;
        }
        find_first_reason(model, failure);
        if (!is_any_served) {
            return false;
        }
        eb_load_log_unserved(model->name, failure->text);
    }
    return true;
}

bool eb_first_load_run(const struct eb_first_load *load, struct eb_failure *failure)
{
    struct eb_registry_version *version;
    const struct eb_registry_model *model;
    uint64_t wake_ms;
    if (!scan_first(load, failure)) {
        return false;
    }
    while ((model = eb_registry_next(load->registry, &version))) {
        if (!load_version(load, model, version, failure)) {
            return false;
        }
    }
    eb_registry_decide(load->registry, first_load_now_ms(), &wake_ms);
    return check_served(load->registry, failure);
}
