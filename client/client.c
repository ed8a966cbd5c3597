#include "client/completion_queue.h"
#include "client/embag_admin.h"
#include "client/embag_async.h"
#include "client/embag_servers.h"
#include "client/engine.h"
#include "client/models_call.h"
#include "proto/link/credentials.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define UNACKNOWLEDGED_MS_MAX 20000
#define CONNECT_TIMEOUT_US_DEFAULT 5000000
#define TIMEOUT_US_DEFAULT 1000000
#define TIMEOUT_US_MAX UINT64_C(31536000000000) /* one year; keeps times far from overflow */
#define ANSWER_BYTES_MAX_DEFAULT (64 * 1024 * 1024)
#define CONNECTIONS_MAX 64
#define IN_FLIGHT_DEFAULT 1024
#define IN_FLIGHT_MAX 65536
#define RESOLVE_INTERVAL_NS UINT64_C(30000000000)
#define RETRIES_DEFAULT 2
#define RETRIES_MAX 100
#define HEDGE_PERCENT_MAX 100
#define NS_PER_US 1000

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays go to the wire as they are");
static_assert(sizeof(((struct embag_error *)0)->text) == EB_ERROR_TEXT_BYTES, "texts are copied");

struct embag_client {
    struct eb_engine engine;
    struct eb_completion_queue queue;
    struct eb_credentials credentials;
    struct eb_credentials_watch renewal; /* of the credentials */
    struct eb_targets targets;
    uint64_t timeout_us;
};

/* Copies an error. If the status is OK, the text is not copied. */
static enum embag_status report_client_error(const struct eb_error *from, struct embag_error *to)
{
    if (to) {
        to->status = (enum embag_status)from->status;
        if (from->status == EB_STATUS_OK) {
            to->text[0] = '\0';
        } else {
            memcpy(to->text, from->text, sizeof to->text);
        }
    }
    return (enum embag_status)from->status;
}

/* ---- opening and closing ---- */

static uint64_t pick(uint64_t value_us, uint64_t default_us)
{
    uint64_t picked_us = value_us != 0 ? value_us : default_us;
    return picked_us < TIMEOUT_US_MAX ? picked_us : TIMEOUT_US_MAX;
}

static uint32_t pick_count(uint32_t value, uint32_t default_value, uint32_t max)
{
    uint32_t picked = value != 0 ? value : default_value;
    return picked < max ? picked : max;
}

static uint32_t pick_retries(int32_t value)
{
    return value < 0 ? 0 : pick_count((uint32_t)value, RETRIES_DEFAULT, RETRIES_MAX);
}

/* Reads the files of the options and prepares their watch. */
static bool open_access(
    struct embag_client *client, const struct embag_access *options, struct eb_error *error)
{
    struct eb_access access = {
        .tls = options->tls,
        .tls_ca = options->tls_ca,
        .tls_cert = options->tls_cert,
        .tls_key = options->tls_key,
        .tls_server_name = options->tls_server_name,
        .token_file = options->token_file,
    };
    struct eb_file_list files = {.files = NULL};
    if (!eb_credentials_open(&client->credentials, &access, &client->targets, &files, error)) {
        eb_file_list_deinit(&files);
        return false;
    }
    if (!eb_credentials_watch_init(
            &client->renewal, &client->credentials, &access, &client->targets, &files)) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for a client");
        return false;
    }
    return true;
}

static void close_access(struct embag_client *client)
{
    eb_credentials_watch_deinit(&client->renewal);
    eb_credentials_close(&client->credentials);
}

static bool start_engine(struct embag_client *client, const char *address,
    const struct embag_options *options, struct eb_error *error)
{
    struct eb_engine_options wanted = {
        .dispatcher = {.targets = &client->targets,
            .credentials = &client->credentials,
            .connect_timeout_ns =
                pick(options->connect_timeout_us, CONNECT_TIMEOUT_US_DEFAULT) * NS_PER_US,
            .unacknowledged_ms_max = UNACKNOWLEDGED_MS_MAX,
            .resolve_interval_ns = RESOLVE_INTERVAL_NS,
            .connections = pick_count(options->connections, 1, CONNECTIONS_MAX),
            .retries_max = pick_retries(options->retries_max),
            .answer_bytes_max = options->answer_bytes_max != 0 ? options->answer_bytes_max
                                                               : ANSWER_BYTES_MAX_DEFAULT,
            .is_unary = options->mode == EMBAG_MODE_UNARY,
            .is_unpaced = options->unpaced},
        .renewal = &client->renewal,
        .in_flight_max = pick_count(options->in_flight_max, IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX),
        .hedge_percent = pick_count(options->hedge_percent, 0, HEDGE_PERCENT_MAX),
    };
    return eb_targets_parse(address, &client->targets, error) &&
           open_access(client, &options->access, error) &&
           eb_engine_open(&client->engine, &wanted, error);
}

