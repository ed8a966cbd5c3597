#include "client/dispatcher.h"

#include "client/models_call.h"
#include "proto/link/request_message.h"
#include "proto/link/retry.h"
#include "proto/splitmix64.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_US 1000
#define RESOLVE_INTERVAL_NS UINT64_C(30000000000)
#define RESCUE_STEP_NS 1000000 /* between attempts to rescue lookups while no server has room */

/* ---- the end of calls ---- */

static bool is_sent(const struct eb_attempt *attempt)
{
    return attempt->connection;
}

/* Drops an attempt's own copy of the request. */
static void drop_copy(const struct eb_call *call, struct eb_attempt *attempt)
{
    if (attempt->request && attempt->request != call->request) {
        eb_outgoing_drop(attempt->request);
    }
    attempt->request = NULL;
}

/* Notes how an attempt has ended that is no longer its connection's. */
static void end_attempt(struct eb_attempt *attempt, enum eb_attempt_end end)
{
    const struct eb_call *call = attempt->owner;
    eb_peer_set_end(&call->dispatcher->servers, attempt, end, uv_hrtime());
}

static void withdraw_attempt(struct eb_attempt *attempt)
{
    if (is_sent(attempt)) {
        eb_connection_withdraw(attempt->connection, attempt);
        end_attempt(attempt, EB_ATTEMPT_CANCELLED);
    }
}

