#include "proto/link/dispatcher.h"

#include "proto/link/dispatch_attempt.h"
#include "proto/link/dispatch_second.h"
#include "proto/link/retry.h"
#include "proto/splitmix64.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* When a call waits for servers without room, later ones for other servers are sent: this many
 * such sets of servers are told apart, and this many waiting calls are passed over. A new call is
 * put in front of at most PASSED_MAX waiting ones when its source has its turn before theirs. */
#define FULL_SETS_MAX 4
#define PASSED_MAX 256

/* ---- the end of calls ---- */

/* Notes how an attempt has ended that is no longer its connection's. */
static void end_attempt(struct eb_attempt *attempt, enum eb_attempt_end end)
{
    struct eb_dispatch_call *call = attempt->owner;
    call->ended_ns = uv_hrtime();
    eb_peer_set_end(&call->dispatcher->servers, attempt, end, call->ended_ns);
}

static void withdraw_attempt(struct eb_attempt *attempt)
{
    if (eb_dispatch_is_sent(attempt)) {
        eb_connection_withdraw(attempt->connection, attempt);
        end_attempt(attempt, EB_ATTEMPT_CANCELLED);
    }
}

/* Ends a call whose result is set. An attempt that is still sent is withdrawn. */
static void end_dispatcher_call(struct eb_dispatcher *dispatcher, struct eb_dispatch_call *call)
{
    eb_dispatch_lose_hedge(call);
    eb_alarms_clear(dispatcher->alarms, &call->alarm);
    eb_alarms_clear(dispatcher->alarms, &call->hedge_alarm);
    withdraw_attempt(&call->attempt);
    withdraw_attempt(&call->hedge);
    call->state = EB_DISPATCH_OVER;
    eb_dispatch_drop_copy(call, &call->attempt);
    eb_dispatch_drop_copy(call, &call->hedge);
    eb_outgoing_drop(call->request);
    call->request = NULL;
    dispatcher->handler->on_over(call);
}

