#include "server/process.h"

#include "proto/list.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/machine.h"
#include "server/config_parts.h"
#include "server/formats/direct_read.h"
#include "server/kernel_choice.h"
#include "server/net/tls.h"
#include "server/net/watchers.h"
#include "server/ports.h"
#include "server/publish/manager.h"
#include "server/resident_facts.h"
#include "server/router.h"
#include "server/rpc/service.h"
#include "server/security_watch.h"
#include "server/service_manager.h"
#include "server/settings_update.h"
#include "server/tables/worker_pool.h"
#include "server/watchdog.h"
#include "server/web_port.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The file of a resident directory with the measured prefetch schedules. */
#define PREFETCH_NAME "prefetch"

/* Time for which a part server waits at its start for routers to claim versions. */
#define CLAIM_WAIT_MS 2000

/* Time between two checks of the certificate. */
#define DAY_MS 86400000

/* Time that work has to stop by itself before it is given up. A load checks every 50 ms whether to
 * stop. */
#define GIVE_UP_MS 250

/* The mails that main and one loop exchange when the process ends. */
struct end_mails {
    struct eb_mail leave;   /* main tells the loop to report NOT_SERVING in health */
    struct eb_mail drained; /* the loop tells main that its drain is over */
    struct eb_process *process;
    struct eb_loop *loop;
};

struct eb_process {
    struct eb_settings_update settings;
    const struct eb_config *config; /* those of `settings` that are in force */
    struct eb_ports ports;
    struct eb_security *security;
    struct eb_security_watch security_watch;
    struct eb_web_port *web_port;
    uint64_t opened_ms;            /* steady time at which it was opened */
    struct eb_process_facts facts; /* the facts that web_port was told last */
    struct eb_manager *manager;
    struct eb_router *router;            /* NULL if this is no router */
    struct eb_publisher_reader *readers; /* [config->loops + 1] readers: all loops and web_port */
    size_t model_count;                  /* number of models when serving began */
    const struct eb_bag_ops *ops;
    struct eb_executor *executor;
    struct eb_service service;
    struct eb_loop_options options;
    struct eb_bag_schedules schedules;
    struct eb_loop **loops;      /* [config->loops], NULL if not created */
    struct end_mails *end_mails; /* [config->loops] */
    struct eb_watchdog *watchdog;
    struct eb_resident_dir resident;
    uint32_t loops_running;
    uint32_t loops_drained;
    struct eb_load_markers markers;
    bool has_markers; /* they are open */
    uv_loop_t uv;     /* main's own loop: loads, signals, and mail from the other loops */
    bool has_uv;
    bool has_handles; /* the handles below are on it */
    bool stopping;    /* the shutdown has begun */
    bool is_delayed;  /* the shutdown has begun, and drain_delay_ms is not over */
    bool is_overdue;  /* drain_timeout_ms is over, or a signal came during the drain */
    bool has_ended_loops;
    bool has_given_up;
    struct eb_mailbox mailbox;
    uv_signal_t on_term;
    uv_signal_t on_int;
    uv_signal_t on_hangup;
    uv_timer_t on_day;
    uv_timer_t patience; /* times the steps of the shutdown: delay, drain, giving up */
};

static bool open_security(struct eb_process *process)
{
    process->security = eb_security_open(process->config);
    return process->security;
}

/* Tells the facts to the admin endpoint's loop, with the bytes that were read until now and the
 * threads that load at present. */
static void tell_facts(struct eb_process *process)
{
    struct eb_direct_read_bytes bytes = eb_direct_read_count();
    process->facts.load_cached_bytes = bytes.cached;
    process->facts.load_direct_bytes = bytes.direct;
    process->facts.load_plain_bytes = bytes.plain;
    process->facts.load_threads = eb_worker_pool_count_threads();
    eb_web_port_tell(process->web_port, &process->facts);
}

/* Tells them with those of the directory of resident tables, which are looked up anew. */
static void tell_resident(struct eb_process *process)
{
    eb_resident_facts_take(
        &process->resident, eb_manager_is_recorded(process->manager), &process->facts.resident);
    tell_facts(process);
}

/* ---- models ---- */

static void on_loading(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    struct eb_process *process = context;
    process->facts.load_done_bytes = done_bytes;
    process->facts.load_total_bytes = total_bytes;
    tell_facts(process);
    if (path && !process->facts.is_started) {
        eb_service_manager_loading(path, done_bytes, total_bytes);
    }
}

