#include "proto/grpc_call.h"

#include "proto/grpc_guard.h"

#include <assert.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of answers that must leave within answer_stall_ms_max. */
#define ANSWER_PROGRESS_BYTES 65536
/* The time that a message may take: this many times message_stall_ms_max, plus the time of its
 * bytes at this rate. */
#define MESSAGE_STALLS_MAX 4u
#define MESSAGE_BYTES_PER_MS_MIN 4u
/* Sizes of a backlog's pieces, head included. Each is twice as large as the one before, up to the
 * maximum. */
#define PIECE_BYTES_MIN 4096
#define PIECE_BYTES_MAX 131072
#define STATIC_FIELD (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)

/* A field whose name and value outlive the session. */
#define FIELD(field_name, field_value)                                                             \
    {                                                                                              \
        .name = (uint8_t *)(field_name), .value = (uint8_t *)(field_value),                        \
        .namelen = sizeof field_name - 1, .valuelen = sizeof field_value - 1,                      \
        .flags = STATIC_FIELD                                                                      \
    }

static const nghttp2_nv response_fields[] = {
    FIELD(":status", "200"),
    FIELD("content-type", "application/grpc"),
    FIELD("grpc-accept-encoding", "identity,gzip"),
};

#define RESPONSE_FIELD_COUNT (sizeof response_fields / sizeof response_fields[0])

/* The fields that end a call, with room for the texts that vary. */
struct trailers {
    nghttp2_nv fields[RESPONSE_FIELD_COUNT + 3];
    size_t count;
    char message[EB_GRPC_MESSAGE_BYTES_MAX];
    char pushback[12];
};

/* A piece of a backlog's bytes. */
struct eb_grpc_piece {
    struct eb_grpc_piece *next;
    size_t capacity;
    size_t first; /* start of the bytes that are left */
    size_t end;
    uint64_t filled_ms; /* time when bytes were last added */
    uint8_t room[];
};

/* Adds an empty piece. Returns false if out of memory. */
static bool add_backlog_piece(struct eb_grpc_backlog *backlog, const struct eb_memory *memory)
{
    size_t bytes = PIECE_BYTES_MIN;
    if (backlog->tail) {
        bytes = 2 * (sizeof *backlog->tail + backlog->tail->capacity);
        bytes = bytes < PIECE_BYTES_MAX ? bytes : PIECE_BYTES_MAX;
    }
    struct eb_grpc_piece *piece = memory->take(memory->context, bytes);
    if (!piece) {
        return false;
    }
    *piece = (struct eb_grpc_piece){.capacity = bytes - sizeof *piece};
    if (backlog->tail) {
        backlog->tail->next = piece;
    } else {
        backlog->head = piece;
    }
    backlog->tail = piece;
    return true;
}

/* Appends bytes that came at `now_ms`. Returns false if out of memory; some may have been
 * appended. */
static bool append_backlog(struct eb_grpc_backlog *backlog, const struct eb_memory *memory,
    const uint8_t *bytes, size_t count, uint64_t now_ms)
{
    while (count > 0) {
        size_t room = backlog->tail ? backlog->tail->capacity - backlog->tail->end : 0;
        size_t step = room < count ? room : count;
        if (room == 0 && !add_backlog_piece(backlog, memory)) {
            return false;
        }
        struct eb_grpc_piece *tail = backlog->tail;
        memcpy(tail->room + tail->end, bytes, step);
        tail->end += step;
        tail->filled_ms = now_ms;
        bytes += step;
        count -= step;
    }
    return true;
}

/* Takes the first piece out of the backlog, which must not be empty. */
static struct eb_grpc_piece *pop_backlog(struct eb_grpc_backlog *backlog)
{
    struct eb_grpc_piece *piece = backlog->head;
    backlog->head = piece->next;
    if (!backlog->head) {
        backlog->tail = NULL;
    }
    return piece;
}

