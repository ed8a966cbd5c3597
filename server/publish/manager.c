#include "server/publish/manager.h"

#include "server/admin/log.h"
#include "server/load_log.h"
#include "server/publish/first_load.h"
#include "server/publish/loader.h"
#include "server/publish/watch.h"
#include "server/publish/worker.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Events of one rename or copy come together. */
#define SETTLE_MS 20
/* Progress is told this often. */
#define PROGRESS_MS 500
/* After memory ran out. */
#define RETRY_MS 1000

const char *const eb_manager_watch_names[EB_MANAGER_WATCH_COUNT + 1] = {
#define X(name, text) text,
    EB_MANAGER_WATCH_LIST(X)
#undef X
};

struct scan_job {
    struct eb_job job;
    struct eb_manager *manager;
    struct eb_repository found;
    struct eb_file_fault fault;
    bool is_good;
};

struct eb_manager {
    struct eb_manager_options options;
    struct eb_roster roster;
    struct eb_repository seen; /* read by the worker while `scan` is on its way */
    struct eb_snapshot *first;
    struct eb_publisher publisher;
    struct eb_command_queue commands;
    uv_loop_t *uv; /* NULL: not started */
    struct eb_mailbox mailbox;
    struct eb_worker worker;
    struct eb_loader loader;
    struct eb_watch watch;
    uv_timer_t poll;
    uv_timer_t settle;   /* until what changes has settled */
    uv_timer_t wake;     /* when a version's time is over */
    uv_timer_t progress; /* while a load is watched */
    struct scan_job scan;
    bool is_scanning;
    bool must_scan; /* again, when that is over */
    char *scan_fault;
    struct eb_load *load;   /* on its way; NULL: none */
    bool is_making_room;    /* a version was dropped so that another finds memory */
    unsigned retired_count; /* versions that are in memory for their last readers */
    bool is_stopping;
    bool is_closed;
};

static uint64_t now_ms(void)
{
    return uv_hrtime() / 1000000;
}

/* ---- what is told ---- */

static void on_served(void *context, const char *model, uint64_t version, uint64_t before)
{
    (void)context;
    eb_log(EB_LOG_INFO, "model_serving", eb_log_text("model", model),
        eb_log_number("version", (int64_t)version), eb_log_number("before", (int64_t)before));
}

static void on_retired(void *context, const char *model, uint64_t version)
{
    struct eb_manager *manager = context;
    manager->retired_count++;
    eb_log(EB_LOG_INFO, "model_retired", eb_log_text("model", model),
        eb_log_number("version", (int64_t)version));
}

static void on_config_failed(void *context, const char *model, const char *why)
{
    (void)context;
    eb_log(EB_LOG_ERROR, "model_config_failed", eb_log_text("model", model),
        eb_log_text("reason", why),
        eb_log_text("remedy", "mend the file; what it said before holds until then"));
}

/* ---- the first versions ---- */

static bool load_all(struct eb_manager *manager, struct eb_file_fault *fault)
{
    const struct eb_manager_options *options = &manager->options;
    const struct eb_first_load load = {
        options->directory, &options->tables, &manager->seen, &manager->roster};
    if (!eb_first_load_run(&load, fault)) {
        return false;
    }
    manager->first = eb_roster_snapshot(&manager->roster);
    manager->roster.is_news = false;
    return manager->first || eb_file_fault_set(fault, "%s: out of memory", options->directory);
}

struct eb_manager *eb_manager_open(
    const struct eb_manager_options *options, struct eb_file_fault *fault)
{
    struct eb_manager *manager = calloc(1, sizeof *manager);
    if (!manager) {
        eb_file_fault_set(fault, "%s: out of memory", options->directory);
        return NULL;
    }
    manager->options = *options;
    manager->roster.events = (struct eb_roster_events){
        .on_failed = eb_load_log_failed,
        .on_config_failed = on_config_failed,
        .on_served = on_served,
        .on_retired = on_retired,
        .context = manager,
    };
    if (!load_all(manager, fault)) {
        eb_manager_destroy(manager);
        return NULL;
    }
    return manager;
}

struct eb_snapshot *eb_manager_snapshot(const struct eb_manager *manager)
{
    return manager->first;
}

/* ---- what is new ---- */

static void go_on(struct eb_manager *manager);
static void close_if_idle(struct eb_manager *manager);

static void request_scan(struct eb_manager *manager);

