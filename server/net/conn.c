#include "server/net/conn.h"

#include "proto/net/tls_stream.h"
#include "server/base/log.h"
#include "server/net/conn_private.h"
#include "server/net/tls.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_MS_MAX 2000 /* time for the peer to end its side after we ended ours */
/* Most bytes dropped after a peer was given up: they may have been on their way. */
#define LINGER_BYTES_MAX 65536
/* Most bytes dropped per tick after an orderly end: large requests may be on their way. */
#define LINGER_BYTES_PER_TICK (8 << 20)
#define WRITES_PER_SLICE_MAX 16 /* most writes before other connections write */
/* Number of times that libuv may find a socket readable while it must not be read. After that libuv
 * stops polling the socket. This many polls cost as much as stopping and starting to read, some
 * four system calls. With thousands of such sockets libuv would do nothing else. */
#define VAIN_LOOKS_MAX 8
/* The same number for a connection that waits for a step of its TLS handshake, or is in one. Most
 * get their step before the second time; the wait of the others is long. While a socket is not
 * polled, a peer that gives up is noticed, and no step is spent on it. */
#define HANDSHAKE_VAIN_LOOKS_MAX 1
/* The first slice of a new connection is 1 / 2 slice: thousands may be new at once. */
#define FIRST_SLICE_PART 2

static const struct eb_conn_events *find_events(const struct eb_conn *conn)
{
    return &conn->loop->options->events;
}

/* Returns whether a step of the connection's TLS handshake is in progress. Meanwhile conn->tls
 * belongs to the thread that takes the step. */
static bool is_in_step(const struct eb_conn *conn)
{
    return eb_handshake_thread_has(&conn->loop->handshake_thread, conn);
}

static void on_conn_closed(uv_handle_t *handle)
{
    struct eb_conn *conn = handle->data;
    if (is_in_step(conn)) { /* The loop frees the stream when the step is over. */
        eb_handshake_thread_forget(&conn->loop->handshake_thread);
        conn->tls = NULL;
    }
    if (conn->session) {
        eb_grpc_server_destroy(conn->session);
        find_events(conn)->on_close(conn);
        eb_loop_remove(conn->loop, conn);
    }
    /* Not earlier: destroying the session ends its calls, which still read the caller's
     * certificate. */
    eb_tls_stream_destroy(conn->tls);
    eb_receive_quota_close(conn->quota);
    free(conn);
}

static void log_closed(const struct eb_conn *conn, const char *reason)
{
    char peer[EB_ADDRESS_TEXT_BYTES];
    eb_address_format(&conn->address, peer);
    eb_log(EB_LOG_DEBUG, "connection_closed", eb_log_text("peer", peer),
        eb_log_text("reason", reason));
}

/* Logs an end that the peer has caused. The log is rate-limited. */
static void log_refused(const struct eb_conn *conn, const char *reason)
{
    char peer[EB_ADDRESS_TEXT_BYTES];
    if (!eb_loop_may_log(conn->loop)) {
        return;
    }
    eb_address_format(&conn->address, peer);
    eb_log(EB_LOG_INFO, "connection_refused", eb_log_text("peer", peer),
        eb_log_text("reason", reason));
}

void eb_conn_close(struct eb_conn *conn, const char *reason)
{
    if (!conn->is_closing) {
        conn->is_closing = true;
        log_closed(conn, reason);
        uv_close(&conn->peer.handle, on_conn_closed);
    }
}

/* Closes with a reset. Otherwise unsent bytes would occupy the system's memory for as long as the
 * peer does not read. */
static void reset_conn(struct eb_conn *conn, const char *reason)
{
    if (conn->origin.is_unix || conn->is_closing) {
        eb_conn_close(conn, reason);
        return;
    }
    conn->is_closing = true;
    log_closed(conn, reason);
    if (uv_tcp_close_reset(&conn->peer.tcp, on_conn_closed) < 0) {
        uv_close(&conn->peer.handle, on_conn_closed);
    }
}

static int find_socket(const struct eb_conn *conn)
{
    uv_os_fd_t socket;
    int rc = uv_fileno(&conn->peer.handle, &socket);
    assert(rc == 0); /* The socket is open. */
    return socket;
}

/* Stops libuv from polling the socket while the connection waits. Lets it poll on if the socket
 * cannot be watched for a hang-up instead. */
static void stop_polling(struct eb_conn *conn)
{
    if (eb_hangup_watch_add(&conn->loop->hangups, find_socket(conn), conn) == 0) {
        uv_read_stop(&conn->peer.stream);
        conn->is_unpolled = true;
    }
}

