#include "proto/link/connection.h"

#include "proto/link/request_message.h"

#include <assert.h>
#include <stdio.h>

#define NS_PER_US 1000
/* Nothing is sent while this many bytes wait to be written. Calls wait in the dispatcher instead:
 * if they expire there, they have cost neither side anything. */
#define UNWRITTEN_BYTES_MAX ((size_t)64 << 10)
/* When the deadline of an attempt passes, the server is considered dead if it has sent nothing for
 * this long while an answer was due; the second limit applies if its request has not even left. */
#define SILENCE_NS_MAX UINT64_C(5000000000)
#define STUCK_NS_MAX UINT64_C(1000000000)
#define PROBE_TIMEOUT_US 1000000

static const char lookup_path[] = "/embag.v1.EmbeddingBag/Lookup";
static const char stream_path[] = "/embag.v1.EmbeddingBag/LookupStream";

/* ---- the session's calls ---- */

static struct eb_window *find_window(
    struct eb_connection *connection, const struct eb_attempt *attempt)
{
    return &connection->windows[attempt->priority];
}

static bool is_idle(const struct eb_connection *connection)
{
    uint32_t sent_count = 0;
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        sent_count += connection->windows[i].sent_count;
    }
    return sent_count == 0;
}

/* Returns whether an attempt was refused because of load. Other refusals say nothing about load. */
static bool is_for_load(enum eb_status status, uint32_t retry_after_ms)
{
    return status == EB_STATUS_DEADLINE_EXCEEDED ||
           (status == EB_STATUS_RESOURCE_EXHAUSTED && retry_after_ms > 0);
}

/* Removes an attempt that was ended by the bytes read last. */
static void take_ended(struct eb_connection *connection, struct eb_attempt *attempt,
    enum eb_status status, uint32_t retry_after_ms)
{
    uint64_t read_ns = connection->last_read_ns;
    eb_attempt_list_remove(&connection->attempts, attempt);
    connection->has_answered |= status == EB_STATUS_OK;
    attempt->connection = NULL;
    /* The duration of other methods says nothing about lookups. */
    if (status == EB_STATUS_OK && !attempt->path) {
        struct eb_window_sample sample = {
            .latency_ns = read_ns > attempt->sent_ns ? read_ns - attempt->sent_ns : 0,
            .left_ns = attempt->deadline_ns - attempt->sent_ns,
            .was_alone = attempt->was_alone,
        };
        eb_window_answer(find_window(connection, attempt), &sample);
    } else {
        eb_window_drop(find_window(connection, attempt), is_for_load(status, retry_after_ms));
    }
}

/* Returns the stream that the session knows as `call`; NULL if `call` is not a stream in use. */
static struct eb_connection_stream *find_stream(
    struct eb_connection *connection, const struct eb_grpc_client_call *call)
{
    if (call == connection->stream.call) {
        return &connection->stream;
    }
    return call == connection->former.call ? &connection->former : NULL;
}

/* Returns the stream that an attempt was sent on; NULL if it is unary. */
static struct eb_connection_stream *find_stream_of(
    struct eb_connection *connection, const struct eb_attempt *attempt)
{
    if (attempt->unary) {
        return NULL;
    }
    return attempt->is_on_former ? &connection->former : &connection->stream;
}

static void on_connection_message(
    void *context, struct eb_grpc_client_call *from, void *user, const uint8_t *bytes, size_t size)
{
    struct eb_connection *connection = context;
    struct eb_attempt *attempt = user;
    struct eb_connection_stream *stream = find_stream(connection, from);
    connection->config->handler->on_heard(connection);
    if (!stream) {
        if (attempt) {
            connection->config->handler->on_message(attempt, bytes, size);
        } /* Otherwise it was given up earlier. */
        return;
    }
    if (!stream->is_unsound &&
        !connection->config->handler->on_stream_message(connection, bytes, size, &stream->end)) {
        stream->is_unsound = true;
        connection->is_dirty = true;
        eb_grpc_client_cancel(from);
    }
}