/* Says once what keeps the repository from being read. */
static void note_scan_fault(struct eb_manager *manager, const char *why)
{
    if (why && !(manager->scan_fault && strcmp(manager->scan_fault, why) == 0)) {
        eb_log(EB_LOG_WARN, "repository_unreadable", eb_log_text("reason", why),
            eb_log_text("remedy", "models stay as they are until it can be read again"));
    }
    free(manager->scan_fault);
    manager->scan_fault = why ? strdup(why) : NULL;
}

static void watch(struct eb_manager *manager)
{
    int error;
    if (manager->options.watch != EB_MANAGER_WATCH_AUTO) {
        return;
    }
    if (eb_watch_update(&manager->watch, manager->options.directory, &manager->seen, &error)) {
        manager->must_scan = true;
    }
    if (error < 0) {
        manager->options.watch = EB_MANAGER_WATCH_POLL;
        eb_watch_close(&manager->watch);
        eb_log(EB_LOG_WARN, "watch_failed", eb_log_text("reason", uv_strerror(error)),
            eb_log_number("poll_ms", (int64_t)manager->options.poll_ms),
            eb_log_text("remedy", "raise fs.inotify.max_user_watches or max_user_instances; "
                                  "until a restart directories are looked at instead"));
    }
}

static void take_over(struct eb_manager *manager, struct scan_job *scan)
{
    note_scan_fault(manager, scan->is_good ? NULL : scan->fault.text);
    if (!scan->is_good) {
        return;
    }
    eb_repository_deinit(&manager->seen);
    manager->seen = scan->found;
    scan->found = (struct eb_repository){0};
    if (!eb_roster_update(&manager->roster, &manager->seen)) {
        eb_log(EB_LOG_ERROR, "models_incomplete", eb_log_text("reason", strerror(ENOMEM)),
            eb_log_text("remedy", "free some memory; the repository is looked at again"));
    }
    watch(manager);
}

static void on_scanned(struct eb_job *job)
{
    struct scan_job *scan = (struct scan_job *)job;
    struct eb_manager *manager = scan->manager;
    manager->is_scanning = false;
    if (manager->is_stopping) {
        eb_repository_deinit(&scan->found);
        close_if_idle(manager);
        return;
    }
    take_over(manager, scan);
    manager->commands.scans_done = manager->commands.scans_begun;
    eb_command_queue_begin(&manager->commands);
    if (manager->must_scan) {
        request_scan(manager);
    }
    go_on(manager);
}

static void run_scan(struct eb_job *job)
{
    struct scan_job *scan = (struct scan_job *)job;
    const struct eb_manager *manager = scan->manager;
    scan->is_good = eb_repository_scan(manager->options.directory,
        manager->options.tables.name_bytes_max, &manager->seen, &scan->found, &scan->fault);
}

static void request_scan(struct eb_manager *manager)
{
    if (manager->is_scanning) {
        manager->must_scan = true;
        return;
    }
    manager->must_scan = false;
    manager->is_scanning = true;
    manager->commands.scans_begun++;
    manager->scan =
        (struct scan_job){.job = {.run = run_scan, .done = on_scanned}, .manager = manager};
    eb_worker_post(&manager->worker, &manager->scan.job);
}

static void on_settled_change(uv_timer_t *timer)
{
    request_scan(timer->data);
}

static void on_change(void *context)
{
    struct eb_manager *manager = context;
    if (!uv_is_active((uv_handle_t *)&manager->settle)) {
        uv_timer_start(&manager->settle, on_settled_change, SETTLE_MS, 0);
    }
}

static void on_poll(uv_timer_t *timer)
{
    request_scan(timer->data);
}

/* ---- into memory, and out of it ---- */

/* A version needs more memory than there is: others may go for it. */
static void make_room(struct eb_manager *manager, const struct eb_load *load)
{
    struct eb_file_fault fault;
    manager->is_making_room = eb_roster_make_room(&manager->roster, load->missing_bytes, now_ms());
    eb_file_fault_set(&fault,
        "%s: its tables need %" PRIu64 " bytes of memory more than are available; free some, raise "
        "the container's limit, or lower versions.keep_s in model.yaml",
        load->path, load->missing_bytes);
    eb_roster_fail(&manager->roster, load->model, load->number,
        manager->is_making_room ? NULL : fault.text, true);
}

static void on_loaded(struct eb_loader *loader, struct eb_load *load)
{
    struct eb_manager *manager =
        (struct eb_manager *)((char *)loader - offsetof(struct eb_manager, loader));
    struct eb_roster *roster = &manager->roster;
    manager->load = NULL;
    switch (load->outcome) {
    case EB_LOAD_DONE:
        eb_load_log_loaded(&manager->options.tables.memory, load->version,
            (uv_hrtime() - load->start_ns) / 1000000);
        eb_roster_put(roster, load->version, now_ms());
        break;
    case EB_LOAD_SHORT: make_room(manager, load); break;
    case EB_LOAD_FAILED:
        eb_roster_fail(roster, load->model, load->number,
            manager->is_stopping ? NULL : load->fault.text, false);
        break;
    }
    go_on(manager);
}