/* Ends a call whose result is set. An attempt that is still sent is withdrawn. */
static void end_dispatcher_call(struct eb_dispatcher *dispatcher, struct eb_call *call)
{
    eb_alarms_clear(dispatcher->alarms, &call->alarm);
    eb_alarms_clear(dispatcher->alarms, &call->hedge_alarm);
    withdraw_attempt(&call->attempt);
    withdraw_attempt(&call->hedge);
    call->state = EB_CALL_OVER;
    drop_copy(call, &call->attempt);
    drop_copy(call, &call->hedge);
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

static struct eb_attempt_list *find_waiting(
    struct eb_dispatcher *dispatcher, const struct eb_call *call)
{
    return &dispatcher->waiting[call->priority];
}

void eb_dispatcher_abandon(struct eb_call *call, enum eb_status status, const char *text)
{
    struct eb_error why;
    eb_error_set(&why, status, "%s", text);
    if (call->state == EB_CALL_WAITING) {
        eb_attempt_list_remove(find_waiting(call->dispatcher, call), &call->attempt);
    }
    fail_call(call, &why);
}

static void on_call_alarm(struct eb_alarm *alarm);
static void on_hedge_alarm(struct eb_alarm *alarm);

static void enqueue_call(struct eb_dispatcher *dispatcher, struct eb_call *call)
{
    call->state = EB_CALL_WAITING;
    dispatcher->has_new = true;
    eb_attempt_list_append(find_waiting(dispatcher, call), &call->attempt);
    eb_alarms_set(dispatcher->alarms, &call->alarm, call->deadline_ns);
}

void eb_dispatcher_take(struct eb_dispatcher *dispatcher, struct eb_call *call)
{
    call->attempt = (struct eb_attempt){.owner = call,
        .id = call->id,
        .path = call->path,
        .request = call->request,
        .deadline_ns = call->deadline_ns,
        .priority = call->priority,
        .is_unary = call->path};
    call->hedge = (struct eb_attempt){.owner = call};
    call->tried[0] = NULL;
    call->tried[1] = NULL;
    call->is_hedged = false;
    call->was_resent_free = false;
    call->alarm.ring = on_call_alarm;
    call->hedge_alarm.ring = on_hedge_alarm;
    enqueue_call(dispatcher, call);
}

/* Sets *why for a call whose deadline has passed. If the last attempt to connect has failed, sets
 * *why to the reason for that, so that the call ends as it would after its last attempt. */
static void explain_expiry(const struct eb_call *call, struct eb_error *why)
{
    const struct eb_dispatcher *dispatcher = call->dispatcher;
    bool has_connection =
        call->state == EB_CALL_SENT || eb_peer_set_count_usable(&dispatcher->servers) > 0;
    if (!has_connection && !eb_peer_set_is_live(&dispatcher->servers)) {
        const struct eb_error *reason = eb_peer_set_reason(&dispatcher->servers);
        if (reason->status != EB_STATUS_OK) {
            *why = *reason;
            return;
        }
    }
    const char *text = "no answer before the deadline";
    if (!call->was_sent) {
        text = has_connection
                   ? "not sent before the deadline: earlier calls were still in flight"
                   : "not sent before the deadline: there is no connection to the server";
    }
    eb_error_set(why, EB_STATUS_DEADLINE_EXCEEDED, "%s", text);
}

/* Counts how long a lookup has taken, for later hedges. */
static void note_latency(const struct eb_call *call)
{
    struct eb_dispatcher *dispatcher = call->dispatcher;
    if (dispatcher->hedging.percent > 0) {
        uint64_t now_ns = uv_hrtime();
        eb_hedge_note_latency(
            &dispatcher->hedging, call->request->size, now_ns - call->first_sent_ns, now_ns);
    }
}

static void expire_attempt(struct eb_attempt *attempt)
{
    if (is_sent(attempt)) {
        eb_connection_expire(attempt->connection, attempt, uv_hrtime());
        end_attempt(attempt, EB_ATTEMPT_FAILED);
    }
}

static void expire_call(struct eb_call *call)
{
    struct eb_error why;
    explain_expiry(call, &why);
    if (call->was_sent && call->kind == EB_CALL_LOOKUP) {
        note_latency(call);
    }
    if (call->state == EB_CALL_WAITING) {
        eb_attempt_list_remove(find_waiting(call->dispatcher, call), &call->attempt);
        eb_peer_set_check(&call->dispatcher->servers, uv_hrtime());
    }
    expire_attempt(&call->attempt);
    expire_attempt(&call->hedge);
    fail_call(call, &why);
}

/* Handles a call's deadline or the time of its next attempt. */
static void on_call_alarm(struct eb_alarm *alarm)
{
    struct eb_call *call = EB_CONTAINER_OF(alarm, struct eb_call, alarm);
    if (alarm->at_ns >= call->deadline_ns) {
        expire_call(call);
    } else {
        enqueue_call(call->dispatcher, call);
    }
}

static uint32_t draw_jitter(struct eb_dispatcher *dispatcher)
{
    return (uint32_t)(eb_splitmix64_next(&dispatcher->random) >> 32);
}

/* Returns whether the call changes something, so that it is never sent twice. */
static bool changes_server(const struct eb_call *call)
{
    return call->kind == EB_CALL_COMMAND || call->kind == EB_CALL_RELOAD;
}

/* Makes a call whose attempt has failed wait for its next one at at_ns. */
static void pause_call(struct eb_call *call, uint64_t at_ns)
{
    call->state = EB_CALL_PAUSED;
    eb_alarms_set(call->dispatcher->alarms, &call->alarm, at_ns);
}

/* Returns whether another server than the last one takes the call now. After a refusal that names a
 * time, or if the version is missing, the server before that is left out too. A missing version is
 * worth waiting until the other server has room. */
static bool has_other_server(const struct eb_call *call, const struct eb_retry_case *failure)
{
    struct eb_peer_set *servers = &call->dispatcher->servers;
    bool leaves_out_both = failure->status != EB_STATUS_UNAVAILABLE;
    struct eb_peer_terms terms = {.priority = call->priority,
        .now_ns = failure->now_ns,
        .tried = {call->tried[0], leaves_out_both ? call->tried[1] : NULL},
        .is_other = true};
    if (!call->tried[0]) {
        return false;
    }
    if (failure->status == EB_STATUS_NOT_FOUND) {
        return eb_peer_set_has_untried(servers, &terms);
    }
    return eb_peer_set_choose(servers, &terms);
}

/* Takes what sending the call again costs. It is free the first time after a lost connection,
 * because the request may not even have arrived, and with a single server, which names the pauses
 * itself. Returns false if the budget is spent. */
static bool pay_resend(struct eb_call *call, bool is_lost, uint64_t now_ns)
{
    struct eb_dispatcher *dispatcher = call->dispatcher;
    if (is_lost && !call->was_resent_free) {
        call->was_resent_free = true;
        return true;
    }
    return !eb_peer_set_has_several(&dispatcher->servers) ||
           eb_resend_budget_take(&dispatcher->resends, now_ns);
}

/* How a call's last attempt has ended without an answer. */
enum attempt_end {
    ATTEMPT_REFUSED,
    ATTEMPT_LOST,  /* with its connection */
    ATTEMPT_UNSENT /* there was no connection */
};

/* Ends a call that has failed, or has it sent again: to another server at once, or to the same one
 * after a pause. */
static void retry_or_fail(struct eb_call *call, const struct eb_error *why, enum attempt_end end)
{
    struct eb_dispatcher *dispatcher = call->dispatcher;
    struct eb_retry_case failure = {
        .status = why->status,
        .names_version = call->names_version,
        .retry_after_ms = call->retry_after_ms,
        .attempts = call->attempts,
        .retries_max = changes_server(call) ? 0 : dispatcher->options.retries_max,
        .now_ns = uv_hrtime(),
        .deadline_ns = call->deadline_ns,
    };
    bool may_move = eb_retry_may_move(&failure) && !call->path && has_other_server(call, &failure);
    uint64_t at_ns = may_move ? failure.now_ns : eb_retry_at_ns(&failure, draw_jitter(dispatcher));
    if (at_ns == EB_RETRY_NEVER || dispatcher->is_ending ||
        (end != ATTEMPT_UNSENT && !pay_resend(call, end == ATTEMPT_LOST, failure.now_ns))) {
        fail_call(call, why);
    } else if (may_move) {
        enqueue_call(dispatcher, call);
    } else {
        pause_call(call, at_ns);
    }
}

/* Gives an attempt a copy of the request, because its own is still in the send queue of a stream
 * and cannot be in another. Returns false if out of memory. */
static bool copy_request(const struct eb_call *call, struct eb_attempt *attempt)
{
    struct eb_outgoing *copy = eb_request_message_copy(call->request);
    if (copy) {
        drop_copy(call, attempt);
        attempt->request = copy;
    }
    return copy;
}

static void rescue_call(struct eb_dispatcher *dispatcher, struct eb_call *call);

/* Handles the failure of an attempt. If the call's other attempt is still sent, that one may yet be
 * answered. */
static void handle_failure(
    struct eb_call *call, struct eb_attempt *attempt, const struct eb_error *why, bool is_lost)
{
    struct eb_attempt *other = attempt == &call->attempt ? &call->hedge : &call->attempt;
    bool is_final = eb_attempt_end_of(why->status) == EB_ATTEMPT_REJECTED;
    if (why->status == EB_STATUS_RESOURCE_EXHAUSTED) {
        eb_hedge_note_pushback(&call->dispatcher->hedging, uv_hrtime());
    }
    if (is_sent(other) && !is_final) {
        if (other->peer && other->peer->replica.suspicion.is_suspect) {
            rescue_call(call->dispatcher, call);
        }
        return;
    }
    if (is_final || (call->attempt.request->holds > 1 && !copy_request(call, &call->attempt))) {
        fail_call(call, why);
    } else {
        retry_or_fail(call, why, is_lost ? ATTEMPT_LOST : ATTEMPT_REFUSED);
    }
}

/* ---- callbacks of connections ---- */

static struct eb_dispatcher *find_dispatcher(const struct eb_connection *connection)
{
    struct eb_peer_set *servers = eb_peer_set_find(connection)->context;
    return servers->context;
}

static void on_heard(struct eb_connection *connection)
{
    eb_peer_set_note_heard(&find_dispatcher(connection)->servers, connection);
}

/* Returns the attempt that an answer of the stream is for; NULL if the answer is late or belongs to
 * no attempt. */
static struct eb_attempt *find_attempt(const struct eb_connection *connection, uint64_t id)
{
    struct eb_call *call = eb_calls_find(find_dispatcher(connection)->calls, id);
    if (!call) {
        return NULL;
    }
    struct eb_attempt *attempt =
        call->attempt.connection == connection ? &call->attempt : &call->hedge;
    return attempt->connection == connection && !attempt->unary ? attempt : NULL;
}

/* Counts a lookup that is answered. */
static void note_answer(const struct eb_call *call, const struct eb_attempt *attempt)
{
    call->dispatcher->hedges_won += attempt == &call->hedge && call->is_hedged;
    note_latency(call);
}

static void settle_answer(
    struct eb_call *call, struct eb_attempt *attempt, struct eb_lookup_answer *answer)
{
    struct eb_error why;
    call->retry_after_ms = answer->response->retry_after_ms;
    if (eb_lookup_call_check(answer, &call->expected, &why)) {
        call->answer = answer;
        end_attempt(attempt, EB_ATTEMPT_ANSWERED);
        note_answer(call, attempt);
        end_dispatcher_call(call->dispatcher, call);
        return;
    }
    eb_lookup_call_free(answer);
    end_attempt(attempt, eb_attempt_end_of(why.status));
    handle_failure(call, attempt, &why, false);
}

static bool on_stream_message(
    struct eb_connection *connection, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_lookup_answer *answer = eb_lookup_call_decode(bytes, size, error);
    if (!answer) {
        return false;
    }
    const struct eb_wire_response *response = answer->response;
    struct eb_attempt *attempt = find_attempt(connection, response->request_id);
    if (attempt) {
        eb_connection_answered(
            connection, attempt, (enum eb_status)response->error_code, response->retry_after_ms);
        settle_answer(attempt->owner, attempt, answer);
        return true;
    }
    if (response->request_id != EB_PROBE_ID) {
        eb_connection_answered_late(connection);
    }
    eb_lookup_call_free(answer);
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

static void on_dispatcher_message(struct eb_attempt *attempt, const uint8_t *bytes, size_t size)
{
    struct eb_call *call = attempt->owner;
    if (call->answer) {
        discard_answer(call);
        eb_error_set(
            &call->error, EB_STATUS_INTERNAL, "the server sent more than one answer to one call");
    } else if (call->error.status == EB_STATUS_OK) {
        call->answer = decode(call, bytes, size);
        /* From now on, the call's answer or error is that of this attempt. */
        withdraw_attempt(attempt == &call->attempt ? &call->hedge : &call->attempt);
    }
}

static void on_dispatcher_end(
    struct eb_attempt *attempt, const struct eb_error *error, uint32_t pushback_ms)
{
    struct eb_call *call = attempt->owner;
    end_attempt(attempt, eb_attempt_end_of(error->status));
    if (call->error.status != EB_STATUS_OK) {
        end_dispatcher_call(call->dispatcher, call);
    } else if (error->status != EB_STATUS_OK) {
        discard_answer(call);
        call->retry_after_ms = pushback_ms;
        handle_failure(call, attempt, error, false);
    } else {
        if (!call->answer) {
            eb_error_set(&call->error, EB_STATUS_INTERNAL, "the server sent no answer");
        } else if (call->kind == EB_CALL_LOOKUP) {
            note_answer(call, attempt);
        }
        end_dispatcher_call(call->dispatcher, call);
    }
}

/* Sends a call again as a unary call, for which it gets an answer of its own: its stream has ended
 * with an error. Any request of the stream may have caused that, and it is not known which one
 * did. */
static void retry_unary(struct eb_call *call, const struct eb_error *why)
{
    struct eb_attempt *attempt = &call->attempt;
    withdraw_attempt(&call->hedge);
    if (call->dispatcher->is_ending || attempt->is_unary ||
        (attempt->request->holds > 1 && !copy_request(call, attempt))) {
        fail_call(call, why);
        return;
    }
    attempt->is_unary = true;
    enqueue_call(call->dispatcher, call);
}

static void on_drop(struct eb_attempt *attempt, const struct eb_error *why)
{
    struct eb_call *call = attempt->owner;
    bool is_lost = why->status == EB_STATUS_UNAVAILABLE;
    end_attempt(attempt, is_lost ? EB_ATTEMPT_FAILED : EB_ATTEMPT_CANCELLED);
    discard_answer(call);
    if (why->status == EB_STATUS_UNIMPLEMENTED) {
        call->dispatcher->options.mode = EMBAG_MODE_UNARY;
    }
    if (is_lost) {
        handle_failure(call, attempt, why, true);
    } else if (attempt == &call->attempt || !is_sent(&call->attempt)) {
        retry_unary(call, why);
    }
}

static void report_opening(struct eb_dispatcher *dispatcher, const struct eb_error *why)
{
    dispatcher->is_opening = false;
    dispatcher->handler->on_opened(dispatcher->context, why);
}

/* ---- callbacks of the servers ---- */

static void tell_servers(struct eb_dispatcher *dispatcher)
{
    const struct eb_peer_set *servers = &dispatcher->servers;
    dispatcher->handler->on_servers(
        dispatcher->context, eb_peer_set_count_usable(servers), eb_peer_set_count_listed(servers));
}

static void on_dispatcher_open(void *context)
{
    struct eb_dispatcher *dispatcher = context;
    tell_servers(dispatcher);
    if (dispatcher->is_opening) {
        report_opening(dispatcher, NULL);
    }
}

/* Counts a failed attempt for all waiting calls, because no connection can be opened. */
static void refuse_waiting(struct eb_dispatcher *dispatcher, const struct eb_error *why)
{
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        struct eb_attempt_list *waiting = &dispatcher->waiting[i];
        for (uint32_t left = waiting->count; left > 0; left--) {
            struct eb_call *call = eb_attempt_list_first(waiting)->owner;
            eb_attempt_list_remove(waiting, &call->attempt);
            call->attempts++;
            retry_or_fail(call, why, ATTEMPT_UNSENT);
        }
    }
}

/* Handles the failure of an attempt to find or to reach a server. If no other one is under way,
 * waiting calls must not wait for longer than their retries allow. */
static void on_no_server(struct eb_dispatcher *dispatcher, const struct eb_error *why)
{
    if (eb_peer_set_is_live(&dispatcher->servers)) {
        return;
    }
    if (dispatcher->is_opening) {
        report_opening(dispatcher, why);
    }
    refuse_waiting(dispatcher, why);
}

static void on_dispatcher_close(void *context, bool has_spoken, const struct eb_error *why)
{
    tell_servers(context);
    if (!has_spoken) {
        on_no_server(context, why);
    }
}

static void on_dispatcher_resolved(void *context, const struct eb_error *why)
{
    tell_servers(context);
    if (why) {
        on_no_server(context, why);
    }
}

static void on_dispatcher_closed(void *context)
{
    struct eb_dispatcher *dispatcher = context;
    dispatcher->handler->on_ended(dispatcher->context);
}

/* Sends lookups that a server has got to another one as well, because nothing comes from it. */
static void on_dispatcher_suspect(void *context, struct eb_peer *peer)
{
    struct eb_dispatcher *dispatcher = context;
    for (uint32_t i = 0; i < peer->connection_count; i++) {
        const struct eb_list *links = &peer->connections[i].attempts.links;
        for (struct eb_list *link = links->next; peer->connections[i].session && link != links;
             link = link->next) {
            struct eb_call *call = EB_CONTAINER_OF(link, struct eb_attempt, link)->owner;
            if (call) { /* Otherwise it is the peer's question for its instance. */
                rescue_call(dispatcher, call);
            }
        }
    }
}

/* Rescues lookups at silent servers for which no other server had room before. */
static void rescue_again(struct eb_dispatcher *dispatcher)
{
    struct eb_peer_set *servers = &dispatcher->servers;
    dispatcher->rescue_ns = UINT64_MAX;
    for (uint32_t i = 0; i < servers->count; i++) {
        if (servers->peers[i]->replica.suspicion.is_suspect) {
            on_dispatcher_suspect(dispatcher, servers->peers[i]);
        }
    }
}

static const struct eb_connection_handler connection_handler = {
    on_heard, on_stream_message, on_dispatcher_message, on_dispatcher_end, on_drop};

static uint32_t count_waiting(const struct eb_dispatcher *dispatcher)
{
    uint32_t count = 0;
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        count += dispatcher->waiting[i].count;
    }
    return count;
}