static void on_stalled(void *context, unsigned count)
{
    struct eb_process *process = context;
    process->facts.loads_stalled = count;
    tell_facts(process);
}

static void on_scanned(void *context, const char *failure)
{
    struct eb_process *process = context;
    process->facts.is_repository_unreadable = failure;
    tell_resident(process);
}

/* Notes whether the repository is scanned from time to time, or was until it could be read. */
static void note_watch(struct eb_process *process)
{
    process->facts.is_repository_watched =
        process->config->watch != EB_MANAGER_WATCH_OFF ||
        (process->manager && eb_manager_is_from_record(process->manager));
}

/* Notes how long the first scan and the first loads took. */
static void note_load_times(struct eb_process *process)
{
    struct eb_manager_times times = eb_manager_load_times(process->manager);
    uint64_t adopt_ns =
        process->config->resident_dir ? eb_resident_dir_adopting_ns(&process->resident) : 0;
    uint64_t *start_ns = process->facts.start_ns;
    start_ns[EB_STATS_START_SCAN] = times.scan_ns;
    start_ns[EB_STATS_START_ADOPT] = adopt_ns;
    start_ns[EB_STATS_START_LOAD] = times.load_ns - adopt_ns;
}

/* Ends the start: the first versions are served. */
static void note_ready(struct eb_process *process, size_t model_count)
{
    process->model_count = model_count;
    process->facts.is_started = true;
    note_load_times(process);
    eb_web_port_serve(process->web_port);
    tell_facts(process);
    eb_log(EB_LOG_INFO, "ready", eb_log_text("version", EMBAG_VERSION),
        eb_log_text("isa", process->service.facts.isa),
        eb_log_number("loops", process->config->loops),
        eb_log_number("threads", process->config->threads),
        eb_log_number("models", (int64_t)process->model_count),
        eb_log_count("start_ms", eb_clock_steady_ms() - process->opened_ms));
    eb_service_manager_ready();
}

static void on_serving(void *context, const struct eb_snapshot *snapshot)
{
    struct eb_process *process = context;
    eb_service_manager_serving(snapshot);
    tell_resident(process);
    if (!process->facts.is_started && !process->stopping && !snapshot->not_ready) {
        note_ready(process, snapshot->count);
    }
}

static void on_owned(void *context)
{
    tell_resident(context);
}

static void on_models(void *context, const struct eb_routed_model *models, size_t count)
{
    const struct eb_process *process = context;
    eb_router_on_models(process->router, models, count);
}

static bool is_settled(const void *context)
{
    const struct eb_process *process = context;
    return eb_router_is_settled(process->router);
}

/* Opens the directory of resident files, if there is one. */
static bool open_resident(struct eb_process *process)
{
    const struct eb_config *config = process->config;
    struct eb_failure failure;
    if (!config->resident_dir) {
        return true;
    }
    bool may_group_read = config->resident_readers == EB_RESIDENT_READERS_GROUP;
    if (config->huge_pages == EB_PAGE_1G) {
        eb_log_fail_start("resident_dir", "tables in pages of 1 GiB cannot be resident files",
            "set huge_pages to 2m");
        return false;
    }
    if (!eb_resident_dir_open(&process->resident, config->resident_dir, may_group_read, &failure)) {
        eb_log_fail_start("resident_dir", failure.text,
            "correct what the reason names; resident_dir must be a directory in a tmpfs or "
            "hugetlbfs in which the server's user may write, such as the mount point of "
            "mount -t tmpfs -o huge=always,mode=0700,uid=embag");
        return false;
    }
    bool is_owner = atomic_load(&process->resident.is_owner);
    /* A version that killed the process while it loaded says nothing against the files. */
    unsigned starts =
        is_owner ? eb_resident_dir_begin_start(&process->resident, process->markers.has_died) : 0;
    eb_log(EB_LOG_INFO, "resident_opened", eb_log_text("directory", process->resident.path),
        eb_log_text("role", is_owner ? "owner" : "guest"));
    if (!is_owner && !eb_resident_dir_has_mode(&process->resident)) {
        eb_log(EB_LOG_WARN, "resident_readers_differ",
            eb_log_text("directory", process->resident.path),
            eb_log_text("reason", "the owner of the directory has another resident_readers"),
            eb_log_text("remedy", "set resident_readers alike on all servers that use the "
                                  "directory; the next owner applies its own"));
    }
    if (starts >= EB_RESIDENT_STARTS_CHECKED) {
        eb_log(EB_LOG_WARN, "resident_distrusted", eb_log_text("directory", process->resident.path),
            eb_log_count("starts", starts),
            eb_log_text("reason", "as many starts in a row, with this one, did not serve a minute"),
            eb_log_text(
                "remedy", starts < EB_RESIDENT_STARTS_EMPTIED
                              ? "none is needed: all rows are checked before they are served"
                              : "none is needed: all tables are loaded again"));
    }
    return true;
}

