#include "client/dispatcher.h"

#include "client/models_call.h"
#include "client/retry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end of calls ---- */

static void end_dispatcher_call(struct eb_dispatcher *dispatcher, struct eb_call *call)
{
    eb_alarms_clear(dispatcher->alarms, &call->alarm);
    call->state = EB_CALL_OVER;
    call->connection = NULL;
    eb_outgoing_drop(call->request);
    call->request = NULL;
    call->on_over(call);
}

static void discard_answer(struct eb_call *call)
{
    switch (call->kind) {
    case EB_CALL_LOOKUP: eb_lookup_call_free(call->answer); break;
    case EB_CALL_LIST_MODELS: eb_models_call_free(call->answer); break;
    case EB_CALL_LIST_SETTINGS: eb_settings_call_free(call->answer); break;
    case EB_CALL_COMMAND:
    case EB_CALL_RELOAD: free(call->answer); break;
    }
    call->answer = NULL;
}

/* Adds to an error that the server may have refused former credentials because the present ones
 * cannot be read. */
static void blame_credentials(const struct eb_credentials *credentials, struct eb_error *error)
{
    bool is_likely =
        error->status == EB_STATUS_UNAUTHENTICATED || error->status == EB_STATUS_UNAVAILABLE;
    if (is_likely && credentials->stale_reason[0]) {
        size_t used = strlen(error->text);
        (void)snprintf(error->text + used, sizeof error->text - used,
            "; former credentials are in use: %s", credentials->stale_reason);
    }
}

static void fail_call(struct eb_call *call, const struct eb_error *why)
{
    discard_answer(call);
    call->error.status = why->status;
    (void)strcpy(call->error.text, why->text);
    blame_credentials(call->dispatcher->options.credentials, &call->error);
    end_dispatcher_call(call->dispatcher, call);
}

static struct eb_call_list *find_waiting(
    struct eb_dispatcher *dispatcher, const struct eb_call *call)
{
    return &dispatcher->waiting[call->priority];
}

void eb_dispatcher_abandon(struct eb_call *call, enum eb_status status, const char *text)
{
    struct eb_error why;
    eb_error_set(&why, status, "%s", text);
    if (call->state == EB_CALL_WAITING) {
        eb_call_list_remove(find_waiting(call->dispatcher, call), call);
    } else if (call->state == EB_CALL_SENT) {
        eb_connection_withdraw(call->connection, call);
    }
    fail_call(call, &why);
}

static void on_call_alarm(struct eb_alarm *alarm);

void eb_dispatcher_enqueue(struct eb_dispatcher *dispatcher, struct eb_call *call)
{
    call->state = EB_CALL_WAITING;
    call->connection = NULL;
    call->alarm.ring = on_call_alarm;
    eb_call_list_append(find_waiting(dispatcher, call), call);
    eb_alarms_set(dispatcher->alarms, &call->alarm, call->deadline_ns);
}

static bool is_connected(const struct eb_dispatcher *dispatcher)
{
    for (uint32_t i = 0; i < dispatcher->connection_count; i++) {
        if (eb_connection_is_usable(&dispatcher->connections[i])) {
            return true;
        }
    }
    return false;
}

/* Sets *why for a call whose deadline has passed. If the last attempt to connect has failed, sets
 * *why to the reason for that, so that the call ends as it would after its last attempt. */
static void explain_expiry(const struct eb_call *call, struct eb_error *why)
{
    const struct eb_dispatcher *dispatcher = call->dispatcher;
    bool has_connection = call->state == EB_CALL_SENT || is_connected(dispatcher);
    if (!has_connection && dispatcher->connect_error.status != EB_STATUS_OK) {
        *why = dispatcher->connect_error;
        return;
    }
    const char *text = "no answer before the deadline";
    if (!call->was_sent) {
        text = has_connection
                   ? "not sent before the deadline: earlier calls were still in flight"
                   : "not sent before the deadline: there is no connection to the server";
    }
    eb_error_set(why, EB_STATUS_DEADLINE_EXCEEDED, "%s", text);
}

