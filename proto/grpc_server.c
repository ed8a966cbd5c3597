#include "proto/grpc_server.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limit, at any one time, on header blocks that nghttp2 does not show and that consist of several
 * frames. */
#define UNSEEN_CONTINUED_MAX 2u
/* Limit on frames of ours that wait because the peer does not read, in addition to those of its
 * open calls. */
#define FRAMES_WAITING_MAX 2000u
#define FRAMES_PER_CALL 8u

enum drain {
    DRAIN_NONE,
    DRAIN_WANTED, /* the peer has not yet shown that it speaks HTTP/2 */
    DRAIN_NOTICE, /* the ping after the notice is in transit */
    DRAIN_FINAL
};

struct eb_grpc_server {
    struct eb_grpc_connection connection;
    struct eb_grpc_call *header_call; /* call whose header block is being read */
    struct eb_grpc_block block;       /* the header block that began last */
    size_t block_bytes_max;           /* size up to which `block` has no excess */
    size_t block_excess;              /* part of the excess of `block` that was already spent */
    int32_t header_stream_id; /* stream of an unfinished header block or trailers; 0: none */
    struct eb_grpc_preface preface;
    struct eb_grpc_budget budget;
    enum drain drain;
    uint64_t begun_count;
    bool is_open;
    bool is_block_unseen;    /* nghttp2 has not shown the stream of `block`, and may never */
    bool is_block_continued; /* that block's first frame lacks END_HEADERS */
    bool peer_left; /* the peer sent a GOAWAY without an error, which nghttp2 calls a violation */
    char reason[128];
};

static const uint8_t drain_ping[8] = {'d', 'r', 'a', 'i', 'n', 0, 0, 0};
static const uint8_t alive_ping[8] = {'a', 'l', 'i', 'v', 'e', 0, 0, 0};
/* gRPC's clients take this as advice to ping less often. */
static const char too_many_pings[] = "too_many_pings";

static bool is_server_over(const struct eb_grpc_server *server)
{
    return server->reason[0] != '\0';
}

static void set_reason(struct eb_grpc_server *server, const char *reason)
{
    if (!is_server_over(server)) {
        snprintf(server->reason, sizeof server->reason, "%s", reason);
    }
}

/* Ends the connection without sending anything more. Always returns false. */
static bool fail_server(struct eb_grpc_server *server, const char *reason)
{
    set_reason(server, reason);
    server->connection.is_dead = true;
    return false;
}

/* Ends the connection with a GOAWAY. */
static void turn_away(struct eb_grpc_server *server, const char *reason)
{
    if (is_server_over(server)) {
        return;
    }
    set_reason(server, reason);
    if (nghttp2_session_terminate_session(server->connection.session, NGHTTP2_ENHANCE_YOUR_CALM) !=
        0) {
        server->connection.is_dead = true;
    }
}

static const char noise_reason[] = "the peer sends too many frames without content";

static void spend_noise(struct eb_grpc_server *server)
{
    if (!eb_grpc_budget_spend_noise(&server->budget)) {
        turn_away(server, noise_reason);
    }
}

static void spend_ping(struct eb_grpc_server *server)
{
    const struct eb_grpc_connection *connection = &server->connection;
    uint32_t interval_ms = connection->call_count > 0
                               ? connection->limits->ping_interval_min_ms
                               : connection->limits->ping_idle_interval_min_ms;
    if (!eb_grpc_budget_spend_ping(&server->budget, connection->now_ms, interval_ms)) {
        (void)nghttp2_submit_goaway(connection->session, NGHTTP2_FLAG_NONE,
            nghttp2_session_get_last_proc_stream_id(connection->session), NGHTTP2_ENHANCE_YOUR_CALM,
            (const uint8_t *)too_many_pings, sizeof too_many_pings - 1);
        turn_away(server, "the peer pings more often than is allowed");
    }
}

static void spend_reset(struct eb_grpc_server *server)
{
    if (!eb_grpc_budget_spend_reset(&server->budget)) {
        turn_away(server, "the peer causes more calls to be reset than it lets complete");
    }
}