/* ---- rounds ---- */

/* Returns a connection that takes the call now. Returns NULL if no connection does. */
static struct eb_connection *choose_connection(
    struct eb_dispatcher *dispatcher, const struct eb_call *call)
{
    struct eb_peer_terms terms = {.priority = call->priority,
        .now_ns = dispatcher->now_ns,
        .tried = {call->tried[0], call->tried[1]},
        .is_first = call->path,
        .may_write = true};
    return eb_peer_set_choose(&dispatcher->servers, &terms);
}

/* Returns the waiting call to send over a connection: the oldest, or the newest if the oldest would
 * likely be answered too late. Then a server that gets more calls than it can answer still answers
 * in time as many as it can. In order of age it would answer all of them late. */
static struct eb_call *find_dispatcher_next(
    const struct eb_attempt_list *waiting, const struct eb_connection *connection, uint64_t now_ns)
{
    struct eb_attempt *first = eb_attempt_list_first(waiting);
    bool is_in_time = eb_connection_is_in_time(connection, first, now_ns);
    return (is_in_time ? first : eb_attempt_list_last(waiting))->owner;
}

/* Sends an attempt of a call, over a connection that takes it. Returns false if it cannot. */
static bool send_attempt(
    struct eb_dispatcher *dispatcher, struct eb_connection *connection, struct eb_attempt *attempt)
{
    struct eb_call *call = attempt->owner;
    attempt->is_unary |= dispatcher->options.mode == EMBAG_MODE_UNARY;
    call->attempts++;
    if (!eb_peer_set_send(&dispatcher->servers, connection, attempt, dispatcher->now_ns)) {
        return false;
    }
    call->tried[1] = call->tried[0];
    call->tried[0] = eb_peer_set_find(connection);
    return true;
}