/* A stream that is over sends no late answers. */
static void forget_late(struct eb_connection *connection)
{
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        eb_window_forget_late(&connection->windows[i]);
    }
}

static void end_stream(struct eb_connection *connection, struct eb_connection_stream *stream,
    const struct eb_error *error)
{
    stream->call = NULL;
    forget_late(connection);
    stream->is_over = true;
    if (stream->is_unsound) {
        return;
    }
    stream->end = *error;
    if (error->status == EB_STATUS_OK) {
        eb_error_set(&stream->end, EB_STATUS_UNAVAILABLE, "the server ended the stream");
    }
}

static void on_finish(
    void *context, struct eb_grpc_client_call *from, void *user, const struct eb_error *error)
{
    struct eb_connection *connection = context;
    struct eb_attempt *attempt = user;
    if (connection->is_ending) {
        return;
    }
    struct eb_connection_stream *stream = find_stream(connection, from);
    /* The end of a call that this side has cancelled says nothing about the server. */
    bool is_own = stream ? stream->is_unsound : !attempt && connection->probe != from;
    if (!is_own) {
        connection->config->handler->on_heard(connection);
    }
    if (from == connection->probe) {
        connection->probe = NULL;
    }
    if (stream) {
        end_stream(connection, stream, error);
    } else if (attempt) {
        uint32_t pushback_ms = eb_grpc_client_pushback_ms(from);
        attempt->unary = NULL;
        take_ended(connection, attempt, error->status, pushback_ms);
        connection->config->handler->on_end(attempt, error, pushback_ms);
    }
}

static const struct eb_grpc_client_handler session_handler = {on_connection_message, on_finish};

/* ---- the transport ---- */

static void on_connection_open(void *context)
{
    struct eb_connection *connection = context;
    connection->is_dirty = true;
    connection->last_read_ns = uv_hrtime();
    connection->config->on_open(connection->config->context, connection);
}

static bool on_bytes(void *context, const uint8_t *bytes, size_t count)
{
    struct eb_connection *connection = context;
    connection->is_dirty = true;
    connection->last_read_ns = uv_hrtime();
    bool sound = eb_grpc_client_receive(connection->session, bytes, count);
    connection->has_spoken |= sound;
    return sound;
}

static void on_connection_written(void *context)
{
    struct eb_connection *connection = context;
    connection->is_dirty = true;
}

static void explain_connection(const struct eb_connection *connection, struct eb_error *why)
{
    const struct eb_transport *transport = &connection->transport;
    const char *reason = eb_grpc_client_reason(connection->session);
    if (!transport->was_open) {
        *why = transport->failure;
        return;
    }
    bool may_want_tls =
        !connection->has_spoken && !transport->credentials->tls && !transport->endpoint->is_unix;
    eb_error_set(why, EB_STATUS_UNAVAILABLE, "the connection to %s was lost: %s%s",
        connection->config->identity.authority,
        reason[0] != '\0' ? reason : transport->failure.text,
        may_want_tls ? "; if the server requires TLS, set tls or tls_ca" : "");
}

/* Returns the oldest attempt that was sent on a stream; NULL if there is none. */
static struct eb_attempt *find_first_on(
    struct eb_connection *connection, const struct eb_connection_stream *stream)
{
    const struct eb_list *links = &connection->attempts.links;
    for (struct eb_list *link = links->next; link != links; link = link->next) {
        struct eb_attempt *attempt = EB_CONTAINER_OF(link, struct eb_attempt, link);
        if (find_stream_of(connection, attempt) == stream) {
            return attempt;
        }
    }
    return NULL;
}

/* Drops the attempts of a stream. Looks for the next one afresh each time, because on_drop may
 * withdraw others. */
static void drop_attempts(struct eb_connection *connection,
    const struct eb_connection_stream *stream, const struct eb_error *why)
{
    struct eb_attempt *attempt = NULL;
    while ((attempt = find_first_on(connection, stream))) {
        attempt->connection = NULL;
        eb_attempt_list_remove(&connection->attempts, attempt);
        eb_window_drop(find_window(connection, attempt), false);
        connection->config->handler->on_drop(attempt, why);
    }
}

