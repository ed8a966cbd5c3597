/* The states of a manager and of its loads. EB_LOADS_AT_ONCE loads may be under way, each in a
 * slot.
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
 *   slot     event                                  then     action
 *   -------  -------------------------------------  -------  ------------------------------------
 *   IDLE     a version is due, or due again         LOADING  the loader begins
 *   IDLE     the same, but no memory to begin       IDLE     the registry notes the failure
 *   LOADING  it is no longer due, or stop           LOADING  cancels it; done or failed follows
 *   LOADING  done, while RUNNING with a watch       LOADED   requests a scan
 *   LOADING  done, otherwise                        IDLE     takes the version
 *   LOADING  failed                                 IDLE     the registry notes the failure
 *   LOADING  short of memory, some will be freed,   IDLE     the registry lets it wait; the manager
 *            or another load is under way                    is short
 *   LOADING  short of memory, none can be freed     IDLE     the registry notes the failure
 *   LOADED   the scan that it requested is done     IDLE     takes the version, or drops it if it
 *                                                            is no longer due
 *   LOADED   eb_manager_stop                        IDLE     takes the version
 *
 * While the manager is short, no load begins. That ends when a version is freed, when another load
 * is over, or when a scan is done.
 *
 * After each event advance_manager lets the registry decide, begins the next loads, publishes the
 * changes and answers the commands that are done. On a router, it tells the flip what there is
 * before it publishes, and lets the registry decide again if the flip chooses anew. */
#include "server/publish/manager.h"

#include "proto/list.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/publish/adoption_check.h"
#include "server/publish/dead_versions.h"
#include "server/publish/flip_link.h"
#include "server/publish/last_versions.h"
#include "server/publish/model_log.h"
#include "server/publish/page_rounds.h"
#include "server/publish/part_start.h"
#include "server/publish/record_start.h"
#include "server/publish/scanner.h"
#include "server/tables/memory_claims.h"

#include <assert.h>
#include <inttypes.h>
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

enum slot_state { IDLE, LOADING, LOADED };

struct slot {
    enum slot_state state;
    struct eb_load *load; /* set unless IDLE; else NULL */
    uint64_t scan;        /* number of the scan that LOADED waits for */
};

struct eb_manager {
    enum manager_state state;
    struct eb_manager_options options;
    struct eb_registry registry;
    struct eb_scanner scanner;
    struct eb_snapshot *first;
    struct eb_manager_times times;
    struct eb_publisher publisher;
    struct eb_command_queue commands;
    struct eb_flip_link flip;
    uv_loop_t *uv;
    struct eb_mailbox mailbox;
    struct eb_memory_claims claims;
    struct eb_loader loader;
    struct eb_resident_keeper keeper;
    struct eb_adoption_check adoption;
    struct eb_page_rounds rounds;
    struct eb_record_start record_start;
    struct eb_part_start part_start;
    uv_timer_t wake;     /* ends when eb_registry_decide is due again */
    uv_timer_t progress; /* runs while the progress of loads is reported */
    struct slot slots[EB_LOADS_AT_ONCE];
    bool is_short;          /* a load waits for memory; no other begins */
    unsigned stalled_count; /* loads that were stalled at the last report */
    unsigned retired_count; /* versions that stay in memory until their last readers are done */
};

static uint64_t manager_now_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* ---- states ---- */

/* Returns the slot of the load, or with NULL one that is idle. Returns NULL if there is none. */
static struct slot *find_slot(struct eb_manager *manager, const struct eb_load *load)
{
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        if (manager->slots[i].load == load) {
            return &manager->slots[i];
        }
    }
    return NULL;
}

static unsigned count_loads(const struct eb_manager *manager)
{
    unsigned count = 0;
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        count += manager->slots[i].state != IDLE;
    }
    return count;
}

/* Makes the slot idle. A load that waited for memory may be tried again, because this one no longer
 * claims any. */
