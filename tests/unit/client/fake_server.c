#include "tests/unit/client/fake_server.h"

#include "client/embag_admin.h"
#include "proto/codec_admin.h"
#include "proto/codec_watch.h"
#include "proto/grpc_server.h"
#include "proto/grpc_text.h"
#include "proto/link/connection.h"
#include "proto/list.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADMIN "/embag.v1.ModelAdmin/"
#define WATCH "/embag.v1.EmbeddingBag/WatchModels"
#define READ_BYTES 65536
#define ARENA_BYTES (64 * 1024 * 1024)
#define CUT_BYTES 5 /* bytes at the end of an answer that "cut" leaves out */

/* Bytes in flight to the server. */
struct parcel {
    uv_timer_t timer;
    struct fake_conn *conn;
    struct parcel *next;
    size_t size;
    uint8_t bytes[];
};

struct fake_conn {
    struct fake_server *server;
    struct parcel *parcels; /* in flight, in order of arrival */
    bool is_mute;
    struct fake_conn *next;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    struct eb_grpc_server *session;
    bool hang_up; /* close the connection once everything is written */
    bool is_cut;  /* leave out the last bytes of the next write */
    size_t writes_under_way;
    struct eb_grpc_call *later; /* the call that still waits for its answer; NULL: none */
    uint64_t later_id;
    uint64_t later_index;
    const struct eb_grpc_call *silent; /* the call of the last "silent"; NULL: it is over */
    char read_buffer[READ_BYTES];
};

struct write {
    uv_write_t request;
    struct fake_conn *conn;
    uint8_t bytes[];
};

static void on_conn_close(uv_handle_t *handle)
{
    struct fake_conn *conn = handle->data;
    struct fake_conn **link = &conn->server->conns;
    while (*link != conn) {
        link = &(*link)->next;
    }
    *link = conn->next;
    eb_grpc_server_destroy(conn->session);
    free(conn);
}

static void on_parcel_close(uv_handle_t *handle)
{
    free(handle->data);
}

/* Removes the first parcel of a connection. */
static void remove_parcel(struct fake_conn *conn)
{
    struct parcel *parcel = conn->parcels;
    conn->parcels = parcel->next;
    uv_close((uv_handle_t *)&parcel->timer, on_parcel_close);
}

static void close_conn(struct fake_conn *conn)
{
    if (uv_is_closing(&conn->socket.handle)) {
        return;
    }
    while (conn->parcels) {
        remove_parcel(conn);
    }
    uv_close(&conn->socket.handle, on_conn_close);
}

static void on_write(uv_write_t *request, int status)
{
    struct write *write = EB_CONTAINER_OF(request, struct write, request);
    struct fake_conn *conn = write->conn;
    conn->writes_under_way--;
    if (status != 0 || (conn->hang_up && conn->writes_under_way == 0)) {
        close_conn(conn);
    }
    free(write);
}

static void write_bytes(struct fake_conn *conn, const struct iovec *piece)
{
    struct write *write = malloc(sizeof *write + piece->iov_len);
    assert(write);
    write->conn = conn;
    memcpy(write->bytes, piece->iov_base, piece->iov_len);
    uv_buf_t buffer = {.base = (char *)write->bytes, .len = piece->iov_len};
    conn->writes_under_way++;
    if (uv_write(&write->request, &conn->socket.stream, &buffer, 1, on_write) != 0) {
        conn->writes_under_way--;
        free(write);
        close_conn(conn);
    }
}