static bool open_state(struct eb_process *process)
{
    struct eb_failure failure;
    process->has_markers =
        eb_load_markers_open(&process->markers, process->config->state_dir, &failure);
    if (!process->has_markers) {
        eb_log_fail_start("state_dir", failure.text,
            "create the directory, let the server's user write to it, or leave state_dir unset");
    }
    return process->has_markers;
}

/* Returns the part that this server has. */
static struct eb_part_choice find_part(const struct eb_config *config)
{
    struct eb_part_choice choice = {0};
    struct eb_failure failure;
    bool is_good = !config->part || eb_part_choice_read(config->part, &choice, &failure);
    assert(is_good); /* The setting has been checked. */
    return choice;
}

static void on_route_facts(void *context, struct eb_route_facts *facts)
{
    const struct eb_process *process = context;
    eb_web_port_tell_route(process->web_port, facts);
}

/* Opens the router, if this is one. It watches the part servers while models are loaded. */
static bool open_router(struct eb_process *process)
{
    if (!process->config->route) {
        return true;
    }
    struct eb_router_listener listener = {on_route_facts, process};
    process->router = eb_router_open(process->config, &listener);
    if (!process->router) {
        return false;
    }
    int rc = eb_router_start(process->router, &process->uv);
    if (rc < 0) {
        eb_log_fail_start("route", uv_strerror(rc), "free some memory or descriptors");
    }
    return rc == 0;
}

static bool open_models(struct eb_process *process)
{
    struct eb_manager_options options = {
        .directory = process->config->model_repository,
        .markers = &process->markers,
        .tables = {.name_bytes_max = (uint32_t)process->config->limits.name_bytes_max,
            .part = find_part(process->config),
            .is_router = process->router,
            .ops = process->ops,
            .memory = {.pages = process->config->huge_pages, .numa = process->config->numa},
            .resident = {.dir = process->config->resident_dir ? &process->resident : NULL,
                .numa = process->config->numa,
                .is_checked_whole = process->config->resident_verify == EB_RESIDENT_VERIFY_FULL ||
                                    process->resident.start_count >= EB_RESIDENT_STARTS_CHECKED,
                .may_be_small =
                    process->config->resident_small_pages == EB_RESIDENT_SMALL_PAGES_ALLOW ||
                    process->config->huge_pages == EB_PAGE_SMALL,
                .embag_version = EMBAG_VERSION}},
        .on_loading = on_loading,
        .on_stalled = on_stalled,
        .on_serving = on_serving,
        .on_scanned = on_scanned,
        .on_owned = on_owned,
        .context = process,
    };
    if (process->router) {
        options.is_router = true;
        options.on_models = on_models;
        options.is_settled = is_settled;
    }
    options.claim_wait_ms = options.tables.part.parts > 0 ? CLAIM_WAIT_MS : 0;
    eb_config_set_manager_options(process->config, &options);
    int rc = eb_manager_create(&process->manager, &options, &process->uv);
    if (rc < 0) {
        eb_log_fail_start(
            "threads", uv_strerror(rc), "allow the process more threads, open files or memory");
        return false;
    }
    if (process->router) {
        eb_router_set_manager(process->router, process->manager);
    }
    struct eb_failure failure;
    if (!eb_manager_load(process->manager, &failure)) {
        eb_log_fail_start("model_repository", failure.text,
            "correct the files named, or point "
            "--model-repository at another directory");
        return false;
    }
    note_watch(process);
    process->facts.is_repository_unreadable = eb_manager_is_from_record(process->manager);
    process->service.snapshot = eb_manager_snapshot(process->manager);
    on_loading(process, NULL, 0, 0);
    return true;
}

static struct eb_snapshot *swap(void *loop, struct eb_snapshot *snapshot)
{
    return eb_service_swap(loop, snapshot);
}