static void on_freed(struct eb_loader *loader, const char *model, uint64_t version)
{
    struct eb_manager *manager =
        (struct eb_manager *)((char *)loader - offsetof(struct eb_manager, loader));
    eb_log(EB_LOG_INFO, "model_freed", eb_log_text("model", model),
        eb_log_number("version", (int64_t)version));
    eb_roster_forget(&manager->roster, model, version);
    manager->retired_count--;
    manager->is_making_room = manager->is_making_room && manager->retired_count > 0;
    go_on(manager);
}

static void start_load(struct eb_manager *manager)
{
    struct eb_roster_version *version;
    if (manager->load || manager->is_making_room) {
        return;
    }
    const struct eb_roster_model *model = eb_roster_next(&manager->roster, &version);
    if (!model) {
        return;
    }
    char *path = eb_roster_path(model, version);
    size_t resident_count;
    struct eb_model_version **residents = eb_roster_residents(model, &resident_count);
    const struct eb_version_source source = {
        model->name, version->number, path, model->settings, residents, resident_count};
    manager->load = path && residents ? eb_loader_start(&manager->loader, &source) : NULL;
    free(path);
    free(residents);
    if (!manager->load) {
        eb_roster_fail(&manager->roster, model->name, version->number, "out of memory", true);
    }
}

/* ---- what follows from what has happened ---- */

/* A version's time is over: what there was no memory for may have its place. */
static void on_wake(uv_timer_t *timer)
{
    struct eb_manager *manager = timer->data;
    eb_roster_forgive(&manager->roster);
    go_on(manager);
}

static void arm_wake(struct eb_manager *manager, uint64_t wake_ms)
{
    const uint64_t now = now_ms();
    if (wake_ms == UINT64_MAX) {
        uv_timer_stop(&manager->wake);
    } else {
        uv_update_time(manager->uv);
        uv_timer_start(&manager->wake, on_wake, wake_ms > now ? wake_ms - now : 0, 0);
    }
}

static void publish(struct eb_manager *manager, uint64_t *wake_ms)
{
    struct eb_snapshot *snapshot = eb_roster_snapshot(&manager->roster);
    if (snapshot && eb_publisher_publish(&manager->publisher, snapshot)) {
        manager->roster.is_news = false;
        return;
    }
    eb_snapshot_free(snapshot);
    *wake_ms = now_ms() + RETRY_MS;
    eb_log(EB_LOG_ERROR, "models_unpublished", eb_log_text("reason", strerror(ENOMEM)),
        eb_log_text("remedy", "free some memory; it is tried again"));
}

static void on_progress(uv_timer_t *timer)
{
    struct eb_manager *manager = timer->data;
    const struct eb_load *load = manager->load;
    if (load) {
        eb_command_queue_tell(&manager->commands, load->model,
            atomic_load_explicit(&load->done_bytes, memory_order_relaxed),
            atomic_load_explicit(&load->total_bytes, memory_order_relaxed));
    }
    if (!manager->commands.first) {
        uv_timer_stop(timer);
    }
}

static void go_on(struct eb_manager *manager)
{
    uint64_t wake_ms;
    if (manager->is_stopping) {
        close_if_idle(manager);
        return;
    }
    eb_roster_decide(&manager->roster, now_ms(), &wake_ms);
    start_load(manager);
    if (manager->roster.is_news) {
        publish(manager, &wake_ms);
    }
    /* Who asked hears of it when everyone knows. */
    if (!manager->roster.is_news && manager->publisher.delivery_count == 0) {
        eb_command_queue_finish(&manager->commands);
    }
    arm_wake(manager, wake_ms);
}

static void on_settled(void *context)
{
    go_on(context);
}

/* ---- commands ---- */

void eb_manager_ask(struct eb_manager *manager, struct eb_model_command *command)
{
    eb_command_queue_push(&manager->commands, command);
    if (!manager->uv || manager->is_stopping) {
        eb_command_queue_cancel(&manager->commands);
        return;
    }
    if (!uv_is_active((uv_handle_t *)&manager->progress)) {
        uv_timer_start(&manager->progress, on_progress, PROGRESS_MS, PROGRESS_MS);
    }
    if (eb_command_queue_needs_disk(&manager->commands, command)) {
        request_scan(manager);
    }
    eb_command_queue_begin(&manager->commands);
    go_on(manager);
}

