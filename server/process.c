#include "server/process.h"

#include "proto/list.h"
#include "server/base/log.h"
#include "server/kernel_choice.h"
#include "server/net/time_slice.h"
#include "server/net/tls.h"
#include "server/net/watchers.h"
#include "server/ports.h"
#include "server/publish/manager.h"
#include "server/rpc/service.h"
#include "server/security.h"
#include "server/service_manager.h"
#include "server/watchdog.h"
#include "server/web_port.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Streams that one connection may reset, in addition to as many as it lets end and to a thousand a
 * second. */
#define RESET_BUDGET 4000
/* Longest time between two checks of the time limits. It is shorter if a time limit is short. */
#define TICK_MS_MAX 1000

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
    const struct eb_config *config;
    struct eb_ports ports;
    struct eb_security *security;
    struct eb_web_port *web_port;
    struct eb_process_facts facts; /* the facts that web_port was told last */
    struct eb_manager *manager;
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
    uint32_t loops_running;
    uint32_t loops_drained;
    uv_loop_t uv; /* main's own loop: loads, signals, and mail from the other loops */
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

/* ---- models ---- */

static void on_loading(void *context, const char *path, uint64_t done_bytes, uint64_t total_bytes)
{
    struct eb_process *process = context;
    process->facts.load_done_bytes = done_bytes;
    process->facts.load_total_bytes = total_bytes;
    eb_web_port_tell(process->web_port, &process->facts);
    if (!process->service.snapshot) {
        eb_service_manager_loading(path, done_bytes, total_bytes);
    }
}

static void on_scanned(void *context, const char *failure)
{
    struct eb_process *process = context;
    if (process->facts.is_repository_unreadable != !!failure) {
        process->facts.is_repository_unreadable = failure;
        eb_web_port_tell(process->web_port, &process->facts);
    }
}

static void on_serving(void *context, const struct eb_snapshot *snapshot)
{
    (void)context;
    eb_service_manager_serving(snapshot);
}

static bool open_models(struct eb_process *process)
{
    const struct eb_limits *limits = &process->config->limits;
    struct eb_manager_options options = {
        .directory = process->config->model_repository,
        .tables = {.row_bytes_max = limits->row_bytes_max,
            .name_bytes_max = (uint32_t)limits->name_bytes_max,
            .group_features_max = (uint32_t)limits->queries_max,
            .memory = {.pages = process->config->huge_pages, .numa = process->config->numa}},
        .watch = process->config->watch,
        .poll_ms = limits->watch_poll_ms,
        .load_bytes_per_s = limits->load_bytes_per_s,
        .kept_versions_max = limits->kept_versions_max,
        .kept_bytes_max = limits->kept_bytes_max,
        .on_loading = on_loading,
        .on_serving = on_serving,
        .on_scanned = on_scanned,
        .context = process,
    };
    int rc = eb_manager_create(&process->manager, &options, &process->uv);
    if (rc < 0) {
        eb_log_fail_start(
            "threads", uv_strerror(rc), "allow the process more threads, open files or memory");
        return false;
    }
    struct eb_failure failure;
    if (!eb_manager_load(process->manager, &failure)) {
        eb_log_fail_start("model_repository", failure.text,
            "correct the files named, or point "
            "--model-repository at another directory");
        return false;
    }
    process->service.snapshot = eb_manager_snapshot(process->manager);
    process->model_count = process->service.snapshot->count;
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
    return rc == 0;
}

/* ---- threads ---- */

/* Raises the limit of open files, as far as the hard limit allows, so that it is enough for every
 * connection. */
static void raise_file_limit(const struct eb_config *config)
{
    struct rlimit limit;
    rlim_t wanted = config->limits.connections_max + EB_WATCHERS_FILES_RESERVED;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted) {
        eb_log(EB_LOG_WARN, "few_open_files", eb_log_number("limit", (int64_t)limit.rlim_cur),
            eb_log_number("wanted", (int64_t)wanted),
            eb_log_text("remedy", "raise ulimit -n, or lower connections_max"));
    }
}