/* Starts to publish changes to the loops. */
static bool start_models(struct eb_process *process)
{
    uint32_t count = process->config->loops;
    for (uint32_t i = 0; i < count; i++) {
        process->readers[i] = (struct eb_publisher_reader){
            eb_loop_mailbox(process->loops[i]), swap, process->loops[i]};
    }
    bool has_port = eb_web_port_reader(process->web_port, &process->readers[count]);
    eb_service_manager_serving(eb_manager_snapshot(process->manager));
    int rc = eb_manager_start(process->manager, process->readers, count + has_port);
    if (rc < 0) {
        eb_log_fail_start("model_repository", uv_strerror(rc), "free some memory");
    }
    tell_resident(process);
    return rc == 0;
}

/* ---- threads ---- */

/* Tells the operators' port of the settings in force. */
static void tell_settings(struct eb_process *process)
{
    process->facts.limits = eb_config_metrics_limits(process->config);
    note_watch(process);
    process->facts.settings_pending = eb_config_live_count_pending(&process->settings.live);
    tell_facts(process);
}

static void note_reload(struct eb_process *process, bool is_any, bool is_good)
{
    process->facts.reloads_done += is_any && is_good;
    process->facts.reloads_failed += !is_good;
    tell_settings(process);
}

static void on_settings_reload(void *context, bool is_good)
{
    struct eb_process *process = context;
    note_reload(process, process->config->config_file, is_good);
}

static void tell_certificate(struct eb_process *process)
{
    const struct eb_tls *tls = eb_security_tls(process->security);
    process->facts.certificate_expiry_unix_s = tls ? eb_tls_expiry_unix_s(tls) : 0;
    tell_facts(process);
}

static bool open_web_port(struct eb_process *process)
{
    const char *isa = eb_bag_ops_name(process->ops);
    bool is_open = eb_web_port_open(&process->web_port, process->config, isa);
    tell_certificate(process);
    tell_settings(process);
    return is_open;
}

/* Attaches the port to its sources. Call it before the models may change. */
static void attach_web_port(struct eb_process *process)
{
    struct eb_web_port_source source = {
        .loops = process->loops,
        .loop_count = process->config->loops,
        .executor = process->executor,
        .snapshot = eb_manager_snapshot(process->manager),
    };
    eb_web_port_attach(process->web_port, &source);
}

static void ask_settings(void *context, struct eb_settings_request *request)
{
    struct eb_process *process = context;
    eb_settings_update_ask(&process->settings, request, process->stopping && !process->is_delayed);
}

static void ask_manager(void *manager, struct eb_model_command *command)
{
    eb_manager_ask(manager, command);
}

static void claim_versions(void *manager, struct eb_claim_set *set)
{
    eb_manager_claim(manager, set);
}

static void unclaim_versions(void *manager, struct eb_claim_set *set)
{
    eb_manager_unclaim(manager, set);
}

/* Sets the schedules that an earlier start has measured. Returns false if there are none. */
static bool recall_schedules(struct eb_process *process)
{
    struct eb_failure failure;
    size_t size;
    char *text = eb_resident_dir_read(
        &process->resident, PREFETCH_NAME, EB_RESIDENT_PAGE_BYTES, &size, &failure);
    if (!text) {
        return false;
    }
    text[size] = '\0'; /* there is room for it */
    bool is_known = eb_kernel_choice_read(process->ops, text, &process->schedules);
    free(text);
    return is_known;
}

/* Keeps the measured schedules for the next start. If that fails, it measures again. */
static void keep_schedules(struct eb_process *process)
{
    struct eb_failure failure;
    char text[EB_KERNEL_CHOICE_TEXT_BYTES];
    size_t size = eb_kernel_choice_write(process->ops, &process->schedules, text);
    if (!eb_resident_dir_write(&process->resident, PREFETCH_NAME, text, size, &failure)) {
        eb_log(EB_LOG_DEBUG, "prefetch_not_kept", eb_log_text("reason", failure.text));
    }
}

/* Chooses how far ahead rows are prefetched. */
static void choose_schedules(struct eb_process *process)
{
    const char *prefetch = process->config->prefetch;
    bool is_auto = !prefetch || strcmp(prefetch, EB_KERNEL_CHOICE_AUTO) == 0;
    bool may_keep = is_auto && process->config->resident_dir;
    if (may_keep && recall_schedules(process)) {
        return;
    }
    /* Measure before the executor's threads start: they would disturb the measurement. The
     * operators' port runs already and answers a request now and then. */
    bool is_measured = eb_kernel_choice_schedules(
        prefetch, process->ops, process->service.snapshot, &process->schedules);
    if (may_keep && is_measured && atomic_load(&process->resident.is_owner)) {
        keep_schedules(process);
    }
}