static void discard_answer(struct eb_dispatch_call *call)
{
    if (call->has_answer) {
        call->has_answer = false;
        call->dispatcher->handler->discard(call);
    }
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

static void fail_call(struct eb_dispatch_call *call, const struct eb_error *why)
{
    discard_answer(call);
    call->error->status = why->status;
    (void)strcpy(call->error->text, why->text);
    blame_credentials(call->dispatcher->options.credentials, call->error);
    end_dispatcher_call(call->dispatcher, call);
}

static struct eb_attempt_list *find_waiting(const struct eb_dispatch_call *call)
{
    return &call->group->waiting[call->priority];
}

void eb_dispatcher_abandon(struct eb_dispatch_call *call, enum eb_status status, const char *text)
{
    struct eb_error why;
    eb_error_set(&why, status, "%s", text);
    if (call->state == EB_DISPATCH_WAITING) {
        eb_attempt_list_remove(find_waiting(call), &call->attempt);
    }
    fail_call(call, &why);
}

static void on_call_alarm(struct eb_alarm *alarm);

static void on_hedge_alarm(struct eb_alarm *alarm)
{
    eb_dispatch_hedge(EB_CONTAINER_OF(alarm, struct eb_dispatch_call, hedge_alarm));
}

static struct eb_dispatch_call *call_at(struct eb_list *link)
{
    return EB_CONTAINER_OF(link, struct eb_attempt, link)->owner;
}

/* Adds a call to those that wait: in the turn after that of its source's last one, behind those of
 * others in the same turn. Looks only at so many others; beyond them calls are in order of age. */
static void wait_for_turn(struct eb_dispatch_call *call)
{
    struct eb_attempt_list *waiting = find_waiting(call);
    struct eb_list *head = &waiting->links;
    struct eb_list *at = head->previous;
    call->turn = call->group->turn;
    for (uint32_t i = 0; i < PASSED_MAX && at != head; i++, at = at->previous) {
        if (call_at(at)->source == call->source) {
            call->turn = call_at(at)->turn + 1;
            break;
        }
    }
    at = head->previous;
    for (uint32_t i = 0; i < PASSED_MAX && at != head && call_at(at)->turn > call->turn; i++) {
        at = at->previous;
    }
    eb_attempt_list_insert(waiting, at->next, &call->attempt);
}

static void enqueue_call(struct eb_dispatcher *dispatcher, struct eb_dispatch_call *call)
{
    call->state = EB_DISPATCH_WAITING;
    dispatcher->has_new = true;
    if (eb_list_is_empty(&call->group->link)) {
        eb_list_push(&dispatcher->groups, &call->group->link);
    }
    wait_for_turn(call);
    eb_alarms_set(dispatcher->alarms, &call->alarm, call->deadline_ns);
}

void eb_dispatcher_take(struct eb_dispatcher *dispatcher, struct eb_dispatch_call *call)
{
    call->dispatcher = dispatcher;
    call->error->status = EB_STATUS_OK;
    call->error->text[0] = '\0';
    call->attempts = 0;
    call->retry_after_ms = 0;
    call->answered_ns = 0;
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
    call->has_answer = false;
    call->was_sent = false;
    call->sent_count = 0;
    call->was_resent_free = false;
    call->is_hedged = false;
    call->alarm.ring = on_call_alarm;
    call->hedge_alarm.ring = on_hedge_alarm;
    enqueue_call(dispatcher, call);
}

/* Sets *why for a call whose deadline has passed. If the last attempt to connect has failed, sets
 * *why to the reason for that, so that the call ends as it would after its last attempt. */
static void explain_expiry(const struct eb_dispatch_call *call, struct eb_error *why)
{
    const struct eb_dispatcher *dispatcher = call->dispatcher;
    bool has_connection = call->state == EB_DISPATCH_SENT ||
                          eb_peer_set_has_usable(&dispatcher->servers, &call->filter);
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
static void note_call_latency(const struct eb_dispatch_call *call, uint64_t now_ns)
{
    struct eb_hedge *hedging = &call->group->hedging;
    if (hedging->percent > 0) {
        eb_hedge_note_latency(hedging, call->request->size, now_ns - call->first_sent_ns, now_ns);
    }
}

static void expire_attempt(struct eb_attempt *attempt)
{
    if (eb_dispatch_is_sent(attempt)) {
        eb_connection_expire(attempt->connection, attempt, uv_hrtime());
        end_attempt(attempt, EB_ATTEMPT_FAILED);
    }
}

static void expire_call(struct eb_dispatch_call *call)
{
    struct eb_error why;
    explain_expiry(call, &why);
    if (call->was_sent && !call->path) {
        note_call_latency(call, uv_hrtime());
    }
    if (call->state == EB_DISPATCH_WAITING) {
        eb_attempt_list_remove(find_waiting(call), &call->attempt);
        eb_peer_set_check(&call->dispatcher->servers, uv_hrtime());
    }
    expire_attempt(&call->attempt);
    expire_attempt(&call->hedge);
    fail_call(call, &why);
}

/* Handles a call's deadline or the time of its next attempt. */
static void on_call_alarm(struct eb_alarm *alarm)
{
    struct eb_dispatch_call *call = EB_CONTAINER_OF(alarm, struct eb_dispatch_call, alarm);
    if (alarm->at_ns >= call->deadline_ns) {
        expire_call(call);
    } else {
        enqueue_call(call->dispatcher, call);
    }
}

/* Makes a call whose attempt has failed wait for its next one at at_ns. */
static void pause_call(struct eb_dispatch_call *call, uint64_t at_ns)
{
    call->state = EB_DISPATCH_PAUSED;
    eb_alarms_set(call->dispatcher->alarms, &call->alarm, at_ns);
}

/* Returns whether another server than the last one takes the call now. After a refusal that names a
 * time, or if the version is missing, the server before that is left out too. A missing version is
 * worth waiting until the other server has room. */
static bool has_other_server(
    const struct eb_dispatch_call *call, const struct eb_retry_case *failure)
{
    struct eb_peer_set *servers = &call->dispatcher->servers;
    bool leaves_out_both = failure->status != EB_STATUS_UNAVAILABLE;
    struct eb_peer_terms terms = {.priority = call->priority,
        .now_ns = failure->now_ns,
        .filter = call->filter,
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

/* How a call's last attempt has ended without an answer. */
enum attempt_end {
    ATTEMPT_REFUSED,
    ATTEMPT_LOST,  /* with its connection */
    ATTEMPT_UNSENT /* there was no connection */
};

/* Notes why a call whose attempt has failed is sent again. An attempt that was not sent leaves the
 * reason of the one before. */
static void note_resend_reason(
    struct eb_dispatch_call *call, enum eb_status status, enum attempt_end end)
{
    if (end == ATTEMPT_LOST) {
        call->resend_reason = EB_RESEND_LOST;
    } else if (end == ATTEMPT_REFUSED) {
        call->resend_reason = status == EB_STATUS_NOT_FOUND ? EB_RESEND_MISSING : EB_RESEND_REFUSED;
    }
}

/* Ends a call that has failed, or has it sent again: to another server at once, or to the same one
 * after a pause. */
static void retry_or_fail(
    struct eb_dispatch_call *call, const struct eb_error *why, enum attempt_end end)
{
    struct eb_dispatcher *dispatcher = call->dispatcher;
    note_resend_reason(call, why->status, end);
    struct eb_retry_case failure = {
        .status = why->status,
        .names_version = call->names_version,
        .has_replicas = call->has_replicas,
        .retry_after_ms = call->retry_after_ms,
        .attempts = call->attempts,
        .retries_max = call->changes_server ? 0 : dispatcher->options.retries_max,
        .now_ns = uv_hrtime(),
        .deadline_ns = call->deadline_ns,
    };
    bool may_move = eb_retry_may_move(&failure) && !call->path && has_other_server(call, &failure);
    uint32_t jitter = (uint32_t)(eb_splitmix64_next(&dispatcher->random) >> 32);
    uint64_t at_ns = may_move ? failure.now_ns : eb_retry_at_ns(&failure, jitter);
    if (at_ns == EB_RETRY_NEVER || dispatcher->is_ending ||
        (end != ATTEMPT_UNSENT &&
            !eb_dispatch_pay_resend(call, end == ATTEMPT_LOST, failure.now_ns))) {
        fail_call(call, why);
    } else if (may_move) {
        enqueue_call(dispatcher, call);
    } else {
        pause_call(call, at_ns);
    }
}

/* Handles the failure of an attempt. If the call's other attempt is still sent, that one may yet be
 * answered. */
static void handle_failure(struct eb_dispatch_call *call, struct eb_attempt *attempt,
    const struct eb_error *why, bool is_lost)
{
    struct eb_attempt *other = attempt == &call->attempt ? &call->hedge : &call->attempt;
    bool is_final = eb_attempt_end_of(why->status) == EB_ATTEMPT_REJECTED;
    if (why->status == EB_STATUS_RESOURCE_EXHAUSTED) {
        eb_hedge_note_pushback(&call->group->hedging, uv_hrtime());
    }
    if (eb_dispatch_is_sent(other) && !is_final) {
        if (other->peer && other->peer->replica.suspicion.is_suspect) {
            (void)eb_dispatch_rescue(call);
        }
        return;
    }
    if (is_final ||
        (call->attempt.request->holds > 1 && !eb_dispatch_copy_request(call, &call->attempt))) {
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
    const struct eb_dispatcher *dispatcher = find_dispatcher(connection);
    struct eb_dispatch_call *call = dispatcher->handler->find(dispatcher->context, id);
    if (!call) {
        return NULL;
    }
    struct eb_attempt *attempt =
        call->attempt.connection == connection ? &call->attempt : &call->hedge;
    return attempt->connection == connection && !attempt->unary ? attempt : NULL;
}

/* Counts a lookup that is answered. */
static void note_answer(struct eb_dispatch_call *call, const struct eb_attempt *attempt)
{
    if (attempt == &call->hedge && call->is_hedged) {
        call->group->counters.hedges_won++;
        call->is_hedged = false;
    }
    call->answered_ns = call->ended_ns - call->first_sent_ns;
    note_call_latency(call, call->ended_ns);
}

static void settle_answer(struct eb_attempt *attempt, const struct eb_dispatch_answer *answer)
{
    struct eb_error why;
    struct eb_dispatch_call *call = attempt->owner;
    call->retry_after_ms = answer->retry_after_ms;
    call->has_answer = call->dispatcher->handler->accept(call, answer->message, &why);
    if (call->has_answer) {
        end_attempt(attempt, EB_ATTEMPT_ANSWERED);
        note_answer(call, attempt);
        end_dispatcher_call(call->dispatcher, call);
        return;
    }
    end_attempt(attempt, eb_attempt_end_of(why.status));
    handle_failure(call, attempt, &why, false);
}

static bool on_stream_message(
    struct eb_connection *connection, const uint8_t *bytes, size_t size, struct eb_error *error)
{
    struct eb_dispatcher *dispatcher = find_dispatcher(connection);
    struct eb_dispatch_answer answer;
    if (!dispatcher->handler->decode(dispatcher->context, bytes, size, &answer, error)) {
        return false;
    }
    struct eb_attempt *attempt = find_attempt(connection, answer.id);
    if (attempt) {
        eb_connection_answered(connection, attempt, answer.status, answer.retry_after_ms);
        settle_answer(attempt, &answer);
        return true;
    }
    if (answer.id != EB_PROBE_ID) {
        eb_connection_answered_late(connection);
    }
    dispatcher->handler->drop(dispatcher->context, answer.message);
    return true;
}

/* Takes a message of a unary call. Returns whether it is the answer; if not, the call's error is
 * set, or the answer is yet to come. */
static bool take_message(struct eb_dispatch_call *call, const uint8_t *bytes, size_t size)
{
    const struct eb_dispatcher *dispatcher = call->dispatcher;
    const struct eb_dispatch_handler *handler = dispatcher->handler;
    struct eb_dispatch_answer answer;
    if (call->path) {
        return handler->on_message(call, bytes, size, call->error);
    }
    if (!handler->decode(dispatcher->context, bytes, size, &answer, call->error)) {
        return false;
    }
    call->retry_after_ms = answer.retry_after_ms;
    return handler->accept(call, answer.message, call->error);
}

static void on_dispatcher_message(struct eb_attempt *attempt, const uint8_t *bytes, size_t size)
{
    struct eb_dispatch_call *call = attempt->owner;
    if (call->has_answer) {
        discard_answer(call);
        eb_error_set(
            call->error, EB_STATUS_INTERNAL, "the server sent more than one answer to one call");
    } else if (call->error->status == EB_STATUS_OK) {
        call->has_answer = take_message(call, bytes, size);
        /* From now on, the call's answer or error is that of this attempt. */
        withdraw_attempt(attempt == &call->attempt ? &call->hedge : &call->attempt);
    }
}

/* Handles the end of a unary call whose message was not the answer. */
static void end_refused(struct eb_dispatch_call *call, struct eb_attempt *attempt)
{
    if (call->path) {
        end_dispatcher_call(call->dispatcher, call);
    } else {
        struct eb_error why = *call->error;
        handle_failure(call, attempt, &why, false);
    }
}

static void on_dispatcher_end(
    struct eb_attempt *attempt, const struct eb_error *error, uint32_t pushback_ms)
{
    struct eb_dispatch_call *call = attempt->owner;
    end_attempt(attempt, eb_attempt_end_of(error->status));
    if (call->error->status != EB_STATUS_OK) {
        end_refused(call, attempt);
    } else if (error->status != EB_STATUS_OK) {
        discard_answer(call);
        call->retry_after_ms = pushback_ms;
        handle_failure(call, attempt, error, false);
    } else {
        if (!call->has_answer) {
            eb_error_set(call->error, EB_STATUS_INTERNAL, "the server sent no answer");
        } else if (!call->path) {
            note_answer(call, attempt);
        }
        end_dispatcher_call(call->dispatcher, call);
    }
}

/* Sends a call again as a unary call, for which it gets an answer of its own: its stream has ended
 * with an error. Any request of the stream may have caused that, and it is not known which one
 * did. */
static void retry_unary(struct eb_dispatch_call *call, const struct eb_error *why)
{
    struct eb_attempt *attempt = &call->attempt;
    withdraw_attempt(&call->hedge);
    if (call->dispatcher->is_ending || attempt->is_unary ||
        (attempt->request->holds > 1 && !eb_dispatch_copy_request(call, attempt))) {
        fail_call(call, why);
        return;
    }
    attempt->is_unary = true;
    call->resend_reason = EB_RESEND_STREAM;
    enqueue_call(call->dispatcher, call);
}

static void on_drop(struct eb_attempt *attempt, const struct eb_error *why)
{
    struct eb_dispatch_call *call = attempt->owner;
    bool is_lost = why->status == EB_STATUS_UNAVAILABLE;
    if (why->status == EB_STATUS_UNIMPLEMENTED && attempt->peer) {
        attempt->peer->is_unary = true;
    }
    end_attempt(attempt, is_lost ? EB_ATTEMPT_FAILED : EB_ATTEMPT_CANCELLED);
    discard_answer(call);
    if (is_lost) {
        handle_failure(call, attempt, why, true);
    } else if (attempt == &call->attempt || !eb_dispatch_is_sent(&call->attempt)) {
        retry_unary(call, why);
    }
}

static struct eb_dispatch_group *group_of(struct eb_list *link)
{
    return EB_CONTAINER_OF(link, struct eb_dispatch_group, link);
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

static void on_dispatcher_open(void *context, struct eb_peer *peer)
{
    struct eb_dispatcher *dispatcher = context;
    if (dispatcher->handler->on_peer_open) {
        dispatcher->handler->on_peer_open(dispatcher->context, peer);
    }
    tell_servers(dispatcher);
    if (dispatcher->is_opening) {
        report_opening(dispatcher, NULL);
    }
}

/* Counts a failed attempt for a waiting call, because no connection for it can be opened. */
static void refuse_call(struct eb_dispatch_call *call, const struct eb_error *why)
{
    eb_attempt_list_remove(find_waiting(call), &call->attempt);
    call->attempts++;
    retry_or_fail(call, why, ATTEMPT_UNSENT);
}

/* Refuses all waiting calls of a group, but not those that come meanwhile. */
static void refuse_group(struct eb_dispatch_group *group, const struct eb_error *why)
{
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        struct eb_attempt_list *waiting = &group->waiting[i];
        for (uint32_t left = waiting->count; left > 0 && waiting->count > 0; left--) {
            refuse_call(eb_attempt_list_first(waiting)->owner, why);
        }
    }
}

static void refuse_waiting(struct eb_dispatcher *dispatcher, const struct eb_error *why)
{
    struct eb_list *link = dispatcher->groups.next;
    for (; link != &dispatcher->groups; link = link->next) {
        refuse_group(group_of(link), why);
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

static void on_dispatcher_gone(void *context, struct eb_peer *peer)
{
    struct eb_dispatcher *dispatcher = context;
    if (dispatcher->handler->on_peer_gone) {
        dispatcher->handler->on_peer_gone(dispatcher->context, peer);
    }
}

static void on_dispatcher_told(void *context, struct eb_peer *peer,
    const struct eb_wire_server *server, const struct eb_error *why)
{
    struct eb_dispatcher *dispatcher = context;
    if (dispatcher->handler->on_peer_told) {
        dispatcher->handler->on_peer_told(dispatcher->context, peer, server, why);
    }
}

static void on_dispatcher_closed(void *context)
{
    struct eb_dispatcher *dispatcher = context;
    dispatcher->handler->on_ended(dispatcher->context);
}

static void on_dispatcher_suspect(void *context, struct eb_peer *peer)
{
    (void)context;
    eb_dispatch_rescue_from(peer);
}

static const struct eb_connection_handler connection_handler = {
    on_heard, on_stream_message, on_dispatcher_message, on_dispatcher_end, on_drop};

/* ---- rounds ---- */

/* Forgets the groups whose calls have all been sent. Returns whether any call waits. */
static bool sweep_groups(struct eb_dispatcher *dispatcher)
{
    struct eb_list *next = NULL;
    for (struct eb_list *link = dispatcher->groups.next; link != &dispatcher->groups; link = next) {
        next = link->next;
        if (eb_dispatch_group_count_waiting(group_of(link)) == 0) {
            eb_list_remove(link);
        }
    }
    return !eb_list_is_empty(&dispatcher->groups);
}

/* Returns a connection that takes the call now; NULL if none does. */
static struct eb_connection *choose_connection(
    struct eb_dispatcher *dispatcher, const struct eb_dispatch_call *call)
{
    struct eb_peer_terms terms = {.priority = call->priority,
        .now_ns = dispatcher->now_ns,
        .filter = call->filter,
        .tried = {call->tried[0], call->tried[1]},
        .is_first = call->path,
        .may_write = true};
    return eb_peer_set_choose(&dispatcher->servers, &terms);
}

/* Returns the waiting call to send over a connection: `first`, or the newest if `first` would
 * likely be answered too late. An overloaded server then still answers in time as many calls as it
 * can; in order of age it would answer all of them late. */
static struct eb_dispatch_call *find_dispatcher_next(const struct eb_attempt_list *waiting,
    struct eb_dispatch_call *first, const struct eb_connection *connection, uint64_t now_ns)
{
    struct eb_dispatch_call *last = eb_attempt_list_last(waiting)->owner;
    bool is_in_time = eb_connection_is_in_time(connection, &first->attempt, now_ns);
    return is_in_time || last->filter.instances != first->filter.instances ? first : last;
}

/* Counts a lookup that is sent for the first time. */
static void begin_lookup(struct eb_dispatcher *dispatcher, struct eb_dispatch_call *call)
{
    struct eb_hedge_call described = eb_dispatch_describe(call);
    struct eb_dispatch_group *group = call->group;
    call->first_sent_ns = dispatcher->now_ns;
    group->counters.lookups++;
    eb_resend_budget_earn(&group->resends, dispatcher->now_ns);
    if (group->hedging.percent == 0) {
        return;
    }
    uint64_t at_ns = eb_hedge_begin(&group->hedging, &described, dispatcher->now_ns);
    if (at_ns < call->deadline_ns) {
        eb_alarms_set(dispatcher->alarms, &call->hedge_alarm, at_ns);
    }
}

static void send_call(struct eb_dispatcher *dispatcher, struct eb_connection *connection,
    struct eb_dispatch_call *call)
{
    if (eb_attempt_list_first(find_waiting(call)) == &call->attempt) {
        call->group->turn = call->turn; /* Calls that overtake others do not end their turns. */
    }
    eb_attempt_list_remove(find_waiting(call), &call->attempt);
    call->retry_after_ms = 0;
    call->error->status = EB_STATUS_OK;
    call->state = EB_DISPATCH_SENT;
    if (!eb_dispatch_send_attempt(dispatcher, connection, &call->attempt)) {
        struct eb_error why;
        eb_error_set(&why, EB_STATUS_UNAVAILABLE, "the connection to %s accepts no more calls",
            connection->config->identity.authority);
        retry_or_fail(call, &why, ATTEMPT_UNSENT);
        return;
    }
    if (!call->was_sent && !call->path) {
        begin_lookup(dispatcher, call);
    } else if (call->was_sent) {
        call->group->counters.resent[call->resend_reason]++;
    }
    call->was_sent = true;
}

static bool is_last(const struct eb_attempt_list *waiting, const struct eb_dispatch_call *call)
{
    return waiting->count > 0 && eb_attempt_list_last(waiting) == &call->attempt;
}

/* Sets of servers without room, as filters name them. */
struct full_sets {
    uint32_t count;
    const uint64_t *instances[FULL_SETS_MAX];
};

/* Notes a set. Returns false if no later call can be for another one, or if there are too many. */
static bool note_full(struct full_sets *full, const uint64_t *instances)
{
    if (!instances || full->count == FULL_SETS_MAX) {
        return false;
    }
    full->instances[full->count++] = instances;
    return true;
}

static bool is_full(const struct full_sets *full, const struct eb_dispatch_call *call)
{
    bool is_any = false;
    for (uint32_t i = 0; i < full->count; i++) {
        is_any = is_any || full->instances[i] == call->filter.instances;
    }
    return is_any;
}

/* Returns the oldest waiting call whose servers are not known to be full; NULL if the servers of
 * all the first ones are full. */
static struct eb_dispatch_call *find_open(
    const struct eb_attempt_list *waiting, const struct full_sets *full)
{
    struct eb_list *link = waiting->links.next;
    for (uint32_t i = 0; i < PASSED_MAX && link != &waiting->links; i++, link = link->next) {
        if (!is_full(full, call_at(link))) {
            return call_at(link);
        }
    }
    return NULL;
}

/* Returns whether the call, which may be gone, still waits among the first ones. */
static bool is_among_first(
    const struct eb_attempt_list *waiting, const struct eb_dispatch_call *call)
{
    const struct eb_list *link = waiting->links.next;
    for (uint32_t i = 0; i < PASSED_MAX && link != &waiting->links; i++, link = link->next) {
        if (EB_CONTAINER_OF(link, struct eb_attempt, link) == &call->attempt) {
            return true;
        }
    }
    return false;
}

/* Handles a waiting call for which no server has room. Returns whether the next one may be sent: if
 * no server that may get the call can be reached, it must not hold the others back, nor wait for
 * longer than its retries allow. */
static bool pass_over(struct eb_dispatcher *dispatcher, struct eb_dispatch_call *call)
{
    bool is_filtered = call->filter.instances || call->filter.only;
    if (!is_filtered || eb_peer_set_has_live(&dispatcher->servers, &call->filter)) {
        return false;
    }
    struct eb_error why;
    eb_error_set(&why, EB_STATUS_UNAVAILABLE, "no server that has what is asked for is connected");
    refuse_call(call, &why);
    return true;
}

/* Sends a waiting call, or the last one in its place. Returns false if no server has room for it.
 * The list may change while connections are looked for, because they may write, and calls may be
 * over then. */
static bool send_next(struct eb_dispatcher *dispatcher, struct eb_attempt_list *waiting,
    struct eb_dispatch_call *first)
{
    struct eb_connection *connection = choose_connection(dispatcher, first);
    if (!is_among_first(waiting, first)) {
        return true;
    }
    if (!connection) {
        return pass_over(dispatcher, first);
    }
    struct eb_dispatch_call *next =
        find_dispatcher_next(waiting, first, connection, dispatcher->now_ns);
    if (next != first) {
        connection = choose_connection(dispatcher, next);
        if (!is_last(waiting, next)) {
            return true;
        }
    }
    if (!connection) {
        return false;
    }
    send_call(dispatcher, connection, next);
    return true;
}

static void send_waiting(struct eb_dispatcher *dispatcher, enum eb_priority priority)
{
    struct eb_list *link = dispatcher->groups.next;
    for (; link != &dispatcher->groups; link = link->next) {
        struct eb_attempt_list *waiting = &group_of(link)->waiting[priority];
        struct full_sets full = {.count = 0};
        bool goes_on = true;
        /* Each call is tried once, because those that fail may be queued again. */
        for (uint32_t left = waiting->count; left > 0 && goes_on; left--) {
            struct eb_dispatch_call *call = find_open(waiting, &full);
            const uint64_t *instances = call ? call->filter.instances : NULL;
            goes_on = call && (send_next(dispatcher, waiting, call) || note_full(&full, instances));
        }
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
        eb_dispatch_rescue_again(dispatcher);
    }
    dispatcher->has_new = false;
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        send_waiting(dispatcher, (enum eb_priority)i);
    }
    bool is_wanted = sweep_groups(dispatcher) || dispatcher->is_opening;
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
    eb_list_init(&dispatcher->groups);
    dispatcher->servers = (struct eb_peer_set){
        .config = {.loop = loop,
            .alarms = dispatcher->alarms,
            .read_buffer = read_buffer,
            .memory = memory,
            .credentials = options->credentials,
            .connect_timeout_ns = options->connect_timeout_ns,
            .unacknowledged_ms_max = options->unacknowledged_ms_max,
            .connections = options->connections,
            .answer_bytes_max = options->answer_bytes_max,
            .is_unpaced = options->is_unpaced,
            .handler = connection_handler},
        .targets = options->targets,
        .resolve_interval_ns = options->resolve_interval_ns,
        .asks_instances = options->asks_instances,
        .on_open = on_dispatcher_open,
        .on_close = on_dispatcher_close,
        .on_resolved = on_dispatcher_resolved,
        .on_suspect = on_dispatcher_suspect,
        .on_told = on_dispatcher_told,
        .on_gone = on_dispatcher_gone,
        .on_closed = on_dispatcher_closed,
        .context = dispatcher,
    };
    int rc = eb_peer_set_open(&dispatcher->servers);
    if (rc == 0) {
        tell_servers(dispatcher);
    }
    return rc;
}

void eb_dispatcher_deinit(struct eb_dispatcher *dispatcher)
{
    eb_peer_set_deinit(&dispatcher->servers);
}

void eb_dispatcher_end(struct eb_dispatcher *dispatcher)
{
    dispatcher->is_ending = true;
    eb_peer_set_close(&dispatcher->servers);
}