static void tell_certificate(struct eb_process *process)
{
    const struct eb_tls *tls = eb_security_tls(process->security);
    process->facts.certificate_expiry_unix_s = tls ? eb_tls_expiry_unix_s(tls) : 0;
    eb_web_port_tell(process->web_port, &process->facts);
}

static bool open_web_port(struct eb_process *process)
{
    const char *isa = eb_bag_ops_name(process->ops);
    bool is_open = eb_web_port_open(&process->web_port, process->config, isa);
    tell_certificate(process);
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

static void ask_manager(void *manager, struct eb_model_command *command)
{
    eb_manager_ask(manager, command);
}

static bool open_executor(struct eb_process *process)
{
    const struct eb_config *config = process->config;
    const struct eb_bag_ops *ops = process->ops;
    /* Measure before the executor's threads start: they would disturb the measurement. The
     * operators' port runs already and answers a request now and then. */
    eb_kernel_choice_schedules(
        config->prefetch, ops, process->service.snapshot, &process->schedules);
    process->executor = eb_executor_create(
        ops, &process->schedules, config->threads, config->limits.queue_bytes_max);
    if (!process->executor) {
        eb_log_fail_start("threads", "the executor's threads could not be started",
            "lower --threads, or raise OMP_THREAD_LIMIT if it is set");
        return false;
    }
    process->service = (struct eb_service){
        .snapshot = process->service.snapshot,
        .lookups = {.ops = ops,
            .schedules = &process->schedules,
            .executor = process->executor,
            .limits = &config->limits},
        .admin = {.mailbox = &process->mailbox, .ask = ask_manager, .context = process->manager},
        .facts = {.version = EMBAG_VERSION,
            .build = eb_config_build(),
            .isa = eb_bag_ops_name(ops),
            .limits = &config->limits,
            .loops = config->loops,
            .threads = config->threads,
            .access_log = config->access_log,
            .admin_listen = config->admin_listen,
            .is_admin_on_data_port = config->admin_on_data_port == EB_CONFIG_TRUE},
        .auth = eb_security_auth(process->security),
    };
    return true;
}

static uint64_t tick_ms(const struct eb_limits *limits)
{
    const uint64_t times_ms[] = {limits->header_timeout_ms, limits->message_timeout_ms,
        limits->write_timeout_ms, limits->keepalive_ms, limits->keepalive_timeout_ms,
        limits->connection_idle_max_ms, limits->connection_age_max_ms, limits->connection_grace_ms,
        limits->drain_timeout_ms, limits->auth_timeout_ms};
    uint64_t tick = TICK_MS_MAX;
    for (size_t i = 0; i < sizeof times_ms / sizeof times_ms[0]; i++) {
        if (times_ms[i] > 0 && times_ms[i] / 4 + 1 < tick) {
            tick = times_ms[i] / 4 + 1;
        }
    }
    return tick;
}

static void set_options(struct eb_process *process)
{
    const struct eb_config *config = process->config;
    const struct eb_limits *limits = &config->limits;
    process->options = (struct eb_loop_options){
        .conn_limits = {.session = {.request_bytes_max = (uint32_t)limits->request_bytes_max,
                            .streams_max = (uint32_t)limits->streams_max,
                            .header_fields_max = (uint32_t)limits->header_fields_max,
                            .header_bytes_max = (uint32_t)limits->header_bytes_max,
                            .outbound_bytes_max = (uint32_t)limits->outbound_bytes_max,
                            .message_stall_ms_max = (uint32_t)limits->message_timeout_ms,
                            .answer_stall_ms_max = (uint32_t)limits->write_timeout_ms,
                            .reset_budget = RESET_BUDGET,
                            .ping_interval_min_ms = (uint32_t)limits->ping_interval_min_ms,
                            .ping_idle_interval_min_ms =
                                (uint32_t)limits->ping_idle_interval_min_ms},
            .header_timeout_ms = limits->header_timeout_ms,
            .write_timeout_ms = limits->write_timeout_ms,
            .slice_ns = EB_TIME_SLICE_NS,
            .age = {.unknown_max_ms = config->auth_file ? limits->auth_timeout_ms : 0,
                .idle_max_ms = limits->connection_idle_max_ms,
                .age_max_ms = limits->connection_age_max_ms,
                .grace_ms = limits->connection_grace_ms,
                .end_ms = limits->drain_timeout_ms,
                .silence_ms = limits->keepalive_ms,
                .silence_more_ms = limits->keepalive_timeout_ms}},
        .receive_memory_bytes = limits->receive_memory_bytes / config->loops,
        .answer_memory_bytes = limits->answer_memory_bytes / config->loops,
        .connections_max = limits->connections_max,
        .drain_timeout_ms = limits->drain_timeout_ms,
        .tick_ms = tick_ms(limits),
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
    for (uint32_t i = 0; i < count; i++) {
        int rc = eb_loop_create(&process->loops[i], &process->options);
        if (rc < 0) {
            eb_log_fail_start("loops", uv_strerror(rc), "lower --loops");
            return false;
        }
    }
    return true;
}

/* ---- signals and the end ---- */

static void on_patience_over(uv_timer_t *timer)
{
    struct eb_process *process = timer->data;
    const char *path = eb_manager_left(process->manager);
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
    eb_manager_stop(process->manager);
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

/* Reads certificates and tokens again while calls are accepted, also during the delay. By then the
 * service manager knows of the shutdown, and READY would cancel it. */
static void on_hangup(uv_signal_t *handle, int number)
{
    struct eb_process *process = handle->data;
    (void)number;
    if (process->stopping && !process->is_delayed) {
        return;
    }
    if (!process->stopping) {
        eb_service_manager_reloading();
    }
    bool is_good = eb_security_reload(process->security, process->loops, process->config->loops);
    bool is_any = eb_security_tls(process->security) || eb_security_auth(process->security);
    process->facts.reloads_done += is_any && is_good;
    process->facts.reloads_failed += !is_good;
    tell_certificate(process);
    if (!process->stopping) {
        eb_service_manager_ready();
    }
}

static void on_day(uv_timer_t *timer)
{
    const struct eb_process *process = timer->data;
    eb_security_look(process->security);
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
    process->config = config;
    process->facts.is_repository_watched = config->watch != EB_MANAGER_WATCH_OFF;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* There are no loops yet that could be told. */
    raise_file_limit(config);
    /* Listen only when the models are loaded: before that clients would only wait, and other
     * servers can answer them. */
    bool ready = open_security(process) && eb_ports_open(&process->ports, config) &&
                 (process->ops = eb_kernel_choice_ops(config->isa)) && open_web_port(process) &&
                 open_main_loop(process) && open_models(process) && open_executor(process) &&
                 create_loops(process) && eb_ports_listen(&process->ports, process->loops);
    if (!ready) {
        (void)eb_process_close(process); /* It has not run, so nothing can have been given up. */
        return NULL;
    }
    return process;
}

bool eb_process_run(struct eb_process *process)
{
    bool started = start_loops(process);
    if (started) {
        attach_web_port(process);
        started = start_models(process);
    }
    if (started) {
        eb_log(EB_LOG_INFO, "ready", eb_log_text("version", EMBAG_VERSION),
            eb_log_text("isa", process->service.facts.isa),
            eb_log_number("loops", process->config->loops),
            eb_log_number("threads", process->config->threads),
            eb_log_number("models", (int64_t)process->model_count));
        eb_service_manager_ready();
    } else {
        announce_end(process);
        drain(process);
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
    eb_security_close(process->security);
    free(process->loops);
    free(process->readers);
    free(process->end_mails);
    free(process);
    return true;
}