/* Returns a random number, not 0. */
static uint64_t draw_instance(void)
{
    uint64_t instance = 0;
    /* Never fails or waits once the machine has started. */
    ssize_t got = getrandom(&instance, sizeof instance, 0);
    assert(got == (ssize_t)sizeof instance);
    return instance != 0 ? instance : 1;
}

static bool open_executor(struct eb_process *process)
{
    const struct eb_config *config = process->config;
    const struct eb_bag_ops *ops = process->ops;
    uint64_t begun_ns = eb_clock_steady_ns();
    choose_schedules(process);
    process->facts.start_ns[EB_STATS_START_TUNE] = eb_clock_steady_ns() - begun_ns;
    process->executor = eb_executor_create(
        ops, &process->schedules, config->threads, config->limits.queue_bytes_max);
    if (!process->executor) {
        eb_log_fail_start("threads", "the executor's threads could not be started",
            "lower --threads, or raise OMP_THREAD_LIMIT if it is set");
        return false;
    }
    process->service = (struct eb_service){
        .snapshot = process->service.snapshot,
        .lookups = {.ops = ops, .schedules = &process->schedules, .executor = process->executor},
        .settings = eb_config_service_settings(config),
        .admin = {.mailbox = &process->mailbox,
            .ask = ask_manager,
            .claim = claim_versions,
            .unclaim = unclaim_versions,
            .context = process->manager,
            .ask_settings = ask_settings,
            .settings_context = process},
        .facts = {.version = EMBAG_VERSION,
            .build = eb_config_build(),
            .isa = eb_bag_ops_name(ops),
            .loops = config->loops,
            .threads = config->threads,
            .cpus = eb_machine_cpu_count(""),
            .instance = draw_instance(),
            .part = find_part(process->config),
            .is_router = process->router,
            .admin_listen = config->admin_listen,
            .is_admin_on_data_port = config->admin_on_data_port == EB_CONFIG_TRUE},
        .auth = eb_security_auth(process->security),
    };
    return true;
}

static void set_options(struct eb_process *process)
{
    const struct eb_config *config = process->config;
    process->options = (struct eb_loop_options){
        .limits = eb_config_loop_limits(config),
        .receive_memory_bytes = config->limits.receive_memory_bytes / config->loops,
        .answer_memory_bytes = config->limits.answer_memory_bytes / config->loops,
        .tls = eb_security_tls(process->security),
        .service = &process->service,
        .loops = process->loops,
        .loop_count = config->loops,
    };
    eb_service_attach(&process->options);
}

static bool create_loops(struct eb_process *process)
{
    uint32_t count = process->config->loops;
    process->loops = calloc(count, sizeof *process->loops);
    process->end_mails = calloc(count, sizeof *process->end_mails);
    process->readers = calloc(count + 1, sizeof *process->readers);
    if (!process->loops || !process->end_mails || !process->readers) {
        eb_log_fail_start("loops", strerror(ENOMEM), "free some memory");
        return false;
    }
    set_options(process);
    process->settings.subjects = (struct eb_settings_subjects){
        .loops = process->loops,
        .loop_count = count,
        .executor = process->executor,
        .manager = process->manager,
        .mailbox = &process->mailbox,
        .uv = &process->uv,
    };
    process->settings.on_reload = on_settings_reload;
    process->settings.context = process;
    for (uint32_t i = 0; i < count; i++) {
        int rc = eb_loop_create(&process->loops[i], &process->options);
        if (rc < 0) {
            eb_log_fail_start("loops", uv_strerror(rc), "lower --loops");
            return false;
        }
    }
    return true;
}

static bool attach_router(struct eb_process *process)
{
    return !process->router ||
           eb_router_attach(process->router, process->loops, process->config->loops);
}

/* ---- signals and the end ---- */

static void on_patience_over(uv_timer_t *timer)
{
    struct eb_process *process = timer->data;
    const char *path = eb_manager_left(process->manager);
    path = path ? path : eb_security_watch_left(&process->security_watch);
    path = path ? path : eb_settings_update_left(&process->settings);
    if (path) {
        process->has_given_up = true;
        eb_log(EB_LOG_WARN, "given_up", eb_log_text("path", path),
            eb_log_text(
                "reason", "the thread that reads this path or frees its memory does not end"),
            eb_log_text("remedy", "check whether its disk responds"));
        uv_stop(&process->uv);
    }
}

