#include "proto/grpc_client.h"

#include "proto/grpc_message.h"
#include "proto/grpc_output.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Large enough that no answer waits for a window on a fast link. */
#define WINDOW_BYTES (64 * 1024 * 1024)
#define FRAME_BYTES_MAX (1024u * 1024)
#define STATUS_NONE (-1)
/* Limits on all header blocks of one answer together, decompressed: informational ones, headers and
 * trailers. */
#define HEADER_BYTES_MAX 32768u
#define HEADER_FIELDS_MAX 128u
/* If the fields exceed the limits by more than this factor, the connection ends: the call is not
 * worth the cost. */
#define HEADERS_FACTOR 4u
#define HEADER_FIELD_OVERHEAD 32u /* added by HTTP/2 to the size of each field */

static const char grpc_type[] = "application/grpc";

struct eb_grpc_client_call {
    struct eb_grpc_client *client;
    struct eb_grpc_client_call *next;
    struct eb_grpc_client_call *previous;
    void *user;
    int32_t stream_id;
    int http_status;
    int grpc_status; /* STATUS_NONE: not received yet */
    uint32_t pushback_ms;
    size_t header_bytes; /* size of names and values so far */
    size_t header_count;
    bool is_grpc;    /* content-type */
    bool is_decided; /* this side ended the call; `error` has the outcome */
    bool is_write_ended;
    struct eb_grpc_reader reader;
    struct eb_grpc_output output;
    struct eb_error error; /* text from grpc-message; status and text if is_decided */
};

struct eb_grpc_client {
    nghttp2_session *session;
    struct eb_send_queue *queue;
    const struct eb_memory *memory;
    const struct eb_grpc_client_handler *handler;
    void *context;
    struct eb_grpc_client_limits limits;
    struct eb_grpc_client_call *calls;
    struct eb_grpc_client_identity identity;
    size_t output_bytes; /* bytes of messages, over all calls, that wait for the peer's windows */
    bool failed;         /* nghttp2 had no memory for what a call submitted */
    char reason[128];
};

static bool is_client_over(const struct eb_grpc_client *client)
{
    return client->reason[0] != '\0';
}

static bool fail_client(struct eb_grpc_client *client, const char *reason)
{
    if (!is_client_over(client)) {
        snprintf(client->reason, sizeof client->reason, "%s", reason);
    }
    return false;
}

static void check_client(struct eb_grpc_client *client, int outcome)
{
    if (outcome < 0 && nghttp2_is_fatal(outcome)) {
        client->failed = true;
    }
}

/* Ends the call, whatever the server may still send. */
static void decide(struct eb_grpc_client_call *call, enum eb_status status, const char *text)
{
    if (call->is_decided) {
        return;
    }
    call->is_decided = true;
    eb_error_set(&call->error, status, "%s", text);
    check_client(call->client, nghttp2_submit_rst_stream(call->client->session, NGHTTP2_FLAG_NONE,
                                   call->stream_id, NGHTTP2_CANCEL));
}

/* The next two translations are gRPC's own, for answers without a gRPC status. */
static enum eb_status status_of_http(int http_status)
{
    switch (http_status) {
    case 400: return EB_STATUS_INTERNAL;
    case 401: return EB_STATUS_UNAUTHENTICATED;
    case 403: return EB_STATUS_PERMISSION_DENIED;
    case 404: return EB_STATUS_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504: return EB_STATUS_UNAVAILABLE;
    default: return EB_STATUS_UNKNOWN;
    }
}

static enum eb_status status_of_reset(uint32_t code)
{
    switch (code) {
    case NGHTTP2_REFUSED_STREAM: return EB_STATUS_UNAVAILABLE;
    case NGHTTP2_CANCEL: return EB_STATUS_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM: return EB_STATUS_RESOURCE_EXHAUSTED;
    case NGHTTP2_INADEQUATE_SECURITY: return EB_STATUS_PERMISSION_DENIED;
    case NGHTTP2_STREAM_CLOSED:
    case NGHTTP2_HTTP_1_1_REQUIRED: return EB_STATUS_UNKNOWN;
    default: return EB_STATUS_INTERNAL;
    }
}