static void end_load(struct eb_manager *manager, struct slot *slot)
{
    *slot = (struct slot){0};
    manager->is_short = false;
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
static void take_load(struct eb_manager *manager, struct slot *slot);

static void begin_commands(struct eb_manager *manager)
{
    manager->commands.now_ms = manager_now_ms();
    eb_command_queue_begin(&manager->commands);
}

static void on_scan_begun(void *context)
{
    struct eb_manager *manager = context;
    manager->commands.scans_begun++;
    eb_registry_watch(&manager->registry, &manager->scanner.seen);
}

/* Returns the time between periodic scans; 0 if there are none. */
static uint64_t find_poll_ms(const struct eb_manager *manager)
{
    bool is_scanning =
        manager->options.watch != EB_MANAGER_WATCH_OFF || manager->record_start.is_active;
    return is_scanning ? manager->options.poll_ms : 0;
}

/* Runs when the repository could be read. After a start without it, deaths in loads of earlier
 * processes have their effect only now. */
static void end_record_start(struct eb_manager *manager)
{
    if (eb_record_start_end(&manager->record_start)) {
        eb_dead_versions_suspect(
            manager->options.markers, &manager->registry, &manager->scanner.terms);
        eb_registry_readmit(&manager->registry);
        eb_resident_keeper_release(&manager->keeper, manager->publisher.current);
        eb_scanner_set(&manager->scanner, manager->scanner.is_watching, find_poll_ms(manager));
    }
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
    if (is_good) {
        eb_dead_versions_forget(manager->options.markers, &manager->registry);
        end_record_start(manager);
    }
    manager->commands.scans_done = manager->commands.scans_begun;
    manager->commands.disk_failure = manager->scanner.told_failure;
    if (eb_resident_keeper_own(&manager->keeper)) {
        eb_resident_keeper_record(&manager->keeper, manager->publisher.current);
    }
    if (manager->options.on_scanned) {
        manager->options.on_scanned(manager->options.context, manager->scanner.told_failure);
    }
    begin_commands(manager);
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        struct slot *slot = &manager->slots[i];
        if (slot->state == LOADED && manager->commands.scans_done >= slot->scan) {
            take_load(manager, slot);
        }
    }
    /* Memory may have been freed by now. And a version of another model that needs less memory
     * should not wait for memory that is about to be freed. */
    manager->is_short = false;
    eb_registry_forgive(&manager->registry, manager_now_ms());
    advance_manager(manager);
}

/* ---- loading and unloading ---- */

/* Takes the loaded version into the registry. Drops it if it is no longer due, unless it replaces
 * an outdated instance. */
static void take_load(struct eb_manager *manager, struct slot *slot)
{
    struct eb_registry *registry = &manager->registry;
    struct eb_load *load = slot->load;
    struct eb_registry_model *model = eb_registry_find(registry, load->model);
    bool is_again = eb_registry_find_version(model, load->number)->loaded;
    bool is_due = eb_registry_is_due(registry, load->model, load->number);
    end_load(manager, slot);
    eb_registry_note_loaded(registry, load->version, manager_now_ms());
    if (!is_due && !is_again && manager->state != STOPPING) {
        eb_registry_drop(registry, model, eb_registry_find_version(model, load->number));
    }
}

/* Requests a scan, after which the loaded version is taken: by now model.yaml may choose another
 * version, or another directory may have replaced that of the loaded one. If the manager does not
 * run or does not watch the disk, takes the version at once. */
static void await_scan(struct eb_manager *manager, struct slot *slot)
{
    if (manager->state != RUNNING || manager->options.watch == EB_MANAGER_WATCH_OFF) {
        take_load(manager, slot);
        return;
    }
    slot->state = LOADED;
    slot->scan = manager->commands.scans_begun + 1;
    eb_scanner_scan(&manager->scanner);
}

/* Handles a version that needs more memory than there is. It waits if another load is under way,
 * whose claim may turn out to be too high, if versions are about to be freed, or if others can be
 * dropped for it. Otherwise it fails. */
static void make_manager_room(struct eb_manager *manager, const struct eb_load *load)
{
    struct eb_failure failure;
    bool is_coming =
        count_loads(manager) > 0 || manager->state == STOPPING || manager->retired_count > 0 ||
        (manager->state == RUNNING && eb_registry_make_room(&manager->registry, load->model,
                                          load->missing_bytes, manager_now_ms()));
    manager->is_short = is_coming;
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
}