/* Drops all attempts after the session was destroyed, with its calls. */
static void drop_all(struct eb_connection *connection, const struct eb_error *why)
{
    const struct eb_list *links = &connection->attempts.links;
    connection->stream.call = NULL;
    connection->former.call = NULL;
    for (struct eb_list *link = links->next; link != links; link = link->next) {
        struct eb_attempt *attempt = EB_CONTAINER_OF(link, struct eb_attempt, link);
        attempt->unary = NULL;
        attempt->is_on_former = false;
    }
    drop_attempts(connection, &connection->stream, why);
}

/* Destroys the session first, because it must not refer to the request of an attempt that is
 * dropped.
 */
static void on_connection_close(void *context)
{
    struct eb_connection *connection = context;
    struct eb_error why;
    explain_connection(connection, &why);
    connection->is_ending = true;
    eb_grpc_client_destroy(connection->session);
    connection->session = NULL;
    connection->is_dirty = false;
    drop_all(connection, &why);
    assert(connection->attempts.count == 0);
    connection->config->on_close(connection->config->context, connection, &why);
}

static const struct eb_transport_handler transport_handler = {
    on_connection_open, on_bytes, on_connection_written, on_connection_close};

bool eb_connection_open(struct eb_connection *connection, uint64_t deadline_ns)
{
    const struct eb_connection_config *config = connection->config;
    assert(!connection->session);
    connection->session = eb_grpc_client_create(
        &config->identity, &config->limits, config->memory, &session_handler, connection);
    if (!connection->session) {
        return false;
    }
    eb_attempt_list_init(&connection->attempts);
    connection->is_ending = false;
    connection->stream = (struct eb_connection_stream){.call = NULL};
    connection->former = (struct eb_connection_stream){.call = NULL};
    connection->probe = NULL;
    connection->has_spoken = false;
    connection->has_answered = false;
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        eb_window_init(&connection->windows[i]);
    }
    connection->transport.handler = &transport_handler;
    connection->transport.context = connection;
    eb_transport_open(&connection->transport, deadline_ns);
    return true;
}

void eb_connection_close(struct eb_connection *connection)
{
    if (connection->session) {
        eb_transport_close(&connection->transport);
    }
}

/* ---- attempts ---- */

bool eb_connection_is_usable(const struct eb_connection *connection)
{
    return connection->session && connection->transport.state == EB_TRANSPORT_OPEN &&
           !connection->stream.is_over && eb_grpc_client_is_usable(connection->session);
}

static uint64_t find_left_ns(const struct eb_attempt *attempt, uint64_t now_ns)
{
    return attempt->deadline_ns > now_ns ? attempt->deadline_ns - now_ns : 0;
}

bool eb_connection_takes(const struct eb_connection *connection, enum eb_priority priority)
{
    return eb_connection_is_usable(connection) &&
           eb_grpc_client_unwritten_bytes(connection->session) < UNWRITTEN_BYTES_MAX &&
           (connection->config->is_unpaced || eb_window_has_room(&connection->windows[priority]));
}

bool eb_connection_is_in_time(
    const struct eb_connection *connection, const struct eb_attempt *attempt, uint64_t now_ns)
{
    return connection->config->is_unpaced ||
           eb_window_is_in_time(
               &connection->windows[attempt->priority], find_left_ns(attempt, now_ns));
}

static struct eb_grpc_client_call *start_unary(
    struct eb_connection *connection, struct eb_attempt *attempt, uint64_t timeout_us)
{
    const char *path = attempt->path ? attempt->path : lookup_path;
    /* A server need not know of a time that never comes. */
    timeout_us = attempt->deadline_ns == UINT64_MAX ? 0 : timeout_us;
    attempt->unary = eb_grpc_client_start(connection->session, path, timeout_us, attempt);
    return attempt->unary;
}

static struct eb_grpc_client_call *start_stream(struct eb_connection *connection)
{
    struct eb_connection_stream *stream = &connection->stream;
    if (!stream->call) {
        stream->is_unsound = false;
        stream->call = eb_grpc_client_start(connection->session, stream_path, 0, NULL);
    }
    return stream->call;
}