static void on_allocate(uv_handle_t *handle, size_t suggested_bytes, uv_buf_t *buffer);
static void on_conn_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer);

static void start_polling(struct eb_conn *conn)
{
    if (conn->is_unpolled) {
        conn->is_unpolled = false;
        eb_hangup_watch_forget(&conn->loop->hangups, find_socket(conn));
        int rc = uv_read_start(&conn->peer.stream, on_allocate, on_conn_read);
        assert(rc == 0); /* The stream has been started before, and is not closing. */
    }
}

static void on_shutdown(uv_shutdown_t *shutdown, int status)
{
    struct eb_conn *conn = shutdown->data;
    if (status < 0) {
        eb_conn_close(conn, uv_strerror(status));
    }
}

/* Ends our side and waits until the peer ends its side. If the connection were closed at once,
 * bytes that are still on their way from the peer would be answered with a reset, and the peer
 * could lose data that it has not read yet. */
static void linger_conn(struct eb_conn *conn)
{
    assert(!is_in_step(conn)); /* Such a connection is neither read nor written. */
    if (conn->is_closing || conn->is_lingering) {
        return;
    }
    conn->is_lingering = true;
    conn->lingering_since_ms = uv_now(&conn->loop->uv);
    eb_run_queue_remove(&conn->loop->waiting, &conn->run);
    eb_handshake_queue_remove(&conn->loop->handshakes, &conn->handshake);
    start_polling(conn);
    eb_socket_output_end(&conn->output);
    conn->shutdown.data = conn;
    int rc = uv_shutdown(&conn->shutdown, &conn->peer.stream, on_shutdown);
    if (rc < 0) {
        eb_conn_close(conn, uv_strerror(rc));
    }
}

/* Returns why the connection cannot continue; "" if the peer has ended it. */
static const char *find_conn_reason(const struct eb_conn *conn)
{
    const char *reason = conn->tls ? eb_tls_stream_reason(conn->tls) : "";
    if (*reason) {
        return reason;
    }
    return conn->is_peer_tls ? "the peer speaks TLS, but this port does not"
                             : eb_grpc_server_reason(conn->session);
}

/* Ends a connection that cannot continue, because of its session or TLS. */
static void end_refused(struct eb_conn *conn)
{
    if (conn->is_closing || conn->is_lingering) {
        return;
    }
    log_refused(conn, find_conn_reason(conn));
    linger_conn(conn);
}

static bool look_at_slice(struct eb_conn *conn, uint64_t now_ns)
{
    if (!conn->slice.is_over && eb_time_slice_look(&conn->slice, now_ns)) {
        eb_conn_mark(conn); /* eb_conn_flush begins the next slice. */
    }
    return conn->slice.is_over;
}

bool eb_conn_end_message(struct eb_conn *conn, uint64_t now_ns)
{
    conn->message_count++;
    conn->slice.is_inside = false;
    return look_at_slice(conn, now_ns);
}

uint64_t eb_conn_looked_ns(const struct eb_conn *conn)
{
    return conn->slice.seen_ns ? conn->slice.seen_ns : uv_hrtime();
}

bool eb_conn_is_slice_over(const struct eb_conn *conn)
{
    return conn->slice.is_over;
}

/* Lets the session process input that it kept back, which comes before newly read input. */
static void resume_session(struct eb_conn *conn)
{
    if (eb_grpc_server_has_resumed(conn->session)) {
        /* If this ends the connection, the next use of its session reports that. */
        (void)eb_grpc_server_receive(
            conn->session, (const uint8_t *)"", 0, uv_now(&conn->loop->uv));
        eb_conn_mark(conn);
    }
}

/* Returns whether the connection must not be read, because it waits for a slice or for a step of
 * its TLS handshake, or is in such a step. */
static bool is_waiting(const struct eb_conn *conn)
{
    return conn->run.is_waiting || conn->handshake.is_waiting || is_in_step(conn);
}

static bool is_shaking(const struct eb_conn *conn)
{
    return conn->tls && (is_in_step(conn) || !eb_tls_stream_is_ready(conn->tls));
}

/* Returns whether the socket has bytes with which the TLS handshake may go on. If the peer has gone
 * or does not speak TLS, reading the socket costs little. */
static bool has_handshake_bytes(const struct eb_conn *conn)
{
    uint8_t first;
    return is_shaking(conn) &&
           recv(find_socket(conn), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) > 0 &&
           (conn->handshake.has_begun || first == EB_TLS_HANDSHAKE_RECORD);
}

/* Queues the connection for the next step of its TLS handshake. Refuses a connection whose step
 * would come too late. */