static struct eb_grpc_call *find_server_call(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

static void spend_excess(struct eb_grpc_server *server, size_t bytes)
{
    if (!eb_grpc_budget_spend_excess(&server->budget, bytes)) {
        turn_away(server, "the peer's header blocks expand to more bytes than are allowed");
    }
}

static struct eb_grpc_headers_limits find_header_limits(const struct eb_grpc_server *server)
{
    return (struct eb_grpc_headers_limits){
        .fields_max = server->connection.limits->header_fields_max,
        .bytes_max = server->connection.limits->header_bytes_max};
}

static void begin_block(struct eb_grpc_server *server, const nghttp2_frame_hd *head)
{
    server->block = (struct eb_grpc_block){0};
    server->block_excess = 0;
    server->is_block_unseen = true;
    server->is_block_continued = !(head->flags & NGHTTP2_FLAG_END_HEADERS);
}

/* Spends the cost of a header block that nghttp2 only decompressed, because its stream is over or
 * was refused. nghttp2 shows neither its fields nor any CONTINUATION. Honest peers send some such
 * blocks, when a block and the end of its stream cross in transit, and some honest peers split
 * every large block. */
static void spend_unseen_block(struct eb_grpc_server *server)
{
    size_t bytes = server->block.wire_bytes;
    server->is_block_unseen = false;
    if (server->is_block_continued) {
        spend_excess(server, server->budget.excess_max / UNSEEN_CONTINUED_MAX);
    } else {
        spend_excess(server, bytes > EB_GRPC_TABLES_BYTES ? bytes - EB_GRPC_TABLES_BYTES : 0);
    }
}

static void continue_block(struct eb_grpc_server *server, const nghttp2_frame_hd *head)
{
    struct eb_grpc_headers_limits limits = find_header_limits(server);
    server->block.wire_bytes += head->length;
    server->block_bytes_max = eb_grpc_block_bytes_max(server->block.wire_bytes, &limits);
    if (server->block.wire_bytes >
        (size_t)EB_GRPC_BLOCK_LIMITS_MAX * server->connection.limits->header_bytes_max) {
        turn_away(server, "the peer sends a header block that is far too long");
    }
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *context)
{
    (void)session;
    struct eb_grpc_server *server = context;
    if (server->is_block_unseen && head->type != NGHTTP2_CONTINUATION) {
        spend_unseen_block(server);
        spend_noise(server);
    }
    switch (head->type) {
    case NGHTTP2_HEADERS: begin_block(server, head); /* fall through */
    case NGHTTP2_CONTINUATION: continue_block(server, head); break;
    default:
        if (!eb_grpc_budget_spend_frame(&server->budget, head->type, head->flags, head->length)) {
            turn_away(server, noise_reason);
        }
        if (head->type == NGHTTP2_PING && !(head->flags & NGHTTP2_FLAG_ACK)) {
            spend_ping(server);
        }
        break;
    }
    return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct eb_grpc_server *server = context;
    server->header_stream_id = frame->hd.stream_id;
    server->is_block_unseen = false;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    struct eb_grpc_call *call = eb_grpc_call_open(&server->connection, frame->hd.stream_id);
    if (!call) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    server->header_call = call;
    server->begun_count++;
    return nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call) == 0
               ? 0
               : NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* Spends the part of the block's excess that is not spent yet. Returns the callback's result for
 * nghttp2: to continue, or to skip the rest of the block's fields. */
static int spend_block(struct eb_grpc_server *server)
{
    struct eb_grpc_headers_limits limits = find_header_limits(server);
    size_t excess = eb_grpc_block_excess(&server->block, &limits);
    if (excess > server->block_excess) {
        spend_excess(server, excess - server->block_excess);
        server->block_excess = excess;
    }
    return is_server_over(server) ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

/* Counts a field of any block. If the block then exceeds what its sender pays for, the excess is
 * spent from the connection's budget. Most blocks have a dozen fields and no excess: keep the path
 * for them cheap. */
static inline int count_field(struct eb_grpc_server *server, size_t bytes)
{
    server->block.bytes += bytes;
    server->block.field_count++;
    if (server->block.bytes <= server->block_bytes_max &&
        server->block.field_count <= server->connection.limits->header_fields_max) {
        return 0;
    }
    return spend_block(server);
}

static int on_server_header(nghttp2_session *session, const nghttp2_frame *frame,
    const uint8_t *name, size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
    void *context)
{
    (void)session;
    (void)frame;
    (void)flags;
    struct eb_grpc_server *server = context;
    if (server->header_call) {
        struct eb_grpc_headers_limits limits = find_header_limits(server);
        eb_grpc_headers_add(&server->header_call->headers,
            (struct eb_grpc_text){(const char *)name, name_size},
            (struct eb_grpc_text){(const char *)value, value_size}, &limits);
    }
    return count_field(server, name_size + value_size);
}

/* Counts a field that nghttp2 skips because of bytes that HTTP forbids: such a field costs as much
 * to decode. */
static int on_server_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
    const uint8_t *name, size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
    void *context)
{
    (void)session;
    (void)frame;
    (void)name;
    (void)value;
    (void)flags;
    return count_field(context, name_size + value_size);
}

static int on_server_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
    const uint8_t *bytes, size_t count, void *context)
{
    (void)flags;
    (void)context;
    struct eb_grpc_call *call = find_server_call(session, stream_id);
    if (call) {
        eb_grpc_call_feed(call, bytes, count);
    }
    return 0;
}

