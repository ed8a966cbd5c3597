/* The states of a manager and of its load. There is one load at a time for all models.
 *
 *   manager   until                    meanwhile
 *   --------  -----------------------  -----------------------------------------------------------
 *   CREATED   eb_manager_start         eb_manager_load loads the initial versions
 *   RUNNING   eb_manager_stop          scans, loads, frees and publishes; takes commands
 *   STOPPING  nothing is under way     pending work ends, readers give back what they were given
 *   CLOSED    eb_manager_destroy       handles close
 *
 * eb_manager_stop leads from CREATED to STOPPING too.
 *
 *   load     event                                  then     action
 *   -------  -------------------------------------  -------  ------------------------------------
 *   IDLE     a version is due                       LOADING  the loader begins
 *   IDLE     the same, but no memory to begin       IDLE     the registry notes the failure
 *   LOADING  it is no longer due, or stop           LOADING  cancels it; done or failed follows
 *   LOADING  done, while RUNNING with a watch       LOADED   requests a scan
 *   LOADING  done, otherwise                        IDLE     takes the version
 *   LOADING  failed                                 IDLE     the registry notes the failure
 *   LOADING  short of memory while CREATED          IDLE     the registry notes the failure
 *   LOADING  short of memory, some will be freed    SHORT    the registry lets it wait
 *   LOADING  short of memory, none can be freed     IDLE     the registry notes the failure
 *   LOADED   the scan that it requested is done     IDLE     takes the version, or drops it if it
 *                                                            is no longer due
 *   LOADED   eb_manager_stop                        IDLE     takes the version
 *   SHORT    a version is freed, or a scan is done  IDLE     tries again what is due
 *
 * After each event advance_manager lets the registry decide, begins the next load, publishes the
 * changes and answers the commands that are done. */
#include "server/publish/manager.h"

#include "proto/list.h"
#include "server/base/log.h"
#include "server/publish/loader.h"
#include "server/publish/model_log.h"
#include "server/publish/scanner.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Time between two progress reports. */
#define PROGRESS_MS 500
/* Pause before a snapshot is published again after memory ran out. */
#define RETRY_MS 1000

const char *const eb_manager_watch_names[EB_MANAGER_WATCH_COUNT + 1] = {
#define X(name, text) text,
    EB_MANAGER_WATCH_LIST(X)
#undef X
};

enum manager_state { CREATED, RUNNING, STOPPING, CLOSED };

enum load_state { IDLE, LOADING, LOADED, SHORT };

struct eb_manager {
    enum manager_state state;
    struct eb_manager_options options;
    struct eb_registry registry;
    struct eb_scanner scanner;
    struct eb_snapshot *first;
    struct eb_publisher publisher;
    struct eb_command_queue commands;
    uv_loop_t *uv;
    struct eb_mailbox mailbox;
    struct eb_worker worker;
    struct eb_loader loader;
    uv_timer_t wake;     /* ends when eb_registry_decide is due again */
    uv_timer_t progress; /* runs while the progress of loads is reported */
    enum load_state load_state;
    struct eb_load *load;   /* set while LOADING or LOADED; else NULL */
    uint64_t load_scan;     /* number of the scan that LOADED waits for */
    unsigned retired_count; /* versions that stay in memory until their last readers are done */
};

static uint64_t manager_now_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* ---- states ---- */

static void end_load(struct eb_manager *manager, enum load_state state)
{
    manager->load = NULL;
    manager->load_state = state;
}

/* Allows a load that waited for memory to be tried again. */
static void end_wait(struct eb_manager *manager)
{
    if (manager->load_state == SHORT) {
        manager->load_state = IDLE;
    }
}

/* ---- events of the registry ---- */

static void on_retired(void *context, const char *model, uint64_t version)
{
    struct eb_manager *manager = context;
    manager->retired_count++;
    eb_log(EB_LOG_INFO, "model_retired", eb_log_text("model", model),
        eb_log_count("version", version));
}