/* Puts a popped piece back in front. If nothing of it is left, gives its memory back. */
static void restore_backlog(
    struct eb_grpc_backlog *backlog, const struct eb_memory *memory, struct eb_grpc_piece *piece)
{
    if (piece->first == piece->end) {
        memory->give(memory->context, piece, sizeof *piece + piece->capacity);
        return;
    }
    piece->next = backlog->head;
    backlog->head = piece;
    backlog->tail = backlog->tail ? backlog->tail : piece;
}

/* Gives every piece back. Accepts a zeroed backlog. */
static void clear_backlog(struct eb_grpc_backlog *backlog, const struct eb_memory *memory)
{
    while (backlog->head) {
        struct eb_grpc_piece *piece = pop_backlog(backlog);
        piece->first = piece->end;
        restore_backlog(backlog, memory, piece);
    }
}

static void check_call_open(struct eb_grpc_connection *connection, int outcome)
{
    if (outcome < 0 && nghttp2_is_fatal(outcome)) {
        connection->failed = true;
    }
}

struct eb_grpc_call *eb_grpc_call_open(struct eb_grpc_connection *connection, int32_t stream_id)
{
    struct eb_grpc_call *call = connection->spare;
    if (call) {
        connection->spare = call->next;
    } else {
        call = malloc(sizeof *call);
        if (!call) {
            return NULL;
        }
    }
    *call = (struct eb_grpc_call){
        .connection = connection,
        .stream_id = stream_id,
        .next = connection->calls,
        .message_stall_ms_max = connection->limits->message_stall_ms_max,
        .answer_stall_ms_max = connection->limits->answer_stall_ms_max,
        .progress_ms = connection->now_ms,
        .reader = {.memory = connection->memory,
            .bytes_max = connection->limits->request_bytes_max},
        .output = {.queue = connection->queue,
            .owner = call,
            .total_bytes = &connection->output_bytes},
    };
    if (call->next) {
        call->next->previous = call;
    }
    connection->calls = call;
    connection->call_count++;
    return call;
}

void eb_grpc_call_free_spare(struct eb_grpc_connection *connection)
{
    while (connection->spare) {
        struct eb_grpc_call *call = connection->spare;
        connection->spare = call->next;
        free(call);
    }
}

void eb_grpc_call_limit_message(struct eb_grpc_call *call, uint32_t bytes_max)
{
    if (bytes_max < call->reader.bytes_max) {
        call->reader.bytes_max = bytes_max;
    }
}

/* Increases the peer's windows by the number of bytes that have been processed. */
static void credit(struct eb_grpc_call *call, size_t bytes)
{
    assert(bytes <= call->held_bytes);
    call->held_bytes -= bytes;
    if (!call->connection->is_dead) {
        check_call_open(call->connection,
            nghttp2_session_consume(call->connection->session, call->stream_id, bytes));
    }
}

void eb_grpc_call_expect_one(struct eb_grpc_call *call, struct eb_grpc_hold *hold)
{
    call->hold = hold;
}

struct eb_grpc_message eb_grpc_call_take_message(struct eb_grpc_call *call)
{
    assert(call->has_message);
    struct eb_grpc_message message = call->message;
    call->message = (struct eb_grpc_message){0};
    call->hold->bytes -= message.size;
    return message;
}

static void drop_held_message(struct eb_grpc_call *call)
{
    if (call->message.bytes) {
        struct eb_grpc_message message = eb_grpc_call_take_message(call);
        eb_grpc_message_give(call->connection->memory, &message);
    }
}

static void drop_input(struct eb_grpc_call *call)
{
    drop_held_message(call);
    eb_grpc_message_discard(&call->reader);
    clear_backlog(&call->backlog, call->connection->memory);
    if (call->held_bytes > 0) {
        credit(call, call->held_bytes);
    }
}