/* Fills in call->error once the stream has ended with `code`. */
static void conclude_call(struct eb_grpc_client_call *call, uint32_t code)
{
    struct eb_error *error = &call->error;
    if (call->is_decided) {
        return;
    }
    if (call->grpc_status == EB_STATUS_OK && eb_grpc_message_is_partial(&call->reader)) {
        eb_error_set(error, EB_STATUS_INTERNAL, "the answer ended inside a message");
    } else if (call->grpc_status != STATUS_NONE) {
        error->status = (enum eb_status)call->grpc_status;
    } else if (call->http_status != 0 && call->http_status != 200) {
        eb_error_set(error, status_of_http(call->http_status), "HTTP status %d", call->http_status);
    } else if (code != NGHTTP2_NO_ERROR) {
        eb_error_set(
            error, status_of_reset(code), "the call was reset: %s", nghttp2_http2_strerror(code));
    } else if (call->http_status != 0) {
        eb_error_set(error, EB_STATUS_UNKNOWN, "the answer has no grpc-status");
    } else {
        eb_error_set(error, EB_STATUS_INTERNAL, "the call was reset without an answer");
    }
}

static void give_call(struct eb_grpc_client_call *call)
{
    const struct eb_memory *memory = call->client->memory;
    memory->give(memory->context, call, sizeof *call);
}

/* Reports the call's end and frees the call. */
static void close_call(struct eb_grpc_client_call *call)
{
    struct eb_grpc_client *client = call->client;
    client->handler->on_finish(client->context, call, call->user, &call->error);
    if (call->next) {
        call->next->previous = call->previous;
    }
    if (call->previous) {
        call->previous->next = call->next;
    } else {
        client->calls = call->next;
    }
    eb_grpc_message_discard(&call->reader);
    eb_grpc_output_clear(&call->output);
    give_call(call);
}

static struct eb_grpc_client_call *find_client_call(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

/* Returns the value of a decimal number of at most three digits, or `otherwise` for anything
 * else. */
static int parse_client_number(const uint8_t *text, size_t size, int otherwise)
{
    int value = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9' || i == 3) {
            return otherwise;
        }
        value = value * 10 + (text[i] - '0');
    }
    return size > 0 ? value : otherwise;
}

/* Returns the value of a number of at most nine digits (in ms, some eleven days), or UINT32_MAX for
 * anything else. */
static uint32_t parse_pushback(const uint8_t *text, size_t size)
{
    uint32_t value = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9' || i == 9) {
            return UINT32_MAX;
        }
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    return size > 0 ? value : UINT32_MAX;
}

static bool is_name(const uint8_t *name, size_t size, const char *expected)
{
    return size == strlen(expected) && memcmp(name, expected, size) == 0;
}

/* Returns whether an answer's header fields exceed `factor` times their limits. */
static bool has_too_many_headers(const struct eb_grpc_client_call *call, size_t factor)
{
    return call->header_bytes > factor * HEADER_BYTES_MAX ||
           call->header_count > factor * HEADER_FIELDS_MAX;
}

/* Counts a header field. A byte on the wire can expand to a field of 4 KB, which takes 2 us to
 * decode. Returns the callback's result for nghttp2. */
static int count_header(struct eb_grpc_client_call *call, size_t bytes)
{
    call->header_bytes += bytes;
    call->header_count++;
    if (has_too_many_headers(call, HEADERS_FACTOR)) {
        fail_client(call->client, "the server sends far too many header fields");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (has_too_many_headers(call, 1) && !call->is_decided) {
        char text[128];
        snprintf(text, sizeof text,
            "the answer has more than %u header fields, or more than %u bytes of them",
            HEADER_FIELDS_MAX, HEADER_BYTES_MAX);
        decide(call, EB_STATUS_RESOURCE_EXHAUSTED, text);
    }
    return 0;
}

/* Counts a field that nghttp2 skips because of bytes that HTTP forbids: such a field costs as much
 * to decode. */
static int on_client_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
    const uint8_t *name, size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
    void *context)
{
    (void)name;
    (void)value;
    (void)flags;
    (void)context;
    struct eb_grpc_client_call *call = find_client_call(session, frame->hd.stream_id);
    return call ? count_header(call, name_size + value_size) : 0;
}

