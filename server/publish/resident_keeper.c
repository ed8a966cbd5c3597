#include "server/publish/resident_keeper.h"

#include "server/base/log.h"
#include "server/tables/served_record.h"

#include <stdlib.h>
#include <string.h>

#define MS_PER_S 1000

static bool is_owner(const struct eb_resident_keeper *keeper)
{
    return keeper->dir && atomic_load(&keeper->dir->is_owner);
}

/* ---- life ---- */

static void on_keeper_beat(uv_timer_t *timer)
{
    eb_resident_dir_beat(((struct eb_resident_keeper *)timer->data)->dir);
}

static void on_good_start(uv_timer_t *timer)
{
    struct eb_resident_keeper *keeper = timer->data;
    bool is_due = keeper->is_sweep_due;
    keeper->is_sweep_due = false;
    eb_resident_dir_end_start(keeper->dir);
    if (keeper->is_held && keeper->is_settling) {
        eb_resident_keeper_settle(keeper);
    } else if (is_due) {
        eb_resident_keeper_sweep(keeper);
    }
}

/* Asks for the directory while the server is a guest. */
static void on_guest_timer(uv_timer_t *timer)
{
    struct eb_resident_keeper *keeper = timer->data;
    if (eb_resident_keeper_own(keeper)) {
        keeper->on_owned(keeper->context);
    }
}

/* Begins to act as the owner. */
static void start_owner(struct eb_resident_keeper *keeper)
{
    uint64_t beat_ms = (uint64_t)EB_RESIDENT_HEARTBEAT_S * MS_PER_S;
    eb_resident_dir_beat(keeper->dir);
    uv_timer_start(&keeper->beat, on_keeper_beat, beat_ms, beat_ms);
    uv_timer_start(&keeper->good_start, on_good_start, EB_RESIDENT_KEEPER_GOOD_START_MS, 0);
}

void eb_resident_keeper_start(
    struct eb_resident_keeper *keeper, struct eb_resident_dir *dir, uv_loop_t *loop)
{
    keeper->dir = dir;
    if (!dir) {
        return;
    }
    uv_timer_init(loop, &keeper->beat);
    uv_timer_init(loop, &keeper->good_start);
    keeper->beat.data = keeper;
    keeper->good_start.data = keeper;
    keeper->has_handles = true;
    if (is_owner(keeper)) {
        start_owner(keeper);
    } else {
        uv_timer_start(&keeper->beat, on_guest_timer, EB_RESIDENT_KEEPER_GUEST_MS,
            EB_RESIDENT_KEEPER_GUEST_MS);
    }
}

void eb_resident_keeper_stop(struct eb_resident_keeper *keeper)
{
    if (!keeper->has_handles) {
        return;
    }
    keeper->has_handles = false;
    uv_close((uv_handle_t *)&keeper->beat, NULL);
    uv_close((uv_handle_t *)&keeper->good_start, NULL);
    atomic_store(&keeper->dir->is_ending, true);
    if (is_owner(keeper)) {
        eb_resident_dir_end_start(keeper->dir);
        eb_resident_dir_disown(keeper->dir);
    }
}

bool eb_resident_keeper_own(struct eb_resident_keeper *keeper)
{
    if (!keeper->dir || is_owner(keeper) || !keeper->has_handles) {
        return false;
    }
    if (eb_resident_dir_own(keeper->dir)) {
        eb_log(EB_LOG_INFO, "resident_owned", eb_log_text("directory", keeper->dir->path));
        start_owner(keeper);
        keeper->is_sweep_due = true;
        return true;
    }
    uint64_t age_s = eb_resident_dir_beat_age_s(keeper->dir);
    bool is_stalled = age_s > EB_RESIDENT_STALLED_S;
    if (is_stalled && !keeper->is_stall_logged) {
        eb_log(EB_LOG_WARN, "owner_stalled", eb_log_text("directory", keeper->dir->path),
            eb_log_count("heartbeat_s", age_s),
            eb_log_text(
                "remedy", "end the server that holds the file lock there: it does not run"));
    }
    keeper->is_stall_logged = is_stalled;
    return false;
}