static void wait_for_step(struct eb_conn *conn)
{
    struct eb_loop *loop = conn->loop;
    uint64_t now_ns = uv_hrtime();
    uint64_t age_ms = uv_now(&loop->uv) - conn->opened_ms;
    uint64_t timeout_ms = loop->limits.conn.header_timeout_ms;
    uint64_t left_ms = age_ms < timeout_ms ? timeout_ms - age_ms : 0;
    conn->waiting_since_ns = now_ns;
    if (conn->shaking_since_ns == 0) {
        conn->shaking_since_ns = now_ns;
    }
    if (!eb_handshake_queue_push(&loop->handshakes, &conn->handshake,
            loop->limits.handshakes_per_s_max, now_ns + left_ms * 1000000, now_ns)) {
        loop->counters.refusals[EB_REFUSAL_HANDSHAKES]++;
        log_refused(conn, "more TLS handshakes wait than handshakes_per_s_max allows to begin "
                          "within header_timeout_ms");
        eb_conn_close(conn, "too many TLS handshakes wait");
    }
}

/* Returns whether the peer has begun its session but has not asked for anything yet. */
static bool is_new(const struct eb_conn *conn)
{
    return conn->message_count == 0 && !conn->is_inside && eb_grpc_server_is_open(conn->session);
}

/* Queues the connection for its next time slice. Each used slice counts twice. So a new connection,
 * which has used none, comes after known connections that have used none and before those that have
 * used one. */
static void wait_for_slice(struct eb_conn *conn, uint64_t now_ns)
{
    conn->waiting_since_ns = now_ns;
    eb_run_queue_push(&conn->loop->waiting, &conn->run, 2 * conn->usage.slices + is_new(conn));
}

/* Notes that the connection has nothing to read. */
static void note_read_out(struct eb_conn *conn, uint64_t now_ns)
{
    eb_run_usage_idle(&conn->usage, now_ns);
    conn->vain_looks = 0;
}

/* Returns whether input that libuv has found may be read now. If not, queues the connection for its
 * next slice. */
static bool may_read(struct eb_conn *conn, uint64_t now_ns)
{
    if (conn->slice.is_over || is_waiting(conn)) {
        return false;
    }
    bool is_light = eb_run_usage_resume(&conn->usage, now_ns) == 0 && !is_new(conn);
    if (!eb_loop_may_read(conn->loop, is_light, now_ns)) {
        wait_for_slice(conn, now_ns);
        return false;
    }
    return true;
}

/* Lets the session process input that it kept back. Returns the buffer for the next read, which is
 * empty if the slice is over. */
static uv_buf_t begin_read(struct eb_conn *conn, uint64_t now_ns)
{
    eb_time_slice_enter(&conn->slice, &conn->loop->reader, now_ns);
    if (!look_at_slice(conn, now_ns)) {
        eb_loop_wake(conn->loop, now_ns);
        resume_session(conn);
        assert(!conn->is_closing); /* libuv must not find the handle closed after on_allocate */
    }
    if (conn->slice.is_over) {
        return uv_buf_init(NULL, 0);
    }
    uv_buf_t buffer = uv_buf_init(conn->loop->read_buffer, EB_TIME_SLICE_READ_MAX);
    buffer.len = conn->slice.read_bytes;
    return buffer;
}

/* Returns an empty buffer if the connection must wait: libuv then reads nothing and polls the
 * socket again in the next cycle. Unlike uv_read_stop this costs no system call. */
static void on_allocate(uv_handle_t *handle, size_t suggested_bytes, uv_buf_t *buffer)
{
    struct eb_conn *conn = handle->data;
    (void)suggested_bytes;
    *buffer = uv_buf_init(NULL, 0);
    eb_time_slice_leave(&conn->slice);
    if (conn->is_lingering) {
        *buffer = uv_buf_init(conn->loop->read_buffer, EB_TIME_SLICE_READ_MAX);
        buffer->len = EB_TIME_SLICE_READ_MIN;
        return;
    }
    if (conn->handshake.is_waiting || has_handshake_bytes(conn)) {
        return; /* on_unread queues it, unless it waits already */
    }
    uint64_t now_ns = uv_hrtime();
    if (may_read(conn, now_ns)) {
        *buffer = begin_read(conn, now_ns);
    }
}

/* Handles that libuv has found the socket readable, but it may not be read now. */
static void on_unread(struct eb_conn *conn)
{
    if (is_shaking(conn) && !is_waiting(conn)) {
        wait_for_step(conn);
    }
    unsigned looks_max = is_shaking(conn) ? HANDSHAKE_VAIN_LOOKS_MAX : VAIN_LOOKS_MAX;
    if (is_waiting(conn) && ++conn->vain_looks > looks_max) {
        stop_polling(conn);
    }
}