void eb_grpc_call_close(struct eb_grpc_call *call)
{
    struct eb_grpc_connection *connection = call->connection;
    call->finished = true;
    drop_input(call);
    if (call->announced) {
        call->reason = call->given_up ? call->text : NULL;
        connection->handler->on_close(connection->context, call);
    }
    eb_grpc_output_clear(&call->output);
    free(call->text);
    if (call->next) {
        call->next->previous = call->previous;
    }
    if (call->previous) {
        call->previous->next = call->next;
    } else {
        connection->calls = call->next;
    }
    connection->call_count--;
    call->next = connection->spare;
    connection->spare = call;
}

static const char *status_digits(enum eb_status status)
{
    switch (status) {
#define X(name, number)                                                                            \
    case EB_STATUS_##name: return #number;
        EB_STATUS_LIST(X)
#undef X
    }
    return "2";
}

static nghttp2_nv *add_field(struct trailers *trailers, const char *name, const char *value)
{
    nghttp2_nv *field = &trailers->fields[trailers->count++];
    *field = (nghttp2_nv){
        .name = (uint8_t *)name,
        .namelen = strlen(name),
        .value = (uint8_t *)value,
        .valuelen = strlen(value),
        .flags = STATIC_FIELD,
    };
    return field;
}

/* Adds the call's status. nghttp2 copies texts that vary. These are not entered in HPACK's table,
 * because they would push the constant texts out of it. */
static void add_status(struct trailers *trailers, const struct eb_grpc_call *call, const char *text)
{
    uint8_t varying = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_INDEX;
    add_field(trailers, "grpc-status", status_digits(call->status));
    if (text && text[0] != '\0') {
        nghttp2_nv *field = add_field(trailers, "grpc-message", "");
        field->value = (uint8_t *)trailers->message;
        field->valuelen = eb_grpc_message_encode(text, trailers->message);
        field->flags = varying;
    }
    if (call->pushback_ms > 0) {
        snprintf(trailers->pushback, sizeof trailers->pushback, "%u", call->pushback_ms);
        add_field(trailers, "grpc-retry-pushback-ms", trailers->pushback)->flags = varying;
    }
}

static void submit_trailers_only(struct eb_grpc_call *call, const char *text)
{
    struct trailers trailers;
    memcpy(trailers.fields, response_fields, sizeof response_fields);
    trailers.count = RESPONSE_FIELD_COUNT;
    add_status(&trailers, call, text);
    check_call_open(call->connection, nghttp2_submit_response(call->connection->session,
                                          call->stream_id, trailers.fields, trailers.count, NULL));
}

static struct eb_outgoing *ask_handler(void *owner, struct eb_outgoing *message)
{
    struct eb_grpc_call *call = owner;
    const struct eb_grpc_connection *connection = call->connection;
    return connection->handler->on_drop_if_expired(connection->context, call, message);
}

/* Tells nghttp2 how many bytes may leave now; on_send_data moves them. Submits the trailers
 * together with the last bytes. */
static ssize_t on_call_read(nghttp2_session *session, int32_t stream_id, uint8_t *room,
    size_t room_bytes, uint32_t *flags, nghttp2_data_source *source, void *context)
{
    (void)room;
    (void)context;
    struct eb_grpc_output *output = source->ptr;
    struct eb_grpc_call *call = output->owner;
    eb_grpc_output_drop_expired(output, room_bytes, ask_handler);
    size_t count = output->bytes < room_bytes ? output->bytes : room_bytes;
    if (count < output->bytes || !call->finished) {
        output->deferred = count == 0;
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
        return count > 0 ? (ssize_t)count : NGHTTP2_ERR_DEFERRED;
    }
    struct trailers trailers;
    trailers.count = 0;
    add_status(&trailers, call, call->text);
    if (nghttp2_submit_trailer(session, stream_id, trailers.fields, trailers.count) < 0) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY | NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return (ssize_t)count;
}

/* If nghttp2 has been told that there is nothing to send, tells it that on_call_read has something
 * now. */
static void wake_call(struct eb_grpc_call *call)
{
    if (call->output.deferred) {
        call->output.deferred = false;
        check_call_open(call->connection,
            nghttp2_session_resume_data(call->connection->session, call->stream_id));
    }
}