static void submit_response(struct eb_grpc_server *server, int outcome)
{
    if (outcome != 0) {
        server->connection.failed = true;
    }
}

static void begin_drain(struct eb_grpc_server *server)
{
    nghttp2_session *session = server->connection.session;
    server->drain = DRAIN_NOTICE;
    submit_response(server, nghttp2_submit_shutdown_notice(session));
    submit_response(server, nghttp2_submit_ping(session, NGHTTP2_FLAG_NONE, drain_ping));
}

static void on_settings(struct eb_grpc_server *server)
{
    server->is_open = true;
    if (server->drain == DRAIN_WANTED) {
        begin_drain(server);
    }
}

static void on_ping_ack(struct eb_grpc_server *server, const uint8_t opaque[8])
{
    if (server->drain != DRAIN_NOTICE || memcmp(opaque, drain_ping, sizeof drain_ping) != 0) {
        return;
    }
    server->drain = DRAIN_FINAL;
    nghttp2_session *session = server->connection.session;
    submit_response(
        server, nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE,
                    nghttp2_session_get_last_proc_stream_id(session), NGHTTP2_NO_ERROR, NULL, 0));
}

/* Handles complete HEADERS or DATA of a call. */
static void on_call_frame(struct eb_grpc_server *server, const nghttp2_frame *frame)
{
    struct eb_grpc_call *call = find_server_call(server->connection.session, frame->hd.stream_id);
    if (!call) {
        return;
    }
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        server->header_call = NULL;
        eb_grpc_call_begin(call);
    }
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        eb_grpc_call_end(call);
    }
}

static int on_server_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct eb_grpc_server *server = context;
    bool is_ack = (frame->hd.flags & NGHTTP2_FLAG_ACK) != 0;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        server->header_stream_id = 0;
        on_call_frame(server, frame);
        break;
    case NGHTTP2_DATA:
        if (frame->hd.length > 0 && frame->hd.length == frame->data.padlen) {
            spend_noise(server);
        }
        on_call_frame(server, frame);
        break;
    case NGHTTP2_RST_STREAM:
        if (!find_server_call(session, frame->hd.stream_id)) {
            spend_noise(server);
        }
        break;
    case NGHTTP2_SETTINGS:
        if (!is_ack) {
            on_settings(server);
        }
        break;
    case NGHTTP2_PING:
        if (is_ack) {
            on_ping_ack(server, frame->ping.opaque_data);
        }
        break;
    default: break;
    }
    return 0;
}

static int on_invalid_frame(
    nghttp2_session *session, const nghttp2_frame *frame, int error, void *context)
{
    (void)session;
    (void)error;
    struct eb_grpc_server *server = context;
    if (frame->hd.stream_id == server->header_stream_id) {
        server->header_stream_id = 0;
    }
    /* Clients written in Go name the largest possible stream, which is not one of the server's. */
    server->peer_left |=
        frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code == NGHTTP2_NO_ERROR;
    if (server->is_block_unseen && frame->hd.type == NGHTTP2_HEADERS) {
        spend_unseen_block(server);
    }
    spend_noise(server);
    return 0;
}

/* Ignores frames of unknown types. nghttp2 is configured to show them, so that they are counted. */
static int on_extension(
    nghttp2_session *session, void **payload, const nghttp2_frame_hd *head, void *context)
{
    (void)session;
    (void)head;
    (void)context;
    *payload = NULL;
    return NGHTTP2_ERR_CANCEL;
}

