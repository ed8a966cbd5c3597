#include "server/publish/adoption_check.h"

#include "proto/list.h"
#include "proto/splitmix64.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/read_watch.h"
#include "server/publish/model_log.h"
#include "server/tables/row_load.h"
#include "server/tables/source_compare.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Time between two checks whether a comparison waits for a read. */
#define WATCH_MS 500

/* A version whose tables are compared. While the thread runs, only it uses the members, except
 * `watch`. */
struct eb_comparison {
    struct eb_read_watch watch; /* of the thread */
    char *model;
    uint64_t number;
    char *path;
    struct eb_model_settings *settings; /* that the version was loaded with; may be NULL */
    struct eb_table_options options;
    size_t count;
    struct eb_compared_table *tables;      /* sorted by name */
    uint64_t **hashes;                     /* [count] those of each table's chunks */
    char (*files)[EB_RESIDENT_NAME_BYTES]; /* [count] the resident file of each table */
    bool is_done;                          /* result; if false, `failure` has the reason */
    struct eb_failure failure;
};

static void free_comparison(struct eb_comparison *comparison)
{
    eb_read_watch_deinit(&comparison->watch);
    for (size_t i = 0; i < comparison->count; i++) {
        free(comparison->tables[i].name);
        free(comparison->hashes[i]);
    }
    free(comparison->hashes);
    free(comparison->tables);
    free(comparison->files);
    eb_model_settings_give(comparison->settings);
    free(comparison->path);
    free(comparison->model);
    free(comparison);
}

/* ---- what is compared ---- */

/* Returns the mapping of a table that was adopted, or NULL if it was not, or if it is remote. */
static struct eb_table_mapping *find_adopted(
    const struct eb_table_set *set, const struct eb_named_table *table)
{
    struct eb_table_mapping *mapping =
        table->is_remote ? NULL : eb_table_memory_find(&set->memory, table->base);
    return mapping && mapping->is_adopted ? mapping : NULL;
}

/* Adds a table, with a random chunk of it. Passes over a table without rows. Returns false if out
 * of memory. */
static bool add_compared(struct eb_adoption_check *check, struct eb_comparison *comparison,
    const struct eb_named_table *table, const struct eb_table_mapping *mapping)
{
    uint64_t chunk_rows = eb_row_load_chunk_rows(table->table.row_stride_bytes);
    uint64_t rows = table->table.row_count;
    if (rows == 0) {
        return true;
    }
    uint64_t chunk_count = (rows - 1) / chunk_rows + 1;
    uint64_t chunk = eb_splitmix64_next(&check->random_state) % chunk_count;
    size_t hashes_bytes = chunk_count * sizeof *table->chunk_hashes;
    char *name = strdup(table->name);
    uint64_t *hashes = malloc(hashes_bytes);
    if (!name || !hashes) {
        free(name);
        free(hashes);
        return false;
    }
    memcpy(hashes, table->chunk_hashes, hashes_bytes);
    comparison->hashes[comparison->count] = hashes;
    comparison->tables[comparison->count] = (struct eb_compared_table){.name = name,
        .origin = table->origin,
        .source_key = table->source_key,
        .chunk = chunk,
        .chunk_hashes = hashes,
        .digest = table->digest};
    memcpy(comparison->files[comparison->count], mapping->name, sizeof mapping->name);
    comparison->count++;
    return true;
}

/* Adds the version's tables in files that have not been compared. Returns false if out of memory.
 */
static bool add_all_compared(struct eb_adoption_check *check, struct eb_comparison *comparison,
    const struct eb_table_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct eb_table_mapping *mapping = find_adopted(set, &set->tables[i]);
        if (mapping && !mapping->is_compared &&
            !add_compared(check, comparison, &set->tables[i], mapping)) {
            return false;
        }
    }
    return true;
}