/* Closes a connection whose peer has gone. Most clients that do not trust the server's certificate
 * leave without giving a reason. */
static void close_gone(struct eb_conn *conn, int rc)
{
    if (conn->tls && !conn->is_lingering &&
        (is_in_step(conn) || eb_tls_stream_is_shaking(conn->tls))) {
        log_refused(conn, "the peer left during the TLS handshake; it may not trust tls_cert");
    }
    eb_conn_close(conn, rc == UV_EOF ? "closed by peer" : uv_strerror(rc));
}

static bool receive_plain(struct eb_conn *conn, const uint8_t *bytes, size_t count, uint64_t now_ms)
{
    bool alive = eb_grpc_server_receive(conn->session, bytes, count, now_ms);
    conn->is_peer_tls =
        !alive && !eb_grpc_server_is_open(conn->session) && bytes[0] == EB_TLS_HANDSHAKE_RECORD;
    return alive;
}

/* Notes that the handshake is done. From now on the output counts against the loop's memory. */
static void end_handshake(struct eb_conn *conn)
{
    eb_tls_stream_set_memory(conn->tls, &conn->loop->receive_memory);
    eb_histogram_add(&conn->loop->counters.handshakes, uv_hrtime() - conn->shaking_since_ns);
}

/* Processes the bytes that the stream has been fed with. */
static bool receive_conn_sealed(struct eb_conn *conn, uint64_t now_ms)
{
    uint8_t record[EB_TLS_RECORD_BYTES];
    int got;
    bool alive = true;
    bool was_shaking = is_shaking(conn);
    if (was_shaking && conn->shaking_since_ns == 0) {
        conn->shaking_since_ns = uv_hrtime();
    }
    while (alive && (got = eb_tls_stream_read(conn->tls, record, sizeof record)) != 0) {
        alive = got > 0 && eb_grpc_server_receive(conn->session, record, (size_t)got, now_ms);
    }
    if (was_shaking && !is_shaking(conn)) {
        end_handshake(conn);
    }
    return alive;
}

static bool receive_bytes(struct eb_conn *conn, const uint8_t *bytes, size_t count, uint64_t now_ms)
{
    if (!conn->tls) {
        return receive_plain(conn, bytes, count, now_ms);
    }
    eb_tls_stream_feed(conn->tls, bytes, count, now_ms);
    return receive_conn_sealed(conn, now_ms);
}

/* Follows up on input that was processed: times an incomplete header block, and ends a connection
 * that is not `alive`. */
static void end_receive(struct eb_conn *conn, bool alive, uint64_t now_ms)
{
    if (!eb_grpc_server_is_in_headers(conn->session)) {
        conn->headers_since_ms = 0;
    } else if (conn->headers_since_ms == 0) {
        conn->headers_since_ms = now_ms;
    }
    if (alive) {
        return;
    }
    /* Writes as many of the session's last bytes as the socket takes at once. */
    eb_conn_flush(conn);
    if (*find_conn_reason(conn)) {
        end_refused(conn);
    } else {
        linger_conn(conn); /* The peer has ended its side by TLS, and closes next. */
    }
}

/* Drops input after our side has ended. Resets the connection if the peer was given up and keeps
 * sending. After an orderly end a reset could cost the peer an answer that it has not read yet, so
 * input is only read more slowly then. */
static void drop_read(struct eb_conn *conn, size_t count)
{
    conn->lingering_bytes += count;
    if (!conn->is_orderly && conn->lingering_bytes > LINGER_BYTES_MAX) {
        reset_conn(conn, "peer keeps sending after the connection has ended");
    } else if (conn->lingering_bytes > LINGER_BYTES_PER_TICK) {
        uv_read_stop(&conn->peer.stream);
    }
}

static void on_conn_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct eb_conn *conn = stream->data;
    if (count == UV_ENOBUFS) {
        on_unread(conn);
        return;
    }
    if (count < 0) {
        close_gone(conn, (int)count);
        return;
    }
    conn->loop->counters.received_bytes += (uint64_t)count;
    if (conn->is_lingering) {
        drop_read(conn, (size_t)count);
        return;
    }
    uint64_t now_ms = uv_now(&conn->loop->uv);
    conn->age.heard_ms = now_ms;
    uint64_t message_count = conn->message_count;
    uint64_t fed_bytes = eb_grpc_server_fed_bytes(conn->session);
    const uint8_t *bytes = (const uint8_t *)buffer->base;
    bool alive = receive_bytes(conn, bytes, (size_t)count, now_ms);
    end_receive(conn, alive, now_ms);
    if (!alive) {
        return;
    }
    conn->is_read_out = (size_t)count < buffer->len;
    conn->is_inside =
        message_count == conn->message_count &&
        eb_grpc_server_fed_bytes(conn->session) - fed_bytes >= EB_TIME_SLICE_READ_MIN / 2;
    if (!conn->is_read_out) {
        conn->slice.is_inside = conn->is_inside && eb_loop_has_long_queue(conn->loop);
        (void)look_at_slice(conn, uv_hrtime());
    } else if (!conn->slice.is_over) {
        note_read_out(conn, conn->slice.seen_ns);
    }
    eb_time_slice_adapt(&conn->slice, !conn->is_read_out);
    eb_time_slice_leave(&conn->slice);
    eb_conn_mark(conn);
}