static void on_loaded(struct eb_loader *loader, struct eb_load *load)
{
    struct eb_manager *manager = EB_CONTAINER_OF(loader, struct eb_manager, loader);
    struct slot *slot = find_slot(manager, load);
    if (load->outcome != EB_LOAD_DONE) {
        end_load(manager, slot);
    }
    switch (load->outcome) {
    case EB_LOAD_DONE:
        eb_model_log_loaded(&manager->options.tables.memory, load->version,
            (uv_hrtime() - load->start_ns) / 1000000);
        await_scan(manager, slot);
        break;
    case EB_LOAD_SHORT:
        if (manager->state == CREATED && count_loads(manager) == 0) {
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
    manager->is_short = false;
    advance_manager(manager);
}

/* Cancels the loads whose versions are no longer due. */
static void check_manager_loads(struct eb_manager *manager)
{
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        struct eb_load *load = manager->slots[i].load;
        if (load && !eb_registry_is_due(&manager->registry, load->model, load->number)) {
            eb_loader_cancel(load);
        }
    }
}

/* Begins the next load in an idle slot, or lets it fail for lack of memory. Returns false if there
 * is nothing to load now. */
static bool start_manager_load(struct eb_manager *manager)
{
    struct eb_registry_version *version;
    struct slot *slot = find_slot(manager, NULL);
    if (!slot || manager->is_short) {
        return false;
    }
    const struct eb_registry_model *model = eb_registry_next(&manager->registry, &version);
    if (!model) {
        return false;
    }
    char *path = eb_registry_path(model, version);
    size_t resident_count;
    struct eb_model_version **residents = eb_registry_residents(model, &resident_count);
    struct eb_version_source source = {model->name, version->number, path, model->settings,
        residents, resident_count,
        eb_record_start_find(&manager->record_start, model->name, version->number)};
    size_t number = (size_t)(slot - manager->slots);
    slot->load = path && residents ? eb_loader_start(&manager->loader, number, &source) : NULL;
    free(path);
    free(residents);
    if (slot->load) {
        slot->state = LOADING;
    } else {
        eb_registry_fail(
            &manager->registry, model->name, version->number, "out of memory", EB_REGISTRY_SHORT);
    }
    return true;
}

/* Begins as many loads as there are idle slots. */
static void start_manager_loads(struct eb_manager *manager)
{
    while (start_manager_load(manager)) {
    }
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

static void lower_ms(uint64_t *wake_ms, uint64_t to_ms)
{
    *wake_ms = to_ms < *wake_ms ? to_ms : *wake_ms;
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
        eb_resident_keeper_record(&manager->keeper, snapshot);
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

/* Reports the number of stalled loads and comparisons if it has changed. */
static void tell_stalled(struct eb_manager *manager)
{
    const struct eb_manager_options *options = &manager->options;
    unsigned count = manager->adoption.is_stalled;
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        const struct eb_load *load = manager->slots[i].load;
        count += load && atomic_load_explicit(&load->stalled_reads, memory_order_relaxed) > 0;
    }
    if (count != manager->stalled_count && options->on_stalled) {
        options->on_stalled(options->context, count);
    }
    manager->stalled_count = count;
}

static void on_comparison_stalled(void *context)
{
    tell_stalled(context);
}

/* Reports the progress of all loads together. At start, the loader's own reports do that. */
static void on_manager_progress(uv_timer_t *timer)
{
    struct eb_manager *manager = timer->data;
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        if (manager->slots[i].load) {
            eb_loader_check(manager->slots[i].load);
        }
    }
    tell_stalled(manager);
    if (manager->state == CREATED) {
        return;
    }
    const char *path = NULL;
    uint64_t done_bytes = 0;
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        const struct eb_load *load = manager->slots[i].load;
        if (load) {
            uint64_t done = atomic_load_explicit(&load->done_bytes, memory_order_relaxed);
            uint64_t total = atomic_load_explicit(&load->total_bytes, memory_order_relaxed);
            eb_command_queue_tell(&manager->commands, load->model, done, total);
            path = path ? path : load->path;
            done_bytes += done;
            total_bytes += total;
        }
    }
    tell_loading(manager, path, done_bytes, total_bytes);
    if (!manager->commands.first && !path) {
        uv_timer_stop(timer);
    }
}