/* Returns a comparison of the version's tables, or NULL if out of memory. */
static struct eb_comparison *make_comparison(struct eb_adoption_check *check,
    const struct eb_registry_model *model, const struct eb_registry_version *version)
{
    const struct eb_model_version *loaded = version->loaded;
    struct eb_comparison *comparison = calloc(1, sizeof *comparison);
    if (!comparison || !eb_read_watch_init(&comparison->watch)) {
        free(comparison);
        return NULL;
    }
    comparison->number = version->number;
    comparison->model = strdup(model->name);
    comparison->path = eb_registry_path(model, version);
    comparison->settings = loaded->settings ? eb_model_settings_take(loaded->settings) : NULL;
    comparison->options = *check->loader->tables;
    comparison->options.resident.model = comparison->model;
    comparison->options.resident.version = comparison->number;
    comparison->options.config = loaded->settings ? &comparison->settings->config : NULL;
    comparison->tables = calloc(loaded->tables.count + 1, sizeof *comparison->tables);
    comparison->hashes = calloc(loaded->tables.count + 1, sizeof *comparison->hashes);
    comparison->files = calloc(loaded->tables.count + 1, sizeof *comparison->files);
    if (!comparison->model || !comparison->path || !comparison->tables || !comparison->hashes ||
        !comparison->files || !add_all_compared(check, comparison, &loaded->tables)) {
        free_comparison(comparison);
        return NULL;
    }
    return comparison;
}

/* Marks the version's adopted files as compared. */
static void mark_compared(const struct eb_table_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        struct eb_table_mapping *mapping = find_adopted(set, &set->tables[i]);
        if (mapping) {
            mapping->is_compared = true;
        }
    }
}

/* ---- the comparison ---- */

/* Runs on the comparison's thread. */
static bool on_compared_bytes(void *context, uint64_t bytes)
{
    struct eb_adoption_check *check = context;
    return eb_loader_keep_pace(check->loader, bytes, &check->is_cancelled);
}

/* Runs on the comparison's thread. */
static void run_comparison(struct eb_background_task *task)
{
    struct eb_adoption_check *check = EB_CONTAINER_OF(task, struct eb_adoption_check, task);
    struct eb_comparison *comparison = check->comparison;
    struct eb_load_progress progress = {.go_on = on_compared_bytes, .context = check};
    eb_worker_lower_priority();
    eb_read_watch_attach(&comparison->watch);
    comparison->is_done = eb_source_compare(comparison->path, &comparison->options,
        comparison->tables, comparison->count, &progress, &comparison->failure);
}

static void set_stalled(struct eb_adoption_check *check, bool is_stalled)
{
    if (check->is_stalled != is_stalled) {
        check->is_stalled = is_stalled;
        check->on_stalled(check->context);
    }
}

/* Looks whether the comparison waits for a read. */
static void on_watch_due(uv_timer_t *timer)
{
    struct eb_adoption_check *check = timer->data;
    struct eb_read_stall stall;
    switch (eb_read_watch_check(&check->comparison->watch, EB_READ_WATCH_STALL_MS, &stall)) {
    case EB_READ_WATCH_STALLED:
        eb_model_log_stalled(stall.path, stall.seconds);
        set_stalled(check, true);
        break;
    case EB_READ_WATCH_RESUMED: set_stalled(check, false); break;
    case EB_READ_WATCH_QUIET: break;
    }
}

/* Returns the version as it is in memory, or NULL if it is not in memory. */
static const struct eb_model_version *find_compared(
    const struct eb_adoption_check *check, const struct eb_comparison *comparison)
{
    struct eb_registry_model *model = eb_registry_find(check->registry, comparison->model);
    const struct eb_registry_version *version =
        model ? eb_registry_find_version(model, comparison->number) : NULL;
    return version ? version->loaded : NULL;
}

/* Marks the file of a table that differs as outdated. Returns false if the version no longer has
 * it. */
static bool note_difference(
    const struct eb_comparison *comparison, size_t index, const struct eb_model_version *loaded)
{
    const char *name = comparison->tables[index].name;
    const struct eb_named_table *table = eb_table_set_find(&loaded->tables, name);
    struct eb_table_mapping *mapping = table ? find_adopted(&loaded->tables, table) : NULL;
    if (!mapping || strcmp(mapping->name, comparison->files[index]) != 0) {
        return false;
    }
    atomic_store_explicit(&mapping->is_outdated, true, memory_order_relaxed);
    eb_model_log_differs(
        comparison->model, comparison->number, name, comparison->files[index], comparison->path);
    return true;
}

/* Gives up the files of the tables that differ. They are deleted only when the record of what is
 * served no longer names them. */
static void give_up_files(
    const struct eb_adoption_check *check, const struct eb_comparison *comparison)
{
    const struct eb_model_version *loaded = find_compared(check, comparison);
    bool is_any_different = false;
    for (size_t i = 0; i < comparison->count; i++) {
        struct eb_compared_table *table = &comparison->tables[i];
        table->is_different =
            table->is_different && loaded && note_difference(comparison, i, loaded);
        is_any_different = is_any_different || table->is_different;
    }
    if (is_any_different) {
        eb_resident_keeper_record(check->keeper, check->publisher->current);
    }
    for (size_t i = 0; i < comparison->count; i++) {
        if (comparison->tables[i].is_different) {
            eb_resident_dir_unlink(check->keeper->dir, comparison->files[i]);
        }
    }
}