void eb_grpc_call_answer(struct eb_grpc_call *call, struct eb_outgoing *message)
{
    if (call->finished || call->connection->is_dead) {
        eb_outgoing_drop(message);
        return;
    }
    eb_grpc_output_push(&call->output, message);
    if (call->answered) {
        wake_call(call);
        return;
    }
    call->answered = true;
    nghttp2_data_provider provider = {
        .source = {.ptr = &call->output}, .read_callback = on_call_read};
    check_call_open(
        call->connection, nghttp2_submit_response(call->connection->session, call->stream_id,
                              response_fields, RESPONSE_FIELD_COUNT, &provider));
}

void eb_grpc_call_finish(
    struct eb_grpc_call *call, enum eb_status status, const char *text, uint32_t pushback_ms)
{
    if (call->finished) {
        return;
    }
    call->finished = true;
    call->status = status;
    call->pushback_ms = pushback_ms;
    drop_input(call);
    if (call->connection->is_dead) {
        return;
    }
    if (!call->answered) {
        submit_trailers_only(call, text);
        return;
    }
    /* If there is no memory for a copy of the text, the status is sent alone. */
    call->text = text ? strdup(text) : NULL;
    wake_call(call);
}

/* Ends a call that its handler has not ended. on_close receives the reason. */
static void give_call_up(struct eb_grpc_call *call, enum eb_status status, const char *text)
{
    assert(!call->finished);
    eb_grpc_call_finish(call, status, text, 0);
    call->given_up = true;
    if (!call->text) {
        call->text = strdup(text);
    }
}

void eb_grpc_call_restate(struct eb_grpc_call *call, enum eb_status status, const char *text)
{
    assert(call->finished && !call->trailers_sent);
    call->status = status;
    free(call->text);
    call->text = text ? strdup(text) : NULL;
}

enum eb_status eb_grpc_call_outcome(const struct eb_grpc_call *call)
{
    return call->trailers_sent ? call->status : EB_STATUS_CANCELLED;
}

void eb_grpc_call_pause(struct eb_grpc_call *call)
{
    call->paused = true;
}

bool eb_grpc_call_has_kept(const struct eb_grpc_call *call)
{
    return call->backlog.head;
}

void eb_grpc_call_resume(struct eb_grpc_call *call)
{
    if (call->paused) {
        call->paused = false;
        call->connection->resumed = true;
    }
}

/* Passes the call to the handler, or answers with the error in its headers. */
static void announce(struct eb_grpc_call *call)
{
    struct eb_grpc_connection *connection = call->connection;
    struct eb_grpc_headers_limits limits = {.fields_max = connection->limits->header_fields_max,
        .bytes_max = connection->limits->header_bytes_max};
    struct eb_error error;
    int http_status = eb_grpc_headers_check(&call->headers, &limits, &error);
    if (http_status != 200) {
        call->finished = true;
        call->refusal.http_status = http_status;
        return;
    }
    call->path = call->headers.path;
    call->trace = &call->headers.trace;
    if (error.status != EB_STATUS_OK) {
        eb_grpc_call_finish(call, error.status, error.text, 0);
        call->reason = error.text;
        connection->handler->on_refusal(connection->context, call);
        return;
    }
    call->timeout_us = call->headers.timeout_us;
    call->is_repeated = call->headers.is_repeated;
    call->authorization = call->headers.has_authorization ? call->headers.authorization : NULL;
    call->reader.inflate = call->headers.encoding == EB_GRPC_GZIP ? eb_gzip_inflate : NULL;
    call->announced = true;
    connection->handler->on_call(connection->context, call);
    call->authorization = NULL;
}

void eb_grpc_call_begin(struct eb_grpc_call *call)
{
    announce(call);
    explicit_bzero(call->headers.authorization, sizeof call->headers.authorization);
}