static void watch_progress(struct eb_manager *manager)
{
    if (!uv_is_active((uv_handle_t *)&manager->progress)) {
        uv_timer_start(&manager->progress, on_manager_progress, PROGRESS_MS, PROGRESS_MS);
    }
}

/* Lets the registry decide, and begins loads. On a router, does so until the flip agrees. */
static void decide_manager(struct eb_manager *manager, uint64_t *wake_ms)
{
    do {
        eb_registry_decide(&manager->registry, manager_now_ms(), wake_ms);
        check_manager_loads(manager);
        start_manager_loads(manager);
    } while (eb_flip_link_tell(&manager->flip));
    if (manager->flip.is_pending) {
        lower_ms(wake_ms, manager_now_ms() + RETRY_MS);
    }
}

/* Makes loads leave most of the machine to lookups. */
static void limit_loads(struct eb_manager *manager)
{
    eb_loader_limit(
        &manager->loader, manager->options.load_threads, manager->options.load_bytes_per_s);
}

/* Takes the next step of a part server's start. Returns whether more versions may be loaded. */
static bool advance_part_start(struct eb_manager *manager, uint64_t *wake_ms)
{
    struct eb_part_start *start = &manager->part_start;
    bool was_active = start->is_active;
    bool may_end = count_loads(manager) == 0 && !manager->is_short && !manager->registry.is_dirty;
    bool may_load = eb_part_start_advance(start, may_end, manager_now_ms(), wake_ms);
    bool is_ready = !manager->publisher.current->not_ready;
    if (was_active && (is_ready || !start->is_active)) {
        limit_loads(manager);
    }
    return may_load;
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
    decide_manager(manager, &wake_ms);
    while (advance_part_start(manager, &wake_ms)) {
        start_manager_loads(manager);
    }
    if (count_loads(manager) > 0) {
        watch_progress(manager);
    }
    if (manager->registry.is_dirty) {
        publish_snapshot(manager, &wake_ms);
    }
    /* Answer commands only when all readers have the new state. */
    if (!manager->registry.is_dirty && manager->publisher.delivery_count == 0) {
        manager->commands.now_ms = manager_now_ms();
        eb_command_queue_finish(&manager->commands);
        if (manager->registry.is_dirty) {
            publish_snapshot(manager, &wake_ms);
        }
        lower_ms(&wake_ms, eb_command_queue_due_ms(&manager->commands));
    }
    eb_adoption_check_advance(&manager->adoption);
    eb_page_rounds_advance(&manager->rounds);
    arm_wake(manager, wake_ms);
}

static void advance_if_dirty(struct eb_manager *manager)
{
    if (manager->registry.is_dirty) {
        advance_manager(manager);
    }
}

/* Runs when a delivery, a comparison or a round of joining pages is over. */
static void on_settled(void *context)
{
    advance_manager(context);
}

/* Runs when a timer has made the process the owner of the resident files. */
static void on_owned(void *context)
{
    struct eb_manager *manager = context;
    eb_resident_keeper_record(&manager->keeper, manager->publisher.current);
    if (manager->options.on_owned) {
        manager->options.on_owned(manager->options.context);
    }
    advance_manager(manager);
}

/* ---- the initial versions ---- */

static void on_first_progress(
    struct eb_loader *loader, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    tell_loading(EB_CONTAINER_OF(loader, struct eb_manager, loader), path, done_bytes, total_bytes);
}

/* Returns whether more versions may have to be loaded at first: because a router's flip has chosen
 * anew or, on other servers, because a model serves none. */
static bool has_more_first(struct eb_manager *manager)
{
    return manager->options.is_router ? eb_flip_link_await(&manager->flip, manager->uv)
                                      : eb_registry_readmit_unserved(&manager->registry);
}