static void on_comparison_done(struct eb_background_task *task)
{
    struct eb_adoption_check *check = EB_CONTAINER_OF(task, struct eb_adoption_check, task);
    struct eb_comparison *comparison = check->comparison;
    check->comparison = NULL;
    uv_timer_stop(&check->watch_timer);
    set_stalled(check, false);
    if (comparison->is_done) {
        eb_log(EB_LOG_DEBUG, "resident_compared", eb_log_text("model", comparison->model),
            eb_log_count("version", comparison->number), eb_log_count("tables", comparison->count));
    } else if (!atomic_load(&check->is_cancelled)) {
        eb_model_log_uncompared(comparison->model, comparison->number, comparison->failure.text);
    }
    if (check->is_open) {
        give_up_files(check, comparison);
    }
    free_comparison(comparison);
    check->on_compared(check->context);
}

/* Begins to compare a version. Returns false if it has nothing to compare, or if that cannot be
 * done now; it is not tried again. */
static bool begin_comparison(struct eb_adoption_check *check, const struct eb_registry_model *model,
    const struct eb_registry_version *version)
{
    struct eb_comparison *comparison = make_comparison(check, model, version);
    mark_compared(&version->loaded->tables);
    if (comparison && comparison->count == 0) {
        free_comparison(comparison);
        return false;
    }
    check->comparison = comparison;
    atomic_store(&check->is_cancelled, false);
    if (comparison && eb_background_task_start(&check->task)) {
        uv_timer_start(&check->watch_timer, on_watch_due, WATCH_MS, WATCH_MS);
        return true;
    }
    check->comparison = NULL;
    eb_model_log_uncompared(
        model->name, version->number, comparison ? "a thread cannot be created" : "out of memory");
    if (comparison) {
        free_comparison(comparison);
    }
    return false;
}

/* ---- life ---- */

void eb_adoption_check_start(struct eb_adoption_check *check, uv_loop_t *loop)
{
    if (!check->keeper->dir) {
        return;
    }
    check->random_state = eb_clock_unix_ms();
    check->task.run = run_comparison;
    check->task.done = on_comparison_done;
    int rc = eb_background_task_open(&check->task, loop);
    check->is_open = rc == 0;
    if (rc == 0) {
        uv_timer_init(loop, &check->watch_timer);
        check->watch_timer.data = check;
    } else {
        eb_log(EB_LOG_WARN, "resident_uncompared", eb_log_text("reason", uv_strerror(rc)),
            eb_log_text("remedy", "raise the limit on open files; until the next start, adopted "
                                  "tables are not compared with the files of their versions"));
    }
}

void eb_adoption_check_advance(struct eb_adoption_check *check)
{
    const struct eb_registry *registry = check->registry;
    if (!check->is_open) {
        return;
    }
    if (check->comparison) {
        if (!find_compared(check, check->comparison)) {
            atomic_store(&check->is_cancelled, true);
        }
        return;
    }
    /* After a start without the repository, files must be kept until it can be read. While the
     * record is held, it must not name a file that is deleted. */
    const struct eb_resident_dir *dir = check->keeper->dir;
    if (!atomic_load(&dir->is_owner) || atomic_load(&dir->is_kept) || check->keeper->is_held) {
        return;
    }
    for (size_t i = 0; i < registry->count; i++) {
        const struct eb_registry_model *model = &registry->models[i];
        for (size_t k = 0; k < model->count; k++) {
            const struct eb_registry_version *version = &model->versions[k];
            if (version->loaded &&
                eb_table_memory_has_uncompared(&version->loaded->tables.memory) &&
                begin_comparison(check, model, version)) {
                return;
            }
        }
    }
}

void eb_adoption_check_stop(struct eb_adoption_check *check)
{
    if (check->is_open) {
        check->is_open = false;
        atomic_store(&check->is_cancelled, true);
        uv_close((uv_handle_t *)&check->watch_timer, NULL);
        eb_background_task_close(&check->task);
    }
}

bool eb_adoption_check_is_busy(const struct eb_adoption_check *check)
{
    return check->task.is_running;
}