static void refuse_call_message(struct eb_grpc_call *call, enum eb_grpc_read why)
{
    struct eb_error error;
    call->lacked_memory = why == EB_GRPC_READ_NO_MEMORY;
    eb_grpc_message_explain(&call->reader, why, &error);
    if (why == EB_GRPC_READ_COMPRESSED && call->headers.encoding == EB_GRPC_UNKNOWN_ENCODING) {
        eb_error_set(&error, EB_STATUS_UNIMPLEMENTED,
            "a message is compressed with an encoding that is not supported");
    }
    give_call_up(call, error.status, error.text);
}

/* Takes the only message of a call (eb_grpc_call_expect_one), and holds it. */
static void hold_only_message(struct eb_grpc_call *call, struct eb_grpc_message *message)
{
    const struct eb_grpc_connection *connection = call->connection;
    if (message->wire_bytes != message->size && connection->handler->on_inflated) {
        connection->handler->on_inflated(connection->context);
    }
    if (call->has_message) {
        eb_grpc_message_give(connection->memory, message);
        give_call_up(
            call, EB_STATUS_UNIMPLEMENTED, "the method takes one message, but the call has more");
        return;
    }
    call->has_message = true;
    call->message = *message;
    call->message_ms = connection->now_ms;
    call->hold->bytes += message->size;
    if (call->hold->bytes > call->hold->bytes_max) {
        give_call_up(call, EB_STATUS_RESOURCE_EXHAUSTED,
            "too many bytes in messages of calls that the client has not ended");
    }
}

/* Reads these bytes, which came at `arrived_ms`, until one message is delivered or no bytes are
 * left. Returns the number of bytes used. */
static size_t read_one(
    struct eb_grpc_call *call, const uint8_t *bytes, size_t count, uint64_t arrived_ms)
{
    const struct eb_grpc_connection *connection = call->connection;
    struct eb_grpc_message message;
    enum eb_grpc_read read = eb_grpc_message_read(&call->reader, bytes, &count, &message);
    if (read == EB_GRPC_READ_MESSAGE) {
        credit(call, EB_GRPC_PREFIX_BYTES + message.wire_bytes);
        call->begun_ms = connection->now_ms;
        message.arrived_ms = arrived_ms;
        if (call->hold) {
            hold_only_message(call, &message);
        } else {
            connection->handler->on_message(connection->context, call, message);
        }
    } else if (read != EB_GRPC_READ_MORE) {
        refuse_call_message(call, read);
    }
    return count;
}

/* Delivers the messages that these bytes complete, until the call is paused or finished. Returns
 * the number of bytes used. */
static size_t parse_data(struct eb_grpc_call *call, const uint8_t *bytes, size_t count)
{
    size_t used = 0;
    while (used < count && !call->paused && !call->finished) {
        used += read_one(call, bytes + used, count - used, call->progress_ms);
    }
    return used;
}

/* Appends bytes to the call's backlog. Returns false if out of memory. */
static bool append_rest(struct eb_grpc_call *call, const uint8_t *bytes, size_t count)
{
    const struct eb_grpc_connection *connection = call->connection;
    return append_backlog(&call->backlog, connection->memory, bytes, count, connection->now_ms);
}

void eb_grpc_call_feed(struct eb_grpc_call *call, const uint8_t *bytes, size_t count)
{
    call->held_bytes += count;
    call->progress_ms = call->connection->now_ms;
    if (call->finished) {
        credit(call, count);
        return;
    }
    call->connection->fed_bytes += count;
    if (call->held_bytes == count) {
        call->begun_ms = call->progress_ms;
    }
    size_t used = call->backlog.head ? 0 : parse_data(call, bytes, count);
    if (used < count && !call->finished && !append_rest(call, bytes + used, count - used)) {
        refuse_call_message(call, EB_GRPC_READ_NO_MEMORY);
    }
}