static void expire_call(struct eb_call *call)
{
    struct eb_error why;
    explain_expiry(call, &why);
    if (call->state == EB_CALL_WAITING) {
        eb_call_list_remove(find_waiting(call->dispatcher, call), call);
        for (uint32_t i = 0; i < call->dispatcher->connection_count; i++) {
            eb_connection_check(&call->dispatcher->connections[i], uv_hrtime());
        }
    } else if (call->state == EB_CALL_SENT) {
        eb_connection_expire(call->connection, call, uv_hrtime());
    }
    fail_call(call, &why);
}

/* Handles a call's deadline or the time of its next attempt. */
static void on_call_alarm(struct eb_alarm *alarm)
{
    struct eb_call *call = EB_CONTAINER_OF(alarm, struct eb_call, alarm);
    if (alarm->at_ns >= call->deadline_ns) {
        expire_call(call);
    } else {
        eb_dispatcher_enqueue(call->dispatcher, call);
    }
}

static uint32_t draw_jitter(struct eb_dispatcher *dispatcher)
{
    dispatcher->random = dispatcher->random * 1664525 + 1013904223;
    return dispatcher->random;
}

/* Returns whether the call changes something, so that it is never sent twice. */
static bool changes_server(const struct eb_call *call)
{
    return call->kind == EB_CALL_COMMAND || call->kind == EB_CALL_RELOAD;
}

/* Ends a call that has failed, or makes it wait before it is sent again. */
static void retry_or_fail(struct eb_call *call, const struct eb_error *why)
{
    struct eb_dispatcher *dispatcher = call->dispatcher;
    struct eb_retry_case failure = {
        .status = why->status,
        .retry_after_ms = call->retry_after_ms,
        .attempts = call->attempts,
        .retries_max = changes_server(call) ? 0 : dispatcher->options.retries_max,
        .now_ns = uv_hrtime(),
        .deadline_ns = call->deadline_ns,
    };
    uint64_t at_ns = eb_retry_at_ns(&failure, draw_jitter(dispatcher));
    if (at_ns == EB_RETRY_NEVER || dispatcher->is_ending) {
        fail_call(call, why);
        return;
    }
    call->state = EB_CALL_PAUSED;
    call->connection = NULL;
    eb_alarms_set(dispatcher->alarms, &call->alarm, at_ns);
}

/* ---- callbacks of connections ---- */

/* Returns the call that an answer of the stream is for; NULL if the answer is late or belongs to no
 * call. */
static struct eb_call *find_sent(struct eb_connection *connection, uint64_t id)
{
    struct eb_dispatcher *dispatcher = connection->config->context;
    struct eb_call *call = eb_calls_find(dispatcher->calls, id);
    bool is_sent =
        call && call->state == EB_CALL_SENT && call->connection == connection && !call->unary;
    return is_sent ? call : NULL;
}

static void settle_answer(struct eb_call *call, struct eb_lookup_answer *answer)
{
    struct eb_error why;
    call->retry_after_ms = answer->response->retry_after_ms;
    if (eb_lookup_call_check(answer, &call->expected, &why)) {
        call->answer = answer;
        end_dispatcher_call(call->dispatcher, call);
        return;
    }
    eb_lookup_call_free(answer);
    if (call->request->holds > 1) {
        /* The server has refused the call before all of its request was written. The request is
         * still in a send queue and cannot be in another. */
        fail_call(call, &why);
    } else {
        retry_or_fail(call, &why);
    }
}

static bool on_stream_message(
    struct eb_connection *connection, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_lookup_answer *answer = eb_lookup_call_decode(bytes, size, error);
    if (!answer) {
        return false;
    }
    const struct eb_wire_response *response = answer->response;
    struct eb_call *call = find_sent(connection, response->request_id);
    if (!call) {
        eb_connection_answered_late(connection);
        eb_lookup_call_free(answer);
        return true;
    }
    eb_connection_answered(
        connection, call, (enum eb_status)response->error_code, response->retry_after_ms);
    settle_answer(call, answer);
    return true;
}