static void on_config_failed(void *context, const char *model, const char *why)
{
    struct eb_manager *manager = context;
    const struct eb_registry_model *known = eb_registry_find(&manager->registry, model);
    eb_log(EB_LOG_ERROR, "model_config_failed", eb_log_text("model", model),
        eb_log_text("reason", why),
        eb_log_text("remedy", known->served
                                  ? "correct the file; until then its previous content applies"
                                  : "correct the file; until then the model is not served"));
}

/* ---- scans ---- */

static void advance_manager(struct eb_manager *manager);
static void close_if_idle(struct eb_manager *manager);
static void take_load(struct eb_manager *manager);

static void on_scan_begun(void *context)
{
    struct eb_manager *manager = context;
    manager->commands.scans_begun++;
    eb_registry_watch(&manager->registry, &manager->scanner.seen);
}

static void on_manager_scanned(void *context, bool is_good)
{
    struct eb_manager *manager = context;
    if (manager->state == STOPPING) {
        close_if_idle(manager);
        return;
    }
    if (is_good && !eb_registry_update(&manager->registry, &manager->scanner.seen)) {
        eb_log(EB_LOG_ERROR, "models_incomplete", eb_log_text("reason", strerror(ENOMEM)),
            eb_log_text("remedy", "free some memory; the repository will be scanned again"));
    }
    manager->commands.scans_done = manager->commands.scans_begun;
    manager->commands.disk_failure = manager->scanner.told_failure;
    if (manager->options.on_scanned) {
        manager->options.on_scanned(manager->options.context, manager->scanner.told_failure);
    }
    eb_command_queue_begin(&manager->commands);
    if (manager->load_state == LOADED && manager->commands.scans_done >= manager->load_scan) {
        take_load(manager);
    }
    /* Memory may have been freed by now. And a version of another model that needs less memory
     * should not wait for memory that is about to be freed. */
    end_wait(manager);
    eb_registry_forgive(&manager->registry, manager_now_ms());
    advance_manager(manager);
}

/* ---- loading and unloading ---- */

/* Takes the loaded version into the registry. Drops it if it is no longer due. */
static void take_load(struct eb_manager *manager)
{
    struct eb_registry *registry = &manager->registry;
    struct eb_load *load = manager->load;
    bool is_due = eb_registry_is_due(registry, load->model, load->number);
    end_load(manager, IDLE);
    eb_registry_note_loaded(registry, load->version, manager_now_ms());
    if (!is_due && manager->state != STOPPING) {
        struct eb_registry_model *model = eb_registry_find(registry, load->model);
        eb_registry_drop(registry, model, eb_registry_find_version(model, load->number));
    }
}

/* Requests a scan, after which the loaded version is taken: by now model.yaml may choose another
 * version, or another directory may have replaced that of the loaded one. If the manager does not
 * run or does not watch the disk, takes the version at once. */
static void await_scan(struct eb_manager *manager)
{
    if (manager->state != RUNNING || manager->options.watch == EB_MANAGER_WATCH_OFF) {
        take_load(manager);
        return;
    }
    manager->load_state = LOADED;
    manager->load_scan = manager->commands.scans_begun + 1;
    eb_scanner_scan(&manager->scanner);
}

/* Handles a version that needs more memory than there is. It waits if versions are about to be
 * freed, or if others can be dropped for it. Otherwise it fails. */
static void make_manager_room(struct eb_manager *manager, const struct eb_load *load)
{
    struct eb_failure failure;
    bool is_coming =
        manager->state == STOPPING || manager->retired_count > 0 ||
        eb_registry_make_room(&manager->registry, load->missing_bytes, manager_now_ms());
    end_load(manager, is_coming ? SHORT : IDLE);
    eb_failure_set(&failure,
        "%s: its tables need %" PRIu64 " bytes more memory than is available; free some, raise "
        "the container's limit, or lower versions.keep_s in model.yaml",
        load->path, load->missing_bytes);
    eb_registry_fail(&manager->registry, load->model, load->number, is_coming ? NULL : failure.text,
        EB_REGISTRY_SHORT);
}

/* Notes that a load has failed. The failure does not count if the load was cancelled, or if the
 * settings have changed since it began, because the version may load with the new ones. */