static void on_output_written(struct eb_socket_output *output, int status)
{
    struct eb_conn *conn = EB_CONTAINER_OF(output, struct eb_conn, output);
    if (status < 0) {
        eb_conn_close(conn, uv_strerror(status));
    } else {
        eb_conn_mark(conn);
    }
}

/* Returns true if the socket took everything that was offered and there may be more to write. */
static bool write_once(struct eb_conn *conn)
{
    int rc = eb_socket_output_write(&conn->output);
    if (rc < 0) {
        eb_conn_close(
            conn, rc == UV_EPROTO && conn->tls ? eb_tls_stream_reason(conn->tls) : uv_strerror(rc));
    }
    return rc > 0;
}

/* Does the same as look_at_slice, after a write, and sets the loop's seen_ns. */
static bool look_after_write(struct eb_conn *conn)
{
    uint64_t now_ns = uv_hrtime();
    conn->loop->seen_ns = now_ns;
    return conn->slice.is_over ? eb_time_slice_look(&conn->slice, now_ns)
                               : look_at_slice(conn, now_ns);
}

/* Ends a connection whose session has nothing more to send or to receive. */
static void end_session(struct eb_conn *conn)
{
    if (eb_grpc_server_is_open(conn->session)) {
        conn->is_orderly = !conn->is_lingering;
        linger_conn(conn);
    } else {
        eb_conn_close(conn, "ended before the HTTP/2 preface");
    }
}

static void renew_slice(struct eb_conn *conn)
{
    eb_time_slice_renew(&conn->slice);
    find_events(conn)->on_written(conn);
}

/* Reads the socket once, as libuv would. Returns the number of bytes read, 0 if there are none now,
 * or a negative libuv code. */
static ssize_t receive_once(const struct eb_conn *conn, void *bytes, size_t bytes_max)
{
    ssize_t count;
    do {
        count = recv(find_socket(conn), bytes, bytes_max, 0);
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
        return errno == EAGAIN ? 0 : uv_translate_sys_error(errno);
    }
    return count == 0 ? UV_EOF : count;
}

/* Reads the socket once. Returns whether there may be more for this slice. */
static bool read_socket(struct eb_conn *conn)
{
    uv_buf_t buffer = begin_read(conn, uv_hrtime());
    if (buffer.len == 0) {
        return false;
    }
    ssize_t count = receive_once(conn, buffer.base, buffer.len);
    if (count == 0) {
        conn->is_read_out = true;
        return false;
    }
    on_conn_read(&conn->peer.stream, count, &buffer);
    return !conn->is_read_out && !eb_conn_is_ending(conn) && !conn->slice.is_over;
}

/* Begins the next slice and reads the socket for its length. */
static void read_for_slice(struct eb_conn *conn)
{
    renew_slice(conn);
    while (read_socket(conn)) {
    }
    if (!eb_conn_is_ending(conn) && !conn->slice.is_over) {
        note_read_out(conn, eb_conn_looked_ns(conn));
        start_polling(conn);
    }
    eb_time_slice_leave(&conn->slice);
}

void eb_conn_run(struct eb_conn *conn, uint64_t now_ns)
{
    if (!eb_conn_is_ending(conn)) {
        conn->waited_ns += now_ns - conn->waiting_since_ns;
        read_for_slice(conn);
    }
}

/* Excludes the time that it waited for its step from all limits: it is not the peer's fault. */
static void postpone_handshake(struct eb_conn *conn, uint64_t now_ns, uint64_t now_ms)
{
    uint64_t waited_ms = (now_ns - conn->waiting_since_ns) / 1000000;
    conn->opened_ms += waited_ms;
    conn->opened_ms = conn->opened_ms < now_ms ? conn->opened_ms : now_ms;
    eb_conn_age_postpone(&conn->age, waited_ms, now_ms);
}