/* ---- the record ---- */

/* Describes a table. Returns false if it is not in a complete resident file, if that file is
 * outdated, or if the owner before this process has deleted it. */
static bool record_table(const struct eb_model_version *version, const struct eb_named_table *table,
    struct eb_served_table *out)
{
    const struct eb_table_mapping *mapping =
        eb_table_memory_find(&version->tables.memory, table->base);
    if (!mapping || mapping->backing != EB_TABLE_BACKING_FILE || mapping->name[0] == '\0' ||
        atomic_load_explicit(&mapping->is_outdated, memory_order_relaxed) ||
        !eb_resident_dir_has(mapping->dir, mapping->name)) {
        return false;
    }
    out->name = table->name;
    out->slot = table->file_slot;
    out->unknown_row = table->table.unknown_row;
    memcpy(out->file, mapping->name, sizeof out->file);
    return true;
}

/* Describes a version. The names are borrowed. Returns false if out of memory. */
static bool record_version(const struct eb_model_version *version, struct eb_served_version *out)
{
    const struct eb_table_set *set = &version->tables;
    *out = (struct eb_served_version){
        .version = version->version,
        .digest = set->digest,
        .is_complete = true,
        .model_yaml = version->settings ? version->settings->config.text : NULL,
        .manifest_yaml = set->manifest_yaml,
        .part = set->part,
        .is_router = set->is_router,
        .tables = calloc(set->count + 1, sizeof *out->tables),
    };
    for (size_t i = 0; out->tables && i < set->count; i++) {
        if (set->tables[i].is_remote) {
            continue; /* the manifest describes it */
        }
        bool is_resident = record_table(version, &set->tables[i], &out->tables[out->table_count]);
        out->table_count += is_resident;
        out->is_complete = out->is_complete && is_resident;
    }
    return out->tables;
}

/* Describes a model's versions in memory, the served one first. Returns false if out of memory. */
static bool record_model(const struct eb_snapshot_model *model, struct eb_served_model *out)
{
    *out = (struct eb_served_model){
        .name = model->name,
        .versions = calloc(model->version_count + 1, sizeof *out->versions),
    };
    if (!out->versions) {
        return false;
    }
    if (model->served && !record_version(model->served, &out->versions[out->version_count++])) {
        return false;
    }
    for (size_t i = 0; i < model->version_count; i++) {
        const struct eb_model_version *loaded = model->versions[i].loaded;
        if (loaded && loaded != model->served &&
            !record_version(loaded, &out->versions[out->version_count++])) {
            return false;
        }
    }
    return true;
}

/* Frees the lists, but not the borrowed texts. */
static void free_record(struct eb_served_record *record)
{
    for (size_t i = 0; i < record->model_count; i++) {
        for (size_t k = 0; k < record->models[i].version_count; k++) {
            free(record->models[i].versions[k].tables);
        }
        free(record->models[i].versions);
    }
    free(record->models);
}

static bool make_record(const struct eb_snapshot *snapshot, struct eb_served_record *record)
{
    *record = (struct eb_served_record){
        .models = calloc(snapshot->count + 1, sizeof *record->models),
    };
    for (size_t i = 0; record->models && i < snapshot->count; i++) {
        record->model_count++;
        if (!record_model(&snapshot->models[i], &record->models[i])) {
            return false;
        }
    }
    return record->models;
}

/* Returns whether the model has a served version, and all of its tables are recorded. For versions
 * in parts, says so of all versions in memory, because routers choose among them. */
static bool is_model_recorded(const struct eb_served_model *model)
{
    bool is_complete = model->version_count > 0 && model->versions[0].is_complete;
    for (size_t i = 1; i < model->version_count; i++) {
        const struct eb_served_version *version = &model->versions[i];
        is_complete = is_complete && (version->is_complete || !version->manifest_yaml);
    }
    return is_complete;
}