enum embag_status embag_open(const char *address, const struct embag_options *options,
    struct embag_client **client, struct embag_error *error)
{
    static const struct embag_options defaults = {0};
    struct eb_error failure = {.status = EB_STATUS_OK};
    const struct embag_options *chosen = options ? options : &defaults;
    struct embag_client *opened = calloc(1, sizeof *opened);
    *client = NULL;
    if (!opened) {
        eb_error_set(&failure, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for a client");
        return report_client_error(&failure, error);
    }
    opened->timeout_us = pick(chosen->timeout_us, TIMEOUT_US_DEFAULT);
    eb_completion_queue_init(&opened->queue);
    if (start_engine(opened, address, chosen, &failure)) {
        *client = opened;
    } else {
        close_access(opened);
        eb_targets_free(&opened->targets);
        eb_completion_queue_deinit(&opened->queue);
        free(opened);
    }
    return report_client_error(&failure, error);
}

void embag_close(struct embag_client *client)
{
    if (!client) {
        return;
    }
    assert(!eb_engine_is_here(&client->engine));
    eb_completion_queue_close(&client->queue);
    eb_engine_close(&client->engine);
    eb_calls_await_leaving(&client->engine.calls);
    struct eb_call *call = NULL;
    while ((call = eb_completion_queue_drain(&client->queue))) {
        eb_lookup_call_free(call->answer);
        eb_calls_give(&client->engine.calls, call);
    }
    eb_completion_queue_deinit(&client->queue);
    eb_engine_deinit(&client->engine);
    close_access(client);
    eb_targets_free(&client->targets);
    free(client);
}

/* ---- beginning calls ---- */

static void give_up_call(struct embag_client *client, struct eb_call *call)
{
    if (call->request) {
        eb_outgoing_drop(call->request);
    }
    eb_calls_give(&client->engine.calls, call);
}

/* Posts a call. The caller has set the call's request, or has left it NULL and set *error. Returns
 * false with *error set if the call was not posted; then its record has been given back. */
static bool post(struct embag_client *client, struct eb_call *call, struct eb_error *error)
{
    if (call->request && eb_engine_post(&client->engine, call)) {
        return true;
    }
    if (call->request) {
        eb_error_set(error, EB_STATUS_CANCELLED, "the client is being closed");
    }
    give_up_call(client, call);
    return false;
}

/* Returns the deadline of a call that begins now. If timeout_us is 0, the client's timeout
 * applies. */
static uint64_t find_deadline_ns(const struct embag_client *client, uint64_t timeout_us)
{
    return uv_hrtime() + pick(timeout_us, client->timeout_us) * NS_PER_US;
}

static void fill_lookup(struct embag_client *client, const struct embag_request *request,
    struct eb_call *call, uint64_t deadline_ns, struct eb_error *error)
{
    struct eb_lookup_label label = {
        .request_id = call->id,
        .timeout_us = pick(request->timeout_us, client->timeout_us),
    };
    call->kind = EB_CALL_LOOKUP;
    call->deadline_ns = deadline_ns;
    call->priority = request->priority == EMBAG_BATCH ? EB_PRIORITY_BATCH : EB_PRIORITY_INTERACTIVE;
    call->request = eb_lookup_call_encode(request, &label, &client->engine.requests.memory, error);
    eb_lookup_call_expect(request, call->request, &call->expected);
    call->names_version =
        request->version > 0 || (request->version_label && request->version_label[0]);
}

/* ---- calls that do not block ---- */

static void fill_completion(const struct eb_call *call, struct embag_completion *completion)
{
    completion->id = call->id;
    completion->context = call->context;
    completion->answer = call->answer;
    completion->attempts = call->attempts;
    completion->retry_after_ms = call->retry_after_ms;
    report_client_error(&call->error, &completion->error);
}

/* Gives the record back before the callback, so that the callback has room for the next call. */
static void tell_completion(struct eb_call *call)
{
    struct embag_completion completion;
    embag_done_fn on_done = call->on_done;
    fill_completion(call, &completion);
    eb_calls_give(&call->engine->calls, call);
    on_done(&completion);
}

static void put_in_queue(struct eb_call *call)
{
    eb_completion_queue_push(call->queue, call);
}

/* Begins the call of a record that was taken. Sets *error if it fails. */
static void submit_client(struct embag_client *client, const struct embag_request *request,
    const struct embag_call *how, struct eb_call *call, struct eb_error *error)
{
    if (how) {
        call->on_done = how->on_done;
        call->context = how->context;
    }
    call->queue = &client->queue;
    call->on_over = call->on_done ? tell_completion : put_in_queue;
    fill_lookup(client, request, call, find_deadline_ns(client, request->timeout_us), error);
    (void)post(client, call, error);
}

enum embag_status embag_submit(struct embag_client *client, const struct embag_request *request,
    const struct embag_call *how, uint64_t *id, struct embag_error *error)
{
    struct eb_error failure = {.status = EB_STATUS_OK};
    eb_calls_enter(&client->engine.calls);
    struct eb_call *call = eb_calls_take(&client->engine.calls, 0, &failure);
    if (call) {
        if (id) {
            *id = call->id;
        }
        submit_client(client, request, how, call, &failure);
    }
    eb_calls_leave(&client->engine.calls);
    return report_client_error(&failure, error);
}

void embag_cancel(struct embag_client *client, uint64_t id)
{
    eb_calls_enter(&client->engine.calls);
    eb_engine_post_cancel(&client->engine, id);
    eb_calls_leave(&client->engine.calls);
}

bool embag_next(
    struct embag_client *client, uint64_t timeout_us, struct embag_completion *completion)
{
    eb_calls_enter(&client->engine.calls);
    struct eb_call *call = eb_completion_queue_pop(&client->queue, timeout_us);
    if (call) {
        fill_completion(call, completion);
        eb_calls_give(&client->engine.calls, call);
    }
    eb_calls_leave(&client->engine.calls);
    return call;
}

int embag_completion_fd(struct embag_client *client)
{
    eb_calls_enter(&client->engine.calls);
    int fd = eb_completion_queue_fd(&client->queue);
    eb_calls_leave(&client->engine.calls);
    return fd;
}

/* ---- calls that block ---- */

/* The state of a call that a thread waits for, on that thread's stack. */
struct waiter {
    uv_sem_t over;
    const struct embag_version_command *command; /* the command, if the call is one */
    void *answer;
    struct eb_error error;
};

static void wake_client(struct eb_call *call)
{
    struct waiter *waiter = call->context;
    waiter->answer = call->answer;
    waiter->error.status = call->error.status;
    memcpy(waiter->error.text, call->error.text, strlen(call->error.text) + 1);
    eb_calls_give(&call->engine->calls, call);
    uv_sem_post(&waiter->over);
}

static void refuse_blocking(struct eb_error *error)
{
    eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
        "a blocking call cannot be made in a callback of the same client");
}