static int on_server_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct eb_grpc_server *server = context;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
        eb_grpc_budget_calm(&server->budget);
        if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
            struct eb_grpc_call *call = find_server_call(session, frame->hd.stream_id);
            if (call) {
                eb_grpc_call_trailers_sent(call);
            }
        }
        break;
    case NGHTTP2_GOAWAY:
        if (frame->goaway.error_code != NGHTTP2_NO_ERROR && !server->peer_left &&
            !is_server_over(server)) {
            snprintf(server->reason, sizeof server->reason, "HTTP/2 violation: %s %.*s",
                nghttp2_http2_strerror(frame->goaway.error_code),
                (int)frame->goaway.opaque_data_len, (const char *)frame->goaway.opaque_data);
        }
        break;
    default: break;
    }
    return 0;
}

static int on_server_stream_close(
    nghttp2_session *session, int32_t stream_id, uint32_t error, void *context)
{
    (void)error;
    struct eb_grpc_server *server = context;
    struct eb_grpc_call *call = find_server_call(session, stream_id);
    if (server->header_stream_id == stream_id) {
        server->header_stream_id = 0;
    }
    if (!call) {
        return 0;
    }
    /* For the peer, making us reset a call by an error is as cheap as resetting a call itself, so
     * both count as resets. */
    if (call->trailers_sent) {
        eb_grpc_budget_earn_reset(&server->budget);
    } else {
        spend_reset(server);
    }
    if (server->header_call == call) {
        server->header_call = NULL;
    }
    eb_grpc_call_close(call);
    return 0;
}

static void install(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_server_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_server_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_server_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_server_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_unpack_extension_callback(callbacks, on_extension);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_server_frame_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_server_stream_close);
    eb_grpc_output_install(callbacks);
}