static struct eb_hedge_call describe_call(const struct eb_call *call)
{
    return (struct eb_hedge_call){.bytes = call->request->size,
        .deadline_ns = call->deadline_ns,
        .is_batch = call->priority == EB_PRIORITY_BATCH};
}

/* Counts a lookup that is sent for the first time. */
static void begin_lookup(struct eb_dispatcher *dispatcher, struct eb_call *call)
{
    struct eb_hedge_call described = describe_call(call);
    call->first_sent_ns = dispatcher->now_ns;
    dispatcher->lookups++;
    eb_resend_budget_earn(&dispatcher->resends, dispatcher->now_ns);
    if (dispatcher->hedging.percent == 0) {
        return;
    }
    uint64_t at_ns = eb_hedge_begin(&dispatcher->hedging, &described, dispatcher->now_ns);
    if (at_ns < call->deadline_ns) {
        eb_alarms_set(dispatcher->alarms, &call->hedge_alarm, at_ns);
    }
}

/* Returns the call's only attempt that is sent; NULL if none is, or both are. */
static struct eb_attempt *find_only_sent(struct eb_call *call)
{
    if (is_sent(&call->attempt) == is_sent(&call->hedge)) {
        return NULL;
    }
    return is_sent(&call->attempt) ? &call->attempt : &call->hedge;
}