/* Gives up remaining work if nobody waits for answers any more and the time for the drain is
 * over. */
static void give_up_if_due(struct eb_process *process)
{
    if (process->is_overdue && process->has_ended_loops) {
        uv_timer_start(&process->patience, on_patience_over, GIVE_UP_MS, 0);
    }
}

static void on_overdue(uv_timer_t *timer)
{
    struct eb_process *process = timer->data;
    process->is_overdue = true;
    give_up_if_due(process);
}

/* Runs on the loop's thread. */
static void on_leave_mail(struct eb_mail *mail)
{
    const struct end_mails *mails = EB_CONTAINER_OF(mail, struct end_mails, leave);
    eb_service_leave(mails->loop);
}

/* Makes health report on every port that the process will end. Nothing else changes yet. */
static void announce_end(struct eb_process *process)
{
    process->stopping = true;
    eb_web_port_drain(process->web_port);
    for (uint32_t i = 0; i < process->loops_running; i++) {
        struct end_mails *mails = &process->end_mails[i];
        mails->leave.deliver = on_leave_mail;
        eb_mailbox_post(eb_loop_mailbox(mails->loop), &mails->leave);
    }
}

/* Begins the drain. Called once, after announce_end. */
static void drain(struct eb_process *process)
{
    process->is_delayed = false;
    if (process->router) {
        eb_router_stop(process->router);
    }
    eb_manager_stop(process->manager);
    eb_security_watch_stop(&process->security_watch);
    eb_settings_update_stop(&process->settings);
    for (uint32_t i = 0; i < process->loops_running; i++) {
        eb_loop_drain(process->loops[i]);
    }
    if (process->has_handles) {
        uv_timer_start(&process->patience, on_overdue, process->config->limits.drain_timeout_ms, 0);
    }
}

static void on_delay_over(uv_timer_t *timer)
{
    struct eb_process *process = timer->data;
    eb_log(EB_LOG_INFO, "draining", eb_log_text("reason", "drain_delay_ms is over"));
    drain(process);
}

static void cut(struct eb_process *process)
{
    uv_signal_stop(&process->on_term);
    uv_signal_stop(&process->on_int);
    for (uint32_t i = 0; i < process->loops_running && !process->has_ended_loops; i++) {
        eb_loop_cut(process->loops[i]);
    }
    process->is_overdue = true;
    give_up_if_due(process);
}

/* Begins the next step of the shutdown at each signal: the delay, the drain, the cut. */
static void on_signal(uv_signal_t *handle, int number)
{
    struct eb_process *process = handle->data;
    const struct eb_limits *limits = &process->config->limits;
    struct eb_log_field told = eb_log_text("signal", number == SIGTERM ? "SIGTERM" : "SIGINT");
    if (process->stopping && !process->is_delayed) {
        eb_service_manager_stopping(0);
        eb_log(EB_LOG_INFO, "cutting", told);
        cut(process);
    } else if (process->is_delayed || limits->drain_delay_ms == 0) {
        eb_service_manager_stopping(limits->drain_timeout_ms);
        eb_log(EB_LOG_INFO, "draining", told);
        if (!process->stopping) {
            announce_end(process);
        }
        drain(process);
    } else {
        eb_service_manager_stopping(limits->drain_delay_ms + limits->drain_timeout_ms);
        eb_log(EB_LOG_INFO, "drain_delayed", told,
            eb_log_number("drain_delay_ms", (int64_t)limits->drain_delay_ms));
        announce_end(process);
        process->is_delayed = true;
        uv_timer_start(&process->patience, on_delay_over, limits->drain_delay_ms, 0);
    }
}

static void on_security_reloaded(void *context, bool is_good)
{
    struct eb_process *process = context;
    note_reload(process, true, is_good);
    tell_certificate(process);
}

/* Watches certificates and access rules, in the same way as the repository. Returns 0 or a negative
 * libuv code. */
static int watch_security(struct eb_process *process)
{
    const struct eb_config *config = process->config;
    struct eb_security_watch_options options = {
        .security = process->security,
        .loops = process->loops,
        .loop_count = config->loops,
        .is_polling_only = config->watch == EB_MANAGER_WATCH_POLL,
        .poll_ms = config->limits.watch_poll_ms,
        .on_reloaded = on_security_reloaded,
        .context = process,
    };
    return config->watch == EB_MANAGER_WATCH_OFF
               ? 0
               : eb_security_watch_start(&process->security_watch, &process->uv, &options);
}