static void note_manager_failure(struct eb_manager *manager, const struct eb_load *load)
{
    const struct eb_registry_model *model = eb_registry_find(&manager->registry, load->model);
    bool is_void = load->settings != model->settings ||
                   atomic_load_explicit(&load->is_cancelled, memory_order_relaxed);
    eb_registry_note_files(&manager->registry, load->model, load->number, load->files);
    enum eb_registry_failure kind =
        load->failure.is_transient ? EB_REGISTRY_HINDERED : EB_REGISTRY_BROKEN;
    eb_registry_fail(&manager->registry, load->model, load->number,
        is_void ? NULL : load->failure.text,
        load->outcome == EB_LOAD_SHORT ? EB_REGISTRY_SHORT : kind);
    end_load(manager, IDLE);
}

static void on_loaded(struct eb_loader *loader, struct eb_load *load)
{
    struct eb_manager *manager = EB_CONTAINER_OF(loader, struct eb_manager, loader);
    switch (load->outcome) {
    case EB_LOAD_DONE:
        eb_model_log_loaded(&manager->options.tables.memory, load->version,
            (uv_hrtime() - load->start_ns) / 1000000);
        await_scan(manager);
        break;
    case EB_LOAD_SHORT:
        if (manager->state == CREATED) {
            note_manager_failure(manager, load);
        } else {
            make_manager_room(manager, load);
        }
        break;
    case EB_LOAD_FAILED: note_manager_failure(manager, load); break;
    }
    advance_manager(manager);
}

static void on_freed(struct eb_loader *loader, const char *model, uint64_t version)
{
    struct eb_manager *manager = EB_CONTAINER_OF(loader, struct eb_manager, loader);
    eb_log(
        EB_LOG_INFO, "model_freed", eb_log_text("model", model), eb_log_count("version", version));
    eb_registry_note_unloaded(&manager->registry, model, version);
    manager->retired_count--;
    end_wait(manager);
    advance_manager(manager);
}

/* Cancels the load if its version is no longer due. */
static void check_manager_load(struct eb_manager *manager)
{
    struct eb_load *load = manager->load;
    if (load && !eb_registry_is_due(&manager->registry, load->model, load->number)) {
        eb_loader_cancel(load);
    }
}

/* Begins the next load, or lets it fail for lack of memory. Returns false if there is nothing to
 * load now. */
static bool start_manager_load(struct eb_manager *manager)
{
    struct eb_registry_version *version;
    if (manager->load_state != IDLE) {
        return false;
    }
    const struct eb_registry_model *model = eb_registry_next(&manager->registry, &version);
    if (!model) {
        return false;
    }
    char *path = eb_registry_path(model, version);
    size_t resident_count;
    struct eb_model_version **residents = eb_registry_residents(model, &resident_count);
    struct eb_version_source source = {
        model->name, version->number, path, model->settings, residents, resident_count};
    manager->load = path && residents ? eb_loader_start(&manager->loader, &source) : NULL;
    free(path);
    free(residents);
    if (manager->load) {
        manager->load_state = LOADING;
    } else {
        eb_registry_fail(
            &manager->registry, model->name, version->number, "out of memory", EB_REGISTRY_SHORT);
    }
    return true;
}

/* ---- the next steps after an event ---- */

/* Runs when `wake` ends: when a version's keep_s is over, for example. Lets versions that lacked
 * memory be tried again, because the memory of that version may be freed now. */
static void on_manager_wake(uv_timer_t *timer)
{
    struct eb_manager *manager = timer->data;
    eb_registry_forgive_short(&manager->registry);
    eb_registry_forgive(&manager->registry, manager_now_ms());
    advance_manager(manager);
}

static void arm_wake(struct eb_manager *manager, uint64_t wake_ms)
{
    uint64_t now = manager_now_ms();
    if (wake_ms == UINT64_MAX) {
        uv_timer_stop(&manager->wake);
    } else {
        uv_update_time(manager->uv);
        uv_timer_start(&manager->wake, on_manager_wake, wake_ms > now ? wake_ms - now : 0, 0);
    }
}