/* Loads the versions on disk as fast as possible. Decides what is served when all are loaded. */
static void load_first(struct eb_manager *manager)
{
    uint64_t wake_ms;
    eb_loader_hurry(&manager->loader, manager->options.load_threads);
    manager->loader.on_progress = on_first_progress;
    watch_progress(manager);
    (void)eb_flip_link_tell(&manager->flip);
    do {
        start_manager_loads(manager);
        while (count_loads(manager) > 0) {
            uv_run(manager->uv, UV_RUN_ONCE);
            start_manager_loads(manager);
        }
        eb_registry_decide(&manager->registry, manager_now_ms(), &wake_ms);
    } while (has_more_first(manager));
    limit_loads(manager);
    manager->loader.on_progress = NULL;
    uv_timer_stop(&manager->progress);
    tell_stalled(manager);
    eb_registry_readmit(&manager->registry);
}

bool eb_manager_load(struct eb_manager *manager, struct eb_failure *failure)
{
    const struct eb_manager_options *options = &manager->options;
    struct eb_repository *seen = &manager->scanner.seen;
    uint64_t begun_ns = eb_clock_steady_ns();
    if (!eb_record_start_scan(
            &manager->record_start, options->directory, &options->tables, seen, failure)) {
        return false;
    }
    if (!eb_registry_update(&manager->registry, seen)) {
        return eb_failure_set(failure, "%s: out of memory", options->directory);
    }
    if (!manager->record_start.is_active) {
        struct eb_repository_terms terms = eb_repository_terms_of(&options->tables);
        eb_dead_versions_suspect(options->markers, &manager->registry, &terms);
    }
    uint64_t scanned_ns = eb_clock_steady_ns();
    manager->times.scan_ns = scanned_ns - begun_ns;
    if (options->claim_wait_ms == 0) {
        load_first(manager);
        manager->times.load_ns = eb_clock_steady_ns() - scanned_ns;
    }
    if (options->claim_wait_ms == 0 && !options->is_router) {
        if (!eb_registry_check_served(&manager->registry, failure)) {
            return false;
        }
        eb_model_log_unserved(&manager->registry);
    }
    manager->first = eb_registry_snapshot(&manager->registry);
    manager->registry.is_dirty = false;
    return manager->first || eb_failure_set(failure, "%s: out of memory", options->directory);
}

struct eb_manager_times eb_manager_load_times(const struct eb_manager *manager)
{
    struct eb_manager_times times = manager->times;
    times.load_ns += eb_part_start_ns(&manager->part_start);
    return times;
}

bool eb_manager_is_recorded(const struct eb_manager *manager)
{
    const struct eb_snapshot *current =
        manager->first ? manager->first : manager->publisher.current;
    return manager->record_start.is_active
               ? eb_record_start_is_complete(&manager->record_start, current)
               : manager->keeper.is_recorded_complete;
}

bool eb_manager_is_from_record(const struct eb_manager *manager)
{
    return manager->record_start.is_opened;
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
    begin_commands(manager);
    advance_manager(manager);
}

/* ---- claims ---- */

void eb_manager_claim(struct eb_manager *manager, struct eb_claim_set *set)
{
    if (!eb_registry_claim(&manager->registry, set)) {
        eb_log(EB_LOG_ERROR, "claims_ignored", eb_log_text("router", set->router),
            eb_log_text("reason", strerror(ENOMEM)),
            eb_log_text("remedy", "free some memory; the router claims again when it reconnects"));
    }
    advance_if_dirty(manager);
}

void eb_manager_unclaim(struct eb_manager *manager, struct eb_claim_set *set)
{
    eb_registry_unclaim(&manager->registry, set);
    advance_if_dirty(manager);
}

/* ---- choices of a router's flip ---- */

void eb_manager_route(struct eb_manager *manager, const struct eb_routed_choice *choice)
{
    if (eb_flip_link_take(&manager->flip, choice)) {
        advance_manager(manager);
    }
}

uint64_t eb_manager_pin_end_ms(struct eb_manager *manager, const char *model, uint64_t number)
{
    return eb_registry_pin_end_ms(&manager->registry, model, number);
}

/* ---- life ---- */

static void take_registry_limits(struct eb_manager *manager)
{
    uint64_t serve_wait_ms = manager->options.serve_wait_ms;
    manager->commands.serve_wait_ms = serve_wait_ms ? serve_wait_ms : EB_MANAGER_SERVE_WAIT_MS;
    manager->registry.limits = manager->options.limits;
}

