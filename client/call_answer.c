#include "client/call_answer.h"

#include <assert.h>
#include <stdlib.h>

static struct eb_call *find_answered(struct eb_dispatch_call *dispatched)
{
    return EB_CONTAINER_OF(dispatched, struct eb_call, dispatched);
}

bool eb_call_answer_decode(void *context, const uint8_t *bytes, size_t size,
    struct eb_dispatch_answer *answer, struct eb_error *error)
{
    (void)context;
    struct eb_lookup_answer *decoded = eb_lookup_call_decode(bytes, size, error);
    if (!decoded) {
        return false;
    }
    *answer = (struct eb_dispatch_answer){.id = decoded->response->request_id,
        .status = eb_status_of_number(decoded->response->error_code),
        .retry_after_ms = decoded->response->retry_after_ms,
        .message = decoded};
    return true;
}

bool eb_call_answer_accept(
    struct eb_dispatch_call *dispatched, void *message, struct eb_error *error)
{
    struct eb_call *call = find_answered(dispatched);
    if (eb_lookup_call_check(message, &call->expected, error)) {
        call->answer = message;
        return true;
    }
    eb_lookup_call_free(message);
    return false;
}

void eb_call_answer_drop(void *context, void *message)
{
    (void)context;
    eb_lookup_call_free(message);
}

/* Returns the outcome of a command. Returns NULL if it is still to come, or if *error is set. */
static void *decode_progress(
    struct eb_call *call, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_models_progress *progress = eb_models_call_decode_progress(bytes, size, error);
    if (progress && !progress->done) {
        call->on_progress(call, progress);
        free(progress);
        progress = NULL;
    }
    return progress;
}

bool eb_call_answer_on_message(
    struct eb_dispatch_call *dispatched, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_call *call = find_answered(dispatched);
    switch (call->kind) {
    case EB_CALL_LOOKUP: assert(false); break; /* A lookup has no path. */
    case EB_CALL_LIST_MODELS: call->answer = eb_models_call_decode(bytes, size, error); break;
    case EB_CALL_COMMAND: call->answer = decode_progress(call, bytes, size, error); break;
    case EB_CALL_LIST_SETTINGS: call->answer = eb_settings_call_decode(bytes, size, error); break;
    case EB_CALL_RELOAD: call->answer = eb_settings_call_decode_reload(bytes, size, error); break;
    }
    return call->answer;
}

void eb_call_answer_discard(struct eb_dispatch_call *dispatched)
{
    struct eb_call *call = find_answered(dispatched);
    switch (call->kind) {
    case EB_CALL_LOOKUP: eb_lookup_call_free(call->answer); break;
    case EB_CALL_LIST_MODELS: eb_models_call_free(call->answer); break;
    case EB_CALL_LIST_SETTINGS: eb_settings_call_free(call->answer); break;
    case EB_CALL_COMMAND:
    case EB_CALL_RELOAD: free(call->answer); break;
    }
    call->answer = NULL;
}