void eb_conn_begin_step(struct eb_conn *conn, uint64_t now_ns)
{
    struct eb_loop *loop = conn->loop;
    uint64_t now_ms = uv_now(&loop->uv);
    if (eb_conn_is_ending(conn)) {
        return;
    }
    postpone_handshake(conn, now_ns, now_ms);
    ssize_t count = receive_once(conn, loop->handshake_thread.step.bytes, EB_HANDSHAKE_STEP_BYTES);
    if (count < 0) {
        close_gone(conn, (int)count);
        return;
    }
    conn->vain_looks = 0;
    if (count == 0) {
        eb_conn_mark(conn); /* It is polled again. */
        return;
    }
    loop->counters.received_bytes += (uint64_t)count;
    conn->age.heard_ms = now_ms;
    eb_tls_stream_feed(conn->tls, loop->handshake_thread.step.bytes, (size_t)count, now_ms);
    eb_handshake_thread_begin(&loop->handshake_thread, conn, conn->tls);
}

void eb_conn_end_step(struct eb_conn *conn)
{
    uint64_t now_ms = uv_now(&conn->loop->uv);
    uint64_t now_ns = uv_hrtime();
    renew_slice(conn);
    eb_time_slice_enter(&conn->slice, &conn->loop->reader, now_ns);
    (void)look_at_slice(conn, now_ns); /* The slice begins. */
    end_receive(conn, receive_conn_sealed(conn, now_ms), now_ms);
    eb_time_slice_leave(&conn->slice);
    eb_conn_mark(conn); /* Writes what the step has left, and polls the socket again. */
}

void eb_conn_time_out(struct eb_conn *conn)
{
    if (eb_conn_is_ending(conn)) {
        return; /* A tick may have closed it while it was still in the queue. */
    }
    conn->loop->counters.handshake_timeouts++;
    if (conn->shaking_since_ns != 0 && !conn->handshake.has_begun) {
        log_refused(conn, "its TLS handshake could not begin within header_timeout_ms");
    }
    eb_conn_close(conn, "no TLS handshake in time");
}

void eb_conn_hang_up(struct eb_conn *conn)
{
    close_gone(conn, UV_EOF);
}

/* Begins the next slice, or queues the connection for it if it must wait. */
static void go_on_after_write(struct eb_conn *conn)
{
    if (is_waiting(conn)) {
        return;
    }
    if (conn->slice.is_over && !is_shaking(conn) &&
        (!conn->is_read_out || find_events(conn)->has_waiting(conn))) {
        eb_run_usage_add(&conn->usage);
        conn->slice.slice_ns = conn->loop->limits.conn.slice_ns;
        wait_for_slice(conn, eb_conn_looked_ns(conn));
        return;
    }
    if (conn->slice.is_over) {
        note_read_out(conn, eb_conn_looked_ns(conn));
    }
    renew_slice(conn);
    start_polling(conn);
}

void eb_conn_flush(struct eb_conn *conn)
{
    bool again = !conn->is_closing && !conn->is_lingering && conn->output.writing_bytes == 0;
    if (is_in_step(conn)) {
        return; /* eb_conn_end_step marks it again. */
    }
    eb_time_slice_leave(&conn->slice);
    if (again) {
        (void)eb_time_slice_look(&conn->slice, uv_hrtime());
    }
    for (int i = 0; again && i < WRITES_PER_SLICE_MAX; i++) {
        if (!eb_grpc_server_send(conn->session)) {
            (void)write_once(conn);
            end_refused(conn);
            return;
        }
        again = write_once(conn);
        if (again && look_after_write(conn)) {
            break;
        }
    }
    if (conn->is_closing || conn->is_lingering) {
        return;
    }
    find_events(conn)->on_sent(conn);
    go_on_after_write(conn);
    eb_time_slice_leave(&conn->slice);
    assert(!conn->is_unpolled || is_waiting(conn)); /* otherwise it would never be polled again */
    if (again) {
        eb_conn_mark(conn);
    } else if (conn->output.writing_bytes == 0 && eb_grpc_server_is_done(conn->session)) {
        end_session(conn);
    }
}

void eb_conn_mark(struct eb_conn *conn)
{
    if (!conn->is_closing && eb_list_is_empty(&conn->marked)) {
        eb_list_push(&conn->loop->marked, &conn->marked);
    }
}

/* Takes the steps that are due because of a connection's age or its peer's silence. */
static void apply_age(struct eb_conn *conn, uint64_t now_ms)
{
    switch (eb_conn_age_look(&conn->age, &conn->loop->limits.conn.age, now_ms,
        eb_grpc_server_call_count(conn->session), eb_grpc_server_begun_count(conn->session))) {
    case EB_CONN_AGE_NOTHING: return;
    case EB_CONN_AGE_PING: eb_grpc_server_ping(conn->session); break;
    case EB_CONN_AGE_RETIRE: eb_grpc_server_drain(conn->session); break;
    case EB_CONN_AGE_FINISH: find_events(conn)->on_drain(conn); break;
    case EB_CONN_AGE_CUT: reset_conn(conn, "open calls did not end in time"); return;
    case EB_CONN_AGE_DEAD: reset_conn(conn, "peer does not answer pings"); return;
    }
    eb_conn_mark(conn);
}