/* Sets *terms for a second attempt. Returns false if the call may not have one, or has two. */
static bool describe_second(
    const struct eb_dispatcher *dispatcher, struct eb_call *call, struct eb_peer_terms *terms)
{
    const struct eb_attempt *first = find_only_sent(call);
    if (!first || call->path || call->attempts > dispatcher->options.retries_max) {
        return false;
    }
    *terms = (struct eb_peer_terms){.priority = call->priority,
        .now_ns = dispatcher->now_ns,
        .tried = {first->peer, call->tried[0] != first->peer ? call->tried[0] : call->tried[1]},
        .is_other = true};
    return true;
}

/* Sends a second attempt beside the one that is sent. Returns false if it cannot. */
static bool send_second(
    struct eb_dispatcher *dispatcher, struct eb_connection *connection, struct eb_call *call)
{
    const struct eb_attempt *first = find_only_sent(call);
    struct eb_attempt *second = first == &call->attempt ? &call->hedge : &call->attempt;
    struct eb_outgoing *copy = eb_request_message_copy(call->request);
    if (!copy) {
        return false;
    }
    drop_copy(call, second);
    *second = *first;
    second->peer = NULL;
    second->connection = NULL;
    second->request = copy;
    return send_attempt(dispatcher, connection, second);
}