static bool is_record_complete(const struct eb_served_record *record)
{
    bool is_complete = record->model_count > 0;
    for (size_t i = 0; i < record->model_count; i++) {
        is_complete = is_complete && is_model_recorded(&record->models[i]);
    }
    return is_complete;
}

static bool write_record(const struct eb_resident_keeper *keeper,
    const struct eb_served_record *record, struct eb_failure *failure)
{
    size_t size;
    void *bytes = eb_served_record_encode(record, &size, failure);
    bool is_good =
        bytes && eb_resident_dir_write(keeper->dir, EB_SERVED_RECORD_NAME, bytes, size, failure);
    free(bytes);
    return is_good;
}

static bool is_all_served(const struct eb_snapshot *snapshot)
{
    bool is_served = snapshot->count > 0;
    for (size_t i = 0; i < snapshot->count; i++) {
        is_served = is_served && snapshot->models[i].served;
    }
    return is_served;
}

/* Returns whether the record is not held any longer. */
static bool may_record(struct eb_resident_keeper *keeper, const struct eb_snapshot *snapshot)
{
    if (keeper->is_settling && is_all_served(snapshot)) {
        keeper->is_held = false;
    }
    return !keeper->is_held && !atomic_load(&keeper->dir->is_kept);
}

void eb_resident_keeper_record(
    struct eb_resident_keeper *keeper, const struct eb_snapshot *snapshot)
{
    if (!is_owner(keeper) || !may_record(keeper, snapshot)) {
        return;
    }
    struct eb_failure failure;
    struct eb_served_record record;
    bool is_good = make_record(snapshot, &record) || eb_failure_set(&failure, "out of memory");
    is_good = is_good && write_record(keeper, &record, &failure);
    keeper->is_recorded_complete = is_good && is_record_complete(&record);
    free_record(&record);
    if (!is_good) {
        /* An older record may name files that will be deleted. */
        eb_resident_dir_unlink(keeper->dir, EB_SERVED_RECORD_NAME);
        eb_log(EB_LOG_ERROR, "resident_unrecorded", eb_log_text("directory", keeper->dir->path),
            eb_log_text("reason", failure.text),
            eb_log_text("remedy",
                "if the file system is full, make room there; if the directory is gone or is not "
                "as the server made it, restart the server; until then a start without the "
                "repository is not possible"));
    }
}

void eb_resident_keeper_release(
    struct eb_resident_keeper *keeper, const struct eb_snapshot *snapshot)
{
    eb_resident_keeper_record(keeper, snapshot);
    keeper->is_sweep_due = true;
    if (is_owner(keeper) && keeper->has_handles) {
        uv_timer_start(&keeper->good_start, on_good_start, EB_RESIDENT_KEEPER_GOOD_START_MS, 0);
    }
}

void eb_resident_keeper_hold(struct eb_resident_keeper *keeper, bool is_settling)
{
    keeper->is_held = true;
    keeper->is_settling = is_settling;
    keeper->is_sweep_due = is_settling;
}

void eb_resident_keeper_settle(struct eb_resident_keeper *keeper)
{
    keeper->is_held = false;
    if (is_owner(keeper)) {
        eb_resident_keeper_record(keeper, keeper->publisher->current);
        eb_resident_keeper_sweep(keeper);
    }
}

void eb_resident_keeper_sweep(struct eb_resident_keeper *keeper)
{
    if (!is_owner(keeper) || keeper->is_held) {
        return;
    }
    uint64_t bytes = eb_resident_dir_sweep(keeper->dir, NULL, NULL);
    if (bytes > 0) {
        eb_log(EB_LOG_INFO, "resident_swept", eb_log_text("directory", keeper->dir->path),
            eb_log_count("bytes", bytes));
    }
}