static void init_registry(struct eb_manager *manager)
{
    manager->registry.directory = manager->options.directory;
    manager->registry.is_routed = manager->options.is_router;
    manager->registry.part = manager->options.tables.part;
    take_registry_limits(manager);
    manager->registry.events = (struct eb_registry_events){
        .on_failed = eb_model_log_failed,
        .on_config_failed = on_config_failed,
        .on_served = eb_model_log_served,
        .on_retired = on_retired,
        .on_missing = eb_model_log_missing,
        .on_changed = eb_model_log_changed,
        .on_described = eb_model_log_described,
        .on_evicted = eb_model_log_evicted,
        .on_postponed = eb_model_log_postponed,
        .on_suspected = eb_model_log_suspected,
        .context = manager,
    };
    manager->commands.registry = &manager->registry;
    manager->flip.registry = &manager->registry;
    if (manager->options.is_router) {
        assert(manager->options.on_models);
        manager->flip.on_models = manager->options.on_models;
        manager->flip.is_settled = manager->options.is_settled;
        manager->flip.context = manager->options.context;
    }
}

static void init_members(struct eb_manager *manager)
{
    const struct eb_manager_options *options = &manager->options;
    uv_timer_init(manager->uv, &manager->wake);
    uv_timer_init(manager->uv, &manager->progress);
    manager->wake.data = manager;
    manager->progress.data = manager;
    manager->publisher = (struct eb_publisher){
        .mailbox = &manager->mailbox,
        .on_settled = on_settled,
        .context = manager,
    };
    manager->keeper = (struct eb_resident_keeper){
        .on_owned = on_owned, .context = manager, .publisher = &manager->publisher};
    manager->adoption = (struct eb_adoption_check){
        .registry = &manager->registry,
        .loader = &manager->loader,
        .publisher = &manager->publisher,
        .keeper = &manager->keeper,
        .on_compared = on_settled,
        .on_stalled = on_comparison_stalled,
        .context = manager,
    };
    manager->rounds = (struct eb_page_rounds){
        .registry = &manager->registry, .on_round = on_settled, .context = manager};
    manager->part_start = (struct eb_part_start){
        .registry = &manager->registry,
        .loader = &manager->loader,
        .keeper = &manager->keeper,
    };
    manager->scanner = (struct eb_scanner){
        .directory = options->directory,
        .terms = eb_repository_terms_of(&options->tables),
        .is_watching = options->watch == EB_MANAGER_WATCH_AUTO,
        .on_begun = on_scan_begun,
        .on_scanned = on_manager_scanned,
        .context = manager,
    };
}

/* Opens the mailbox and the loader. Returns 0, or a negative libuv code with nothing left
 * behind. */