bool eb_connection_send(
    struct eb_connection *connection, struct eb_attempt *attempt, uint64_t now_ns)
{
    uint64_t timeout_us = find_left_ns(attempt, now_ns) / NS_PER_US + 1;
    attempt->unary = NULL;
    attempt->is_on_former = false;
    struct eb_grpc_client_call *stream =
        attempt->is_unary ? start_unary(connection, attempt, timeout_us) : start_stream(connection);
    if (!stream) {
        return false;
    }
    if (!attempt->path) {
        eb_request_message_stamp(attempt->request, timeout_us, attempt->earlier_count);
    }
    if (connection->asked_ns <= connection->last_read_ns) {
        connection->asked_ns = now_ns;
    }
    attempt->was_alone = eb_window_send(find_window(connection, attempt));
    attempt->connection = connection;
    attempt->sent_ns = now_ns;
    eb_attempt_list_append(&connection->attempts, attempt);
    eb_outgoing_hold(attempt->request);
    eb_grpc_client_write(stream, attempt->request, attempt->is_unary);
    connection->is_dirty = true;
    return true;
}

/* Returns for how long the server has sent nothing while an answer was due. */
static uint64_t find_silence_ns(const struct eb_connection *connection, uint64_t now_ns)
{
    uint64_t since_ns = connection->last_read_ns > connection->asked_ns ? connection->last_read_ns
                                                                        : connection->asked_ns;
    return now_ns > since_ns ? now_ns - since_ns : 0;
}

void eb_connection_answered(struct eb_connection *connection, struct eb_attempt *attempt,
    enum eb_status status, uint32_t retry_after_ms)
{
    assert(!attempt->unary);
    take_ended(connection, attempt, status, retry_after_ms);
}

/* The priority of the attempt is no longer known, so the answer may be counted for a late attempt
 * of the other priority. When all late answers have come, the counts of both windows are right. */
void eb_connection_answered_late(struct eb_connection *connection)
{
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        if (eb_window_settle_late(&connection->windows[i])) {
            return;
        }
    }
}

/* Tells the server to cancel a lookup. If out of memory, the server computes an answer that nobody
 * waits for. */
static void ask_to_forget(struct eb_connection *connection, const struct eb_attempt *attempt)
{
    struct eb_outgoing *request =
        eb_request_message_create_cancel(connection->config->memory, attempt->id);
    if (request) {
        eb_grpc_client_write(connection->stream.call, request, false);
        connection->is_dirty = true;
    }
}

/* Removes an attempt on this side. Also cancels it at the server if it is unary. */
static void take_call_back(struct eb_connection *connection, struct eb_attempt *attempt)
{
    eb_attempt_list_remove(&connection->attempts, attempt);
    attempt->connection = NULL;
    if (attempt->unary) {
        eb_grpc_client_abandon(attempt->unary);
        connection->is_dirty = true;
    }
}

void eb_connection_withdraw(struct eb_connection *connection, struct eb_attempt *attempt)
{
    take_call_back(connection, attempt);
    eb_window_drop(find_window(connection, attempt), false);
    if (find_stream_of(connection, attempt) == &connection->stream && connection->stream.call) {
        ask_to_forget(connection, attempt);
    }
    attempt->unary = NULL;
    if (is_idle(connection)) {
        connection->asked_ns = 0; /* No answer is due any more. */
    }
}

/* An attempt on the stream still gets an answer after its deadline: the server answers each of
 * them, if only to say that the deadline has passed. */
void eb_connection_expire(
    struct eb_connection *connection, struct eb_attempt *attempt, uint64_t now_ns)
{
    const struct eb_connection_stream *stream = find_stream_of(connection, attempt);
    take_call_back(connection, attempt);
    eb_window_expire(find_window(connection, attempt), stream && stream->call);
    attempt->unary = NULL;
    bool has_left = attempt->request->holds == 1;
    if (find_silence_ns(connection, now_ns) > (has_left ? SILENCE_NS_MAX : STUCK_NS_MAX)) {
        eb_connection_close(connection);
    }
}