/* Returns the outcome of a command. Returns NULL if it is still to come, or if the call's error is
 * set. */
static void *decode_progress(struct eb_call *call, const uint8_t *bytes, size_t size)
{
    struct eb_models_progress *progress = eb_models_call_decode_progress(bytes, size, &call->error);
    if (progress && !progress->done) {
        call->on_progress(call, progress);
        free(progress);
        progress = NULL;
    }
    return progress;
}

static void *decode(struct eb_call *call, const uint8_t *bytes, size_t size)
{
    if (call->kind == EB_CALL_LIST_MODELS) {
        return eb_models_call_decode(bytes, size, &call->error);
    }
    if (call->kind == EB_CALL_COMMAND) {
        return decode_progress(call, bytes, size);
    }
    if (call->kind == EB_CALL_LIST_SETTINGS) {
        return eb_settings_call_decode(bytes, size, &call->error);
    }
    if (call->kind == EB_CALL_RELOAD) {
        return eb_settings_call_decode_reload(bytes, size, &call->error);
    }
    struct eb_lookup_answer *answer = eb_lookup_call_decode(bytes, size, &call->error);
    if (answer) {
        call->retry_after_ms = answer->response->retry_after_ms;
        if (!eb_lookup_call_check(answer, &call->expected, &call->error)) {
            eb_lookup_call_free(answer);
            answer = NULL;
        }
    }
    return answer;
}

static void on_dispatcher_message(struct eb_call *call, const uint8_t *bytes, size_t size)
{
    if (call->answer) {
        discard_answer(call);
        eb_error_set(
            &call->error, EB_STATUS_INTERNAL, "the server sent more than one answer to one call");
    } else if (call->error.status == EB_STATUS_OK) {
        call->answer = decode(call, bytes, size);
    }
}

static void on_dispatcher_end(
    struct eb_call *call, const struct eb_error *error, uint32_t pushback_ms)
{
    if (call->error.status != EB_STATUS_OK) {
        end_dispatcher_call(call->dispatcher, call);
    } else if (error->status != EB_STATUS_OK) {
        discard_answer(call);
        call->retry_after_ms = pushback_ms;
        retry_or_fail(call, error);
    } else {
        if (!call->answer) {
            eb_error_set(&call->error, EB_STATUS_INTERNAL, "the server sent no answer");
        }
        end_dispatcher_call(call->dispatcher, call);
    }
}

/* Any request of a stream may have caused its end, and it is not known which one did. So each is
 * sent again as a unary call and gets its own answer. */
static void on_drop(struct eb_call *call, const struct eb_error *why)
{
    struct eb_dispatcher *dispatcher = call->dispatcher;
    discard_answer(call);
    if (call->request->holds > 1) {
        /* The request is still in the send queue of a stream that was given up, and cannot be in
         * another. */
        fail_call(call, why);
        return;
    }
    if (why->status == EB_STATUS_UNAVAILABLE) {
        retry_or_fail(call, why);
        return;
    }
    if (why->status == EB_STATUS_UNIMPLEMENTED) {
        dispatcher->options.mode = EMBAG_MODE_UNARY;
    }
    if (dispatcher->is_ending || call->is_unary) {
        fail_call(call, why);
        return;
    }
    call->is_unary = true;
    eb_dispatcher_enqueue(dispatcher, call);
}

static void report_opening(struct eb_dispatcher *dispatcher, const struct eb_error *why)
{
    dispatcher->is_opening = false;
    dispatcher->handler->on_opened(dispatcher->context, why);
}

static void on_dispatcher_open(void *context, struct eb_connection *connection)
{
    (void)connection;
    struct eb_dispatcher *dispatcher = context;
    if (dispatcher->is_opening) {
        report_opening(dispatcher, NULL);
    }
}