/* Takes a record for a call that this thread will wait for. Returns NULL with *error set. */
static struct eb_call *take_blocking(
    struct embag_client *client, uint64_t deadline_ns, struct eb_error *error)
{
    if (eb_engine_is_here(&client->engine)) {
        refuse_blocking(error);
        return NULL;
    }
    return eb_calls_take(&client->engine.calls, deadline_ns, error);
}

/* Makes a call and waits for its end. Returns the answer, or NULL with *error set. */
static void *wait_for(struct embag_client *client, struct eb_call *call, struct waiter *waiter,
    struct eb_error *error)
{
    int rc = uv_sem_init(&waiter->over, 0);
    assert(rc == 0);
    call->context = waiter;
    call->on_over = wake_client;
    if (post(client, call, error)) {
        uv_sem_wait(&waiter->over);
        *error = waiter->error;
    }
    uv_sem_destroy(&waiter->over);
    return waiter->answer;
}

static void *call_and_wait(
    struct embag_client *client, struct eb_call *call, struct eb_error *error)
{
    struct waiter waiter = {.answer = NULL};
    return wait_for(client, call, &waiter, error);
}

enum embag_status embag_lookup(struct embag_client *client, const struct embag_request *request,
    struct embag_answer **answer, struct embag_error *error)
{
    struct eb_error failure = {.status = EB_STATUS_OK};
    *answer = NULL;
    eb_calls_enter(&client->engine.calls);
    uint64_t deadline_ns = find_deadline_ns(client, request->timeout_us);
    struct eb_call *call = take_blocking(client, deadline_ns, &failure);
    if (call) {
        fill_lookup(client, request, call, deadline_ns, &failure);
        *answer = call_and_wait(client, call, &failure);
    }
    eb_calls_leave(&client->engine.calls);
    return report_client_error(&failure, error);
}