/* ---- life ---- */

static struct eb_model_version *loaded_at(struct eb_manager *manager, size_t model, size_t version)
{
    return manager->roster.models[model].versions[version].loaded;
}

/* From now on versions are freed in the background. false: out of memory. */
static bool adopt_all(struct eb_manager *manager)
{
    for (size_t i = 0; i < manager->roster.count; i++) {
        for (size_t k = 0; k < manager->roster.models[i].count; k++) {
            struct eb_model_version *loaded = loaded_at(manager, i, k);
            if (loaded && !eb_loader_adopt(&manager->loader, loaded)) {
                return false;
            }
        }
    }
    return true;
}

static void abandon_all(struct eb_manager *manager)
{
    for (size_t i = 0; i < manager->roster.count; i++) {
        for (size_t k = 0; k < manager->roster.models[i].count; k++) {
            struct eb_model_version *loaded = loaded_at(manager, i, k);
            if (loaded) {
                eb_loader_abandon(loaded);
            }
        }
    }
}

static void init_parts(struct eb_manager *manager, uv_loop_t *loop)
{
    uv_timer_t *const timers[] = {
        &manager->poll, &manager->settle, &manager->wake, &manager->progress};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        uv_timer_init(loop, timers[i]);
        timers[i]->data = manager;
    }
    manager->watch = (struct eb_watch){.loop = loop, .on_change = on_change, .context = manager};
    manager->commands.roster = &manager->roster;
    manager->loader = (struct eb_loader){
        .worker = &manager->worker,
        .mailbox = &manager->mailbox,
        .tables = &manager->options.tables,
        .bytes_per_s = manager->options.load_bytes_per_s,
        .on_loaded = on_loaded,
        .on_freed = on_freed,
    };
    manager->publisher = (struct eb_publisher){
        .mailbox = &manager->mailbox,
        .reader_count = manager->options.reader_count,
        .readers = manager->options.readers,
        .on_settled = on_settled,
        .context = manager,
    };
}

int eb_manager_start(struct eb_manager *manager, uv_loop_t *loop,
    const struct eb_publisher_reader *readers, size_t reader_count)
{
    manager->options.readers = readers;
    manager->options.reader_count = reader_count;
    int code = eb_mailbox_open(&manager->mailbox, loop);
    if (code < 0) {
        return code;
    }
    code = eb_worker_start(&manager->worker, loop);
    if (code < 0) {
        eb_mailbox_close(&manager->mailbox);
        return code;
    }
    manager->uv = loop;
    init_parts(manager, loop);
    eb_publisher_start(&manager->publisher, manager->first);
    manager->first = NULL;
    if (!adopt_all(manager)) {
        eb_manager_stop(manager);
        return UV_ENOMEM;
    }
    if (manager->options.watch != EB_MANAGER_WATCH_OFF) {
        uv_timer_start(&manager->poll, on_poll, manager->options.poll_ms, manager->options.poll_ms);
        request_scan(manager);
    }
    return 0;
}

static void close_if_idle(struct eb_manager *manager)
{
    if (manager->is_closed || manager->worker.job_count > 0 || manager->retired_count > 0 ||
        manager->publisher.delivery_count > 0) {
        return;
    }
    manager->is_closed = true;
    eb_worker_stop(&manager->worker);
    eb_mailbox_close(&manager->mailbox);
}

void eb_manager_stop(struct eb_manager *manager)
{
    if (!manager->uv || manager->is_stopping) {
        return;
    }
    manager->is_stopping = true;
    eb_loader_cancel(&manager->loader);
    eb_watch_close(&manager->watch);
    uv_close((uv_handle_t *)&manager->poll, NULL);
    uv_close((uv_handle_t *)&manager->settle, NULL);
    uv_close((uv_handle_t *)&manager->wake, NULL);
    uv_close((uv_handle_t *)&manager->progress, NULL);
    eb_command_queue_cancel(&manager->commands);
    close_if_idle(manager);
}

void eb_manager_destroy(struct eb_manager *manager)
{
    if (!manager) {
        return;
    }
    assert(!manager->uv || manager->is_closed);
    abandon_all(manager);
    if (manager->uv) {
        eb_publisher_deinit(&manager->publisher);
    }
    eb_snapshot_free(manager->first);
    eb_roster_deinit(&manager->roster);
    eb_repository_deinit(&manager->seen);
    free(manager->scan_fault);
    free(manager);
}