/* Hedges a call that is late, within the bounds of hedge.h. */
static void on_hedge_alarm(struct eb_alarm *alarm)
{
    struct eb_call *call = EB_CONTAINER_OF(alarm, struct eb_call, hedge_alarm);
    struct eb_dispatcher *dispatcher = call->dispatcher;
    struct eb_hedge_call described = describe_call(call);
    uint64_t now_ns = dispatcher->now_ns;
    struct eb_peer_terms terms;
    struct eb_connection *connection = describe_second(dispatcher, call, &terms)
                                           ? eb_peer_set_choose(&dispatcher->servers, &terms)
                                           : NULL;
    if (connection && eb_resend_budget_has(&dispatcher->resends, now_ns) &&
        eb_hedge_take(&dispatcher->hedging, &described, now_ns) &&
        send_second(dispatcher, connection, call)) {
        (void)eb_resend_budget_take(&dispatcher->resends, now_ns);
        dispatcher->hedges++;
        call->is_hedged = true;
    }
}

/* Sends a call whose server is silent to another one as well: once for nothing, as after a lost
 * connection, and then as the budget allows. If another server only lacks room, the call is rescued
 * later. */
static void rescue_call(struct eb_dispatcher *dispatcher, struct eb_call *call)
{
    struct eb_peer_terms terms;
    if (!describe_second(dispatcher, call, &terms)) {
        return;
    }
    struct eb_connection *connection = eb_peer_set_choose(&dispatcher->servers, &terms);
    if (!connection && eb_peer_set_has_untried(&dispatcher->servers, &terms)) {
        dispatcher->rescue_ns = dispatcher->now_ns + RESCUE_STEP_NS;
    } else if (connection && pay_resend(call, true, dispatcher->now_ns) &&
               send_second(dispatcher, connection, call)) {
        dispatcher->resent++;
        call->is_hedged = false;
    }
}