/* Excludes the time that the connection waited for slices from all limits: that its input was not
 * read meanwhile is not the peer's fault. */
static void postpone_limits(struct eb_conn *conn, uint64_t now_ms)
{
    if (conn->run.is_waiting) {
        uint64_t now_ns = uv_hrtime();
        conn->waited_ns += now_ns - conn->waiting_since_ns;
        conn->waiting_since_ns = now_ns;
    }
    conn->unread_ms = conn->waited_ns / 1000000;
    conn->waited_ns %= 1000000;
    conn->opened_ms += conn->unread_ms;
    if (conn->headers_since_ms != 0) {
        conn->headers_since_ms += conn->unread_ms;
        conn->headers_since_ms = conn->headers_since_ms < now_ms ? conn->headers_since_ms : now_ms;
    }
    eb_conn_age_postpone(&conn->age, conn->unread_ms, now_ms);
}

static void check_lingering(struct eb_conn *conn, uint64_t now_ms)
{
    if (now_ms - conn->lingering_since_ms >= LINGER_MS_MAX) {
        eb_conn_close(conn, "peer does not close its side");
    } else if (conn->lingering_bytes > LINGER_BYTES_PER_TICK) {
        conn->lingering_bytes = 0;
        int rc = uv_read_start(&conn->peer.stream, on_allocate, on_conn_read);
        assert(rc == 0); /* Reading has been stopped, and the stream is not closing. */
    }
}

void eb_conn_tick(struct eb_conn *conn, uint64_t now_ms)
{
    if (conn->is_closing) {
        return;
    }
    if (conn->is_lingering) {
        check_lingering(conn, now_ms);
        return;
    }
    const struct eb_conn_limits *limits = &conn->loop->limits.conn;
    postpone_limits(conn, now_ms);
    bool silent = !eb_grpc_server_is_open(conn->session) &&
                  now_ms - conn->opened_ms >= limits->header_timeout_ms;
    bool half = eb_grpc_server_is_in_headers(conn->session) && conn->headers_since_ms != 0 &&
                now_ms - conn->headers_since_ms >= limits->header_timeout_ms;
    if (is_shaking(conn) && silent) {
        eb_conn_time_out(conn);
        return;
    }
    if (silent || half) {
        eb_conn_close(conn, silent ? "no HTTP/2 preface in time" : "headers not complete in time");
        return;
    }
    if (is_in_step(conn)) {
        return;
    }
    if (eb_socket_output_is_stalled(&conn->output, now_ms, limits->write_timeout_ms)) {
        reset_conn(conn, "peer does not read");
        return;
    }
    if (!conn->handshake.is_waiting) { /* postpone_handshake excludes the time of the wait. */
        apply_age(conn, now_ms);
    }
    if (conn->is_closing || eb_grpc_server_call_count(conn->session) == 0) {
        return; /* An idle connection costs no more than this: there may be thousands. */
    }
    eb_grpc_server_tick(conn->session, now_ms, conn->unread_ms);
    find_events(conn)->on_tick(conn);
    eb_conn_mark(conn);
}

void eb_conn_drain(struct eb_conn *conn)
{
    if (!conn->is_closing) {
        find_events(conn)->on_notice(conn);
        (void)eb_grpc_server_send(conn->session); /* If it fails, so will the next flush. */
        eb_grpc_server_drain(conn->session);
        find_events(conn)->on_drain(conn);
        eb_conn_mark(conn);
    }
}

static void read_peer_address(struct eb_address *address, int socket)
{
    *address = (struct eb_address){.size = sizeof address->socket_address};
    if (getpeername(socket, (struct sockaddr *)&address->socket_address, &address->size) != 0) {
        /* The peer has gone already. The first read will report that. */
        *address = (struct eb_address){.size = sizeof(sa_family_t)};
        address->socket_address.ss_family = AF_UNIX;
    }
}