static void publish_snapshot(struct eb_manager *manager, uint64_t *wake_ms)
{
    struct eb_snapshot *snapshot = eb_registry_snapshot(&manager->registry);
    if (snapshot && eb_publisher_publish(&manager->publisher, snapshot)) {
        manager->registry.is_dirty = false;
        if (manager->options.on_serving) {
            manager->options.on_serving(manager->options.context, snapshot);
        }
        return;
    }
    eb_snapshot_free(snapshot);
    *wake_ms = manager_now_ms() + RETRY_MS;
    eb_log(EB_LOG_ERROR, "models_unpublished", eb_log_text("reason", strerror(ENOMEM)),
        eb_log_text("remedy", "free some memory; the server will try again"));
}

static void tell_loading(
    const struct eb_manager *manager, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    const struct eb_manager_options *options = &manager->options;
    if (options->on_loading) {
        options->on_loading(options->context, path, done_bytes, total_bytes);
    }
}

static void on_manager_progress(uv_timer_t *timer)
{
    struct eb_manager *manager = timer->data;
    const struct eb_load *load = manager->load;
    if (load) {
        uint64_t done = atomic_load_explicit(&load->done_bytes, memory_order_relaxed);
        uint64_t total = atomic_load_explicit(&load->total_bytes, memory_order_relaxed);
        eb_command_queue_tell(&manager->commands, load->model, done, total);
        tell_loading(manager, load->path, done, total);
    } else {
        tell_loading(manager, NULL, 0, 0);
    }
    if (!manager->commands.first && !load) {
        uv_timer_stop(timer);
    }
}

static void watch_progress(struct eb_manager *manager)
{
    if (!uv_is_active((uv_handle_t *)&manager->progress)) {
        uv_timer_start(&manager->progress, on_manager_progress, PROGRESS_MS, PROGRESS_MS);
    }
}

static void advance_manager(struct eb_manager *manager)
{
    uint64_t wake_ms;
    if (manager->state == STOPPING) {
        close_if_idle(manager);
    }
    if (manager->state != RUNNING) {
        return;
    }
    eb_registry_decide(&manager->registry, manager_now_ms(), &wake_ms);
    check_manager_load(manager);
    (void)start_manager_load(manager);
    if (manager->load) {
        watch_progress(manager);
    }
    if (manager->registry.is_dirty) {
        publish_snapshot(manager, &wake_ms);
    }
    /* Answer commands only when all readers have the new state. */
    if (!manager->registry.is_dirty && manager->publisher.delivery_count == 0) {
        eb_command_queue_finish(&manager->commands);
        if (manager->registry.is_dirty) {
            publish_snapshot(manager, &wake_ms);
        }
    }
    arm_wake(manager, wake_ms);
}

static void on_settled(void *context)
{
    advance_manager(context);
}

/* ---- the initial versions ---- */

/* Sets *failure to the reason why a model has no version to serve. */
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
        eb_failure_set(failure, "model '%.64s': no version can be loaded: %s", model->name,
            why ? why : "model.yaml serves another version, which does not exist");
    }
}

/* Returns whether any model has a version to serve. Logs each model that has none. */
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
        eb_model_log_unserved(model->name, failure->text);
    }
    return true;
}

static void on_first_progress(
    struct eb_loader *loader, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    tell_loading(EB_CONTAINER_OF(loader, struct eb_manager, loader), path, done_bytes, total_bytes);
}

/* Loads the versions on disk as fast as possible. Decides what is served when all are loaded. */
static void load_first(struct eb_manager *manager)
{
    uint64_t wake_ms;
    manager->loader.bytes_per_s = 0;
    manager->loader.on_progress = on_first_progress;
    while (start_manager_load(manager)) {
        while (manager->load_state != IDLE) {
            uv_run(manager->uv, UV_RUN_ONCE);
        }
    }
    manager->loader.bytes_per_s = manager->options.load_bytes_per_s;
    manager->loader.on_progress = NULL;
    eb_registry_decide(&manager->registry, manager_now_ms(), &wake_ms);
}