static void send_call(
    struct eb_dispatcher *dispatcher, struct eb_connection *connection, struct eb_call *call)
{
    eb_attempt_list_remove(find_waiting(dispatcher, call), &call->attempt);
    call->retry_after_ms = 0;
    call->error.status = EB_STATUS_OK;
    call->state = EB_CALL_SENT;
    if (!send_attempt(dispatcher, connection, &call->attempt)) {
        struct eb_error why;
        eb_error_set(&why, EB_STATUS_UNAVAILABLE, "the connection to %s accepts no more calls",
            connection->config->identity.authority);
        retry_or_fail(call, &why, ATTEMPT_UNSENT);
        return;
    }
    if (!call->was_sent && !call->path) {
        begin_lookup(dispatcher, call);
    } else if (call->was_sent) {
        dispatcher->resent++;
    }
    call->was_sent = true;
}

static void send_waiting(struct eb_dispatcher *dispatcher, enum eb_priority priority)
{
    struct eb_attempt_list *waiting = &dispatcher->waiting[priority];
    /* Each call is tried once, because those that fail may be queued again. */
    for (uint32_t left = waiting->count; left > 0 && waiting->count > 0; left--) {
        struct eb_call *first = eb_attempt_list_first(waiting)->owner;
        struct eb_connection *connection = choose_connection(dispatcher, first);
        if (!connection) {
            return;
        }
        struct eb_call *next = find_dispatcher_next(waiting, connection, dispatcher->now_ns);
        if (next != first) {
            connection = choose_connection(dispatcher, next);
        }
        if (!connection) {
            return;
        }
        send_call(dispatcher, connection, next);
    }
}

bool eb_dispatcher_run(struct eb_dispatcher *dispatcher)
{
    struct eb_peer_set *servers = &dispatcher->servers;
    dispatcher->now_ns = uv_hrtime();
    eb_alarms_ring(dispatcher->alarms, dispatcher->now_ns);
    if (dispatcher->is_ending) {
        return false;
    }
    eb_peer_set_settle(servers);
    if (dispatcher->now_ns >= dispatcher->rescue_ns) {
        rescue_again(dispatcher);
    }
    dispatcher->has_new = false;
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        send_waiting(dispatcher, (enum eb_priority)i);
    }
    bool is_wanted = count_waiting(dispatcher) > 0 || dispatcher->is_opening;
    uint64_t next_ns = UINT64_MAX;
    bool again = eb_peer_set_run(servers, is_wanted, dispatcher->now_ns, &next_ns);
    next_ns = dispatcher->rescue_ns < next_ns ? dispatcher->rescue_ns : next_ns;
    if (next_ns < UINT64_MAX) {
        eb_alarms_set(dispatcher->alarms, &dispatcher->wake, next_ns);
    }
    /* Calls that writing has brought back are sent in another round. */
    return again || dispatcher->has_new;
}