/* Returns NULL if out of memory. */
static nghttp2_session *create_server_session(struct eb_grpc_server *server)
{
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = eb_grpc_settings_option();
    if (option && nghttp2_session_callbacks_new(&callbacks) == 0) {
        install(callbacks);
        if (nghttp2_session_server_new2(&session, callbacks, server, option) != 0) {
            session = NULL;
        }
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return session;
}

struct eb_grpc_server *eb_grpc_server_create(const struct eb_grpc_server_limits *limits,
    const struct eb_grpc_server_memory *memory, const struct eb_grpc_server_handler *handler,
    void *context)
{
    struct eb_grpc_server *server = calloc(1, sizeof *server);
    if (!server) {
        return NULL;
    }
    eb_grpc_budget_init(&server->budget, limits->reset_budget, limits->header_bytes_max);
    server->connection.limits = limits;
    server->connection.memory = memory->messages;
    server->connection.handler = handler;
    server->connection.context = context;
    server->connection.queue = eb_send_queue_create(memory->output);
    server->connection.session = create_server_session(server);
    if (!server->connection.queue || !server->connection.session ||
        !eb_grpc_settings_submit(server->connection.session, limits)) {
        eb_grpc_server_destroy(server);
        return NULL;
    }
    return server;
}

void eb_grpc_server_destroy(struct eb_grpc_server *server)
{
    if (!server) {
        return;
    }
    struct eb_grpc_connection *connection = &server->connection;
    while (connection->calls) {
        eb_grpc_call_close(connection->calls);
    }
    eb_grpc_call_free_spare(connection);
    nghttp2_session_del(connection->session);
    eb_send_queue_destroy(connection->queue);
    free(server);
}

/* Checks those bytes that belong to the preface, before nghttp2 reads them. Returns false if they
 * differ from the preface; the connection is then over. */
static bool check_preface(struct eb_grpc_server *server, const uint8_t *bytes, size_t count)
{
    bool has_begun = server->preface.count > 0;
    if (count == 0 || eb_grpc_preface_check(&server->preface, bytes, count)) {
        return true;
    }
    const char *answer = eb_grpc_preface_answer(has_begun ? 'P' : bytes[0]);
    if (!eb_send_queue_copy(server->connection.queue, answer, strlen(answer))) {
        return fail_server(server, "not HTTP/2, and out of memory for an answer");
    }
    return fail_server(server, "not HTTP/2");
}

/* Delivers kept bytes, one message of each call in turn, so that the first call does not use up all
 * the room that the receiver has. */
static void advance(struct eb_grpc_connection *connection)
{
    struct eb_grpc_call *last = NULL;
    size_t count;
    do {
        count = 0;
        for (struct eb_grpc_call *call = connection->calls; call; call = call->next) {
            if (eb_grpc_call_advance(call)) {
                last = call;
                count++;
            }
        }
    } while (count > 1);
    while (count > 0 && eb_grpc_call_advance(last)) {
    }
}

/* Does the work that follows every event. Returns false if the connection is over. */
static bool settle_calls(struct eb_grpc_server *server)
{
    struct eb_grpc_connection *connection = &server->connection;
    if (connection->resumed) {
        connection->resumed = false;
        advance(connection);
    }
    eb_grpc_call_relieve(connection);
    if (connection->failed) {
        return fail_server(server, "out of memory");
    }
    size_t frames = nghttp2_session_get_outbound_queue_size(connection->session);
    if (frames > FRAMES_WAITING_MAX + FRAMES_PER_CALL * connection->limits->streams_max ||
        eb_send_queue_bytes(connection->queue) > connection->limits->outbound_bytes_max) {
        return fail_server(server, "the peer does not read what is sent to it");
    }
    return !is_server_over(server);
}

bool eb_grpc_server_receive(
    struct eb_grpc_server *server, const uint8_t *bytes, size_t count, uint64_t now_ms)
{
    if (is_server_over(server)) {
        return false;
    }
    server->connection.now_ms = now_ms;
    eb_grpc_budget_refill(&server->budget, now_ms);
    if (!check_preface(server, bytes, count)) {
        return false;
    }
    ssize_t used = nghttp2_session_mem_recv(server->connection.session, bytes, count);
    if (used < 0) {
        return fail_server(server, nghttp2_strerror((int)used));
    }
    return settle_calls(server);
}

void eb_grpc_server_tick(struct eb_grpc_server *server, uint64_t now_ms, uint64_t unread_ms)
{
    if (is_server_over(server)) {
        return;
    }
    struct eb_grpc_connection *connection = &server->connection;
    connection->now_ms = now_ms;
    eb_grpc_call_tick(connection, unread_ms);
    /* If this ends the connection, the next send returns false. */
    (void)settle_calls(server);
}

bool eb_grpc_server_send(struct eb_grpc_server *server)
{
    if (server->connection.is_dead || !eb_grpc_preface_is_whole(&server->preface)) {
        return !is_server_over(server);
    }
    (void)settle_calls(server); /* A GOAWAY is sent even if the connection is over. */
    if (!server->connection.is_dead &&
        !eb_grpc_output_flush(server->connection.session, server->connection.queue)) {
        return fail_server(server, "out of memory");
    }
    return !is_server_over(server);
}

struct eb_send_queue *eb_grpc_server_queue(struct eb_grpc_server *server)
{
    return server->connection.queue;
}

bool eb_grpc_server_is_done(const struct eb_grpc_server *server)
{
    if (eb_send_queue_bytes(server->connection.queue) > 0) {
        return false;
    }
    if (server->connection.is_dead || server->drain == DRAIN_WANTED) {
        return true;
    }
    return !nghttp2_session_want_read(server->connection.session) &&
           !nghttp2_session_want_write(server->connection.session);
}

const char *eb_grpc_server_reason(const struct eb_grpc_server *server)
{
    return server->reason;
}

bool eb_grpc_server_is_open(const struct eb_grpc_server *server)
{
    return server->is_open;
}

bool eb_grpc_server_is_in_headers(const struct eb_grpc_server *server)
{
    return server->header_stream_id != 0;
}

size_t eb_grpc_server_call_count(const struct eb_grpc_server *server)
{
    return server->connection.call_count;
}

bool eb_grpc_server_has_resumed(const struct eb_grpc_server *server)
{
    return server->connection.resumed;
}

size_t eb_grpc_server_waiting_bytes(const struct eb_grpc_server *server)
{
    return server->connection.output_bytes + eb_send_queue_bytes(server->connection.queue);
}

void eb_grpc_server_drain(struct eb_grpc_server *server)
{
    if (server->drain != DRAIN_NONE || is_server_over(server)) {
        return;
    }
    if (server->is_open) {
        begin_drain(server);
    } else {
        server->drain = DRAIN_WANTED;
    }
}

void eb_grpc_server_ping(struct eb_grpc_server *server)
{
    if (server->is_open && !is_server_over(server)) {
        submit_response(
            server, nghttp2_submit_ping(server->connection.session, NGHTTP2_FLAG_NONE, alive_ping));
    }
}

uint64_t eb_grpc_server_fed_bytes(const struct eb_grpc_server *server)
{
    return server->connection.fed_bytes;
}

uint64_t eb_grpc_server_begun_count(const struct eb_grpc_server *server)
{
    return server->begun_count;
}
