#include "server/rpc/admin_service.h"

#include "proto/codec_admin.h"
#include "server/rpc/backpressure.h"
#include "server/rpc/catalogue.h"
#include "server/rpc/reply.h"
#include "server/rpc/rpc_call.h"
#include "server/rpc/settings_service.h"

#include <stdlib.h>
#include <string.h>

/* A command and its caller. */
struct eb_admin_command {
    struct eb_model_command command;
    struct eb_mail mail; /* carries the command to the admin endpoint, and back with the outcome */
    struct eb_service_loop *loop;
    struct eb_rpc_call *call; /* used only on the loop's thread; NULL if the caller has gone */
    enum eb_model_outcome outcome;
    char text[EB_FAILURE_BYTES];
    char model[];
};

/* A command's progress on its way from the admin endpoint to the loop. */
struct progress_mail {
    struct eb_mail mail;
    struct eb_admin_command *command;
    struct eb_wire_progress progress;
};

/* ---- back at the loop ---- */

/* Returns false if out of memory. */
static bool send_progress(struct eb_rpc_call *call, const struct eb_wire_progress *progress)
{
    struct eb_outgoing *message = eb_reply_take(
        eb_loop_answer_pool(eb_rpc_call_loop(call)), eb_version_progress_bytes(progress));
    if (message) {
        eb_version_progress_encode(progress, eb_reply_body(message));
        eb_rpc_call_answer(call, message);
        eb_conn_mark(call->conn->conn);
    }
    return message;
}

/* Sends the progress, unless the caller has not taken enough of what was sent before. */
static void on_progress_back(struct eb_mail *mail)
{
    struct progress_mail *told = EB_CONTAINER_OF(mail, struct progress_mail, mail);
    struct eb_rpc_call *call = told->command->call;
    if (call && !call->is_finished &&
        eb_conn_waiting_bytes(call->conn->conn) < EB_RPC_STREAMING_WAITING_BYTES_MAX) {
        (void)send_progress(call, &told->progress);
    }
    free(told);
}

static enum eb_status translate_outcome(enum eb_model_outcome outcome)
{
    switch (outcome) {
    case EB_MODEL_DONE: return EB_STATUS_OK;
    case EB_MODEL_NOT_FOUND: return EB_STATUS_NOT_FOUND;
    case EB_MODEL_REFUSED:
    case EB_MODEL_FAILED: return EB_STATUS_FAILED_PRECONDITION;
    case EB_MODEL_SHORT: return EB_STATUS_RESOURCE_EXHAUSTED;
    case EB_MODEL_CANCELLED: return EB_STATUS_UNAVAILABLE;
    }
    return EB_STATUS_UNKNOWN;
}

static void answer_admin(struct eb_rpc_call *call, const struct eb_admin_command *command)
{
    enum eb_status status = translate_outcome(command->outcome);
    struct eb_wire_progress done = {.done = true, .text = command->text};
    if (status != EB_STATUS_OK) {
        eb_rpc_call_finish(call, status, command->text, 0);
    } else if (call->is_finished || send_progress(call, &done)) {
        eb_rpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    } else {
        eb_rpc_call_finish(call, EB_STATUS_RESOURCE_EXHAUSTED,
            "the command is done, but no memory is left for its answer (answer_memory_bytes)", 0);
    }
}

static void on_done_back(struct eb_mail *mail)
{
    struct eb_admin_command *command = EB_CONTAINER_OF(mail, struct eb_admin_command, mail);
    struct eb_loop *loop = command->loop->lookups.loop;
    if (command->call) {
        command->call->command = NULL;
        answer_admin(command->call, command);
    }
    command->loop->command_count--;
    free(command);
    eb_loop_release(loop);
}

/* ---- at the admin endpoint ---- */

/* Posts the progress to the loop. Drops it if out of memory. */
static void on_admin_progress(
    struct eb_model_command *asked, uint64_t done_bytes, uint64_t total_bytes)
{
    struct eb_admin_command *command = EB_CONTAINER_OF(asked, struct eb_admin_command, command);
    struct progress_mail *told = malloc(sizeof *told);
    if (told) {
        *told = (struct progress_mail){.mail = {.deliver = on_progress_back},
            .command = command,
            .progress = {.done_bytes = done_bytes, .total_bytes = total_bytes, .text = ""}};
        eb_mailbox_post(eb_loop_mailbox(command->loop->lookups.loop), &told->mail);
    }
}

static void on_admin_done(
    struct eb_model_command *asked, enum eb_model_outcome outcome, const char *text)
{
    struct eb_admin_command *command = EB_CONTAINER_OF(asked, struct eb_admin_command, command);
    command->outcome = outcome;
    snprintf(command->text, sizeof command->text, "%s", text);
    command->mail.deliver = on_done_back;
    eb_mailbox_post(eb_loop_mailbox(command->loop->lookups.loop), &command->mail);
}

static void on_arrival(struct eb_mail *mail)
{
    struct eb_admin_command *command = EB_CONTAINER_OF(mail, struct eb_admin_command, mail);
    const struct eb_admin_endpoint *endpoint = &command->loop->service->admin;
    endpoint->ask(endpoint->context, &command->command);
}

/* ---- beginning ---- */