/* Reads settings, certificates and tokens again while calls are accepted, also before a part server
 * is ready and during the delay. The service manager does not hear of that: READY would end the
 * start, or cancel the shutdown. */
static void on_hangup(uv_signal_t *handle, int number)
{
    struct eb_process *process = handle->data;
    (void)number;
    if (process->stopping && !process->is_delayed) {
        return;
    }
    bool is_told = process->facts.is_started && !process->stopping;
    if (is_told) {
        eb_service_manager_reloading();
    }
    bool has_settings = eb_settings_update_reload(&process->settings);
    bool is_good = eb_security_reload(process->security, process->loops, process->config->loops) &&
                   has_settings;
    eb_security_watch_renew(&process->security_watch);
    bool is_any = eb_security_tls(process->security) || eb_security_auth(process->security) ||
                  process->config->config_file;
    note_reload(process, is_any, is_good);
    tell_certificate(process);
    if (is_told) {
        eb_service_manager_ready();
    }
}

static void on_day(uv_timer_t *timer)
{
    const struct eb_process *process = timer->data;
    eb_security_log_expiry(process->security);
}

static void close_handles(struct eb_process *process)
{
    if (process->has_handles) {
        process->has_handles = false;
        uv_close((uv_handle_t *)&process->on_term, NULL);
        uv_close((uv_handle_t *)&process->on_int, NULL);
        uv_close((uv_handle_t *)&process->on_hangup, NULL);
        /* The shutdown has begun, so no further signal may end the process in another way. libuv
         * has just restored the default actions. */
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        uv_close((uv_handle_t *)&process->on_day, NULL);
        uv_close((uv_handle_t *)&process->patience, NULL);
        if (!process->has_ended_loops) {
            eb_mailbox_close(&process->mailbox);
        }
    }
}

/* Ends the other loops. No more mail comes to main's mailbox. main's loop ends when the manager's
 * handles are closed. */
static void end_loops(void *context)
{
    struct eb_process *process = context;
    eb_web_port_detach(process->web_port);
    for (uint32_t i = 0; i < process->loops_running; i++) {
        eb_loop_end(process->loops[i]);
    }
    eb_mailbox_close(&process->mailbox);
    process->has_ended_loops = true;
    give_up_if_due(process);
}

static void on_drained(struct eb_mail *mail)
{
    struct eb_process *process = EB_CONTAINER_OF(mail, struct end_mails, drained)->process;
    process->loops_drained++;
    if (process->loops_drained == process->loops_running) {
        eb_watchdog_stop(process->watchdog, end_loops, process);
    }
}

/* Initialises the handles. None of them keeps main's loop running. */
static void init_handles(struct eb_process *process)
{
    uv_signal_t *const signals[] = {&process->on_term, &process->on_int, &process->on_hangup};
    uv_timer_t *const timers[] = {&process->on_day, &process->patience};
    process->has_handles = true;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        uv_signal_init(&process->uv, signals[i]);
        signals[i]->data = process;
        uv_unref((uv_handle_t *)signals[i]);
    }
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        uv_timer_init(&process->uv, timers[i]);
        timers[i]->data = process;
        uv_unref((uv_handle_t *)timers[i]);
    }
}

/* Opens main's own loop. It runs loads, and later signals and mail from the other loops. */
static bool open_main_loop(struct eb_process *process)
{
    int rc = uv_loop_init(&process->uv);
    process->has_uv = rc == 0;
    rc = rc < 0 ? rc : eb_watchers_reserve(&process->uv, process->config->limits.connections_max);
    if (rc < 0) {
        eb_log_fail_start("loops", uv_strerror(rc), "lower --loops");
    }
    return rc == 0;
}

/* Starts to handle signals. Returns 0 or a negative libuv code. */
static int start_handles(struct eb_process *process)
{
    int rc = eb_mailbox_open(&process->mailbox, &process->uv);
    if (rc < 0) {
        return rc;
    }
    init_handles(process);
    rc = uv_signal_start(&process->on_term, on_signal, SIGTERM);
    rc = rc < 0 ? rc : uv_signal_start(&process->on_int, on_signal, SIGINT);
    rc = rc < 0 ? rc : uv_timer_start(&process->on_day, on_day, DAY_MS, DAY_MS);
    return rc < 0 ? rc : uv_signal_start(&process->on_hangup, on_hangup, SIGHUP);
}