bool eb_manager_load(struct eb_manager *manager, struct eb_failure *failure)
{
    const struct eb_manager_options *options = &manager->options;
    struct eb_repository *seen = &manager->scanner.seen;
    if (!eb_repository_scan(
            options->directory, options->tables.name_bytes_max, NULL, seen, failure)) {
        return false;
    }
    if (!eb_registry_update(&manager->registry, seen)) {
        return eb_failure_set(failure, "%s: out of memory", options->directory);
    }
    load_first(manager);
    if (!check_served(&manager->registry, failure)) {
        return false;
    }
    manager->first = eb_registry_snapshot(&manager->registry);
    manager->registry.is_dirty = false;
    return manager->first || eb_failure_set(failure, "%s: out of memory", options->directory);
}

struct eb_snapshot *eb_manager_snapshot(const struct eb_manager *manager)
{
    return manager->first;
}

/* ---- commands ---- */

void eb_manager_ask(struct eb_manager *manager, struct eb_model_command *command)
{
    eb_command_queue_push(&manager->commands, command);
    if (manager->state != RUNNING) {
        eb_command_queue_cancel(&manager->commands);
        return;
    }
    watch_progress(manager);
    if (eb_command_queue_needs_disk(&manager->commands, command)) {
        eb_scanner_scan(&manager->scanner);
    }
    eb_command_queue_begin(&manager->commands);
    advance_manager(manager);
}

/* ---- life ---- */

static struct eb_model_version *loaded_at(struct eb_manager *manager, size_t model, size_t version)
{
    return manager->registry.models[model].versions[version].loaded;
}

/* Returns how many retired versions the last snapshot holds. No other snapshot will replace it, so
 * these versions are freed together with it. */
static unsigned count_withheld(struct eb_manager *manager)
{
    const struct eb_snapshot *snapshot = manager->publisher.current;
    unsigned count = 0;
    for (size_t i = 0; snapshot && i < snapshot->count; i++) {
        const struct eb_snapshot_model *shown = &snapshot->models[i];
        struct eb_registry_model *model = eb_registry_find(&manager->registry, shown->name);
        for (size_t k = 0; k < shown->version_count; k++) {
            const struct eb_snapshot_version *version = &shown->versions[k];
            const struct eb_registry_version *known =
                model ? eb_registry_find_version(model, version->number) : NULL;
            count += version->loaded && !(known && known->loaded == version->loaded);
        }
    }
    return count;
}

static void abandon_all(struct eb_manager *manager)
{
    for (size_t i = 0; i < manager->registry.count; i++) {
        for (size_t k = 0; k < manager->registry.models[i].count; k++) {
            struct eb_model_version *loaded = loaded_at(manager, i, k);
            if (loaded) {
                eb_loader_abandon(loaded);
            }
        }
    }
    const struct eb_snapshot *snapshot = manager->publisher.current;
    for (size_t i = 0; snapshot && i < snapshot->count; i++) {
        for (size_t k = 0; k < snapshot->models[i].version_count; k++) {
            if (snapshot->models[i].versions[k].loaded) {
                eb_loader_abandon(snapshot->models[i].versions[k].loaded);
            }
        }
    }
}

static void init_registry(struct eb_manager *manager)
{
    const struct eb_manager_options *options = &manager->options;
    manager->registry.directory = options->directory;
    manager->registry.kept_versions_max = options->kept_versions_max;
    manager->registry.kept_bytes_max = options->kept_bytes_max;
    manager->registry.events = (struct eb_registry_events){
        .on_failed = eb_model_log_failed,
        .on_config_failed = on_config_failed,
        .on_served = eb_model_log_served,
        .on_retired = on_retired,
        .on_missing = eb_model_log_missing,
        .on_changed = eb_model_log_changed,
        .on_described = eb_model_log_described,
        .on_evicted = eb_model_log_evicted,
        .context = manager,
    };
    manager->commands.registry = &manager->registry;
}