static int open_stream(struct eb_conn *conn, int socket)
{
    uv_loop_t *uv = &conn->loop->uv;
    int rc = conn->origin.is_unix ? uv_pipe_init(uv, &conn->peer.pipe, 0)
                                  : uv_tcp_init(uv, &conn->peer.tcp);
    assert(rc == 0); /* neither can fail with these arguments */
    conn->peer.handle.data = conn;
    rc = conn->origin.is_unix ? uv_pipe_open(&conn->peer.pipe, socket)
                              : uv_tcp_open(&conn->peer.tcp, socket);
    if (rc < 0) {
        close(socket);
        return rc;
    }
    if (!conn->origin.is_unix) {
        rc = uv_tcp_nodelay(&conn->peer.tcp, 1);
    }
    return rc < 0 ? rc : uv_read_start(&conn->peer.stream, on_allocate, on_conn_read);
}

/* Sets up TLS, except on a unix socket: its bytes do not leave the machine. Returns 0 or a libuv
 * code. */
static int open_conn_tls(struct eb_conn *conn)
{
    struct eb_tls *tls = conn->origin.is_unix ? NULL : conn->loop->tls;
    if (!tls) {
        return 0;
    }
    /* The heap, not the loop's memory: another thread allocates during the handshake. The output of
     * a handshake is one flight, which waits only while the socket does not take it. */
    conn->tls = eb_tls_accept(tls, &eb_memory_heap);
    return conn->tls ? 0 : UV_ENOMEM;
}

/* Returns NULL if out of memory. */
static struct eb_grpc_server *create_conn_session(struct eb_conn *conn)
{
    const struct eb_loop_options *options = conn->loop->options;
    struct eb_grpc_server_memory memory = {
        .messages = eb_conn_receive_memory(conn), .output = &conn->loop->receive_memory};
    return eb_grpc_server_create(
        &conn->loop->limits.conn.session, &memory, &options->events.calls, conn);
}

struct eb_conn *eb_conn_open(struct eb_loop *loop, int socket, struct eb_conn_origin origin)
{
    struct eb_conn *conn = calloc(1, sizeof *conn);
    if (!conn) {
        close(socket);
        return NULL;
    }
    const struct eb_loop_options *options = loop->options;
    conn->loop = loop;
    conn->origin = origin;
    eb_list_init(&conn->open);
    eb_list_init(&conn->marked);
    eb_run_entry_init(&conn->run);
    eb_handshake_entry_init(&conn->handshake);
    eb_time_slice_init(&conn->slice, loop->limits.conn.slice_ns / FIRST_SLICE_PART);
    conn->opened_ms = uv_now(&loop->uv);
    eb_conn_age_init(
        &conn->age, &loop->limits.conn.age, conn->opened_ms, uv_hrtime() + (uint64_t)socket);
    read_peer_address(&conn->address, socket);
    int rc = open_stream(conn, socket);
    if (rc == 0) {
        rc = open_conn_tls(conn);
    }
    conn->quota = eb_receive_quota_create(&loop->receive_pool);
    if (rc == 0 && conn->quota) {
        conn->session = create_conn_session(conn);
    }
    if (!conn->session) {
        conn->is_closing = true;
        uv_close(&conn->peer.handle, on_conn_closed);
        return NULL;
    }
    conn->output = (struct eb_socket_output){.stream = &conn->peer.stream,
        .queue = eb_grpc_server_queue(conn->session),
        .tls = conn->tls,
        .sent_bytes = &loop->counters.sent_bytes,
        .moved_ms = conn->opened_ms,
        .on_written = on_output_written};
    eb_loop_add(loop, conn);
    options->events.on_open(conn);
    return conn;
}

bool eb_conn_is_ending(const struct eb_conn *conn)
{
    return conn->is_closing || conn->is_lingering;
}

size_t eb_conn_waiting_bytes(const struct eb_conn *conn)
{
    return eb_grpc_server_waiting_bytes(conn->session);
}

const struct eb_address *eb_conn_peer(const struct eb_conn *conn)
{
    return &conn->address;
}

struct eb_loop *eb_conn_loop(const struct eb_conn *conn)
{
    return conn->loop;
}

void eb_conn_set_known(struct eb_conn *conn)
{
    conn->age.is_known = true;
}

bool eb_conn_is_local(const struct eb_conn *conn)
{
    return conn->origin.is_unix;
}

bool eb_conn_has_client_name(const struct eb_conn *conn, const char *name)
{
    return conn->tls && eb_tls_stream_has_name(conn->tls, name);
}

const struct eb_memory *eb_conn_receive_memory(const struct eb_conn *conn)
{
    return eb_receive_quota_memory(conn->quota);
}

bool eb_conn_is_admin(const struct eb_conn *conn)
{
    return conn->origin.is_admin;
}

void *eb_conn_user(const struct eb_conn *conn)
{
    return conn->user;
}

void eb_conn_set_user(struct eb_conn *conn, void *user)
{
    conn->user = user;
}