static int on_client_header(nghttp2_session *session, const nghttp2_frame *frame,
    const uint8_t *name, size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
    void *context)
{
    (void)flags;
    (void)context;
    struct eb_grpc_client_call *call = find_client_call(session, frame->hd.stream_id);
    if (!call) {
        return 0;
    }
    int rc = count_header(call, name_size + value_size);
    if (rc != 0 || call->is_decided) {
        return rc;
    }
    if (is_name(name, name_size, ":status")) {
        call->http_status = parse_client_number(value, value_size, 0);
    } else if (is_name(name, name_size, "content-type")) {
        call->is_grpc =
            value_size >= strlen(grpc_type) && memcmp(value, grpc_type, strlen(grpc_type)) == 0;
    } else if (is_name(name, name_size, "grpc-status")) {
        int status = parse_client_number(value, value_size, EB_STATUS_UNKNOWN);
        call->grpc_status = (int)eb_status_of_number((uint32_t)status);
    } else if (is_name(name, name_size, "grpc-retry-pushback-ms")) {
        call->pushback_ms = parse_pushback(value, value_size);
    } else if (is_name(name, name_size, "grpc-message")) {
        eb_grpc_message_decode(
            (const char *)value, value_size, call->error.text, sizeof call->error.text);
    }
    return 0;
}

static void refuse_client_message(struct eb_grpc_client_call *call, enum eb_grpc_read why)
{
    switch (why) {
    case EB_GRPC_READ_TOO_LARGE:
        decide(call, EB_STATUS_RESOURCE_EXHAUSTED, "the answer is larger than answer_bytes_max");
        break;
    case EB_GRPC_READ_NO_MEMORY:
        decide(call, EB_STATUS_RESOURCE_EXHAUSTED, "out of memory for the answer");
        break;
    default:
        decide(call, EB_STATUS_INTERNAL, "the answer is compressed, or is not a gRPC message");
        break;
    }
}

/* Reads up to the end of a message, or of the bytes if these end first. Returns the number of bytes
 * read. */
static size_t read_message(struct eb_grpc_client *client, struct eb_grpc_client_call *call,
    const uint8_t *bytes, size_t count)
{
    const struct eb_grpc_client_handler *handler = client->handler;
    size_t used = eb_grpc_message_peek(&call->reader, bytes, count);
    if (used > 0) {
        handler->on_message(client->context, call, call->user, bytes + EB_GRPC_PREFIX_BYTES,
            used - EB_GRPC_PREFIX_BYTES);
        return used;
    }
    struct eb_grpc_message message;
    used = count;
    enum eb_grpc_read read = eb_grpc_message_read(&call->reader, bytes, &used, &message);
    if (read == EB_GRPC_READ_MESSAGE) {
        handler->on_message(client->context, call, call->user, message.bytes, message.size);
        eb_grpc_message_give(client->memory, &message);
    } else if (read != EB_GRPC_READ_MORE) {
        refuse_client_message(call, read);
    }
    return used;
}

static int on_client_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
    const uint8_t *bytes, size_t count, void *context)
{
    (void)flags;
    struct eb_grpc_client *client = context;
    struct eb_grpc_client_call *call = find_client_call(session, stream_id);
    if (!call || call->http_status != 200 || !call->is_grpc) {
        return 0;
    }
    size_t used = 0;
    while (used < count && !call->is_decided) {
        used += read_message(client, call, bytes + used, count - used);
    }
    return 0;
}

static int on_client_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    int32_t stream_id = frame->hd.stream_id;
    bool ends = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    /* If an answer ends before its request, the rest of the request is useless. */
    if (ends && nghttp2_session_get_stream_local_close(session, stream_id) == 0) {
        check_client(context,
            nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream_id, NGHTTP2_NO_ERROR));
    }
    return 0;
}

static int on_client_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
        fail_client(context, "the server violated HTTP/2; check that this is its gRPC address");
    }
    return 0;
}