static int open_manager(struct eb_manager *manager)
{
    manager->loader = (struct eb_loader){
        .mailbox = &manager->mailbox,
        .tables = &manager->options.tables,
        .markers = manager->options.markers,
        .on_loaded = on_loaded,
        .on_freed = on_freed,
    };
    int rc = -eb_memory_claims_init(&manager->claims);
    if (rc < 0) {
        return rc;
    }
    rc = eb_mailbox_open(&manager->mailbox, manager->uv);
    if (rc == 0) {
        rc = eb_loader_open(&manager->loader, manager->uv);
        if (rc == 0) {
            return 0;
        }
        eb_mailbox_close(&manager->mailbox);
        uv_run(manager->uv, UV_RUN_NOWAIT);
    }
    eb_memory_claims_deinit(&manager->claims);
    return rc;
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
    manager->options.tables.claims = &manager->claims;
    manager->uv = loop;
    int rc = open_manager(manager);
    if (rc < 0) {
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
    manager->scanner.poll_ms = find_poll_ms(manager);
    int rc = eb_scanner_start(&manager->scanner, manager->uv);
    if (rc < 0) {
        return rc;
    }
    eb_resident_keeper_start(&manager->keeper, manager->options.tables.resident.dir, manager->uv);
    if (manager->options.claim_wait_ms > 0) {
        eb_part_start_begin(&manager->part_start, manager_now_ms() + manager->options.claim_wait_ms,
            manager->options.load_threads);
    } else {
        if (manager->options.is_router) {
            eb_resident_keeper_hold(&manager->keeper, true);
        }
        eb_resident_keeper_record(&manager->keeper, manager->first);
        eb_resident_keeper_sweep(&manager->keeper);
        eb_loader_give_way(&manager->loader);
    }
    manager->publisher.readers = readers;
    manager->publisher.reader_count = reader_count;
    eb_publisher_start(&manager->publisher, manager->first);
    manager->first = NULL;
    manager->registry.jitter_ms = manager->options.load_jitter_ms;
    manager->state = RUNNING;
    eb_adoption_check_start(&manager->adoption, manager->uv);
    eb_page_rounds_start(&manager->rounds, manager->uv);
    arm_wake(manager, manager_now_ms());
    return 0;
}

void eb_manager_set(struct eb_manager *manager, const struct eb_manager_options *options)
{
    struct eb_manager_options *own = &manager->options;
    if (manager->state != RUNNING) {
        return;
    }
    /* If the system could not report changes, it is asked again only when `watch` changes. */
    bool is_watching = own->watch == options->watch ? manager->scanner.is_watching
                                                    : options->watch == EB_MANAGER_WATCH_AUTO;
    own->watch = options->watch;
    own->poll_ms = options->poll_ms;
    own->load_bytes_per_s = options->load_bytes_per_s;
    own->load_threads = options->load_threads;
    own->limits = options->limits;
    own->serve_wait_ms = options->serve_wait_ms;
    own->tables.row_bytes_max = options->tables.row_bytes_max;
    own->tables.group_features_max = options->tables.group_features_max;
    limit_loads(manager);
    take_registry_limits(manager);
    manager->registry.jitter_ms = options->load_jitter_ms;
    eb_scanner_set(&manager->scanner, is_watching, find_poll_ms(manager));
    advance_manager(manager);
}

/* Returns whether a load, a comparison, a round of joining pages or the freeing of a version is
 * under way. */
static bool is_working(const struct eb_manager *manager)
{
    return eb_loader_is_busy(&manager->loader) || eb_adoption_check_is_busy(&manager->adoption) ||
           eb_page_rounds_is_busy(&manager->rounds);
}

static void close_if_idle(struct eb_manager *manager)
{
    if (manager->state == CLOSED || is_working(manager) || manager->scanner.is_busy ||
        manager->publisher.delivery_count > 0 ||
        manager->retired_count >
            eb_last_versions_withheld(&manager->registry, manager->publisher.current)) {
        return;
    }
    manager->state = CLOSED;
    eb_scanner_close(&manager->scanner);
    eb_loader_close(&manager->loader);
    eb_mailbox_close(&manager->mailbox);
}

void eb_manager_stop(struct eb_manager *manager)
{
    if (!manager || manager->state == STOPPING || manager->state == CLOSED) {
        return;
    }
    manager->state = STOPPING;
    if (manager->options.markers) {
        eb_load_markers_stop(manager->options.markers);
    }
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        struct slot *slot = &manager->slots[i];
        if (slot->state == LOADED) {
            take_load(manager, slot);
        } else if (slot->state == LOADING) {
            eb_loader_cancel(slot->load);
        }
    }
    eb_adoption_check_stop(&manager->adoption);
    eb_page_rounds_stop(&manager->rounds);
    eb_resident_keeper_stop(&manager->keeper);
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
    for (size_t i = 0; i < EB_LOADS_AT_ONCE; i++) {
        if (manager->slots[i].load) {
            return manager->slots[i].load->path;
        }
    }
    return manager->options.directory;
}

void eb_manager_destroy(struct eb_manager *manager)
{
    if (!manager) {
        return;
    }
    assert(manager->state == CLOSED);
    eb_last_versions_abandon(&manager->registry, manager->publisher.current);
    eb_publisher_deinit(&manager->publisher);
    eb_snapshot_free(manager->first);
    eb_registry_deinit(&manager->registry);
    eb_scanner_deinit(&manager->scanner);
    eb_record_start_deinit(&manager->record_start);
    eb_memory_claims_deinit(&manager->claims);
    free(manager);
}