/* ---- connections ---- */

/* Counts the connections that take calls or may do so soon. */
static uint32_t count_live(const struct eb_dispatcher *dispatcher)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < dispatcher->connection_count; i++) {
        const struct eb_connection *connection = &dispatcher->connections[i];
        live += connection->transport.state == EB_TRANSPORT_OPENING ||
                eb_connection_is_usable(connection);
    }
    return live;
}

static bool is_all_closed(const struct eb_dispatcher *dispatcher)
{
    for (uint32_t i = 0; i < dispatcher->connection_count; i++) {
        if (dispatcher->connections[i].session) {
            return false;
        }
    }
    return true;
}

/* Counts a failed attempt for all waiting calls, because no connection can be opened. */
static void refuse_waiting(struct eb_dispatcher *dispatcher, const struct eb_error *why)
{
    for (int i = 0; i < EB_CALL_PRIORITIES; i++) {
        struct eb_call_list *waiting = &dispatcher->waiting[i];
        for (uint32_t left = waiting->count; left > 0; left--) {
            struct eb_call *call = eb_call_list_first(waiting);
            eb_call_list_remove(waiting, call);
            call->attempts++;
            retry_or_fail(call, why);
        }
    }
}

/* Delays the next attempts to connect, because a connection was of no use. */
static void back_off(struct eb_dispatcher *dispatcher)
{
    uint64_t now_ns = uv_hrtime();
    dispatcher->connects_early = false;
    if (dispatcher->connect_not_before_ns <= now_ns) {
        dispatcher->connect_failures++;
        dispatcher->connect_not_before_ns =
            now_ns + eb_retry_pause_ns(dispatcher->connect_failures, draw_jitter(dispatcher));
    }
}

/* Stores the reason why there is no connection until the next attempt. Returns false if there is a
 * connection after all, or may be one soon. */
static bool note_connect_error(struct eb_dispatcher *dispatcher, const struct eb_error *why)
{
    if (count_live(dispatcher) > 0) {
        return false;
    }
    dispatcher->connect_error = *why;
    return true;
}

static void on_connect_failure(struct eb_dispatcher *dispatcher, const struct eb_error *why)
{
    back_off(dispatcher);
    if (!note_connect_error(dispatcher, why)) {
        return;
    }
    if (dispatcher->is_opening) {
        report_opening(dispatcher, why);
    }
    refuse_waiting(dispatcher, why);
}

static void on_dispatcher_close(
    void *context, struct eb_connection *connection, const struct eb_error *why)
{
    struct eb_dispatcher *dispatcher = context;
    if (dispatcher->is_ending) {
        if (is_all_closed(dispatcher)) {
            dispatcher->handler->on_ended(dispatcher->context);
        }
    } else if (!connection->has_spoken) {
        on_connect_failure(dispatcher, why);
    } else if (!connection->has_answered) {
        back_off(dispatcher);
        (void)note_connect_error(dispatcher, why);
    } else {
        dispatcher->connect_failures = 0;
        dispatcher->connects_early = true;
    }
}

static const struct eb_connection_handler connection_handler = {on_dispatcher_open,
    on_dispatcher_close, on_stream_message, on_dispatcher_message, on_dispatcher_end, on_drop};

static struct eb_connection *find_closed(struct eb_dispatcher *dispatcher)
{
    for (uint32_t i = 0; i < dispatcher->connection_count; i++) {
        if (!dispatcher->connections[i].session) {
            return &dispatcher->connections[i];
        }
    }
    return NULL;
}