static int on_client_stream_close(
    nghttp2_session *session, int32_t stream_id, uint32_t code, void *context)
{
    (void)context;
    struct eb_grpc_client_call *call = find_client_call(session, stream_id);
    if (call) {
        conclude_call(call, code);
        close_call(call);
    }
    return 0;
}

static nghttp2_session *create_client_session(struct eb_grpc_client *client)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_BYTES_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
            HEADER_BYTES_MAX + HEADER_FIELDS_MAX * HEADER_FIELD_OVERHEAD},
    };
    nghttp2_session *session = NULL;
    nghttp2_session_callbacks *callbacks = NULL;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) {
        return NULL;
    }
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_client_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_client_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_client_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_client_frame_recv);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_client_frame_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_client_stream_close);
    eb_grpc_output_install(callbacks);
    int outcome = nghttp2_session_client_new(&session, callbacks, client);
    nghttp2_session_callbacks_del(callbacks);
    if (outcome != 0) {
        return NULL;
    }
    if (nghttp2_submit_settings(
            session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof settings[0]) != 0 ||
        nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, WINDOW_BYTES) != 0) {
        nghttp2_session_del(session);
        return NULL;
    }
    return session;
}

struct eb_grpc_client *eb_grpc_client_create(const struct eb_grpc_client_identity *identity,
    const struct eb_grpc_client_limits *limits, const struct eb_memory *memory,
    const struct eb_grpc_client_handler *handler, void *context)
{
    struct eb_grpc_client *client = calloc(1, sizeof *client);
    if (!client) {
        return NULL;
    }
    client->limits = *limits;
    client->memory = memory;
    client->handler = handler;
    client->context = context;
    client->identity = *identity;
    client->queue = eb_send_queue_create(memory);
    client->session = create_client_session(client);
    if (!client->queue || !client->session) {
        eb_grpc_client_destroy(client);
        return NULL;
    }
    return client;
}

void eb_grpc_client_destroy(struct eb_grpc_client *client)
{
    if (!client) {
        return;
    }
    while (client->calls) {
        struct eb_grpc_client_call *call = client->calls;
        if (!call->is_decided) {
            eb_error_set(&call->error, EB_STATUS_UNAVAILABLE, "the connection was lost%s%s",
                is_client_over(client) ? ": " : "", client->reason);
        }
        close_call(call);
    }
    nghttp2_session_del(client->session);
    eb_send_queue_destroy(client->queue);
    free(client);
}

static ssize_t on_client_read(nghttp2_session *session, int32_t stream_id, uint8_t *room,
    size_t room_bytes, uint32_t *flags, nghttp2_data_source *source, void *context)
{
    (void)session;
    (void)stream_id;
    (void)room;
    (void)context;
    struct eb_grpc_output *output = source->ptr;
    const struct eb_grpc_client_call *call = output->owner;
    size_t count = output->bytes < room_bytes ? output->bytes : room_bytes;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (count == output->bytes && call->is_write_ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        return (ssize_t)count;
    }
    output->deferred = count == 0;
    return count > 0 ? (ssize_t)count : NGHTTP2_ERR_DEFERRED;
}

static nghttp2_nv make_field(const char *name, const char *value)
{
    return (nghttp2_nv){
        .name = (uint8_t *)name,
        .namelen = strlen(name),
        .value = (uint8_t *)value,
        .valuelen = strlen(value),
        .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME,
    };
}

/* Submits the request's HEADERS. Returns the stream's id; negative if out of memory or out of
 * ids. */