void embag_answer_free(struct embag_answer *answer)
{
    eb_lookup_call_free(answer ? EB_CONTAINER_OF(answer, struct eb_lookup_answer, answer) : NULL);
}

/* Calls a method that answers with a list, and waits for the list. `model` may be NULL. */
static enum embag_status list_models(struct embag_client *client, const char *path,
    const char *model, struct embag_model_list **list, struct embag_error *error)
{
    struct eb_error failure = {.status = EB_STATUS_OK};
    *list = NULL;
    eb_calls_enter(&client->engine.calls);
    uint64_t deadline_ns = find_deadline_ns(client, 0);
    struct eb_call *call = take_blocking(client, deadline_ns, &failure);
    if (call) {
        call->kind = EB_CALL_LIST_MODELS;
        call->path = path;
        call->deadline_ns = deadline_ns;
        call->request = eb_models_call_encode(model, 0, &client->engine.requests.memory, &failure);
        *list = call_and_wait(client, call, &failure);
    }
    eb_calls_leave(&client->engine.calls);
    return report_client_error(&failure, error);
}

enum embag_status embag_list_models(
    struct embag_client *client, struct embag_model_list **list, struct embag_error *error)
{
    /* A request without a model and a version is a ListModelsRequest, which has no fields. */
    return list_models(client, "/embag.v1.EmbeddingBag/ListModels", NULL, list, error);
}

enum embag_status embag_list_versions(struct embag_client *client, const char *model,
    struct embag_model_list **list, struct embag_error *error)
{
    return list_models(client, "/embag.v1.ModelAdmin/ListVersions", model, list, error);
}

void embag_model_list_free(struct embag_model_list *list)
{
    eb_models_call_free(list ? EB_CONTAINER_OF(list, struct eb_models_list, list) : NULL);
}

/* ---- commands ---- */

static void on_client_progress(struct eb_call *call, const struct eb_models_progress *progress)
{
    const struct waiter *waiter = call->context;
    const struct embag_version_command *command = waiter->command;
    if (command->on_progress) {
        command->on_progress(command->context, progress->done_bytes, progress->total_bytes);
    }
}

static const char *find_client_path(enum embag_version_verb verb)
{
    switch (verb) {
    case EMBAG_VERSION_LOAD: return "/embag.v1.ModelAdmin/LoadVersion";
    case EMBAG_VERSION_UNLOAD: return "/embag.v1.ModelAdmin/UnloadVersion";
    case EMBAG_VERSION_SERVE: return "/embag.v1.ModelAdmin/ServeVersion";
    }
    return "";
}

/* Returns the outcome of a command, or NULL with *error set. */
static struct eb_models_progress *command_version(struct embag_client *client,
    const struct embag_version_command *command, struct eb_error *error)
{
    struct waiter waiter = {.command = command};
    uint64_t deadline_ns = uv_hrtime() + pick(command->timeout_us, TIMEOUT_US_MAX) * NS_PER_US;
    struct eb_call *call = take_blocking(client, deadline_ns, error);
    if (!call) {
        return NULL;
    }
    call->kind = EB_CALL_COMMAND;
    call->path = find_client_path(command->verb);
    call->deadline_ns = deadline_ns;
    call->on_progress = on_client_progress;
    call->request = eb_models_call_encode(
        command->model, command->version, &client->engine.requests.memory, error);
    return wait_for(client, call, &waiter, error);
}