/* Delivers the end of the request, once all messages before it are delivered. */
static void deliver_end(struct eb_grpc_call *call)
{
    if (!call->peer_ended || call->end_delivered || call->finished || call->backlog.head) {
        return;
    }
    if (eb_grpc_message_is_partial(&call->reader)) {
        give_call_up(call, EB_STATUS_INTERNAL, "the request ended inside a message");
        return;
    }
    call->end_delivered = true;
    const struct eb_grpc_connection *connection = call->connection;
    if (!call->hold) {
        connection->handler->on_request_end(connection->context, call);
    } else if (call->has_message) {
        connection->handler->on_request(connection->context, call);
    } else {
        give_call_up(
            call, EB_STATUS_UNIMPLEMENTED, "the method takes one message, but the call has none");
    }
}

static void refuse_call(struct eb_grpc_call *call)
{
    struct eb_grpc_connection *connection = call->connection;
    call->answered = true;
    call->progress_ms = connection->now_ms;
    check_call_open(
        connection, eb_grpc_refusal_submit(connection->session, call->stream_id, &call->refusal));
}

void eb_grpc_call_end(struct eb_grpc_call *call)
{
    call->peer_ended = true;
    if (call->refusal.http_status != 0 && !call->answered) {
        refuse_call(call);
    }
    deliver_end(call);
}

static bool can_advance(const struct eb_grpc_call *call)
{
    return call->backlog.head && !call->paused && !call->finished;
}

bool eb_grpc_call_advance(struct eb_grpc_call *call)
{
    if (can_advance(call)) {
        /* The piece is taken out of the backlog while it is read, because a handler may finish the
         * call meanwhile. */
        struct eb_grpc_piece *piece = pop_backlog(&call->backlog);
        piece->first +=
            read_one(call, piece->room + piece->first, piece->end - piece->first, piece->filled_ms);
        if (call->finished) {
            piece->first = piece->end;
        }
        call->begun_ms = call->connection->now_ms; /* the wait was not the peer's fault */
        restore_backlog(&call->backlog, call->connection->memory, piece);
    }
    deliver_end(call);
    return can_advance(call);
}

/* Returns whether the call holds receive window for an incomplete message, and only for that. */
static bool is_partial(const struct eb_grpc_call *call)
{
    return call->held_bytes > 0 && !call->backlog.head;
}

/* Returns whether a message has made no progress for too long, or came too slowly. */
static bool is_message_stalled(const struct eb_grpc_call *call)
{
    const struct eb_grpc_connection *connection = call->connection;
    uint64_t stall_ms_max = call->message_stall_ms_max;
    uint64_t slow_ms_max =
        MESSAGE_STALLS_MAX * stall_ms_max + call->held_bytes / MESSAGE_BYTES_PER_MS_MIN;
    return is_partial(call) && (connection->now_ms - call->progress_ms >= stall_ms_max ||
                                   connection->now_ms - call->begun_ms >= slow_ms_max);
}

/* Returns whether a call that expects one message has waited too long, since that message came, for
 * the request's end. */
static bool is_end_overdue(const struct eb_grpc_call *call)
{
    const struct eb_grpc_connection *connection = call->connection;
    return call->has_message && !call->peer_ended && !call->finished &&
           connection->now_ms - call->message_ms >= call->message_stall_ms_max;
}

/* Returns whether answers have waited for the peer's windows for too long. A few bytes now and then
 * do not count as progress: otherwise a peer could keep answers waiting for as long as it likes. */
static bool is_answer_stalled(struct eb_grpc_call *call)
{
    const struct eb_grpc_connection *connection = call->connection;
    if (call->output.bytes == 0 || call->sent_ms == 0 ||
        call->output.sent_bytes - call->sent_bytes >= ANSWER_PROGRESS_BYTES) {
        call->sent_bytes = call->output.sent_bytes;
        call->sent_ms = connection->now_ms;
    }
    return call->answer_stall_ms_max > 0 &&
           connection->now_ms - call->sent_ms >= call->answer_stall_ms_max;
}

static bool is_window_full(const struct eb_grpc_connection *connection)
{
    nghttp2_session *session = connection->session;
    return nghttp2_session_get_effective_recv_data_length(session) >=
           nghttp2_session_get_effective_local_window_size(session);
}

static bool has_backlog(const struct eb_grpc_connection *connection)
{
    const struct eb_grpc_call *call = connection->calls;
    while (call && !call->backlog.head) {
        call = call->next;
    }
    return call;
}

