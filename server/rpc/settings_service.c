#include "server/rpc/settings_service.h"

#include "server/rpc/backpressure.h"
#include "server/rpc/reply.h"
#include "server/rpc/rpc_call.h"
#include "server/rpc/settings_request.h"

#include <stdlib.h>

/* Most memory of a list. The texts of all settings take less than 600 KB. */
#define LIST_BYTES_MAX (UINT64_C(1) << 20)

/* A request and its caller. */
struct eb_settings_call {
    struct eb_settings_request request;
    struct eb_mail mail; /* carries the request to the admin endpoint, and back */
    struct eb_service_loop *loop;
    struct eb_rpc_call *call; /* used only on the loop's thread; NULL if the caller has gone */
};

/* ---- back at the loop ---- */

/* Returns NULL if out of memory. */
static struct eb_outgoing *make_settings_answer(
    struct eb_rpc_call *call, const struct eb_settings_request *request)
{
    bool is_list = request->verb == EB_SETTINGS_LIST;
    size_t bytes =
        is_list ? eb_setting_list_bytes(&request->list) : eb_reload_bytes(&request->reload);
    struct eb_outgoing *made = eb_reply_take(eb_loop_answer_pool(eb_rpc_call_loop(call)), bytes);
    if (made && is_list) {
        eb_setting_list_encode(&request->list, eb_reply_body(made));
    } else if (made) {
        eb_reload_encode(&request->reload, eb_reply_body(made));
    }
    return made;
}

static void answer_settings(struct eb_rpc_call *call, const struct eb_settings_request *request)
{
    if (call->is_finished) {
        return;
    }
    if (request->error.status != EB_STATUS_OK) {
        eb_rpc_call_finish(call, request->error.status, request->error.text, 0);
        return;
    }
    struct eb_outgoing *made = make_settings_answer(call, request);
    if (made) {
        eb_rpc_call_answer(call, made);
        eb_rpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    } else {
        eb_rpc_call_finish(call, EB_STATUS_RESOURCE_EXHAUSTED,
            "no memory left for the answer (answer_memory_bytes); retry later", 0);
    }
}

static void on_settings_back(struct eb_mail *mail)
{
    struct eb_settings_call *settings = EB_CONTAINER_OF(mail, struct eb_settings_call, mail);
    struct eb_loop *loop = settings->loop->lookups.loop;
    if (settings->call) {
        settings->call->settings = NULL;
        answer_settings(settings->call, &settings->request);
    }
    settings->loop->command_count--;
    eb_arena_deinit(&settings->request.arena);
    free(settings);
    eb_loop_release(loop);
}

/* ---- at the admin endpoint ---- */

static void on_settings_done(struct eb_settings_request *request)
{
    struct eb_settings_call *settings = EB_CONTAINER_OF(request, struct eb_settings_call, request);
    settings->mail.deliver = on_settings_back;
    eb_mailbox_post(eb_loop_mailbox(settings->loop->lookups.loop), &settings->mail);
}

static void on_settings_arrival(struct eb_mail *mail)
{
    struct eb_settings_call *settings = EB_CONTAINER_OF(mail, struct eb_settings_call, mail);
    const struct eb_admin_endpoint *endpoint = &settings->loop->service->admin;
    endpoint->ask_settings(endpoint->settings_context, &settings->request);
}

/* ---- beginning ---- */

/* Returns NULL with *error set if the request is refused. */
static struct eb_settings_call *create_settings_call(struct eb_rpc_call *call,
    const struct eb_grpc_message *message, enum eb_settings_verb verb, struct eb_error *error)
{
    struct eb_service_loop *loop = call->conn->loop;
    if (!eb_empty_decode(message->bytes, message->size, error) ||
        !eb_backpressure_may_command(loop, error)) {
        return NULL;
    }
    struct eb_settings_call *settings = calloc(1, sizeof *settings);
    if (!settings) {
        eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED, "no memory left; retry later");
        return NULL;
    }
    settings->request = (struct eb_settings_request){.verb = verb, .on_done = on_settings_done};
    eb_arena_init(&settings->request.arena, &eb_memory_heap);
    eb_arena_reset(&settings->request.arena, LIST_BYTES_MAX);
    settings->mail.deliver = on_settings_arrival;
    settings->loop = loop;
    settings->call = call;
    return settings;
}

static void start_settings_call(
    struct eb_rpc_call *call, const struct eb_grpc_message *message, enum eb_settings_verb verb)
{
    struct eb_error error;
    struct eb_settings_call *settings = create_settings_call(call, message, verb, &error);
    if (!settings) {
        eb_rpc_call_refuse(call, &error);
        return;
    }
    call->settings = settings;
    call->conn->loop->command_count++;
    eb_loop_hold(eb_rpc_call_loop(call));
    eb_mailbox_post(call->conn->loop->service->admin.mailbox, &settings->mail);
}

void eb_settings_service_list(struct eb_rpc_call *call, const struct eb_grpc_message *message)
{
    start_settings_call(call, message, EB_SETTINGS_LIST);
}

void eb_settings_service_reload(struct eb_rpc_call *call, const struct eb_grpc_message *message)
{
    start_settings_call(call, message, EB_SETTINGS_RELOAD);
}

void eb_settings_service_forget(struct eb_rpc_call *call)
{
    if (call->settings) {
        call->settings->call = NULL;
        call->settings = NULL;
    }
}