enum embag_status embag_command_version(struct embag_client *client,
    const struct embag_version_command *command, struct embag_error *outcome)
{
    struct eb_error failure = {.status = EB_STATUS_OK};
    eb_calls_enter(&client->engine.calls);
    struct eb_models_progress *done = command_version(client, command, &failure);
    eb_calls_leave(&client->engine.calls);
    enum embag_status status = report_client_error(&failure, outcome);
    if (done && outcome) {
        memcpy(outcome->text, done->text, sizeof done->text);
    }
    free(done);
    return status;
}

/* ---- settings ---- */

/* Calls a method about settings and waits for its answer. Returns NULL with *error set. */
static void *call_settings(
    struct embag_client *client, enum eb_call_kind kind, const char *path, struct eb_error *error)
{
    void *answer = NULL;
    eb_calls_enter(&client->engine.calls);
    uint64_t deadline_ns = find_deadline_ns(client, 0);
    struct eb_call *call = take_blocking(client, deadline_ns, error);
    if (call) {
        call->kind = kind;
        call->path = path;
        call->deadline_ns = deadline_ns;
        call->request = eb_settings_call_encode(&client->engine.requests.memory, error);
        answer = call_and_wait(client, call, error);
    }
    eb_calls_leave(&client->engine.calls);
    return answer;
}

enum embag_status embag_list_settings(
    struct embag_client *client, struct embag_setting_list **list, struct embag_error *error)
{
    struct eb_error failure = {.status = EB_STATUS_OK};
    struct eb_settings_list *answer =
        call_settings(client, EB_CALL_LIST_SETTINGS, "/embag.v1.ModelAdmin/ListSettings", &failure);
    *list = answer ? &answer->list : NULL;
    return report_client_error(&failure, error);
}

void embag_setting_list_free(struct embag_setting_list *list)
{
    eb_settings_call_free(list ? EB_CONTAINER_OF(list, struct eb_settings_list, list) : NULL);
}

enum embag_status embag_reload_settings(
    struct embag_client *client, struct embag_reload *reload, struct embag_error *error)
{
    struct eb_error failure = {.status = EB_STATUS_OK};
    struct embag_reload *answer =
        call_settings(client, EB_CALL_RELOAD, "/embag.v1.ModelAdmin/ReloadSettings", &failure);
    if (answer && reload) {
        *reload = *answer;
    }
    free(answer);
    return report_client_error(&failure, error);
}

/* ---- names ---- */

const char *embag_status_name(enum embag_status status)
{
    return eb_status_name((int)status);
}

size_t embag_type_bytes(enum embag_type type)
{
    switch (type) {
    case EMBAG_I8:
    case EMBAG_U8: return 1;
    case EMBAG_F16:
    case EMBAG_BF16:
    case EMBAG_I16:
    case EMBAG_U16: return 2;
    case EMBAG_F32:
    case EMBAG_I32:
    case EMBAG_U32: return 4;
    case EMBAG_F64:
    case EMBAG_I64:
    case EMBAG_U64: return 8;
    case EMBAG_TYPE_UNSPECIFIED: break;
    }
    return 0;
}

/* ---- servers ---- */

enum embag_status embag_wait_ready(
    struct embag_client *client, uint32_t servers, uint64_t timeout_us, struct embag_error *error)
{
    struct eb_error failure = {.status = EB_STATUS_OK};
    eb_calls_enter(&client->engine.calls);
    uint64_t deadline_ns = find_deadline_ns(client, timeout_us);
    if (eb_engine_is_here(&client->engine)) {
        refuse_blocking(&failure);
    } else {
        (void)eb_engine_await_servers(&client->engine, servers, deadline_ns, &failure);
    }
    eb_calls_leave(&client->engine.calls);
    return report_client_error(&failure, error);
}

enum embag_status embag_get_stats(struct embag_client *client, struct embag_stats *stats,
    struct embag_server_stats *servers, uint32_t servers_max)
{
    struct eb_engine_figures figures = {
        .stats = stats, .servers = servers, .servers_max = servers_max};
    eb_calls_enter(&client->engine.calls);
    bool is_filled = eb_engine_fill_figures(&client->engine, &figures);
    eb_calls_leave(&client->engine.calls);
    return is_filled ? EMBAG_OK : EMBAG_CANCELLED;
}