static void reset_stalled(struct eb_grpc_call *call)
{
    check_call_open(
        call->connection, nghttp2_submit_rst_stream(call->connection->session, NGHTTP2_FLAG_NONE,
                              call->stream_id, NGHTTP2_ENHANCE_YOUR_CALM));
}

/* Answers a request that is not gRPC and that the peer does not end. If the peer does not take the
 * answer, resets the call. */
static void tick_refused(struct eb_grpc_call *call)
{
    const struct eb_grpc_connection *connection = call->connection;
    uint64_t passed_ms = connection->now_ms - call->progress_ms;
    if (!call->answered && passed_ms >= call->message_stall_ms_max) {
        refuse_call(call);
    } else if (call->answered && call->answer_stall_ms_max > 0 &&
               passed_ms >= call->answer_stall_ms_max) {
        reset_stalled(call);
    }
}

/* Ends the call if its message or answer is stalled. `is_shut` means that the peer can send
 * nothing, on any call. */
static void tick_call(struct eb_grpc_call *call, bool is_shut)
{
    struct eb_grpc_connection *connection = call->connection;
    if (is_shut) {
        call->progress_ms = connection->now_ms;
        call->begun_ms = connection->now_ms;
    }
    if (is_message_stalled(call)) {
        give_call_up(call, EB_STATUS_DEADLINE_EXCEEDED, "the message made no progress");
    } else if (is_end_overdue(call)) {
        give_call_up(call, EB_STATUS_DEADLINE_EXCEEDED,
            "the client did not end the request in time after its message (message_timeout_ms)");
    }
    /* Trailers cannot overtake a message that is half sent, so only a reset ends the call. */
    if (is_answer_stalled(call)) {
        reset_stalled(call);
    }
}

/* Excludes `unread_ms`, during which the peer's bytes were not read, from the time that counts as a
 * stall. */
static void postpone_stall(struct eb_grpc_call *call, uint64_t unread_ms)
{
    uint64_t now_ms = call->connection->now_ms;
    if (!call->answered) {
        call->progress_ms =
            call->progress_ms + unread_ms < now_ms ? call->progress_ms + unread_ms : now_ms;
        call->begun_ms = call->begun_ms + unread_ms < now_ms ? call->begun_ms + unread_ms : now_ms;
    }
    if (!call->peer_ended) {
        uint64_t later_ms = call->message_ms + unread_ms;
        call->message_ms = later_ms < now_ms ? later_ms : now_ms;
    }
}

void eb_grpc_call_tick(struct eb_grpc_connection *connection, uint64_t unread_ms)
{
    bool is_shut = is_window_full(connection) && has_backlog(connection);
    for (struct eb_grpc_call *call = connection->calls; call; call = call->next) {
        postpone_stall(call, unread_ms);
        if (call->refusal.http_status != 0) {
            tick_refused(call);
        } else {
            tick_call(call, is_shut);
        }
    }
}

void eb_grpc_call_trailers_sent(struct eb_grpc_call *call)
{
    call->trailers_sent = true;
    /* The trailers have left by now: a reset before that would drop them. */
    if (!call->peer_ended) {
        check_call_open(
            call->connection, nghttp2_submit_rst_stream(call->connection->session,
                                  NGHTTP2_FLAG_NONE, call->stream_id, NGHTTP2_NO_ERROR));
    }
}

void eb_grpc_call_relieve(struct eb_grpc_connection *connection)
{
    /* A call with a backlog is paused, and opens the window when it is resumed. */
    while (is_window_full(connection) && !has_backlog(connection)) {
        struct eb_grpc_call *youngest = connection->calls;
        while (youngest && !is_partial(youngest)) {
            youngest = youngest->next;
        }
        if (!youngest) {
            return;
        }
        give_call_up(youngest, EB_STATUS_RESOURCE_EXHAUSTED,
            "incomplete messages fill the connection's receive window");
    }
}