void eb_connection_check(struct eb_connection *connection, uint64_t now_ns)
{
    uint32_t late_count = 0;
    for (int i = 0; i < EB_PRIORITY_COUNT; i++) {
        late_count += connection->windows[i].late_count;
    }
    if (eb_connection_is_usable(connection) && late_count > 0 &&
        find_silence_ns(connection, now_ns) > SILENCE_NS_MAX) {
        eb_connection_close(connection);
    }
}

/* Gives a unary probe up, so that probes do not pile up at a server that never answers. */
static void cancel_probe(struct eb_connection *connection)
{
    struct eb_grpc_client_call *probe = connection->probe;
    connection->probe = NULL;
    if (probe) {
        eb_grpc_client_cancel(probe);
    }
}

void eb_connection_probe(struct eb_connection *connection)
{
    if (!eb_connection_is_usable(connection)) {
        return;
    }
    cancel_probe(connection);
    struct eb_grpc_client_call *stream = connection->stream.call;
    struct eb_grpc_client_call *call =
        stream ? stream
               : eb_grpc_client_start(connection->session, lookup_path, PROBE_TIMEOUT_US, NULL);
    struct eb_outgoing *request =
        call ? eb_request_message_create_probe(connection->config->memory, EB_PROBE_ID) : NULL;
    if (request) {
        eb_grpc_client_write(call, request, !stream);
        connection->probe = stream ? NULL : call;
        connection->is_dirty = true;
    } else if (call && !stream) {
        eb_grpc_client_cancel(call);
    }
}

static void settle_stream(struct eb_connection *connection, struct eb_connection_stream *stream)
{
    if (stream->is_over) {
        stream->is_over = false;
        drop_attempts(connection, stream, &stream->end);
    }
}

/* Gives the former stream up. Its attempts may be sent again. */
static void drop_former(struct eb_connection *connection)
{
    struct eb_connection_stream *former = &connection->former;
    if (former->call) {
        eb_grpc_client_cancel(former->call);
        eb_error_set(&former->end, EB_STATUS_UNAVAILABLE,
            "the token has changed again before the server answered");
        former->call = NULL;
        former->is_over = true;
        forget_late(connection);
    }
    settle_stream(connection, former);
}

void eb_connection_renew_stream(struct eb_connection *connection)
{
    if (!connection->session || !connection->stream.call) {
        return;
    }
    drop_former(connection);
    connection->former = connection->stream;
    connection->stream = (struct eb_connection_stream){.call = NULL};
    struct eb_list *links = &connection->attempts.links;
    for (struct eb_list *link = links->next; link != links; link = link->next) {
        EB_CONTAINER_OF(link, struct eb_attempt, link)->is_on_former = true;
    }
    eb_grpc_client_end_write(connection->former.call);
    connection->is_dirty = true;
}

bool eb_connection_must_settle(const struct eb_connection *connection)
{
    return connection->stream.is_over || connection->former.is_over;
}

void eb_connection_settle(struct eb_connection *connection)
{
    if (!connection->session) {
        return;
    }
    settle_stream(connection, &connection->stream);
    settle_stream(connection, &connection->former);
    if (connection->transport.state == EB_TRANSPORT_OPEN && connection->attempts.count == 0 &&
        !eb_grpc_client_is_usable(connection->session)) {
        eb_connection_close(connection);
    }
}

/* Writes until the socket is full or nothing is left. This can take several writes, because a
 * session produces no further output while some is waiting. */
void eb_connection_flush(struct eb_connection *connection)
{
    if (!connection->is_dirty || connection->transport.state != EB_TRANSPORT_OPEN) {
        return;
    }
    connection->is_dirty = false;
    struct eb_send_queue *queue = eb_grpc_client_queue(connection->session);
    bool alive = true;
    do {
        alive = eb_grpc_client_send(connection->session);
        if (eb_send_queue_bytes(queue) == 0) {
            break;
        }
        eb_transport_write(&connection->transport, queue);
    } while (eb_send_queue_bytes(queue) == 0);
    if (!alive) {
        eb_connection_close(connection);
    }
}