void eb_dispatcher_renew(struct eb_dispatcher *dispatcher, bool is_token_new)
{
    eb_peer_set_renew(&dispatcher->servers, is_token_new);
}

/* ---- start and end ---- */

static void on_dispatcher_wake(struct eb_alarm *alarm)
{
    (void)alarm; /* The wake-up only causes the round that it rings in. */
}

int eb_dispatcher_open(struct eb_dispatcher *dispatcher, uv_loop_t *loop,
    const struct eb_memory *memory, uv_buf_t read_buffer)
{
    const struct eb_dispatcher_options *options = &dispatcher->options;
    dispatcher->random = uv_hrtime() ^ (uintptr_t)dispatcher;
    dispatcher->is_opening = true;
    dispatcher->wake.ring = on_dispatcher_wake;
    dispatcher->rescue_ns = UINT64_MAX;
    eb_resend_budget_init(&dispatcher->resends, EB_RESEND_LEAST_CLIENT);
    eb_hedge_init(&dispatcher->hedging, options->hedge_percent, EB_HEDGE_DELAY_MIN_NS);
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        eb_attempt_list_init(&dispatcher->waiting[i]);
    }
    dispatcher->servers = (struct eb_peer_set){
        .config = {.loop = loop,
            .alarms = dispatcher->alarms,
            .read_buffer = read_buffer,
            .memory = memory,
            .credentials = options->credentials,
            .connect_timeout_ns = options->connect_timeout_ns,
            .connections = options->connections,
            .answer_bytes_max = options->answer_bytes_max,
            .is_unpaced = options->is_unpaced,
            .handler = connection_handler},
        .targets = options->targets,
        .resolve_interval_ns = RESOLVE_INTERVAL_NS,
        .on_open = on_dispatcher_open,
        .on_close = on_dispatcher_close,
        .on_resolved = on_dispatcher_resolved,
        .on_suspect = on_dispatcher_suspect,
        .on_closed = on_dispatcher_closed,
        .context = dispatcher,
    };
    int rc = eb_peer_set_open(&dispatcher->servers);
    if (rc == 0) {
        tell_servers(dispatcher);
    }
    return rc;
}

static void fill_server(const struct eb_peer *peer, struct embag_server_stats *out)
{
    const struct eb_replica *replica = &peer->replica;
    *out = (struct embag_server_stats){
        .is_connected = eb_peer_is_usable(peer),
        .is_left_out = replica->ejection.is_out || replica->suspicion.is_suspect,
        .in_flight = eb_peer_count_attempts(peer),
        .sent = peer->sent,
        .failed = peer->failed,
        .left_out = peer->ejected,
        .latency_us = eb_peak_latency_now(&replica->latency, uv_hrtime()) / NS_PER_US,
    };
    static_assert(sizeof out->address == EB_ADDRESS_TEXT_BYTES, "the text fits");
    eb_address_format(&peer->address, out->address);
}

void eb_dispatcher_fill_figures(
    const struct eb_dispatcher *dispatcher, const struct eb_dispatcher_figures *figures)
{
    const struct eb_peer_set *servers = &dispatcher->servers;
    *figures->stats = (struct embag_stats){
        .lookups = dispatcher->lookups,
        .resends = dispatcher->resent,
        .hedges = dispatcher->hedges,
        .hedges_won = dispatcher->hedges_won,
        .servers = servers->count,
    };
    for (uint32_t i = 0; i < servers->count && i < figures->servers_max; i++) {
        fill_server(servers->peers[i], &figures->servers[i]);
    }
}

void eb_dispatcher_deinit(struct eb_dispatcher *dispatcher)
{
    eb_peer_set_deinit(&dispatcher->servers);
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
    eb_peer_set_close(&dispatcher->servers);
}
