#include "server/rpc/backpressure.h"

/* Returns how many bytes of answers the peer has not taken yet. */
static uint64_t find_untaken_bytes(const struct eb_rpc_conn *conn)
{
    /* Small answers are copied to the write buffer, and are counted only there from then on. */
    uint64_t waiting_bytes = eb_conn_waiting_bytes(conn->conn);
    return conn->answer_bytes > waiting_bytes ? conn->answer_bytes : waiting_bytes;
}

uint64_t eb_backpressure_room_bytes(const struct eb_rpc_conn *conn)
{
    const struct eb_buffer_pool *pool = eb_loop_answer_pool(eb_rpc_conn_loop(conn));
    uint64_t held_bytes =
        conn->answer_bytes + conn->interactive.held_bytes + conn->batch.held_bytes;
    uint64_t free_bytes = pool->cap_bytes - pool->taken_bytes;
    if (held_bytes == 0 && pool->taken_bytes <= pool->cap_bytes / EB_BACKPRESSURE_LITTLE_PART) {
        return free_bytes;
    }
    uint64_t last_bytes = pool->cap_bytes / EB_BACKPRESSURE_LAST_PART;
    uint64_t shared_bytes = free_bytes > held_bytes ? (free_bytes - held_bytes) / 2 : 0;
    uint64_t ample_bytes = free_bytes > last_bytes ? free_bytes - last_bytes : 0;
    return shared_bytes > ample_bytes ? shared_bytes : ample_bytes;
}

/* Returns the number of held bytes at which a connection is over its share. It is never 0: a
 * connection that holds nothing would have nothing to wait for. */
static uint64_t find_share_bytes(const struct eb_rpc_conn *conn)
{
    uint64_t bytes_max = eb_rpc_conn_limits(conn)->outbound_bytes_max;
    uint64_t room_bytes = eb_backpressure_room_bytes(conn);
    return room_bytes < bytes_max ? room_bytes + 1 : bytes_max;
}

static bool is_over_share(const struct eb_rpc_conn *conn)
{
    uint64_t bytes_max = find_share_bytes(conn);
    uint64_t batch_max = bytes_max / EB_BACKPRESSURE_BATCH_PART;
    uint64_t bytes = find_untaken_bytes(conn);
    bytes += conn->interactive.held_bytes;
    bytes += conn->batch.held_bytes < batch_max ? conn->batch.held_bytes : batch_max;
    return bytes >= bytes_max;
}

static bool is_over_limit(const struct eb_rpc_conn *conn)
{
    return conn->interactive.count + conn->batch.count >= eb_rpc_conn_limits(conn)->in_flight_max;
}

enum eb_backpressure eb_backpressure_of_conn(const struct eb_rpc_conn *conn)
{
    if (eb_conn_is_slice_over(conn->conn)) {
        return EB_BACKPRESSURE_SLICE;
    }
    if (is_over_limit(conn)) {
        return EB_BACKPRESSURE_LIMIT;
    }
    return is_over_share(conn) ? EB_BACKPRESSURE_SHARE : EB_BACKPRESSURE_NONE;
}

enum eb_backpressure eb_backpressure_of_start(const struct eb_rpc_call *call)
{
    if (call->method->codec && is_over_limit(call->conn)) {
        return EB_BACKPRESSURE_LIMIT;
    }
    if (eb_conn_is_slice_over(call->conn->conn)) {
        return EB_BACKPRESSURE_SLICE;
    }
    return is_over_share(call->conn) ? EB_BACKPRESSURE_SHARE : EB_BACKPRESSURE_NONE;
}

bool eb_backpressure_is_queue_full(const struct eb_rpc_call *call)
{
    return call->method->answer && eb_rpc_call_is_stream(call) &&
           find_untaken_bytes(call->conn) >= EB_UNARY_ANSWER_BYTES_MAX;
}

enum eb_backpressure eb_backpressure_of_stream(const struct eb_rpc_call *call)
{
    enum eb_backpressure why = eb_backpressure_of_conn(call->conn);
    if (why != EB_BACKPRESSURE_NONE) {
        return why;
    }
    return eb_backpressure_is_queue_full(call) ? EB_BACKPRESSURE_QUEUE : EB_BACKPRESSURE_NONE;
}

bool eb_backpressure_is_batch_over_share(const struct eb_rpc_conn *conn)
{
    const struct eb_limits *limits = eb_rpc_conn_limits(conn);
    return conn->batch.count * EB_BACKPRESSURE_BATCH_PART >= limits->in_flight_max ||
           conn->batch.held_bytes * EB_BACKPRESSURE_BATCH_PART >= find_share_bytes(conn);
}

void eb_backpressure_pause_call(struct eb_rpc_call *call)
{
    if (eb_rpc_call_is_stream(call) && !call->is_paused && !call->is_finished) {
        call->is_paused = true;
        call->conn->paused_count++;
        eb_grpc_call_pause(call->call);
    }
}

void eb_backpressure_pause_conn(struct eb_rpc_conn *conn)
{
    for (struct eb_list *link = conn->calls.next; link != &conn->calls; link = link->next) {
        eb_backpressure_pause_call(EB_CONTAINER_OF(link, struct eb_rpc_call, link));
    }
}

void eb_backpressure_pause_queue_full(struct eb_rpc_conn *conn)
{
    if (find_untaken_bytes(conn) < EB_UNARY_ANSWER_BYTES_MAX) {
        return;
    }
    for (struct eb_list *link = conn->calls.next; link != &conn->calls; link = link->next) {
        struct eb_rpc_call *call = EB_CONTAINER_OF(link, struct eb_rpc_call, link);
        if (call->method->answer) {
            eb_backpressure_pause_call(call);
        }
    }
}

bool eb_backpressure_may_command(const struct eb_service_loop *loop, struct eb_error *error)
{
    if (loop->command_count < EB_BACKPRESSURE_COMMANDS_MAX) {
        return true;
    }
    eb_error_set(error, EB_STATUS_RESOURCE_EXHAUSTED,
        "%d commands are running already; wait for one of them to end",
        EB_BACKPRESSURE_COMMANDS_MAX);
    return false;
}