static bool start_loops(struct eb_process *process)
{
    int rc = start_handles(process);
    for (uint32_t i = 0; rc == 0 && i < process->config->loops; i++) {
        process->end_mails[i] = (struct end_mails){
            .drained = {.deliver = on_drained}, .process = process, .loop = process->loops[i]};
        rc = eb_loop_start(process->loops[i], &process->mailbox, &process->end_mails[i].drained);
        process->loops_running += rc == 0;
    }
    if (rc == 0) {
        struct eb_watchdog_subjects subjects = {
            process->loops, process->config->loops, process->executor};
        rc = eb_watchdog_start(&process->watchdog, &process->uv, &process->mailbox, &subjects);
    }
    rc = rc < 0 ? rc : watch_security(process);
    rc = rc < 0 ? rc : eb_settings_update_watch(&process->settings);
    if (rc < 0) {
        eb_log_fail_start("loops", uv_strerror(rc), "lower --loops");
    }
    return rc == 0;
}

/* ---- life ---- */

struct eb_process *eb_process_open(const struct eb_config *config)
{
    struct eb_process *process = calloc(1, sizeof *process);
    if (!process) {
        eb_log_fail_start("memory", strerror(ENOMEM), "free some memory");
        return NULL;
    }
    eb_config_live_init(&process->settings.live, config);
    process->config = &process->settings.live.running;
    process->opened_ms = eb_clock_steady_ms();
    process->resident.descriptor = -1;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* There are no loops yet that could be told. */
    eb_config_raise_file_limit(config);
    /* Listen only when the models are loaded: before that clients would only wait, and other
     * servers can answer them. */
    bool ready = open_security(process) && eb_ports_open(&process->ports, process->config) &&
                 (process->ops = eb_kernel_choice_ops(config->isa)) && open_web_port(process) &&
                 open_main_loop(process) && open_state(process) && open_resident(process) &&
                 open_router(process) && open_models(process) && open_executor(process) &&
                 create_loops(process) && attach_router(process) &&
                 eb_ports_listen(&process->ports, process->loops);
    if (!ready) {
        (void)eb_process_close(process); /* It has not run, so nothing can have been given up. */
        return NULL;
    }
    return process;
}

bool eb_process_run(struct eb_process *process)
{
    /* A part server is ready later, when it has loaded a version. */
    bool is_ready = !process->service.snapshot->not_ready;
    size_t model_count = process->service.snapshot->count;
    bool started = start_loops(process);
    if (started) {
        attach_web_port(process);
        started = start_models(process);
    }
    if (!started) {
        announce_end(process);
        drain(process);
    } else if (is_ready) {
        note_ready(process, model_count);
    }
    if (process->loops_running > 0) {
        uv_run(&process->uv, UV_RUN_DEFAULT);
    }
    eb_log(EB_LOG_INFO, "stopped", eb_log_number("models", (int64_t)process->model_count));
    return started;
}

/* Closes main's loop. Does nothing if it was not opened. */
static void close_main_loop(struct eb_process *process)
{
    if (!process->has_uv) {
        return;
    }
    if (process->router) {
        eb_router_stop(process->router);
    }
    eb_manager_stop(process->manager);
    close_handles(process);
    uv_run(&process->uv, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&process->uv);
    assert(rc == 0);
}

bool eb_process_close(struct eb_process *process)
{
    if (!process) {
        return true;
    }
    for (uint32_t i = 0; process->loops && i < process->config->loops; i++) {
        eb_loop_destroy(process->loops[i]);
    }
    if (process->has_given_up) {
        return false;
    }
    close_main_loop(process);
    eb_ports_close(&process->ports);
    eb_watchdog_destroy(process->watchdog);
    eb_web_port_close(process->web_port);
    eb_executor_destroy(process->executor);
    eb_manager_destroy(process->manager);
    eb_router_destroy(process->router);
    eb_resident_dir_close(&process->resident);
    if (process->has_markers) {
        eb_load_markers_close(&process->markers);
    }
    eb_security_close(process->security);
    eb_config_live_deinit(&process->settings.live);
    free(process->loops);
    free(process->readers);
    free(process->end_mails);
    free(process);
    return true;
}