static int32_t submit_request(
    struct eb_grpc_client_call *call, const char *path, uint64_t timeout_us)
{
    struct eb_grpc_client *client = call->client;
    char timeout[16];
    nghttp2_nv fields[] = {
        make_field(":method", "POST"),
        make_field(":scheme", client->identity.is_secure ? "https" : "http"),
        make_field(":path", path),
        make_field(":authority", client->identity.authority),
        make_field("te", "trailers"),
        make_field("content-type", grpc_type),
        make_field("user-agent", "embag"),
        make_field("", ""), /* room for the optional ones */
        make_field("", ""),
    };
    size_t count = sizeof fields / sizeof fields[0] - 2;
    if (timeout_us > 0) {
        eb_grpc_timeout_format(timeout_us, timeout);
        fields[count] = make_field("grpc-timeout", timeout);
        fields[count++].flags |= NGHTTP2_NV_FLAG_NO_INDEX;
    }
    if (client->identity.authorization) {
        fields[count] = make_field("authorization", client->identity.authorization);
        fields[count++].flags |= NGHTTP2_NV_FLAG_NO_INDEX;
    }
    nghttp2_data_provider provider = {
        .source = {.ptr = &call->output}, .read_callback = on_client_read};
    return nghttp2_submit_request(client->session, NULL, fields, count, &provider, call);
}

struct eb_grpc_client_call *eb_grpc_client_start(
    struct eb_grpc_client *client, const char *path, uint64_t timeout_us, void *user)
{
    if (!eb_grpc_client_is_usable(client)) {
        return NULL;
    }
    struct eb_grpc_client_call *call = client->memory->take(client->memory->context, sizeof *call);
    if (!call) {
        return NULL;
    }
    *call = (struct eb_grpc_client_call){
        .client = client, .user = user, .grpc_status = STATUS_NONE, .next = client->calls};
    call->reader.memory = client->memory;
    call->reader.bytes_max = client->limits.response_bytes_max;
    call->output.queue = client->queue;
    call->output.total_bytes = &client->output_bytes;
    call->output.owner = call;
    call->stream_id = submit_request(call, path, timeout_us);
    if (call->stream_id < 0) {
        give_call(call);
        return NULL;
    }
    if (call->next) {
        call->next->previous = call;
    }
    client->calls = call;
    return call;
}

static void resume_call(struct eb_grpc_client_call *call)
{
    if (call->output.deferred) {
        call->output.deferred = false;
        check_client(
            call->client, nghttp2_session_resume_data(call->client->session, call->stream_id));
    }
}

void eb_grpc_client_write(struct eb_grpc_client_call *call, struct eb_outgoing *message, bool last)
{
    call->is_write_ended = call->is_write_ended || last;
    eb_grpc_output_push(&call->output, message);
    resume_call(call);
}

void eb_grpc_client_end_write(struct eb_grpc_client_call *call)
{
    call->is_write_ended = true;
    resume_call(call);
}

void eb_grpc_client_cancel(struct eb_grpc_client_call *call)
{
    decide(call, EB_STATUS_CANCELLED, "the call was cancelled");
}

void eb_grpc_client_abandon(struct eb_grpc_client_call *call)
{
    call->user = NULL;
    eb_grpc_client_cancel(call);
}

uint32_t eb_grpc_client_pushback_ms(const struct eb_grpc_client_call *call)
{
    return call->pushback_ms;
}

bool eb_grpc_client_receive(struct eb_grpc_client *client, const uint8_t *bytes, size_t count)
{
    if (is_client_over(client)) {
        return false;
    }
    ssize_t used = nghttp2_session_mem_recv(client->session, bytes, count);
    return used >= 0 || fail_client(client, nghttp2_strerror((int)used));
}

bool eb_grpc_client_send(struct eb_grpc_client *client)
{
    if (is_client_over(client)) {
        return false;
    }
    if (client->failed || !eb_grpc_output_flush(client->session, client->queue)) {
        return fail_client(client, "out of memory");
    }
    return !is_client_over(client);
}

struct eb_send_queue *eb_grpc_client_queue(struct eb_grpc_client *client)
{
    return client->queue;
}

size_t eb_grpc_client_unwritten_bytes(const struct eb_grpc_client *client)
{
    return client->output_bytes + eb_send_queue_bytes(client->queue);
}

bool eb_grpc_client_is_usable(const struct eb_grpc_client *client)
{
    return !is_client_over(client) && !client->failed &&
           nghttp2_session_check_request_allowed(client->session) != 0;
}

const char *eb_grpc_client_reason(const struct eb_grpc_client *client)
{
    return client->reason;
}