/* A decoded command for the admin endpoint. */
struct command_request {
    enum eb_model_verb verb;
    const struct eb_wire_model_query *request;
};

static bool check_command(
    const struct eb_service_loop *loop, const struct command_request *asked, struct eb_error *error)
{
    const struct eb_wire_model_query *request = asked->request;
    if (request->model[0] == '\0') {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "model: no model is named; ListVersions shows all models");
    } else if (asked->verb == EB_MODEL_UNLOAD && request->version == 0) {
        eb_error_set(error, EB_STATUS_INVALID_ARGUMENT,
            "version: no version is named; ListVersions shows which ones are in memory");
    } else {
        return eb_backpressure_may_command(loop, error);
    }
    return false;
}

/* Returns NULL if out of memory. */
static struct eb_admin_command *create_command(
    struct eb_rpc_call *call, const struct command_request *asked)
{
    const struct eb_wire_model_query *request = asked->request;
    size_t model_bytes = strlen(request->model) + 1;
    struct eb_admin_command *command = calloc(1, sizeof *command + model_bytes);
    if (command) {
        memcpy(command->model, request->model, model_bytes);
        command->command = (struct eb_model_command){.verb = asked->verb,
            .model = command->model,
            .version = request->version,
            .on_progress = on_admin_progress,
            .on_done = on_admin_done};
        command->mail.deliver = on_arrival;
        command->loop = call->conn->loop;
        command->call = call;
    }
    return command;
}

/* Returns NULL with *error set if the command is refused. */
static struct eb_admin_command *read_command(struct eb_rpc_call *call,
    const struct eb_grpc_message *message, enum eb_model_verb verb, struct eb_error *error)
{
    struct eb_service_loop *loop = call->conn->loop;
    const struct eb_limits *limits = eb_rpc_conn_limits(call->conn);
    struct eb_codec_limits codec_limits = {.name_bytes_max = (uint32_t)limits->name_bytes_max};
    struct eb_admin_command *command = NULL;
    eb_arena_reset(&loop->arena, limits->response_bytes_max);
    struct command_request asked = {verb, eb_version_request_decode(&loop->arena, message->bytes,
                                              message->size, &codec_limits, error)};
    if (asked.request && check_command(loop, &asked, error)) {
        command = create_command(call, &asked);
        if (!command) {
            eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; retry later");
        }
    }
    eb_arena_reset(&loop->arena, 0);
    return command;
}

static void start_admin_call(
    struct eb_rpc_call *call, const struct eb_grpc_message *message, enum eb_model_verb verb)
{
    struct eb_error error;
    struct eb_admin_command *command = read_command(call, message, verb, &error);
    if (!command) {
        eb_rpc_call_refuse(call, &error);
        return;
    }
    call->command = command;
    call->conn->loop->command_count++;
    eb_loop_hold(eb_rpc_call_loop(call));
    eb_mailbox_post(call->conn->loop->service->admin.mailbox, &command->mail);
}

static void start_admin_load(struct eb_rpc_call *call, const struct eb_grpc_message *message)
{
    start_admin_call(call, message, EB_MODEL_LOAD);
}

static void start_unload(struct eb_rpc_call *call, const struct eb_grpc_message *message)
{
    start_admin_call(call, message, EB_MODEL_UNLOAD);
}

static void start_serve(struct eb_rpc_call *call, const struct eb_grpc_message *message)
{
    start_admin_call(call, message, EB_MODEL_SERVE);
}

/* Detaches the command from its caller. The command continues. */
static void forget_admin_call(struct eb_rpc_call *call)
{
    if (call->command) {
        call->command->call = NULL;
        call->command = NULL;
    }
}

/* ---- methods ---- */

static bool check_place(const struct eb_rpc_conn *conn, struct eb_error *error)
{
    const struct eb_server_facts *facts = &conn->loop->service->facts;
    if (eb_conn_is_admin(conn->conn) || facts->is_admin_on_data_port) {
        return true;
    }
    eb_error_set(error, EB_STATUS_PERMISSION_DENIED,
        "ModelAdmin is not available on this address: call it on the socket of the setting "
        "admin_listen%s, or set admin_on_data_port",
        facts->admin_listen ? "" : ", which is not set");
    return false;
}

static const struct eb_method methods[] = {
    {"LoadVersion", EB_METHOD_SERVER_STREAMING, .start = start_admin_load,
        .on_close = forget_admin_call},
    {"UnloadVersion", EB_METHOD_SERVER_STREAMING, .start = start_unload,
        .on_close = forget_admin_call},
    {"ServeVersion", EB_METHOD_SERVER_STREAMING, .start = start_serve,
        .on_close = forget_admin_call},
    {"ListVersions", EB_METHOD_UNARY, .answer = eb_catalogue_list_versions},
    {"ReloadSettings", EB_METHOD_SERVER_STREAMING, .start = eb_settings_service_reload,
        .on_close = eb_settings_service_forget},
    {"ListSettings", EB_METHOD_SERVER_STREAMING, .start = eb_settings_service_list,
        .on_close = eb_settings_service_forget},
};

const struct eb_method_table eb_admin_service_methods = {
    .service = "embag.v1.ModelAdmin",
    .access = EB_METHOD_FOR_ADMINS,
    .methods = methods,
    .count = sizeof methods / sizeof methods[0],
    .check = check_place,
};
