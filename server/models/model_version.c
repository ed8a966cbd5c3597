#include "server/models/model_version.h"

#include "server/base/clock.h"
#include "server/tables/resident_set.h"
#include "server/tables/set_load.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

struct eb_model_settings *eb_model_settings_create(void)
{
    struct eb_model_settings *settings = calloc(1, sizeof *settings);
    if (settings) {
        eb_model_config_init(&settings->config);
        atomic_init(&settings->references, 1);
    }
    return settings;
}

struct eb_model_settings *eb_model_settings_take(struct eb_model_settings *settings)
{
    atomic_fetch_add_explicit(&settings->references, 1, memory_order_relaxed);
    return settings;
}

void eb_model_settings_give(struct eb_model_settings *settings)
{
    if (settings &&
        atomic_fetch_sub_explicit(&settings->references, 1, memory_order_acq_rel) == 1) {
        eb_model_config_deinit(&settings->config);
        free(settings);
    }
}

/* Returns whether each group is small enough for a request. */
static bool check_version_groups(
    const struct eb_model_config *config, uint32_t features_max, struct eb_failure *failure)
{
    for (size_t i = 0; config && features_max > 0 && i < config->group_count; i++) {
        const struct eb_model_config_group *group = &config->groups[i];
        if (group->feature_count > features_max) {
            return eb_failure_set(failure,
                "model.yaml: group '%.64s' has %zu features, but a request may ask for %" PRIu32
                "; raise queries_max or split the group",
                group->name, group->feature_count, features_max);
        }
    }
    return true;
}

/* Loads the tables from the version's directory, or opens them from resident files. */
static bool open_version_tables(struct eb_model_version *version,
    const struct eb_version_source *source, const struct eb_table_options *options,
    const struct eb_load_progress *progress, struct eb_failure *failure)
{
    return source->served ? eb_resident_set_open(source->served, options, &version->tables, failure)
                          : eb_set_load(source->path, options, progress, &version->tables, failure);
}

/* Loads the version's tables as its model's settings say. */
static bool load_version_tables(struct eb_model_version *version,
    const struct eb_version_source *source, const struct eb_table_options *options,
    const struct eb_load_progress *progress, struct eb_failure *failure)
{
    struct eb_table_options described = *options;
    const struct eb_table_set **residents = calloc(source->resident_count + 1, sizeof *residents);
    if (!residents) {
        return eb_failure_set(failure, "%s: out of memory", source->path);
    }
    for (size_t i = 0; i < source->resident_count; i++) {
        residents[i] = &source->residents[i]->tables;
    }
    described.config = source->settings ? &source->settings->config : NULL;
    described.resident.model = source->model;
    described.resident.version = source->version;
    described.residents = residents;
    described.resident_count = source->resident_count;
    /* Features and groups are not a part server's business, but its routers'. */
    bool is_part = options->part.parts > 0;
    const struct eb_model_config *of_features = is_part ? NULL : described.config;
    bool is_good = (check_version_groups(of_features, options->group_features_max, failure) ||
                       eb_failure_locate(failure, source->path)) &&
                   open_version_tables(version, source, &described, progress, failure);
    free(residents);
    return is_good &&
           (eb_feature_set_init(&version->features, &version->tables, of_features, failure) ||
               eb_failure_locate(failure, source->path));
}

struct eb_model_version *eb_model_version_load(const struct eb_version_source *source,
    const struct eb_table_options *options, const struct eb_load_progress *progress,
    struct eb_failure *failure)
{
    struct eb_model_version *version = calloc(1, sizeof *version);
    char *model = strdup(source->model);
    if (!version || !model) {
        free(version);
        free(model);
        eb_failure_set(failure, "%s: out of memory", source->path);
        return NULL;
    }
    version->model = model;
    version->version = source->version;
    atomic_init(&version->references, 1);
    atomic_init(&version->named_s, 0);
    version->settings = source->settings ? eb_model_settings_take(source->settings) : NULL;
    uint64_t start_ms = eb_clock_steady_ms();
    if (!load_version_tables(version, source, options, progress, failure)) {
        eb_model_version_free(version);
        return NULL;
    }
    version->load_ms = eb_clock_steady_ms() - start_ms;
    version->loaded_unix_ms = eb_clock_unix_ms();
    return version;
}

struct eb_model_version *eb_model_version_take(struct eb_model_version *version)
{
    atomic_fetch_add_explicit(&version->references, 1, memory_order_relaxed);
    return version;
}

void eb_model_version_give(struct eb_model_version *version)
{
    uint_fast64_t before = atomic_fetch_sub_explicit(&version->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1) {
        return;
    }
    if (version->on_unused) {
        version->on_unused(version);
    } else {
        eb_model_version_free(version);
    }
}

void eb_model_version_note_named(struct eb_model_version *version, uint64_t now_ns)
{
    unsigned now_s = (unsigned)(now_ns / NS_PER_S + 1);
    if (atomic_load_explicit(&version->named_s, memory_order_relaxed) != now_s) {
        atomic_store_explicit(&version->named_s, now_s, memory_order_relaxed);
    }
}

void eb_model_version_free(struct eb_model_version *version)
{
    eb_feature_set_deinit(&version->features);
    eb_table_set_deinit(&version->tables);
    eb_model_settings_give(version->settings);
    free(version->model);
    free(version);
}

uint64_t eb_model_version_own_bytes(const struct eb_model_version *version)
{
    return version->tables.bytes - eb_table_memory_joint_bytes(&version->tables.memory);
}