static void flush(struct fake_conn *conn)
{
    struct eb_send_queue *queue = eb_grpc_server_queue(conn->session);
    struct iovec piece;
    bool alive = true;
    size_t waiting_bytes = 0;
    do {
        alive = eb_grpc_server_send(conn->session);
        waiting_bytes = eb_send_queue_bytes(queue);
        while (eb_send_queue_peek(queue, &piece, 1) == 1) {
            size_t whole_bytes = piece.iov_len;
            if (conn->is_cut && eb_send_queue_bytes(queue) == whole_bytes) {
                piece.iov_len -= CUT_BYTES;
            }
            write_bytes(conn, &piece);
            eb_send_queue_drop(queue, whole_bytes);
        }
    } while (waiting_bytes > 0);
    conn->hang_up |= !alive || conn->is_cut;
    if (conn->hang_up && conn->writes_under_way == 0) {
        close_conn(conn);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested_bytes, uv_buf_t *buffer)
{
    (void)suggested_bytes;
    struct fake_conn *conn = handle->data;
    *buffer = uv_buf_init(conn->read_buffer, READ_BYTES);
}

static void receive(struct fake_conn *conn, const uint8_t *bytes, size_t count)
{
    conn->hang_up |=
        !eb_grpc_server_receive(conn->session, bytes, count, uv_now(&conn->server->loop));
    flush(conn);
}

/* Parcels arrive in the order in which they were sent. */
static void on_arrival(uv_timer_t *timer)
{
    const struct parcel *parcel = timer->data;
    struct fake_conn *conn = parcel->conn;
    assert(conn->parcels == parcel);
    remove_parcel(conn);
    receive(conn, parcel->bytes, parcel->size);
}

static void receive_later(struct fake_conn *conn, const uint8_t *bytes, size_t count)
{
    struct parcel *parcel = malloc(sizeof *parcel + count);
    assert(parcel);
    *parcel = (struct parcel){.conn = conn, .size = count};
    memcpy(parcel->bytes, bytes, count);
    struct parcel **link = &conn->parcels;
    while (*link) {
        link = &(*link)->next;
    }
    *link = parcel;
    parcel->timer.data = parcel;
    int rc = uv_timer_init(&conn->server->loop, &parcel->timer);
    assert(rc == 0);
    rc = uv_timer_start(&parcel->timer, on_arrival, FAKE_SERVER_WAY_MS, 0);
    assert(rc == 0);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct fake_conn *conn = stream->data;
    const uint8_t *bytes = (const uint8_t *)buffer->base;
    if (count < 0) {
        close_conn(conn);
    } else if (count > 0 && conn->server->mode == FAKE_SERVER_IS_FAR) {
        receive_later(conn, bytes, (size_t)count);
    } else if (count > 0 && !conn->is_mute && conn->server->mode != FAKE_SERVER_SPEAKS_HTTP1) {
        receive(conn, bytes, (size_t)count);
    }
}

static void release(struct eb_outgoing *message)
{
    free(message->bytes);
    free(message);
}

static struct eb_outgoing *make_message(size_t size)
{
    struct eb_outgoing *message = malloc(sizeof *message);
    assert(message);
    *message = (struct eb_outgoing){
        .bytes = malloc(size + EB_GRPC_PREFIX_BYTES),
        .size = size + EB_GRPC_PREFIX_BYTES,
        .holds = 1,
        .release = release,
    };
    assert(message->bytes);
    eb_grpc_prefix_write(message->bytes, (uint32_t)size);
    return message;
}

static void answer_echo(struct eb_grpc_call *call, const struct eb_wire_request *request)
{
    struct eb_wire_result *results = calloc(request->query_count + 1, sizeof *results);
    uint64_t *shapes = calloc(request->query_count + 1, sizeof *shapes);
    uint8_t **values_at = calloc(request->query_count + 1, sizeof *values_at);
    assert(results && shapes && values_at);
    for (size_t i = 0; i < request->query_count; i++) {
        const struct eb_wire_array *indices = &request->queries[i].indices;
        shapes[i] = indices->bytes / 8;
        results[i] = (struct eb_wire_result){.query = (uint32_t)i,
            .type = 11,
            .shape_count = 1,
            .shape = &shapes[i],
            .values = indices->data,
            .values_bytes = indices->bytes};
    }
    struct eb_wire_response response = {.request_id = request->request_id,
        .model = "echo",
        .version = 7,
        .error_message = "",
        .result_count = request->query_count,
        .results = results};
    struct eb_outgoing *message = make_message(eb_lookup_response_bytes(&response));
    eb_lookup_response_encode(&response, message->bytes + EB_GRPC_PREFIX_BYTES, values_at);
    eb_grpc_call_answer(call, message);
    free(results);
    free(shapes);
    free(values_at);
}

/* Answers with a number as the values of one query. */
static void answer_number(
    struct eb_grpc_call *call, const struct eb_wire_request *request, const uint64_t *number)
{
    struct eb_wire_query query = {.indices = {.data = number, .bytes = 8}};
    struct eb_wire_request answered = {
        .request_id = request->request_id, .query_count = 1, .queries = &query};
    answer_echo(call, &answered);
}

/* Answers with the number that on_call has read from the call's token. */
static void answer_who(struct eb_grpc_call *call, const struct eb_wire_request *request)
{
    uint64_t number = (uintptr_t)call->user;
    answer_number(call, request, &number);
}

static void answer_garbage(struct eb_grpc_call *call)
{
    struct eb_outgoing *message = make_message(3);
    memcpy(message->bytes + EB_GRPC_PREFIX_BYTES, "\xff\xff\xff", 3);
    eb_grpc_call_answer(call, message);
}

static bool is_stream(const struct eb_grpc_call *call)
{
    return strcmp(call->path, "/embag.v1.EmbeddingBag/LookupStream") == 0;
}

/* Refuses a lookup. A unary call ends with the error in its trailers. On a stream an answer carries
 * the error, so that the stream continues. */
static void refuse(struct eb_grpc_call *call, uint64_t request_id, enum eb_status status,
    const char *text, uint32_t retry_after_ms)
{
    if (!is_stream(call)) {
        eb_grpc_call_finish(call, status, text, retry_after_ms);
        return;
    }
    struct eb_wire_response response = {.request_id = request_id,
        .model = "",
        .error_code = status,
        .error_message = text,
        .retry_after_ms = retry_after_ms};
    struct eb_outgoing *message = make_message(eb_lookup_response_bytes(&response));
    eb_lookup_response_encode(&response, message->bytes + EB_GRPC_PREFIX_BYTES, NULL);
    eb_grpc_call_answer(call, message);
}

static void end_unary(struct eb_grpc_call *call)
{
    if (!is_stream(call)) {
        eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    }
}

static bool names_version(const struct eb_wire_request *request)
{
    return request->version > 0 || (request->version_label && request->version_label[0]);
}

/* Refuses the lookup if its model says so. Returns whether it did. */
static bool refuse_lookup(
    struct fake_conn *conn, struct eb_grpc_call *call, const struct eb_wire_request *request)
{
    const char *model = request->model;
    uint64_t id = request->request_id;
    if (strcmp(model, "refuse") == 0) {
        refuse(call, id, EB_STATUS_NOT_FOUND, "no such thing", 0);
    } else if (names_version(request) && atomic_load(&conn->server->lacks_version)) {
        refuse(call, id, EB_STATUS_NOT_FOUND, "no such version", 0);
    } else if (strcmp(model, "stranger") == 0) {
        refuse(call, id, EB_STATUS_UNAUTHENTICATED, "who are you", 0);
    } else if (strcmp(model, "full") == 0) {
        refuse(call, id, EB_STATUS_RESOURCE_EXHAUSTED, "too much", 0);
    } else if (strcmp(model, "always-busy") == 0 ||
               ((strcmp(model, "busy") == 0 || strcmp(model, "busy-timeout") == 0) &&
                   conn->server->turn++ % 2 == 0)) {
        refuse(call, id, EB_STATUS_RESOURCE_EXHAUSTED, "not now", FAKE_SERVER_BUSY_MS);
    } else if (strcmp(model, "unary") == 0 && is_stream(call)) {
        eb_grpc_call_finish(call, EB_STATUS_UNIMPLEMENTED, "no such method", 0);
    } else if (strcmp(model, "poison") == 0 && is_stream(call)) {
        eb_grpc_call_finish(call, EB_STATUS_INTERNAL, "poisoned", 0);
    } else if (strcmp(model, "poison") == 0) {
        refuse(call, id, EB_STATUS_NOT_FOUND, "poison", 0);
    } else {
        return false;
    }
    return true;
}

/* Handles cancel messages, and requests whose model gets no answer, or gets it later. Returns
 * whether the request is one of these. */
static bool hold_back(
    struct fake_conn *conn, struct eb_grpc_call *call, const struct eb_wire_request *request)
{
    const char *model = request->model;
    if (request->cancel) {
        atomic_fetch_add(&conn->server->cancel_count, 1);
    } else if (strcmp(model, "hang-up") == 0) {
        close_conn(conn);
    } else if (strcmp(model, "later") == 0) {
        conn->later = call;
        conn->later_id = request->request_id;
        assert(request->query_count == 1 && request->queries[0].indices.bytes == 8);
        memcpy(&conn->later_index, request->queries[0].indices.data, 8);
    } else if (strcmp(model, "nothing") == 0) {
        eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    } else if (strcmp(model, "silent") == 0) {
        conn->silent = call;
    } else {
        return false;
    }
    return true;
}

static void answer_lookup(
    struct fake_conn *conn, struct eb_grpc_call *call, const struct eb_wire_request *request)
{
    const char *model = request->model;
    if (refuse_lookup(conn, call, request) || hold_back(conn, call, request)) {
        return;
    }
    if (atomic_load(&conn->server->is_stalled)) {
        conn->silent = call;
        return;
    }
    if (strcmp(model, "slow") == 0) {
        uv_sleep(FAKE_SERVER_SLOW_MS);
    }
    if (strcmp(model, "garbage") == 0) {
        answer_garbage(call);
    } else if (strcmp(model, "busy-timeout") == 0) {
        answer_number(call, request, &request->timeout_us);
    } else if (strcmp(model, "who") == 0) {
        answer_who(call, request);
    } else {
        answer_echo(call, request);
    }
    if (strcmp(model, "twice") == 0) {
        answer_echo(call, request);
    }
    end_unary(call);
    conn->hang_up = strcmp(model, "last") == 0;
    conn->is_cut = strcmp(model, "cut") == 0 && conn->server->turn++ % 2 == 0;
    if (strcmp(model, "drain") == 0) {
        eb_grpc_server_drain(conn->session);
    }
}

static void answer_late(struct fake_conn *conn)
{
    if (conn->later) {
        struct eb_grpc_call *call = conn->later;
        struct eb_wire_request request = {.request_id = conn->later_id};
        conn->later = NULL;
        answer_number(call, &request, &conn->later_index);
        end_unary(call);
    }
}

static void answer_models(struct eb_grpc_call *call)
{
    static const uint64_t shape[] = {2, 3};
    static const struct eb_wire_table tables[] = {{.name = "t00",
        .rows = 5,
        .shape_count = 2,
        .shape = shape,
        .type = 1,
        .storage = "f32",
        .resident_bytes = 120}};
    static const struct eb_wire_version versions[] = {
        {.version = 2, .state = EB_WIRE_STATE_FAILED, .error = "bro\tken"},
        {.version = 1,
            .state = EB_WIRE_STATE_SERVING,
            .error = "",
            .bytes = 120,
            .table_count = 1,
            .tables = tables}};
    static const struct eb_wire_model models[] = {{.name = "echo",
        .served_version = 1,
        .config_error = "",
        .version_count = 2,
        .versions = versions}};
    static const struct eb_wire_model_list list = {.count = 1, .models = models};
    struct eb_outgoing *message = make_message(eb_model_list_bytes(&list));
    eb_model_list_encode(&list, message->bytes + EB_GRPC_PREFIX_BYTES);
    eb_grpc_call_answer(call, message);
    eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
}

static void send_progress(struct eb_grpc_call *call, const struct eb_wire_progress *progress)
{
    struct eb_outgoing *message = make_message(eb_version_progress_bytes(progress));
    eb_version_progress_encode(progress, message->bytes + EB_GRPC_PREFIX_BYTES);
    eb_grpc_call_answer(call, message);
}

static void answer_command(
    struct fake_conn *conn, struct eb_grpc_call *call, const struct eb_wire_model_query *request)
{
    send_progress(call, &(struct eb_wire_progress){1, 4, false, ""});
    send_progress(call, &(struct eb_wire_progress){3, 4, false, ""});
    if (strcmp(request->model, "hang-up") == 0) {
        conn->hang_up = true;
    } else if (strcmp(request->model, "refuse") == 0) {
        eb_grpc_call_finish(call, EB_STATUS_FAILED_PRECONDITION, "not as things are", 0);
    } else if (strcmp(request->model, "nothing") == 0) {
        eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    } else if (strcmp(request->model, "silent") != 0) {
        send_progress(call, &(struct eb_wire_progress){4, 4, true, call->path});
        eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    }
}

static void answer_reload(struct fake_conn *conn, struct eb_grpc_call *call)
{
    static const struct eb_wire_reload reload = {2, 1};
    enum fake_server_reload how = (enum fake_server_reload)atomic_load(&conn->server->reload);
    if (how == FAKE_SERVER_HANGS_UP) {
        conn->hang_up = true;
        return;
    }
    if (how == FAKE_SERVER_REFUSES) {
        eb_grpc_call_finish(call, EB_STATUS_FAILED_PRECONDITION, "loops: many: not a number", 0);
        return;
    }
    struct eb_outgoing *message = make_message(eb_reload_bytes(&reload));
    eb_reload_encode(&reload, message->bytes + EB_GRPC_PREFIX_BYTES);
    eb_grpc_call_answer(call, message);
    eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
}

static void answer_settings(struct eb_grpc_call *call)
{
    static const struct eb_wire_setting settings[] = {
        {"loops", "2", EMBAG_ORIGIN_FLAG, false, true, "3"},
        {"queries_max", "7", EMBAG_ORIGIN_FILE, true, false, ""}};
    static const struct eb_wire_setting_list list = {2, settings};
    struct eb_outgoing *message = make_message(eb_setting_list_bytes(&list));
    eb_setting_list_encode(&list, message->bytes + EB_GRPC_PREFIX_BYTES);
    eb_grpc_call_answer(call, message);
    eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
}

/* Answers a call of ModelAdmin: ListVersions with the list of ListModels, ListSettings and
 * ReloadSettings with constants, others as commands. */
static void answer_admin(
    struct fake_conn *conn, struct eb_grpc_call *call, const struct eb_grpc_message *message)
{
    static const struct eb_codec_limits limits = {.name_bytes_max = 255};
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    const struct eb_wire_model_query *request =
        eb_version_request_decode(&arena, message->bytes, message->size, &limits, &error);
    if (!request) {
        eb_grpc_call_finish(call, error.status, error.text, 0);
    } else if (strstr(call->path, "ListVersions")) {
        answer_models(call);
    } else if (strstr(call->path, "ListSettings")) {
        answer_settings(call);
    } else if (strstr(call->path, "ReloadSettings")) {
        answer_reload(conn, call);
    } else {
        answer_command(conn, call, request);
    }
    eb_arena_deinit(&arena);
}

static void answer_server(const struct fake_conn *conn, struct eb_grpc_call *call)
{
    struct eb_wire_server server = {.version = "1",
        .build = "",
        .isa = "ref",
        .role = atomic_load(&conn->server->role),
        .instance = atomic_load(&conn->server->instance)};
    enum eb_status status = (enum eb_status)atomic_load(&conn->server->told_status);
    atomic_fetch_add(&conn->server->told_count, 1);
    if (status != EB_STATUS_OK) {
        eb_grpc_call_finish(call, status, "tells nothing", 0);
        return;
    }
    struct eb_outgoing *message = make_message(eb_server_bytes(&server));
    eb_server_encode(&server, message->bytes + EB_GRPC_PREFIX_BYTES);
    eb_grpc_call_answer(call, message);
    eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
}

/* ---- WatchModels ---- */

/* An open call of WatchModels, which is its `user`. */
struct fake_watch {
    struct eb_list link;
    struct fake_conn *conn;
    struct eb_grpc_call *call;
};

/* Sends the message that the test has set. */
static void tell_watch(const struct fake_watch *watch)
{
    struct fake_watches *watches = &watch->conn->server->watches;
    uv_mutex_lock(&watches->lock);
    if (watches->message) {
        struct eb_outgoing *message = make_message(watches->size);
        memcpy(message->bytes + EB_GRPC_PREFIX_BYTES, watches->message, watches->size);
        eb_grpc_call_answer(watch->call, message);
    }
    uv_mutex_unlock(&watches->lock);
}

static void note_claims(struct fake_watches *watches, const struct eb_wire_watch_request *request)
{
    size_t used = 0;
    uv_mutex_lock(&watches->lock);
    watches->claims[0] = '\0';
    for (size_t i = 0; i < request->claim_count; i++) {
        const struct eb_wire_claim *claim = &request->claims[i];
        int written = snprintf(watches->claims + used, sizeof watches->claims - used, "%s/%llu%s ",
            claim->model, (unsigned long long)claim->version, claim->served ? "*" : "");
        assert(written > 0 && (size_t)written < sizeof watches->claims - used);
        used += (size_t)written;
    }
    uv_mutex_unlock(&watches->lock);
}

static void begin_watch(
    struct fake_conn *conn, struct eb_grpc_call *call, const struct eb_grpc_message *message)
{
    struct fake_watches *watches = &conn->server->watches;
    enum eb_status status = (enum eb_status)atomic_load(&watches->status);
    struct eb_arena arena;
    struct eb_error error;
    eb_arena_init(&arena, &eb_memory_heap);
    eb_arena_reset(&arena, ARENA_BYTES);
    const struct eb_wire_watch_request *request =
        eb_watch_request_decode(&arena, message->bytes, message->size, 255, &error);
    assert(request && request->level == EB_WATCH_LEVEL);
    note_claims(watches, request);
    eb_arena_deinit(&arena);
    atomic_store(&watches->token, (uintptr_t)call->user);
    call->user = NULL;
    atomic_fetch_add(&watches->begun_count, 1);
    if (status != EB_STATUS_OK) {
        eb_grpc_call_finish(call, status, "no watches", 0);
        return;
    }
    struct fake_watch *watch = malloc(sizeof *watch);
    assert(watch);
    *watch = (struct fake_watch){.conn = conn, .call = call};
    eb_list_push(&watches->calls, &watch->link);
    call->user = watch;
    atomic_fetch_add(&watches->open_count, 1);
    tell_watch(watch);
}

static void forget_watch(struct fake_conn *conn, const struct eb_grpc_call *call)
{
    struct fake_watches *watches = &conn->server->watches;
    struct fake_watch *watch = call->user;
    if (strcmp(call->path, WATCH) == 0 && watch) {
        eb_list_remove(&watch->link);
        free(watch);
        if (atomic_fetch_sub(&watches->open_count, 1) == 1) {
            atomic_fetch_add(&watches->gap_count, 1);
        }
    }
}

static void on_order(uv_async_t *async)
{
    struct fake_server *server = async->data;
    struct fake_watches *watches = &server->watches;
    uv_mutex_lock(&watches->lock);
    unsigned orders = watches->orders;
    watches->orders = 0;
    uv_mutex_unlock(&watches->lock);
    for (struct eb_list *link = watches->calls.next; link != &watches->calls; link = link->next) {
        const struct fake_watch *watch = EB_CONTAINER_OF(link, struct fake_watch, link);
        if (orders & FAKE_SERVER_TELL) {
            tell_watch(watch);
        }
        if (orders & FAKE_SERVER_END_WATCHES) {
            eb_grpc_call_finish(watch->call, EB_STATUS_UNAVAILABLE, "watch elsewhere", 0);
        }
    }
    for (struct fake_conn *conn = server->conns; conn; conn = conn->next) {
        if (orders & FAKE_SERVER_DRAIN) {
            eb_grpc_server_drain(conn->session);
        }
        if (orders & FAKE_SERVER_HANG_UP) {
            close_conn(conn);
        } else if (!uv_is_closing(&conn->socket.handle)) {
            flush(conn);
        }
    }
}

void fake_server_order(struct fake_server *server, unsigned orders)
{
    uv_mutex_lock(&server->watches.lock);
    server->watches.orders |= orders;
    uv_mutex_unlock(&server->watches.lock);
    int rc = uv_async_send(&server->order);
    assert(rc == 0);
}

void fake_server_tell(struct fake_server *server, const uint8_t *bytes, size_t size)
{
    struct fake_watches *watches = &server->watches;
    uint8_t *copy = bytes ? malloc(size + 1) : NULL;
    if (bytes) {
        assert(copy);
        memcpy(copy, bytes, size);
    }
    uv_mutex_lock(&watches->lock);
    free(watches->message);
    watches->message = copy;
    watches->size = size;
    uv_mutex_unlock(&watches->lock);
    fake_server_order(server, FAKE_SERVER_TELL);
}

void fake_server_claims(struct fake_server *server, char out[FAKE_SERVER_CLAIMS_BYTES])
{
    uv_mutex_lock(&server->watches.lock);
    memcpy(out, server->watches.claims, FAKE_SERVER_CLAIMS_BYTES);
    uv_mutex_unlock(&server->watches.lock);
}

/* ---- calls ---- */

static void count_call(const struct fake_conn *conn)
{
    atomic_fetch_add(&conn->server->call_count, 1);
}

static void on_message(void *context, struct eb_grpc_call *call, struct eb_grpc_message message)
{
    static const struct eb_codec_limits limits = {.queries_max = 4096, .name_bytes_max = 255};
    struct fake_conn *conn = context;
    struct eb_arena arena = {0};
    struct eb_decode_failure failure;
    if (strcmp(call->path, "/embag.v1.EmbeddingBag/GetServer") == 0) {
        answer_server(conn, call);
        eb_grpc_message_give(&eb_memory_heap, &message);
        return;
    }
    if (strcmp(call->path, WATCH) == 0) {
        begin_watch(conn, call, &message);
        eb_grpc_message_give(&eb_memory_heap, &message);
        return;
    }
    answer_late(conn);
    if (strcmp(call->path, "/embag.v1.EmbeddingBag/ListModels") == 0) {
        count_call(conn);
        answer_models(call);
    } else if (strncmp(call->path, ADMIN, strlen(ADMIN)) == 0) {
        count_call(conn);
        answer_admin(conn, call, &message);
    } else {
        eb_arena_init(&arena, &eb_memory_heap);
        eb_arena_reset(&arena, ARENA_BYTES);
        const struct eb_wire_request *request =
            eb_lookup_request_decode(&arena, message.bytes, message.size, &limits, &failure);
        if (!request || request->request_id != EB_PROBE_ID) {
            count_call(conn);
        }
        if (request) {
            atomic_fetch_add(&conn->server->repeat_count, request->attempt > 0);
            answer_lookup(conn, call, request);
        } else {
            eb_grpc_call_finish(call, failure.error.status, failure.error.text, 0);
        }
        eb_arena_deinit(&arena);
    }
    eb_grpc_message_give(&eb_memory_heap, &message);
}

static void on_call(void *context, struct eb_grpc_call *call)
{
    const struct fake_conn *conn = context;
    const char *header = call->authorization ? call->authorization : "";
    call->user = (void *)(uintptr_t)strtoul(header + strcspn(header, "0123456789"), NULL, 10);
    atomic_fetch_add(&conn->server->timeout_count, call->timeout_us > 0);
}

static void on_refusal(void *context, struct eb_grpc_call *call)
{
    (void)context;
    (void)call;
}

static void on_request_end(void *context, struct eb_grpc_call *call)
{
    struct fake_conn *conn = context;
    if (!is_stream(call)) {
        return;
    }
    if (conn->later != call && conn->silent != call) {
        eb_grpc_call_finish(call, EB_STATUS_OK, NULL, 0);
    }
    atomic_fetch_add(&conn->server->half_count, 1);
}

static void on_close(void *context, struct eb_grpc_call *call)
{
    struct fake_conn *conn = context;
    if (conn->later == call) {
        conn->later = NULL;
    }
    if (conn->silent == call) {
        conn->silent = NULL;
    }
    forget_watch(conn, call);
    atomic_fetch_add(&conn->server->done_count, 1);
}

static const struct eb_grpc_server_handler handler = {.on_call = on_call,
    .on_refusal = on_refusal,
    .on_message = on_message,
    .on_request_end = on_request_end,
    .on_close = on_close};

static const struct eb_grpc_server_limits limits = {
    .request_bytes_max = 16 * 1024 * 1024,
    .streams_max = 256,
    .header_fields_max = 64,
    .header_bytes_max = 16384,
    .outbound_bytes_max = 64 * 1024 * 1024,
    .message_stall_ms_max = 15000,
    .reset_budget = 10000,
};

static void on_connection(uv_stream_t *listener, int status)
{
    struct fake_server *server = listener->data;
    struct fake_conn *conn = calloc(1, sizeof *conn);
    assert(status == 0 && conn);
    conn->server = server;
    static const struct eb_grpc_server_memory memory = {&eb_memory_heap, &eb_memory_heap};
    conn->session = eb_grpc_server_create(&limits, &memory, &handler, conn);
    int rc = server->is_unix ? uv_pipe_init(&server->loop, &conn->socket.pipe, 0)
                             : uv_tcp_init(&server->loop, &conn->socket.tcp);
    assert(rc == 0 && conn->session);
    conn->socket.handle.data = conn;
    conn->next = server->conns;
    server->conns = conn;
    conn->is_mute =
        server->mode == FAKE_SERVER_IS_MUTE ||
        (server->mode == FAKE_SERVER_IS_HALF_MUTE && atomic_load(&server->conn_count) == 0);
    rc = uv_accept(listener, &conn->socket.stream);
    assert(rc == 0);
    rc = uv_read_start(&conn->socket.stream, on_alloc, on_read);
    assert(rc == 0);
    if (server->mode == FAKE_SERVER_SPEAKS_HTTP1) {
        static char text[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
        write_bytes(conn, &(struct iovec){.iov_base = text, .iov_len = sizeof text - 1});
    }
    atomic_fetch_add(&server->conn_count, 1);
}

static void on_stop(uv_async_t *stop)
{
    struct fake_server *server = stop->data;
    uv_close((uv_handle_t *)stop, NULL);
    uv_close((uv_handle_t *)&server->order, NULL);
    uv_close(&server->listener.handle, NULL);
    for (struct fake_conn *conn = server->conns; conn; conn = conn->next) {
        close_conn(conn);
    }
}

static void run_fake_server(void *context)
{
    struct fake_server *server = context;
    sigset_t signals;
    /* A connection that the client has closed fails to write, and raises no SIGPIPE. */
    int rc = sigfillset(&signals);
    assert(rc == 0);
    rc = pthread_sigmask(SIG_BLOCK, &signals, NULL);
    assert(rc == 0);
    uv_run(&server->loop, UV_RUN_DEFAULT);
}

static bool listen_tcp(struct fake_server *server)
{
    struct sockaddr_in address;
    int size = sizeof address;
    if (uv_tcp_init(&server->loop, &server->listener.tcp) != 0 ||
        uv_ip4_addr("127.0.0.1", 0, &address) != 0 ||
        uv_tcp_bind(&server->listener.tcp, (struct sockaddr *)&address, 0) != 0 ||
        uv_listen(&server->listener.stream, 16, on_connection) != 0 ||
        uv_tcp_getsockname(&server->listener.tcp, (struct sockaddr *)&address, &size) != 0) {
        return false;
    }
    snprintf(server->address, sizeof server->address, "127.0.0.1:%d", ntohs(address.sin_port));
    return true;
}

static bool listen_unix(struct fake_server *server, const char *path)
{
    server->is_unix = true;
    snprintf(server->address, sizeof server->address, "unix:%s", path);
    return uv_pipe_init(&server->loop, &server->listener.pipe, 0) == 0 &&
           uv_pipe_bind(&server->listener.pipe, path) == 0 &&
           uv_listen(&server->listener.stream, 16, on_connection) == 0;
}

bool fake_server_start(
    struct fake_server *server, enum fake_server_mode mode, const char *unix_path)
{
    memset(server, 0, sizeof *server);
    server->mode = mode;
    atomic_store(&server->role, "server");
    eb_list_init(&server->watches.calls);
    if (uv_loop_init(&server->loop) != 0 || uv_mutex_init(&server->watches.lock) != 0 ||
        uv_async_init(&server->loop, &server->order, on_order) != 0 ||
        uv_async_init(&server->loop, &server->stop, on_stop) != 0) {
        return false;
    }
    server->order.data = server;
    server->stop.data = server;
    bool listens = unix_path ? listen_unix(server, unix_path) : listen_tcp(server);
    server->listener.handle.data = server;
    return listens && uv_thread_create(&server->thread, run_fake_server, server) == 0;
}

bool fake_server_stop(struct fake_server *server)
{
    bool is_ended = uv_async_send(&server->stop) == 0 && uv_thread_join(&server->thread) == 0 &&
                    uv_loop_close(&server->loop) == 0;
    free(server->watches.message);
    server->watches.message = NULL;
    uv_mutex_destroy(&server->watches.lock);
    return is_ended;
}