static void open_connection(struct eb_dispatcher *dispatcher, struct eb_connection *connection)
{
    dispatcher->connect_error.status = EB_STATUS_OK;
    if (!eb_connection_open(connection, uv_hrtime() + dispatcher->options.connect_timeout_ns)) {
        struct eb_error why;
        eb_error_set(&why, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for a connection");
        on_connect_failure(dispatcher, &why);
    }
}

static uint32_t count_waiting(const struct eb_dispatcher *dispatcher)
{
    uint32_t count = 0;
    for (int i = 0; i < EB_CALL_PRIORITIES; i++) {
        count += dispatcher->waiting[i].count;
    }
    return count;
}

/* Opens the connections that are missing: all at first, later only if they are needed. */
static void connect_missing(struct eb_dispatcher *dispatcher, uint64_t now_ns)
{
    bool asked =
        count_waiting(dispatcher) > 0 || dispatcher->connects_early || dispatcher->is_opening;
    uint32_t live = count_live(dispatcher);
    for (uint32_t i = live; asked && i < dispatcher->options.connections; i++) {
        struct eb_connection *connection = find_closed(dispatcher);
        if (!connection) {
            break;
        }
        if (now_ns < dispatcher->connect_not_before_ns) {
            eb_alarms_set(dispatcher->alarms, &dispatcher->wake, dispatcher->connect_not_before_ns);
            break;
        }
        open_connection(dispatcher, connection);
    }
    if (live >= dispatcher->options.connections) {
        dispatcher->connects_early = false;
    }
}

/* ---- rounds ---- */

/* Returns the connection that takes the next call of a priority: the one with the fewest calls.
 * Returns NULL if no connection can take a call now. */
static struct eb_connection *find_least_busy(
    struct eb_dispatcher *dispatcher, enum eb_call_priority priority)
{
    struct eb_connection *found = NULL;
    for (uint32_t i = 0; i < dispatcher->connection_count; i++) {
        struct eb_connection *connection = &dispatcher->connections[i];
        if (found && connection->calls.count >= found->calls.count) {
            continue;
        }
        if (!eb_connection_takes(connection, priority)) {
            /* Writing may make room. */
            eb_connection_flush(connection);
        }
        if (eb_connection_takes(connection, priority)) {
            found = connection;
        }
    }
    return found;
}

/* Returns the waiting call to send over a connection: the oldest, or the newest if the oldest would
 * likely be answered too late. Then a server that gets more calls than it can answer still answers
 * in time as many as it can. In order of age it would answer all of them late. */
static struct eb_call *find_dispatcher_next(
    const struct eb_call_list *waiting, const struct eb_connection *connection, uint64_t now_ns)
{
    struct eb_call *first = eb_call_list_first(waiting);
    return eb_connection_is_in_time(connection, first, now_ns) ? first : eb_call_list_last(waiting);
}

static void send_call(
    struct eb_dispatcher *dispatcher, struct eb_connection *connection, struct eb_call *call)
{
    eb_call_list_remove(find_waiting(dispatcher, call), call);
    call->attempts++;
    call->retry_after_ms = 0;
    call->error.status = EB_STATUS_OK;
    call->state = EB_CALL_SENT;
    call->is_unary |= dispatcher->options.mode == EMBAG_MODE_UNARY;
    if (eb_connection_send(connection, call, dispatcher->now_ns)) {
        call->was_sent = true;
        return;
    }
    struct eb_error why;
    eb_error_set(&why, EB_STATUS_UNAVAILABLE, "the connection to %s accepts no more calls",
        dispatcher->options.authority);
    retry_or_fail(call, &why);
}

static void send_waiting(struct eb_dispatcher *dispatcher, enum eb_call_priority priority)
{
    struct eb_call_list *waiting = &dispatcher->waiting[priority];
    /* Each call is tried once, because those that fail may be queued again. */
    for (uint32_t left = waiting->count; left > 0 && waiting->count > 0; left--) {
        struct eb_connection *connection = find_least_busy(dispatcher, priority);
        if (!connection) {
            return;
        }
        send_call(
            dispatcher, connection, find_dispatcher_next(waiting, connection, dispatcher->now_ns));
    }
}

bool eb_dispatcher_run(struct eb_dispatcher *dispatcher)
{
    bool again = false;
    dispatcher->now_ns = uv_hrtime();
    eb_alarms_ring(dispatcher->alarms, dispatcher->now_ns);
    if (dispatcher->is_ending) {
        return false;
    }
    for (uint32_t i = 0; i < dispatcher->connection_count; i++) {
        eb_connection_settle(&dispatcher->connections[i]);
    }
    for (int i = 0; i < EB_CALL_PRIORITIES; i++) {
        send_waiting(dispatcher, (enum eb_call_priority)i);
    }
    connect_missing(dispatcher, dispatcher->now_ns);
    for (uint32_t i = 0; i < dispatcher->connection_count; i++) {
        eb_connection_flush(&dispatcher->connections[i]);
        again |= eb_connection_must_settle(&dispatcher->connections[i]);
    }
    return again;
}

void eb_dispatcher_renew(struct eb_dispatcher *dispatcher, bool is_token_new)
{
    dispatcher->connect_failures = 0;
    dispatcher->connect_not_before_ns = 0;
    for (uint32_t i = 0; is_token_new && i < dispatcher->connection_count; i++) {
        eb_connection_renew_stream(&dispatcher->connections[i]);
    }
}

/* ---- start and end ---- */

static void on_dispatcher_wake(struct eb_alarm *alarm)
{
    (void)alarm; /* The wake-up only causes the round that it rings in. */
}

bool eb_dispatcher_init(struct eb_dispatcher *dispatcher, uv_loop_t *loop,
    const struct eb_memory *memory, uv_buf_t read_buffer)
{
    const struct eb_dispatcher_options *options = &dispatcher->options;
    dispatcher->connection_count = 2 * options->connections;
    dispatcher->connections = calloc(dispatcher->connection_count, sizeof *dispatcher->connections);
    if (!dispatcher->connections) {
        return false;
    }
    dispatcher->random = (uint32_t)uv_hrtime() ^ (uint32_t)(uintptr_t)dispatcher;
    dispatcher->is_opening = true;
    dispatcher->wake.ring = on_dispatcher_wake;
    dispatcher->config = (struct eb_connection_config){
        .handler = &connection_handler,
        .context = dispatcher,
        .identity = {.authority = options->authority,
            .authorization =
                options->credentials->authorization[0] ? options->credentials->authorization : NULL,
            .is_secure = options->credentials->tls},
        .limits = {.response_bytes_max = options->answer_bytes_max},
        .memory = memory,
        .is_unpaced = options->is_unpaced,
    };
    for (int i = 0; i < EB_CALL_PRIORITIES; i++) {
        eb_call_list_init(&dispatcher->waiting[i]);
    }
    for (uint32_t i = 0; i < dispatcher->connection_count; i++) {
        struct eb_connection *connection = &dispatcher->connections[i];
        connection->config = &dispatcher->config;
        connection->transport.loop = loop;
        connection->transport.alarms = dispatcher->alarms;
        connection->transport.endpoint = &options->endpoint;
        connection->transport.credentials = options->credentials;
        connection->transport.read_buffer = read_buffer;
    }
    return true;
}

void eb_dispatcher_deinit(struct eb_dispatcher *dispatcher)
{
    free(dispatcher->connections);
}

void eb_dispatcher_end(struct eb_dispatcher *dispatcher)
{
    dispatcher->is_ending = true;
    for (uint32_t i = 0; i < dispatcher->calls->count; i++) {
        struct eb_call *call = &dispatcher->calls->records[i];
        if (call->state != EB_CALL_OVER) {
            eb_dispatcher_abandon(call, EB_STATUS_CANCELLED, "the client is being closed");
        }
    }
    if (is_all_closed(dispatcher)) {
        dispatcher->handler->on_ended(dispatcher->context);
        return;
    }
    for (uint32_t i = 0; i < dispatcher->connection_count; i++) {
        eb_connection_close(&dispatcher->connections[i]);
    }
}