static void init_members(struct eb_manager *manager)
{
    const struct eb_manager_options *options = &manager->options;
    uv_timer_init(manager->uv, &manager->wake);
    uv_timer_init(manager->uv, &manager->progress);
    manager->wake.data = manager;
    manager->progress.data = manager;
    manager->loader = (struct eb_loader){
        .worker = &manager->worker,
        .mailbox = &manager->mailbox,
        .tables = &options->tables,
        .on_loaded = on_loaded,
        .on_freed = on_freed,
    };
    manager->publisher = (struct eb_publisher){
        .mailbox = &manager->mailbox,
        .on_settled = on_settled,
        .context = manager,
    };
    manager->scanner = (struct eb_scanner){
        .directory = options->directory,
        .name_bytes_max = options->tables.name_bytes_max,
        .is_watching = options->watch == EB_MANAGER_WATCH_AUTO,
        .poll_ms = options->watch == EB_MANAGER_WATCH_OFF ? 0 : options->poll_ms,
        .on_begun = on_scan_begun,
        .on_scanned = on_manager_scanned,
        .context = manager,
    };
}

int eb_manager_create(
    struct eb_manager **out, const struct eb_manager_options *options, uv_loop_t *loop)
{
    *out = NULL;
    struct eb_manager *manager = calloc(1, sizeof *manager);
    if (!manager) {
        return UV_ENOMEM;
    }
    manager->options = *options;
    manager->uv = loop;
    int rc = eb_mailbox_open(&manager->mailbox, loop);
    if (rc < 0) {
        free(manager);
        return rc;
    }
    rc = eb_worker_start(&manager->worker, loop);
    if (rc < 0) {
        eb_mailbox_close(&manager->mailbox);
        uv_run(loop, UV_RUN_NOWAIT);
        free(manager);
        return rc;
    }
    init_registry(manager);
    init_members(manager);
    *out = manager;
    return 0;
}

int eb_manager_start(
    struct eb_manager *manager, const struct eb_publisher_reader *readers, size_t reader_count)
{
    int rc = eb_scanner_start(&manager->scanner, manager->uv);
    if (rc < 0) {
        return rc;
    }
    eb_worker_give_way(&manager->worker);
    manager->publisher.readers = readers;
    manager->publisher.reader_count = reader_count;
    eb_publisher_start(&manager->publisher, manager->first);
    manager->first = NULL;
    manager->state = RUNNING;
    return 0;
}

static void close_if_idle(struct eb_manager *manager)
{
    if (manager->state == CLOSED || manager->worker.job_count > 0 || manager->scanner.is_busy ||
        manager->publisher.delivery_count > 0 || manager->retired_count > count_withheld(manager)) {
        return;
    }
    manager->state = CLOSED;
    eb_scanner_close(&manager->scanner);
    eb_worker_stop(&manager->worker);
    eb_mailbox_close(&manager->mailbox);
}

void eb_manager_stop(struct eb_manager *manager)
{
    if (!manager || manager->state == STOPPING || manager->state == CLOSED) {
        return;
    }
    manager->state = STOPPING;
    if (manager->load_state == LOADED) {
        take_load(manager);
    } else if (manager->load_state == LOADING) {
        eb_loader_cancel(manager->load);
    }
    eb_scanner_stop(&manager->scanner);
    uv_close((uv_handle_t *)&manager->wake, NULL);
    uv_close((uv_handle_t *)&manager->progress, NULL);
    eb_command_queue_cancel(&manager->commands);
    close_if_idle(manager);
}

const char *eb_manager_left(const struct eb_manager *manager)
{
    if (manager->state != STOPPING) {
        return NULL;
    }
    return manager->load ? manager->load->path : manager->options.directory;
}

void eb_manager_destroy(struct eb_manager *manager)
{
    if (!manager) {
        return;
    }
    assert(manager->state == CLOSED);
    abandon_all(manager);
    eb_publisher_deinit(&manager->publisher);
    eb_snapshot_free(manager->first);
    eb_registry_deinit(&manager->registry);
    eb_scanner_deinit(&manager->scanner);
    free(manager);
}
